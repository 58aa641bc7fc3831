/**
 * The JavaScript SDK of Stasis: stateful code machines for AI agents.
 *
 * ```ts
 * import { Client } from "@stasis/sdk";
 *
 * const client = new Client();
 * await using machine = await client.createMachine();
 * await machine.run("x = 41");
 * console.log((await machine.run("x + 1")).value);
 * ```
 *
 * @module
 */

export { Client, type ClientOptions, type StreamedResult } from "./client.js";
export * from "./errors.js";
export type { EventOptions } from "./events.js";
export { Files, type Span, type WriteOptions } from "./files.js";
export { Instruction, type Progress, type WaitOptions } from "./instruction.js";
export { type ExecOptions, Machine, type RunOptions } from "./machine.js";
export { Past } from "./past.js";
export { Repl, ReplExecResult } from "./repl.js";
export { Result } from "./result.js";
export type { Retry } from "./retry.js";
export type * as types from "./types.js";
