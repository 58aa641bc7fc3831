/**
 * A machine's state after an instruction, to inspect without going back.
 *
 * @module
 */

import { resumed } from "./files.js";
import { at, get, type Transport } from "./transport.js";
import type { FileView, FileViews, Var, VarList } from "./types.js";

export class Past {
  readonly #transport: Transport;
  readonly #machine: string;

  constructor(
    transport: Transport,
    machine: string,
    readonly seq: number,
  ) {
    this.#transport = transport;
    this.#machine = machine;
  }

  /** Variables of that state. */
  async variables(): Promise<Var[]> {
    return (await this.#transport.json<VarList>(get(this.#path("/vars")))).vars;
  }

  /** A directory of that state. */
  async files(path: string): Promise<FileView[]> {
    return (await this.#transport.json<FileViews>(get(this.#path("/files"), { path }))).files;
  }

  /** A file of that state. */
  async read(path: string): Promise<Uint8Array<ArrayBuffer>> {
    const pieces: Uint8Array[] = [];
    const call = get(this.#path("/file"), { path });
    for await (const piece of resumed(this.#transport, call, {})) pieces.push(piece);
    return new Uint8Array(await new Blob(pieces as never[]).arrayBuffer());
  }

  #path(rest: string): string {
    return at(this.#machine, `/at/${this.seq}${rest}`);
  }
}
