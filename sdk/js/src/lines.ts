/**
 * Parses lines, and server-sent events, from bytes as they arrive.
 *
 * @module
 */

export interface ServerEvent {
  kind: string;
  data: string;
  id: string | undefined;
}

/** Text in, complete lines out. */
export class Lines {
  #rest = "";
  #decoder = new TextDecoder();

  feed(piece: Uint8Array): string[] {
    const lines = (this.#rest + this.#decoder.decode(piece, { stream: true })).split("\n");
    this.#rest = lines.pop() ?? "";
    return lines.map((line) => (line.endsWith("\r") ? line.slice(0, -1) : line));
  }
}

/** Bytes in, complete events out. */
export class Events {
  #lines = new Lines();
  #kind = "";
  #id: string | undefined;
  #data: string[] = [];
  /** The id of the last complete event, including one without data. */
  lastId: string | undefined;

  feed(piece: Uint8Array): ServerEvent[] {
    return this.#lines.feed(piece).flatMap((line) => this.#line(line));
  }

  #line(line: string): ServerEvent[] {
    if (line !== "") {
      const at = line.indexOf(":");
      const name = at < 0 ? line : line.slice(0, at);
      this.#field(name, at < 0 ? "" : line.slice(at + 1).replace(/^ /, ""));
      return [];
    }
    const event = { kind: this.#kind || "message", data: this.#data.join("\n"), id: this.#id };
    const complete = this.#data.length > 0;
    this.lastId = this.#id;
    [this.#kind, this.#data] = ["", []];
    return complete ? [event] : [];
  }

  #field(name: string, value: string): void {
    if (name === "event") this.#kind = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id") this.#id = value;
  }
}
