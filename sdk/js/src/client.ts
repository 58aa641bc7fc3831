/**
 * The client: a service, and everything on it outside of machines.
 *
 * @module
 */

import { Conflict, refusal } from "./errors.js";
import { type EventOptions, listen } from "./events.js";
import type { Instruction } from "./instruction.js";
import { tokenOf, urlHere } from "./here.js";
import { load } from "./local.js";
import { Machine } from "./machine.js";
import { Repl } from "./repl.js";
import { RETRY, type Retry } from "./retry.js";
import { at, get, LONG_SILENCE_MS, post, randomName, segment, Transport } from "./transport.js";
import type {
  ApprovalList,
  BuildLine,
  Chunk,
  Comparison,
  Event,
  ExecResult,
  Families,
  Filter,
  Health,
  Machine as MachineInfo,
  MachineList,
  Made,
  MadeToken,
  NewMachine,
  NewToken,
  Relative,
  ResultBody,
  StoreChecked,
  StoreFreed,
  StoreStats,
  Template,
  TemplateList,
  Token,
  TokenList,
  ToolCall,
  Whoami,
} from "./types.js";

const DEFAULT_URL = "http://127.0.0.1:7717";

export interface ClientOptions {
  /** Default: `STASIS_TOKEN`, or the token the CLI would use for this service. */
  token?: string | undefined;
  /** Default: `STASIS_URL`, or the address the CLI would use, or the service of this host. */
  baseUrl?: string | undefined;
  /** Maximum silence of a connection before it counts as dead; a minute by default. */
  timeoutMs?: number | undefined;
  retry?: Partial<Retry> | undefined;
  /** A `fetch` other than the runtime's. */
  fetch?: typeof fetch | undefined;
}

/** A line of `execResultStream`. */
export type StreamedResult =
  | { type: "output"; chunk: Chunk; instruction_id: number }
  | { type: "result"; result: ExecResult; instruction_id: number };

/** Data in pieces, as requests accept it. */
function flow(pieces: AsyncIterable<Uint8Array>): ReadableStream<Uint8Array> {
  const iterator = pieces[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await iterator.next();
      if (done) controller.close();
      else controller.enqueue(value);
    },
    async cancel() {
      await iterator.return?.();
    },
  });
}

/** A Stasis service. */
export class Client {
  readonly #transport: Transport;

