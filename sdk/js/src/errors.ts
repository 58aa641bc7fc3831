/**
 * Errors as classes. Each has a stable code, a message and usually a hint.
 *
 * ```text
 * StasisError
 * ├── ApiError           the service refused; one subclass per kind of refusal
 * ├── Unreachable        the service did not answer, or the connection broke for good
 * ├── ProtocolError      the response does not come from a Stasis service
 * ├── WaitTimeout        the result did not arrive in time; the code continues
 * └── InstructionError   the code ended with an error (`Result.check`)
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
  /** The next step. */
  readonly hint: string | undefined;
  /** The HTTP status of the response, if there was one. */
  readonly status: number | undefined;
  /** The request's id in the service's logs. */
  readonly requestId: string | undefined;
  /** Seconds to wait, as requested by the service. */
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
/** The request is invalid. */
export class InvalidRequest extends ApiError {}
/** The token is missing, unknown or expired. */
export class Unauthorized extends ApiError {}
/** The token lacks the scope. */
export class Forbidden extends ApiError {}
/** The named thing does not exist, or belongs to another account. */
export class NotFound extends ApiError {}
/** It exists already, or its state does not allow this. */
export class Conflict extends ApiError {}
/** Larger than allowed. */
export class TooLarge extends ApiError {}
/** A quota is exceeded; a later attempt may succeed. */
export class TooMany extends ApiError {}
/** The service is overloaded or stopping. */
export class Unavailable extends ApiError {}
/** The service does not support it. */
export class Unsupported extends ApiError {}
/** An internal error of the service or its host. */
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

/** The response does not come from a Stasis service. */
export class ProtocolError extends StasisError {
  constructor(message: string, status?: number) {
    super("service.answer", message, { hint: "is the address that of a Stasis service?", status });
  }
}

/** The result did not arrive in time. The instruction continues. */
export class WaitTimeout extends StasisError {
  constructor(address: string) {
    const hint = "it is still running: fetch its result later, or interrupt it";
    super("client.wait_timeout", `${address} has no result yet`, { hint });
  }
}

/** The code ended with an error. */
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
  422: InvalidRequest,
  429: TooMany,
  501: Unsupported,
  503: Unavailable,
};

/** The error for a response with this status and JSON. */
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
