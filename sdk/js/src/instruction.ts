/**
 * A submitted instruction: its output as it arrives, its result, its end.
 *
 * @module
 */

import { ProtocolError, refusal, Unreachable, WaitTimeout } from "./errors.js";
import { Events, type ServerEvent } from "./lines.js";
import { Result } from "./result.js";
import { at, get, post, type Transport } from "./transport.js";
import type { Cancelled, Chunk, Instruction as Info } from "./types.js";

export interface WaitOptions {
  /** Called with each line of output as it arrives. */
  onOutput?: ((chunk: Chunk) => void) | undefined;
  /** Stops waiting; the instruction continues. */
  signal?: AbortSignal | undefined;
  /** Maximum wait; then `WaitTimeout`, and the instruction continues. */
  waitSeconds?: number | undefined;
}

/** A line of output, or the end. */
export type Progress = { type: "output"; chunk: Chunk } | { type: "result"; instruction: Info };

/** An instruction of a machine. It continues whether or not a client follows it. */
export class Instruction {
  readonly #transport: Transport;
  #result: Promise<Result> | undefined;

  constructor(
    transport: Transport,
    readonly machine: string,
    readonly seq: number,
    /** Whether another instruction was interrupted for it. */
    readonly interrupted = false,
  ) {
    this.#transport = transport;
  }

  /** The state after it, as `machine@seq`. */
  get address(): string {
    return `${this.machine}@${this.seq}`;
  }

  /** Its output from the first line on, as it arrives. */
  get output(): AsyncIterable<Chunk> {
    return { [Symbol.asyncIterator]: () => this.#chunks() };
  }

  /** Its result, as soon as it has ended. */
  get result(): Promise<Result> {
    this.#result ??= this.wait();
    return this.#result;
  }

  /** Its current description. */
  info(): Promise<Info> {
    return this.#transport.json(get(this.#path()));
  }

  /** Its result with all output. */
  async wait(options: WaitOptions = {}): Promise<Result> {
    const output: Chunk[] = [];
    const limit = new Limit(options);
    try {
      for await (const progress of this.follow(0, limit.signal)) {
        if (progress.type === "result") return new Result(this.machine, progress.instruction, output);
        output.push(progress.chunk);
        options.onOutput?.(progress.chunk);
      }
    } catch (error) {
      throw limit.isOver ? new WaitTimeout(this.address) : error;
    } finally {
      limit.end();
    }
    throw new Unreachable(`${this.address} has no end`, true);
  }

  /** Removes it from the queue; whether it still waited there. */
  async cancel(): Promise<boolean> {
    const asked = post(this.#path("/cancel"), undefined, true);
    return (await this.#transport.json<Cancelled>(asked)).cancelled;
  }

  /** Cancels it if it waits and interrupts it if it runs; the machine's state is kept. */
  async stop(): Promise<void> {
    if ((await this.cancel()) || (await this.info()).status !== "running") return;
    await this.#transport.json(post(at(this.machine, "/interrupt")));
  }

  /** Output from line `start` on, then the end, over as many connections as necessary. */
  async *follow(start = 0, signal?: AbortSignal): AsyncGenerator<Progress, void, void> {
    let [position, broken] = [start, 0];
    for (;;) {
      try {
        for await (const progress of this.#connection(position, signal)) {
          if (progress.type === "result") {
            yield progress;
            return;
          }
          // a service that repeats a line is not echoed
          if (progress.chunk.seq < position) continue;
          [position, broken] = [progress.chunk.seq + 1, 0];
          yield progress;
        }
        throw new Unreachable("the stream ended before the result", true);
      } catch (failure) {
        await this.#transport.breathe(failure, broken, signal);
        broken += 1;
      }
    }
  }

  /** The events of one connection. */
  async *#connection(from: number, signal?: AbortSignal): AsyncGenerator<Progress, void, void> {
    const events = new Events();
    const call = { ...get(this.#path("/events"), { from }), signal };
    for await (const piece of this.#transport.stream(call)) {
      for (const event of events.feed(piece)) yield readEvent(event);
    }
  }

  async *#chunks(): AsyncGenerator<Chunk, void, void> {
    for await (const progress of this.follow()) {
      if (progress.type === "output") yield progress.chunk;
    }
  }

  #path(rest = ""): string {
    return at(this.machine, `/exec/${this.seq}${rest}`);
  }
}

/** The caller's signal and the maximum wait, as one signal. */
class Limit {
  isOver = false;
  #controller = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #caller: AbortSignal | undefined;
  #stop = () => this.#controller.abort(this.#caller?.reason);

  constructor({ signal, waitSeconds }: WaitOptions) {
    this.#caller = signal;
    signal?.throwIfAborted();
    signal?.addEventListener("abort", this.#stop, { once: true });
    if (waitSeconds === undefined) return;
    this.#timer = setTimeout(() => {
      this.isOver = true;
      this.#controller.abort();
    }, waitSeconds * 1000);
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  end(): void {
    clearTimeout(this.#timer);
    this.#caller?.removeEventListener("abort", this.#stop);
  }
}

function readEvent({ kind, data }: ServerEvent): Progress {
  let said: unknown;
  try {
    said = JSON.parse(data);
  } catch {
    throw new ProtocolError("an event that is not JSON");
  }
  if (kind === "output") return { type: "output", chunk: said as Chunk };
  if (kind === "result") return { type: "result", instruction: said as Info };
  throw refusal(500, said);
}
