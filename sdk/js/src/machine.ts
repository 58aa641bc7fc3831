/**
 * A machine: run code, look, go back, branch.
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
  Update,
  Var,
  VarList,
  Vary,
} from "./types.js";

export interface ExecOptions {
  /** How long the code may run; null for as long as it likes, absent for the service's default. */
  timeoutSeconds?: number | null | undefined;
  /** Ends what runs and cancels what waits first. */
  interrupt?: boolean | undefined;
  durability?: Durability | undefined;
  /** Whether it has a state of its own; as the machine says, if absent. */
  checkpoints?: Checkpoints | undefined;
  /** The same key again gives the same instruction instead of a second one. */
  idempotencyKey?: string | undefined;
}

/** Those of `exec` and of waiting. Aborting `signal` interrupts the code; the state is kept. */
export interface RunOptions extends ExecOptions, WaitOptions {}

/** A machine by name. With `await using` it is removed at the end of the block. */
export class Machine {
  readonly #transport: Transport;
  #name: string;
  /** What the service last said of it, if it said anything. */
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

  /** Gives it code to run, and does not wait. */
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

  /** An instruction that it was given before. */
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

  /** Interrupts what runs and keeps the state; whether something ran. */
  async interrupt(): Promise<boolean> {
    return (await this.#transport.json<Interrupted>(post(this.#path("/interrupt")))).interrupted;
  }

  // looking

  /** What the service says of it now. */
  refresh(): Promise<Info> {
    return this.#change(get(this.#path()));
  }

  /** Variables of the session. */
  async variables(): Promise<Var[]> {
    return (await this.#transport.json<VarList>(get(this.#path("/vars")))).vars;
  }

  /** Names that could stand where the cursor is, counted in characters; at the end unless told. */
  complete(code: string, cursor?: number): Promise<Completions> {
    return this.#transport.json(post(this.#path("/complete"), { code, cursor }, true));
  }

  /** What changes about it, as `events` of the client tells. */
  events(options: Omit<EventOptions, "machine" | "tag"> = {}): AsyncGenerator<Event, void, void> {
    return listen(this.#transport, { ...options, machine: this.name });
  }

  // files

  /** Its files. */
  get files(): Files {
    return new Files(this.#transport, this.name);
  }

  /** What was too large for results, oldest first. */
  async artifacts(): Promise<Kept[]> {
    return (await this.#transport.json<ArtifactList>(get(this.#path("/artifact")))).artifacts;
  }

  /** The bytes of an artifact as they come. */
  artifact(id: string, span: Span = {}): AsyncGenerator<Uint8Array, void, void> {
    return resumed(this.#transport, get(this.#path(`/artifact/${segment(id)}`)), span);
  }

  // going back, and elsewhere

  /** States that can be gone back to, oldest first. */
  async history({ files = false } = {}): Promise<Point[]> {
    const asked = get(this.#path("/history"), { files: files || undefined });
    return (await this.#transport.json<History>(asked)).checkpoints;
  }

  /** Names the state after an instruction, or takes its name away; the history then. */
  async label(seq: number, label: string | null): Promise<Point[]> {
    const call = post(this.#path("/label"), { seq, label }, true);
    return (await this.#transport.json<History>(call)).checkpoints;
  }

  /** Its ancestors, its branches, and its whole family. */
  lineage(): Promise<Lineage> {
    return this.#transport.json(get(this.#path("/lineage")));
  }

  /** What it and its checkpoints take on the disk. */
  disk(): Promise<DiskUse> {
    return this.#transport.json(get(this.#path("/disk")));
  }

  /** The state after an instruction, to look at without going back. */
  at(seq: number): Past {
    return new Past(this.#transport, this.name, seq);
  }

  /**
   * Takes the last `n` instructions back. If they share a state with others, which grouped
   * instructions do, this is refused unless `grouped` says to take those along.
   */
  undo(n = 1, options: { grouped?: boolean } = {}): Promise<Info> {
    return this.#change(post(this.#path("/undo"), { n, ...options }));
  }

  /** Redoes `n` instructions that were undone, as long as nothing new ran. */
  redo(n = 1, options: { grouped?: boolean } = {}): Promise<Info> {
    return this.#change(post(this.#path("/redo"), { n, ...options }));
  }

  /** Back to the state after instruction `seq`, or with null to the beginning. */
  rollback(seq: number | null): Promise<Info> {
    return this.#change(post(this.#path("/rollback"), { seq }, true));
  }

  /** A new machine that goes on from this one's state, or from that after `seq`. */
  async branch(
    options: Omit<BranchRequest, "count" | "names"> & { name?: string } = {},
  ): Promise<Machine> {
    const { name, ...rest } = options;
    const made = await this.branches(name === undefined ? { ...rest, count: 1 } : { ...rest, names: [name] });
    return made[0] as Machine;
  }

  /** Several branches in one call: so many (`count`), or these (`names`). */
  async branches(options: BranchRequest): Promise<Machine[]> {
    const { machines } = await this.#transport.json<Branches>(post(this.#path("/branch"), options));
    return machines.map((info) => new Machine(this.#transport, info.name, info));
  }

  /**
   * A branch for each candidate, all at once; how each ended, in the order they end. A candidate is
   * code, or an object with `code`, `variables`, `tags` and `limits`.
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
   * Tries candidates as branches and keeps the one with the best `score`, an expression that each
   * is asked for, under this name.
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
   * Takes variables and files over from another machine, or a checkpoint of one. What both sides
   * changed since they parted is a conflict, and nothing is taken without `force`.
   */
  adopt(
    source: string | Machine,
    what: Omit<AdoptRequest, "from">,
  ): Promise<Adopted> {
    const from = typeof source === "string" ? source : source.name;
    const call = post(this.#path("/adopt"), { ...what, from });
    return this.#transport.json({ ...call, timeoutMs: LONG_SILENCE_MS });
  }

  /** Takes the parent's name, or another's, which gets this one's; the machine that had it. */
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
   * It as one file, piece by piece: its state now, or all its checkpoints and its log. With
   * `root: false` without the files of its template, for a host that has them.
   */
  export({ history = false, root = true } = {}): AsyncGenerator<Uint8Array, void, void> {
    const call = get(this.#path("/export"), { history, root });
    return this.#transport.stream({ ...call, timeoutMs: LONG_SILENCE_MS });
  }

  /** Writes it to a file of this computer, which has its name when it is whole. Not in browsers. */
  exportTo(local: string, options: { history?: boolean; root?: boolean } = {}): Promise<void> {
    return save(this.export(options), local);
  }

  /**
   * Works on a branch. If the work ends well the branch takes this machine's name; if it fails the
   * branch goes. The machine as it was is removed, unless `keep` is set or it ran something
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

  /** Changes what is given; `tags` replaces all, `expires_at: null` takes an expiry away. */
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

  /** Removes it and all it had. */
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

/** What a branch runs. */
function variation(candidate: string | Vary): Vary {
  return typeof candidate === "string" ? { code: candidate } : candidate;
}
