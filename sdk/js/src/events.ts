/**
 * All changes as they happen, over as many connections as necessary.
 *
 * @module
 */

import { Unreachable } from "./errors.js";
import { Events } from "./lines.js";
import { get, type Transport } from "./transport.js";
import type { Event } from "./types.js";

export interface EventOptions {
  /** Only events of this machine. */
  machine?: string | undefined;
  /** Only events of machines with this tag, written `key=value`. */
  tag?: string | undefined;
  /** Only kinds with this prefix, such as `machine.` */
  kind?: string | undefined;
  /** Only events after this one; new ones, if absent. */
  after?: number | undefined;
  /** Stops listening. */
  signal?: AbortSignal | undefined;
}

/** Resumes after the last received event when a connection breaks. */
export async function* listen(
  transport: Transport,
  { signal, after, ...wanted }: EventOptions,
): AsyncGenerator<Event, void, void> {
  let position = after;
  for (let broken = 0; ; broken += 1) {
    try {
      const events = new Events();
      const call = { ...get("/v1/events", { ...wanted, after: position }), signal };
      for await (const piece of transport.stream(call)) {
        broken = 0;
        for (const event of events.feed(piece)) yield JSON.parse(event.data) as Event;
        if (events.lastId !== undefined) position = Number(events.lastId);
      }
      throw new Unreachable("the stream of events ended", true);
    } catch (failure) {
      await transport.breathe(failure, broken, signal);
    }
  }
}
