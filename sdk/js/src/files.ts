/**
 * Files of a machine, and its artifacts.
 *
 * @module
 */

import { StasisError, Unreachable } from "./errors.js";
import { Events } from "./lines.js";
import { downloadDir, save, upload, uploadDir } from "./local.js";
import { at, type Call, get, type Transport } from "./transport.js";
import type { Durability, FileEvent, FileInfo, FileList } from "./types.js";

const OUT_OF_RANGE = 416;

export interface WriteOptions {
  /** Permissions in octal, such as "755". */
  mode?: string;
  durability?: Durability;
}

/** A range of bytes: from `start` up to `end`. */
export interface Span {
  start?: number;
  end?: number;
}

/** Files of a machine. Relative paths start at its home. */
export class Files {
  readonly #transport: Transport;
  readonly #machine: string;

  constructor(transport: Transport, machine: string) {
    this.#transport = transport;
    this.#machine = machine;
  }

  /** Writes a file and replaces an existing one. */
  write(
    path: string,
    content: string | Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>,
    options: WriteOptions = {},
  ): Promise<FileInfo> {
    const method = "PUT";
    const query = { path, ...options };
    // what comes piece by piece comes once
    const repeatable = !(content instanceof ReadableStream);
    return this.#transport.json({ method, path: this.#at("/file"), content, query, repeatable });
  }

  /** The bytes of a file, or a range of them. */
  async read(path: string, span: Span = {}): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array<ArrayBuffer>[] = [];
    for await (const piece of this.stream(path, span)) pieces.push(piece as never);
    return new Uint8Array(await new Blob(pieces).arrayBuffer());
  }

  async readText(path: string): Promise<string> {
    return new TextDecoder().decode(await this.read(path));
  }

  /** The bytes of a file as they arrive, over as many connections as necessary. */
  stream(path: string, span: Span = {}): AsyncGenerator<Uint8Array, void, void> {
    return resumed(this.#transport, get(this.#at("/file"), { path }), span);
  }

  /** Uploads a local file in pieces, with its permissions. Not in browsers. */
  upload(local: string, path: string): Promise<FileInfo> {
    return upload(this, local, path);
  }

  /**
   * Uploads a local directory with its contents; returns the number of files. Links and empty
   * directories are left out.
   */
  uploadDir(local: string, path = ""): Promise<number> {
    return uploadDir(this, local, path);
  }

  /** Downloads a file in pieces. The local file gets its name when it is complete. */
  download(path: string, local: string): Promise<void> {
    return save(this.stream(path), local);
  }

  /** Downloads a directory with its contents; returns the number of files. */
  downloadDir(path: string, local: string): Promise<number> {
    return downloadDir(this, path, local);
  }

  /** The entries of a directory, by name. */
  async *list(
    path = "",
    { pageSize }: { pageSize?: number } = {},
  ): AsyncGenerator<FileInfo, void, void> {
    let cursor: string | null | undefined;
    do {
      const asked = get(this.#at("/files"), { path, limit: pageSize, cursor });
      const page = await this.#transport.json<FileList>(asked);
      yield* page.files;
      cursor = page.next;
    } while (cursor);
  }

  /** Metadata of a file; links are not followed. */
  stat(path: string): Promise<FileInfo> {
    return this.#transport.json(get(this.#at("/file/stat"), { path }));
  }

  /** Removes a file or a directory; a non-empty directory only with `recursive`. */
  async remove(path: string, { recursive = false } = {}): Promise<void> {
    const query = { path, recursive };
    await this.#transport.json({ method: "DELETE", path: this.#at("/file"), query });
  }

  /**
   * Changes of a file, or in a directory and, with `recursive`, all below it, until it is removed.
   * `watching` comes first, and again after a broken connection: list the directory then.
   */
  async *watch(
    path = "",
    signal?: AbortSignal,
    { recursive = false } = {},
  ): AsyncGenerator<FileEvent, void, void> {
    const call = { ...get(this.#at("/file/watch"), { path, recursive }), signal };
    for (let broken = 0; ; broken += 1) {
      try {
        const events = new Events();
        for await (const piece of this.#transport.stream(call)) {
          broken = 0;
          for (const event of events.feed(piece)) {
            const change = JSON.parse(event.data) as FileEvent;
            yield change;
            if (change.kind === "gone") return;
          }
        }
        throw new Unreachable("the stream ended before what is watched", true);
      } catch (failure) {
        await this.#transport.breathe(failure, broken, signal);
      }
    }
  }

  #at(rest: string): string {
    return at(this.#machine, rest);
  }
}

/** The bytes of a resource that does not change meanwhile. */
export async function* resumed(
  transport: Transport,
  call: Call,
  { start = 0, end }: Span,
): AsyncGenerator<Uint8Array, void, void> {
  let [position, broken] = [start, 0];
  for (;;) {
    const part = position > 0 || end !== undefined;
    const range = `bytes=${position}-${end === undefined ? "" : end - 1}`;
    try {
      for await (const piece of transport.stream({ ...call, headers: part ? { range } : {} })) {
        [position, broken] = [position + piece.length, 0];
        yield piece;
      }
      return;
    } catch (failure) {
      // it broke after its last byte
      const status = failure instanceof StasisError ? failure.status : undefined;
      if (status === OUT_OF_RANGE && position > start) return;
      await transport.breathe(failure, broken);
      broken += 1;
    }
  }
}
