/**
 * A machine: run code, inspect, go back, branch.
 *
 * @module
 */

import { asyncDispose } from "./dispose.js";
import { type EventOptions, listen } from "./events.js";
import { Files, resumed, type Span } from "./files.js";
import { Instruction, type WaitOptions } from "./instruction.js";
import { save } from "./local.js";
import { Past } from "./past.js";
import type { Result } from "./result.js";
import { at, type Call, get, LONG_SILENCE_MS, post, randomName, segment, type Transport } from "./transport.js";
import type {
  Accepted,
  Adopted,
  AdoptRequest,
  ArtifactList,
  BranchEnd,
  Branches,
  BranchRequest,
  Completions,
  DiskUse,
  Checkpoints,
  Durability,
  Event,
  Explored,
  ExploreRequest,
  History,
  Instruction as InstructionInfo,
  InstructionList,
  Interrupted,
  Kept,
  Lineage,
  Machine as Info,
  Point,
  Promoted,
  ToolCall,
  ToolCallList,
  Update,
  Var,
  VarList,
  Vary,
} from "./types.js";

export interface ExecOptions {
  /** Time limit of the code; null for none, absent for the service's default. */
  timeoutSeconds?: number | null | undefined;
  /** First interrupt the running instruction and cancel waiting ones. */
  interrupt?: boolean | undefined;
  durability?: Durability | undefined;
  /** Whether it has a state of its own; the machine's setting, if absent. */
  checkpoints?: Checkpoints | undefined;
  /** The same key returns the same instruction instead of a second one. */
  idempotencyKey?: string | undefined;
}

/** Options of `exec` and of waiting. Aborting `signal` interrupts the code; the state is kept. */
export interface RunOptions extends ExecOptions, WaitOptions {}

/** A machine by name. With `await using` it is removed at the end of the block. */
export class Machine {
  readonly #transport: Transport;
  #name: string;
  /** The last description from the service, if any. */
  info: Info | undefined;

  constructor(transport: Transport, name: string, info?: Info) {
    this.#transport = transport;
    this.#name = name;
    this.info = info;
  }

  get name(): string {
    return this.#name;
  }

  // running code

