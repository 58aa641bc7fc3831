/**
 * Requests: retried where that is safe, with typed errors and a limit on silence.
 *
 * @module
 */

import { ProtocolError, refusal, StasisError, Unreachable } from "./errors.js";
import { Lines } from "./lines.js";
import { isWorth, pauseMs, type Retry, sleep } from "./retry.js";

export interface Config {
  baseUrl: string;
  token: string | undefined;
  timeoutMs: number;
  retry: Retry;
  fetch: typeof fetch;
}

/** One request. */
export interface Call {
  method: string;
  path: string;
  /** Sent as JSON. */
  body?: unknown;
  /** Sent unchanged. */
  content?: BodyInit;
  query?: Record<string, unknown>;
  headers?: Record<string, string>;
  /** Whether it is idempotent. */
  repeatable?: boolean;
  signal?: AbortSignal | undefined;
  /**
   * Milliseconds of silence after which the connection counts as dead; the client's default
   * otherwise.
   */
  timeoutMs?: number;
}

/** Allowed milliseconds of silence for long work: builds, and branches that all run. */
export const LONG_SILENCE_MS = 3_600_000;

export function get(path: string, query: Record<string, unknown> = {}): Call {
  return { method: "GET", path, query, repeatable: true };
}

export function post(path: string, body?: unknown, repeatable = false): Call {
  return { method: "POST", path, body, repeatable };
}

/** A name as part of a path; a name that would change the path is refused here. */
export function segment(text: string): string {
  if (text === "" || text === "." || text === "..") {
    throw refusal(400, { code: "request.invalid", message: `${JSON.stringify(text)} is not a name` });
  }
  return encodeURIComponent(text);
}

export function at(machine: string, rest = ""): string {
  return `/v1/machine/${segment(machine)}${rest}`;
}

const NAME_LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789";

/** A unique name: 16 letters and digits. */
export function randomName(): string {
  const letters: string[] = [];
  while (letters.length < 16) {
    for (const byte of crypto.getRandomValues(new Uint8Array(32))) {
      // above, some letters would come more often than others
      if (byte < 252 && letters.length < 16) letters.push(NAME_LETTERS.charAt(byte % 36));
    }
  }
  return letters.join("");
}

/** Whether the service was never reached, as far as the runtime tells. */
function wasSent(error: unknown): boolean {
  const cause = (error as { cause?: { code?: unknown } } | undefined)?.cause;
  const code = cause?.code ?? (error as { code?: unknown } | undefined)?.code;
  return !["ECONNREFUSED", "ENOTFOUND", "ConnectionRefused"].includes(String(code));
}

/**
 * A request whose body this runtime can send. Browsers send a streamed body over HTTP/2 only, or
 * not at all, so there it is collected first: in a Blob, which may be on disk.
 */
async function sendable(call: Call): Promise<Call> {
  const inBrowser = globalThis.navigator?.userAgent?.startsWith("Mozilla/");
  if (!inBrowser || !(call.content instanceof ReadableStream)) return call;
  return { ...call, content: await new Response(call.content).blob() };
}

export class Transport {
  constructor(readonly config: Config) {}

