/**
 * A REPL on one machine, in foreverVM's form.
 *
 * @module
 */

import type { Instruction } from "./instruction.js";
import type { ExecOptions, Machine } from "./machine.js";
import type { Result } from "./result.js";
import type { Chunk } from "./types.js";

/** A submitted instruction. */
export class ReplExecResult {
  readonly #instruction: Promise<Instruction>;

  constructor(instruction: Promise<Instruction>) {
    this.#instruction = instruction;
    // readers of `output` or `result` get the failure
    instruction.catch(() => undefined);
  }

  get output(): AsyncIterable<Chunk> {
    return { [Symbol.asyncIterator]: () => this.#chunks() };
  }

  get result(): Promise<Result> {
    return this.#instruction.then((instruction) => instruction.result);
  }

  async *#chunks(): AsyncGenerator<Chunk, void, void> {
    yield* (await this.#instruction).output;
  }
}

/** `repl.exec(code)` returns at once an object with `output` and `result`. The machine stays. */
export class Repl {
  readonly #machine: Promise<Machine>;
  #last: Promise<unknown>;

  constructor(machine: Promise<Machine>) {
    this.#machine = machine;
    this.#last = machine.catch(() => undefined);
  }

  get machine(): Promise<Machine> {
    return this.#machine;
  }

  /** Instructions are submitted in the order of the calls. */
  exec(code: string, options: ExecOptions = {}): ReplExecResult {
    const asked = this.#last.then(async () => (await this.#machine).exec(code, options));
    this.#last = asked.catch(() => undefined);
    return new ReplExecResult(asked);
  }
}
