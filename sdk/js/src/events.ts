/**
 * Everything that changes, as it is told, over as many connections as it takes.
 *
 * @module
 */

import { Unreachable } from "./errors.js";
import { Events } from "./lines.js";
import { get, type Transport } from "./transport.js";
import type { Event } from "./types.js";

export interface EventOptions {
  /** Only of this machine. */
  machine?: string | undefined;
  /** Only of machines with this tag, written `key=value`. */
  tag?: string | undefined;
  /** Only kinds that begin so, such as `machine.` */
  kind?: string | undefined;
  /** Those after this one; from now on, if absent. */
  after?: number | undefined;
  /** Stops listening. */
  signal?: AbortSignal | undefined;
}

/** Goes on behind the last event that came when a connection breaks. */
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
