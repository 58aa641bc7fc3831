/**
 * A machine: run code, look, go back, branch.
 *
 * @module
 */

import { asyncDispose } from "./dispose.js";
import { Instruction, type WaitOptions } from "./instruction.js";
import type { Result } from "./result.js";
import { at, type Call, get, post, randomName, type Transport } from "./transport.js";
import type {
  Accepted,
  Branches,
  BranchRequest,
  Completions,
  Durability,
  History,
  Instruction as InstructionInfo,
  InstructionList,
  Interrupted,
  Machine as Info,
  Point,
  Update,
  Var,
  VarList,
} from "./types.js";

export interface ExecOptions {
  /** How long the code may run; null for as long as it likes, absent for the service's default. */
  timeoutSeconds?: number | null | undefined;
  /** Ends what runs and cancels what waits first. */
  interrupt?: boolean | undefined;
  durability?: Durability | undefined;
  /** The same key again gives the same instruction instead of a second one. */
  idempotencyKey?: string | undefined;
}

/** Those of `exec` and of waiting. Aborting `signal` interrupts the code; the state is kept. */
export interface RunOptions extends ExecOptions, WaitOptions {}

/** A machine by name. With `await using` it is removed at the end of the block. */
export class Machine {
  readonly #transport: Transport;

  constructor(
    transport: Transport,
    readonly name: string,
    /** What the service last said of it, if it said anything. */
    public info?: Info,
  ) {
    this.#transport = transport;
  }

  // running code

  /** Gives it code to run, and does not wait. */
  async exec(code: string, options: ExecOptions = {}): Promise<Instruction> {
    const { timeoutSeconds, interrupt = false, durability, idempotencyKey } = options;
    const instruction = { code, timeout_seconds: timeoutSeconds };
    const call = post(this.#path("/exec"), { instruction, interrupt, durability }, true);
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

  // going back, and elsewhere

  /** States that can be gone back to, oldest first. */
  async history(): Promise<Point[]> {
    return (await this.#transport.json<History>(get(this.#path("/history")))).checkpoints;
  }

  /** Back to the state before the last instruction. */
  undo(): Promise<Info> {
    return this.#change(post(this.#path("/undo")));
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