  /** The answer to a request, as JSON. */
  async json<T>(asked: Call): Promise<T> {
    const { retry } = this.config;
    const call = await sendable(asked);
    for (let tries = 1; ; tries += 1) {
      try {
        return (await this.#once(call)) as T;
      } catch (failure) {
        if (tries >= retry.attempts || !isWorth(failure, call.repeatable ?? false)) throw failure;
        await sleep(pauseMs(retry, tries - 1, failure), call.signal);
      }
    }
  }

  async #once(call: Call): Promise<unknown> {
    const watch = new Watch(call.timeoutMs ?? this.config.timeoutMs, call.signal);
    try {
      return await readJson(await this.#fetch(call, watch));
    } catch (error) {
      throw watch.judge(error);
    } finally {
      watch.end();
    }
  }

  /** Lines of a response that cannot be requested again, as JSON. */
  async *lines<T>(call: Call): AsyncGenerator<T, void, void> {
    const lines = new Lines();
    for await (const piece of this.stream(call)) {
      for (const text of lines.feed(piece)) yield JSON.parse(text) as T;
    }
    throw new Unreachable("the connection broke before the end; the service may go on", true);
  }

  /** Waits before a broken stream is resumed; throws after too many attempts. */
  async breathe(failure: unknown, broken: number, signal?: AbortSignal): Promise<void> {
    const { retry } = this.config;
    if (broken >= retry.resumes || !isWorth(failure, true)) throw failure;
    await sleep(pauseMs(retry, broken, failure), signal);
  }

  /** Pieces of a response as they arrive. Sent once: the reader knows where to resume. */
  async *stream(call: Call): AsyncGenerator<Uint8Array, void, void> {
    const watch = new Watch(call.timeoutMs ?? this.config.timeoutMs, call.signal);
    let reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
    try {
      const response = await this.#fetch(call, watch);
      if (!response.ok) await readJson(response);
      reader = response.body?.getReader();
      for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
        watch.alive();
        yield piece.value;
      }
    } catch (error) {
      throw watch.judge(error);
    } finally {
      watch.end();
      // a reader that stops early releases the connection
      await reader?.cancel().catch(() => undefined);
    }
  }

  #fetch(call: Call, watch: Watch): Promise<Response> {
    const url = new URL(this.config.baseUrl + call.path);
    for (const [key, value] of Object.entries(call.query ?? {})) {
      if (value !== undefined && value !== null) url.searchParams.set(key, String(value));
    }
    const headers: Record<string, string> = { ...call.headers };
    if (this.config.token) headers.authorization = `Bearer ${this.config.token}`;
    const init: RequestInit = { method: call.method, headers, signal: watch.signal };
    if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(call.body);
    } else if (call.content !== undefined) {
      init.body = call.content;
      // what runtimes want for bodies that come piece by piece
      Object.assign(init, { duplex: "half" });
    }
    // not as a method of the configuration: browsers want their own `this`
    const { fetch: ask } = this.config;
    return ask(url, init);
  }
}

/** Aborts a request that is silent for too long, or was cancelled. */
class Watch {
  #silence = new AbortController();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #ended = () => this.#silence.abort(this.caller?.reason);

  constructor(
    readonly ms: number,
    readonly caller: AbortSignal | undefined,
  ) {
    caller?.throwIfAborted();
    caller?.addEventListener("abort", this.#ended, { once: true });
    this.alive();
  }

  get signal(): AbortSignal {
    return this.#silence.signal;
  }

  alive(): void {
    clearTimeout(this.#timer);
    const silent = () => this.#silence.abort(new Unreachable(`silence for ${this.ms} ms`, true));
    this.#timer = setTimeout(silent, this.ms);
  }

  end(): void {
    clearTimeout(this.#timer);
    this.caller?.removeEventListener("abort", this.#ended);
  }

  /** The error to throw for a failed request. */
  judge(error: unknown): unknown {
    if (this.caller?.aborted) return this.caller.reason;
    if (error instanceof StasisError) return error;
    if (this.signal.aborted) return this.signal.reason;
    const said = error instanceof Error ? error.message : String(error);
    return new Unreachable(`no answer from the service: ${said}`, wasSent(error), error);
  }
}

/** The body of a successful response; otherwise raises its error. */
async function readJson(response: Response): Promise<unknown> {
  const text = await response.text();
  const body = parsed(text);
  if (!response.ok) {
    const failure = refusal(response.status, body);
    const seconds = Number(response.headers.get("retry-after") ?? Number.NaN);
    failure.retryAfter = Number.isFinite(seconds) ? seconds : undefined;
    throw failure;
  }
  if (body === undefined) {
    throw new ProtocolError(`an answer with status ${response.status} that is not JSON`);
  }
  return body;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
