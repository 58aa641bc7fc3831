/**
 * What can go wrong, as classes. Each has a stable code, a sentence and mostly a hint.
 *
 * ```text
 * StasisError
 * ├── ApiError           the service refused; one subclass per kind of refusal
 * ├── Unreachable        the service did not answer, or the connection broke for good
 * ├── ProtocolError      the answer is not one of a Stasis service
 * ├── WaitTimeout        a result did not come in the time that was given; the code goes on
 * └── InstructionError   code ended with an error of its own (`Result.check`)
 * ```
 *
 * @module
 */

import type { Failure } from "./types.js";

export interface Details {
  hint?: string | null | undefined;
  status?: number | undefined;
  requestId?: string | null | undefined;
  cause?: unknown;
}

/** Base of all errors of this package. */
export class StasisError extends Error {
  readonly code: string;
  /** What to do next. */
  readonly hint: string | undefined;
  /** The HTTP status of the answer that this is, if it is one. */
  readonly status: number | undefined;
  /** The request this is about, as the service's logs know it. */
  readonly requestId: string | undefined;
  /** How many seconds the service asks to wait. */
  retryAfter: number | undefined;

  constructor(code: string, message: string, details: Details = {}) {
    super(message, details.cause === undefined ? undefined : { cause: details.cause });
    this.name = new.target.name;
    this.code = code;
    this.hint = details.hint ?? undefined;
    this.status = details.status;
    this.requestId = details.requestId ?? undefined;
  }
}

/** The service refused a request. */
export class ApiError extends StasisError {}
/** The request makes no sense as it is. */
export class InvalidRequest extends ApiError {}
/** No token, or one that is unknown or over. */
export class Unauthorized extends ApiError {}
/** The token does not reach that far. */
export class Forbidden extends ApiError {}
/** The named thing does not exist, or belongs to another account. */
export class NotFound extends ApiError {}
/** It is there already, or in a state in which this cannot be done. */
export class Conflict extends ApiError {}
/** Larger than allowed. */
export class TooLarge extends ApiError {}
/** Over a quota; later it may work. */
export class TooMany extends ApiError {}
/** Not now: overloaded or stopping. */
export class Unavailable extends ApiError {}
/** This service cannot do it. */
export class Unsupported extends ApiError {}
/** The service's fault, or its host's. */
export class InternalError extends ApiError {}

/** The service did not answer. */
export class Unreachable extends StasisError {
  /** Whether the service may have acted on the request. */
  readonly sent: boolean;

  constructor(message: string, sent: boolean, cause?: unknown) {
    super("service.unreachable", message, { hint: "does `stasis serve` run?", cause });
    this.sent = sent;
  }
}

/** The answer is not one of a Stasis service. */
export class ProtocolError extends StasisError {
  constructor(message: string, status?: number) {
    super("service.answer", message, { hint: "is the address that of a Stasis service?", status });
  }
}

/** The result did not come in the time that was given. The instruction goes on. */
export class WaitTimeout extends StasisError {
  constructor(address: string) {
    const hint = "it goes on: ask for its result later, or stop it";
    super("client.wait_timeout", `${address} has no result yet`, { hint });
  }
}

/** Code ended with an error of its own. */
export class InstructionError extends StasisError {
  /** The exception's class, or a code of the service such as `machine.out_of_memory`. */
  readonly errorName: string;
  readonly traceback: string;

  constructor(failure: Failure) {
    super("instruction.failed", `${failure.name}: ${failure.message}`);
    this.errorName = failure.name;
    this.traceback = failure.traceback;
  }
}

const KINDS: Record<number, typeof ApiError> = {
  400: InvalidRequest,
  401: Unauthorized,
  403: Forbidden,
  404: NotFound,
  405: InvalidRequest,
  409: Conflict,
  413: TooLarge,
  416: InvalidRequest,
  429: TooMany,
  501: Unsupported,
  503: Unavailable,
};

/** The error that an answer with this status and this JSON is. */
export function refusal(status: number, body: unknown): StasisError {
  const said = (typeof body === "object" && body !== null ? body : {}) as Record<string, unknown>;
  if (typeof said.code !== "string") {
    return new ProtocolError(`an answer with status ${status} that is not ours`, status);
  }
  const Kind = KINDS[status] ?? (status >= 500 ? InternalError : ApiError);
  return new Kind(said.code, String(said.message ?? ""), {
    hint: said.hint as string | null,
    status,
    requestId: said.id as string | null,
  });
}
