/**
 * The result of an instruction.
 *
 * @module
 */

import { InstructionError } from "./errors.js";
import type { Chunk, Failure, Instruction, Outcome, Receipt, Shown, Status } from "./types.js";

const PNG = "image/png";

/** The result of an instruction, with all of its output. */
export class Result {
  constructor(
    readonly machine: string,
    /** The service's full description of it. */
    readonly instruction: Instruction,
    readonly output: Chunk[],
  ) {}

  get seq(): number {
    return this.instruction.seq;
  }

  /** The state after it, as `machine@seq`. */
  get address(): string {
    return `${this.machine}@${this.seq}`;
  }

  get status(): Status {
    return this.instruction.status;
  }

  /** The state of the machine after it. */
  get receipt(): Receipt | undefined {
    return this.instruction.receipt ?? undefined;
  }

  get #outcome(): Outcome {
    return this.instruction.outcome ?? { runtime_ms: 0 };
  }

  /** repr of the last expression; null if it has no value. */
  get value(): string | null {
    return this.#outcome.value ?? null;
  }

  /** The last expression's value in every form it offers: MIME type to content. */
  get data(): Record<string, unknown> {
    return this.#outcome.data ?? {};
  }

  /** Content displayed while the code ran: figures, `display(...)`. */
  get shown(): Shown[] {
    return this.#outcome.shown ?? [];
  }

  get error(): Failure | undefined {
    return this.#outcome.error ?? undefined;
  }

  get runtimeMs(): number {
    return this.#outcome.runtime_ms;
  }

  get ok(): boolean {
    return this.error === undefined && this.status === "done";
  }

  /** This result, if it is a success; throws `InstructionError` otherwise. */
  check(): this {
    if (this.error) throw new InstructionError(this.error);
    if (!this.ok) {
      const name = `instruction.${this.status}`;
      throw new InstructionError({ name, message: `${this.address} did not end`, traceback: "" });
    }
    return this;
  }

  get stdout(): string {
    return this.#text("stdout");
  }

  get stderr(): string {
    return this.#text("stderr");
  }

  /** The value's own image, or else the last displayed one; PNG in base64. */
  get png(): string | undefined {
    const places = [this.data, ...this.shown.map((shown) => shown.data).reverse()];
    return places.map((data) => data[PNG]).find((png) => typeof png === "string");
  }

  #text(stream: Chunk["stream"]): string {
    const own = this.output.filter((chunk) => chunk.stream === stream);
    return own.map((chunk) => `${chunk.data}\n`).join("");
  }
}