  /** Submits code, and does not wait. */
  async exec(code: string, options: ExecOptions = {}): Promise<Instruction> {
    const { timeoutSeconds, interrupt = false, durability, checkpoints, idempotencyKey } = options;
    const instruction = { code, timeout_seconds: timeoutSeconds };
    const body = { instruction, interrupt, durability, checkpoints };
    const call = post(this.#path("/exec"), body, true);
    call.headers = { "idempotency-key": idempotencyKey ?? randomName() + randomName() };
    const accepted = await this.#transport.json<Accepted>(call);
    return new Instruction(
      this.#transport,
      this.name,
      accepted.instruction_seq,
      accepted.interrupted,
    );
  }

  /**
   * Runs code to its end. An error of the code is part of the result; `(await run(...)).check()`
   * throws it.
   */
  async run(code: string, options: RunOptions = {}): Promise<Result> {
    options.signal?.throwIfAborted();
    const instruction = await this.exec(code, options);
    try {
      return await instruction.wait(options);
    } catch (error) {
      if (options.signal?.aborted) await instruction.stop();
      throw error;
    }
  }

  /** An earlier instruction. */
  instruction(seq: number): Instruction {
    return new Instruction(this.#transport, this.name, seq);
  }

  /** All instructions from number `start` on, oldest first. */
  async *instructions(
    start = 0,
    { pageSize = 1000 }: { pageSize?: number } = {},
  ): AsyncGenerator<InstructionInfo, void, void> {
    for (let from = start; ; ) {
      const asked = get(this.#path("/exec"), { from, limit: pageSize });
      const { instructions } = await this.#transport.json<InstructionList>(asked);
      yield* instructions;
      const last = instructions.at(-1);
      if (last === undefined) return;
      from = last.seq + 1;
    }
  }

  /** Interrupts the running instruction and keeps the state; whether one ran. */
  async interrupt(): Promise<boolean> {
    return (await this.#transport.json<Interrupted>(post(this.#path("/interrupt")))).interrupted;
  }

  // looking

  /** Its current description from the service. */
  refresh(): Promise<Info> {
    return this.#change(get(this.#path()));
  }

  /** Variables of the session. */
  async variables(): Promise<Var[]> {
    return (await this.#transport.json<VarList>(get(this.#path("/vars")))).vars;
  }

  /** Completions at the cursor, counted in characters; at the end by default. */
  complete(code: string, cursor?: number): Promise<Completions> {
    return this.#transport.json(post(this.#path("/complete"), { code, cursor }, true));
  }

  /** Changes of this machine, as in the client's `events`. */
  events(options: Omit<EventOptions, "machine" | "tag"> = {}): AsyncGenerator<Event, void, void> {
    return listen(this.#transport, { ...options, machine: this.name });
  }

  // files

  /** Its files. */
  get files(): Files {
    return new Files(this.#transport, this.name);
  }

  /** Artifacts, which are values too large for results, oldest first. */
  async artifacts(): Promise<Kept[]> {
    return (await this.#transport.json<ArtifactList>(get(this.#path("/artifact")))).artifacts;
  }

  /** The bytes of an artifact as they arrive. */
  artifact(id: string, span: Span = {}): AsyncGenerator<Uint8Array, void, void> {
    return resumed(this.#transport, get(this.#path(`/artifact/${segment(id)}`)), span);
  }

  /** Its calls of tools with verdicts and answers, newest first. */
  async calls(): Promise<ToolCall[]> {
    return (await this.#transport.json<ToolCallList>(get(this.#path("/calls")))).calls;
  }

  // going back, and elsewhere

  /** States to return to, oldest first. */
  async history({ files = false } = {}): Promise<Point[]> {
    const asked = get(this.#path("/history"), { files: files || undefined });
    return (await this.#transport.json<History>(asked)).checkpoints;
  }

  /** Sets or removes the label of a state; returns the new history. */
  async label(seq: number, label: string | null): Promise<Point[]> {
    const call = post(this.#path("/label"), { seq, label }, true);
    return (await this.#transport.json<History>(call)).checkpoints;
  }

  /** Its ancestors, its branches, and its whole family. */
  lineage(): Promise<Lineage> {
    return this.#transport.json(get(this.#path("/lineage")));
  }

  /** Disk use of the machine and its checkpoints. */
  disk(): Promise<DiskUse> {
    return this.#transport.json(get(this.#path("/disk")));
  }

  /** The state after an instruction, to inspect without going back. */
  at(seq: number): Past {
    return new Past(this.#transport, this.name, seq);
  }

  /**
   * Undoes the last `n` instructions. If they share a state with others (grouped instructions),
   * this is refused unless `grouped` includes those.
   */
  undo(n = 1, options: { grouped?: boolean } = {}): Promise<Info> {
    return this.#change(post(this.#path("/undo"), { n, ...options }));
  }

  /** Redoes `n` undone instructions, as long as nothing new ran. */
  redo(n = 1, options: { grouped?: boolean } = {}): Promise<Info> {
    return this.#change(post(this.#path("/redo"), { n, ...options }));
  }

  /** Returns to the state after instruction `seq`, or with null to the beginning. */
  rollback(seq: number | null): Promise<Info> {
    return this.#change(post(this.#path("/rollback"), { seq }, true));
  }

  /** A new machine that continues from this one's state, or from that after `seq`. */
  async branch(
    options: Omit<BranchRequest, "count" | "names"> & { name?: string } = {},
  ): Promise<Machine> {
    const { name, ...rest } = options;
    const made = await this.branches(name === undefined ? { ...rest, count: 1 } : { ...rest, names: [name] });
    return made[0] as Machine;
  }

  /** Several branches in one call: this many (`count`), or with these names (`names`). */
  async branches(options: BranchRequest): Promise<Machine[]> {
    const { machines } = await this.#transport.json<Branches>(post(this.#path("/branch"), options));
    return machines.map((info) => new Machine(this.#transport, info.name, info));
  }

  /**
   * Creates a branch for each candidate and runs them in parallel; yields results as branches
   * finish. A candidate is code, or an object with `code`, `variables`, `tags` and `limits`.
   */
  async *vary(
    candidates: (string | Vary)[],
    options: Omit<BranchRequest, "count" | "stream" | "vary"> = {},
  ): AsyncGenerator<BranchEnd, void, void> {
    const vary = candidates.map(variation);
    const count = options.names ? undefined : vary.length;
    const call = post(this.#path("/branch"), { ...options, count, vary, stream: true });
    type Line = BranchEnd & { type: string };
    for await (const line of this.#transport.lines<Line>({ ...call, timeoutMs: LONG_SILENCE_MS })) {
      if (line.type === "end") yield line;
      if (line.type === "over") return;
    }
  }

  /**
   * Runs candidates as branches and keeps the one with the best `score`, an expression that each
   * evaluates, under this name.
   */
  explore(
    candidates: (string | Vary)[],
    score: string,
    options: Omit<ExploreRequest, "candidates" | "score"> = {},
  ): Promise<Explored> {
    const body = { ...options, candidates: candidates.map(variation), score };
    const call = post(this.#path("/explore"), body);
    return this.#transport.json({ ...call, timeoutMs: LONG_SILENCE_MS });
  }

  /**
   * Copies variables and files from another machine, or a checkpoint of one. Names that both sides
   * changed since they parted are conflicts: nothing is copied without `force`.
   */
  adopt(
    source: string | Machine,
    what: Omit<AdoptRequest, "from">,
  ): Promise<Adopted> {
    const from = typeof source === "string" ? source : source.name;
    const call = post(this.#path("/adopt"), { ...what, from });
    return this.#transport.json({ ...call, timeoutMs: LONG_SILENCE_MS });
  }

  /** Exchanges names with the parent, or another machine; returns the machine that had the name. */
  async promote(onto?: string | Machine): Promise<Machine> {
    const { former } = await this.#promote(onto, false);
    return new Machine(this.#transport, former.name, former);
  }

  async #promote(onto: string | Machine | undefined, remove: boolean): Promise<Promoted> {
    const target = onto instanceof Machine ? onto.name : onto;
    const call = post(this.#path("/promote"), { onto: target, remove });
    const promoted = await this.#transport.json<Promoted>(call);
    this.#name = promoted.machine.name;
    this.info = promoted.machine;
    return promoted;
  }

  /**
   * Exports it as one file, in pieces: its current state, or all its checkpoints and its log.
   * `root: false` leaves out the files of its template, for a host that has them.
   */
  export({ history = false, root = true } = {}): AsyncGenerator<Uint8Array, void, void> {
    const call = get(this.#path("/export"), { history, root });
    return this.#transport.stream({ ...call, timeoutMs: LONG_SILENCE_MS });
  }

  /** Exports it to a local file, which gets its name when it is complete. Not in browsers. */
  exportTo(local: string, options: { history?: boolean; root?: boolean } = {}): Promise<void> {
    return save(this.export(options), local);
  }

  /**
   * Runs a function on a branch. If it succeeds, the branch replaces this machine; if it fails, the
   * branch is removed. The old machine is removed, unless `keep` is set or it ran something
   * meanwhile: then it is `former`.
   */
  async attempt<T>(
    work: (branch: Machine) => Promise<T>,
    { reseed = false, keep = false } = {},
  ): Promise<{ value: T; former: Machine | undefined }> {
    const branch = await this.branch({ reseed });
    let value: T;
    try {
      value = await work(branch);
    } catch (error) {
      await branch.remove();
      throw error;
    }
    const { former, removed } = await branch.#promote(this, !keep);
    const kept = removed ? undefined : new Machine(this.#transport, former.name, former);
    return { value, former: kept };
  }

  // its life

  /** Changes the given settings; `tags` replaces all, `expires_at: null` removes the expiry. */
  update(change: Update): Promise<Info> {
    const call = { method: "PATCH", path: this.#path(), body: change, repeatable: true };
    return this.#change(call);
  }

  /** Moves it out of memory. The next instruction brings it back. */
  swap(): Promise<Info> {
    return this.#change(post(this.#path("/swap"), undefined, true));
  }

  /** Brings it into memory. */
  wake(): Promise<Info> {
    return this.#change(post(this.#path("/wake"), undefined, true));
  }

  /** Removes it with all its data. */
  async remove(): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: this.#path() });
  }

  async [asyncDispose](): Promise<void> {
    await this.remove();
  }

  async #change(call: Call): Promise<Info> {
    this.info = await this.#transport.json<Info>(call);
    return this.info;
  }

  #path(rest = ""): string {
    return at(this.name, rest);
  }
}

/** The code of a branch. */
function variation(candidate: string | Vary): Vary {
  return typeof candidate === "string" ? { code: candidate } : candidate;
}