  /** An address alone is enough: `new Client("http://127.0.0.1:7717")`. */
  constructor(given: ClientOptions | string = {}) {
    const options = typeof given === "string" ? { baseUrl: given } : given;
    const url = options.baseUrl ?? urlHere() ?? DEFAULT_URL;
    const baseUrl = url.replace(/\/+$/, "");
    this.#transport = new Transport({
      baseUrl,
      token: options.token ?? tokenOf(baseUrl),
      timeoutMs: options.timeoutMs ?? 60_000,
      retry: { ...RETRY, ...options.retry },
      fetch: options.fetch ?? globalThis.fetch,
    });
  }

  /** The account and scopes of the token. */
  whoami(): Promise<Whoami> {
    return this.#transport.json(get("/v1/whoami"));
  }

  /** Whether the service is up. Needs no token. */
  health(): Promise<Health> {
    return this.#transport.json(get("/health"));
  }

  // machines

  /** Creates a machine. */
  async createMachine(options: NewMachine = {}): Promise<Machine> {
    const name = options.name ?? randomName();
    const ours = name !== options.name;
    // a unique name makes the call safe to repeat
    const call = post("/v1/machine/new", { ...options, name }, ours);
    const exists = (error: unknown) => {
      if (!ours || !(error instanceof Conflict)) throw error;
      return this.#transport.json<MachineInfo>(get(at(name)));
    };
    const made = this.#transport.json<Made>(call).then((made) => made.machine);
    const info = await made.catch(exists);
    return new Machine(this.#transport, info.name, info);
  }

  /** A machine by name, without a request to the service. */
  machine(name: string): Machine {
    return new Machine(this.#transport, name);
  }

  /** A machine by name; `NotFound` if there is none. */
  async getMachine(name: string): Promise<Machine> {
    const machine = this.machine(name);
    await machine.refresh();
    return machine;
  }

  /** Machines that match all filters, newest first. `limit` is the page size. */
  async *listMachines(filter: Omit<Filter, "cursor"> = {}): AsyncGenerator<Machine, void, void> {
    let cursor: string | null | undefined;
    do {
      const asked = post("/v1/machine/list", { ...filter, cursor }, true);
      const page = await this.#transport.json<MachineList>(asked);
      for (const info of page.machines) yield new Machine(this.#transport, info.name, info);
      cursor = page.next;
    } while (cursor);
  }

  /** The differences between two machines, or checkpoints such as `work@3`. */
  compare(left: string | Machine, right: string | Machine): Promise<Comparison> {
    const name = (side: string | Machine) => (typeof side === "string" ? side : side.name);
    const body = { left: name(left), right: name(right) };
    return this.#transport.json({
      ...post("/v1/compare", body, true),
      timeoutMs: LONG_SILENCE_MS,
    });
  }

  /** All machines as families, oldest first. */
  async lineage(): Promise<Relative[]> {
    return (await this.#transport.json<Families>(get("/v1/lineage"))).families;
  }

  /**
   * Imports a machine from the output of `export`: its bytes, its pieces, or the path of its file.
   * Import only files of services you trust: the file is memory that will run.
   */
  importMachine(
    source: string | Uint8Array<ArrayBuffer> | Blob | AsyncIterable<Uint8Array>,
    { name }: { name?: string | undefined } = {},
  ): Promise<Machine> {
    if (typeof source === "string") return load(source, (file) => this.#import(file, name));
    const whole = source instanceof Uint8Array || source instanceof Blob;
    return this.#import(whole ? source : flow(source), name);
  }

  async #import(
    content: Uint8Array<ArrayBuffer> | Blob | ReadableStream<Uint8Array>,
    name: string | undefined,
  ): Promise<Machine> {
    const call = { ...post("/v1/import"), content, query: { name }, timeoutMs: LONG_SILENCE_MS };
    const { machine } = await this.#transport.json<Made>(call);
    return new Machine(this.#transport, machine.name, machine);
  }

  // events

  /**
   * All changes from now on, or after event number `after`, without an end. After a broken
   * connection no event is lost or repeated; events that are no longer available are reported as
   * one event of kind `events.missed`.
   */
  events(options: EventOptions = {}): AsyncGenerator<Event, void, void> {
    return listen(this.#transport, options);
  }

  // instructions, as foreverVM's users ask for them

  /** Submits code to a machine, or to a new one, and does not wait. */
  async exec(
    code: string,
    machineName?: string,
    interrupt = false,
    timeoutSeconds?: number | null,
  ): Promise<Instruction> {
    const machine = await this.#named(machineName);
    return machine.exec(code, { interrupt, timeoutSeconds });
  }

  /** Waits for an instruction's end; its result in foreverVM's form. */
  async execResult(machineName: string, instructionSeq: number): Promise<ResultBody> {
    await this.machine(machineName).instruction(instructionSeq).wait();
    return this.#transport.json(get(at(machineName, `/exec/${instructionSeq}/result`)));
  }

  /** Output as it arrives, and then the result in foreverVM's form. */
  async *execResultStream(
    machineName: string,
    instructionSeq: number,
  ): AsyncGenerator<StreamedResult, void, void> {
    for await (const chunk of this.machine(machineName).instruction(instructionSeq).output) {
      yield { type: "output", chunk, instruction_id: instructionSeq };
    }
    const { result } = await this.execResult(machineName, instructionSeq);
    yield { type: "result", result, instruction_id: instructionSeq };
  }

  /** A REPL on a machine; a new one by default. */
  repl(machineName = "new"): Repl {
    return new Repl(this.#named(machineName === "new" ? undefined : machineName));
  }

  async #named(name: string | undefined): Promise<Machine> {
    return name === undefined ? this.createMachine() : this.machine(name);
  }

  // templates

  /** Templates, newest first. */
  async listTemplates(): Promise<Template[]> {
    return (await this.#transport.json<TemplateList>(get("/v1/template"))).templates;
  }

  /** A template by name or digest. */
  async getTemplate(name: string): Promise<Template> {
    return this.#transport.json(get(`/v1/template/${segment(name)}`));
  }

  /** Builds a template from a recipe in TOML; yields its progress, and the template last. */
  async *buildTemplate(recipe: string): AsyncGenerator<BuildLine, void, void> {
    const call = { ...post("/v1/template/build", { recipe }), timeoutMs: LONG_SILENCE_MS };
    for await (const line of this.#transport.lines<BuildLine>(call)) {
      if ("error" in line) throw refusal(500, line.error);
      yield line;
      if ("template" in line) return;
    }
  }

  /** Removes a template that no machine uses. */
  async removeTemplate(name: string): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: `/v1/template/${segment(name)}` });
  }

  // tokens

  /** Creates a token. Its secret is shown only once. */
  createToken(options: NewToken = {}): Promise<MadeToken> {
    return this.#transport.json(post("/v1/token", options));
  }

  /** Tokens, oldest first, without their secrets. */
  async listTokens(): Promise<Token[]> {
    return (await this.#transport.json<TokenList>(get("/v1/token"))).tokens;
  }

  /** Revokes a token, effective with the next request. */
  async revokeToken(id: string): Promise<void> {
    await this.#transport.json({ method: "DELETE", path: `/v1/token/${segment(id)}` });
  }

  // calls of tools that wait for a person

  /** Calls that wait for a person, newest first; with `all`, also those that are over. */
  async listApprovals(options: { all?: boolean; machine?: string } = {}): Promise<ToolCall[]> {
    const asked = get("/v1/approvals", { all: options.all || undefined, machine: options.machine });
    return (await this.#transport.json<ApprovalList>(asked)).approvals;
  }

  /** A call that a person was asked about, with all of its arguments. */
  getApproval(id: number): Promise<ToolCall> {
    return this.#transport.json(get(`/v1/approvals/${segment(String(id))}`));
  }

  /** Allows a call that waits. A call is answered once. Requires the scope `approve`. */
  approve(id: number, note?: string): Promise<ToolCall> {
    return this.#answer(id, { answer: "allow", note });
  }

  /** Denies a call that waits; the code gets the note. Requires the scope `approve`. */
  deny(id: number, note?: string): Promise<ToolCall> {
    return this.#answer(id, { answer: "deny", note });
  }

  #answer(id: number, answer: { answer: string; note: string | undefined }): Promise<ToolCall> {
    return this.#transport.json(post(`/v1/approvals/${segment(String(id))}`, answer));
  }

  // the store

  /** The size of the store. */
  storeStats(): Promise<StoreStats> {
    return this.#transport.json(get("/v1/store/stats"));
  }

  /** Frees data that no machine, checkpoint or template needs. */
  storeGc(): Promise<StoreFreed> {
    return this.#transport.json(post("/v1/store/gc"));
  }

  /** Verifies all data in use. */
  storeCheck({ repair = false } = {}): Promise<StoreChecked> {
    return this.#transport.json(post("/v1/store/check", { repair }));
  }
}
