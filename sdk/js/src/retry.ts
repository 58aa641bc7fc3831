/**
 * When a request is retried, and after which pause. Pure decisions.
 *
 * @module
 */

import { StasisError, Unreachable } from "./errors.js";

/** The number and pace of retries. */
export interface Retry {
  /** Maximum attempts of a request. */
  attempts: number;
  /** Maximum resumptions of a stream without a new line in between. */
  resumes: number;
  /** Milliseconds of the first pause; each is twice the one before. */
  firstMs: number;
  longestMs: number;
}

export const RETRY: Retry = { attempts: 4, resumes: 12, firstMs: 100, longestMs: 5000 };

/** Refused before anything was changed. */
const NOT_NOW = [429, 503];
/** A proxy did not reach the service, or not in time. */
const LOST_BETWEEN = [502, 504];

/** Whether a request may be retried: it had no effect, or is idempotent. */
export function isWorth(failure: unknown, repeatable: boolean): boolean {
  if (failure instanceof Unreachable) return repeatable || !failure.sent;
  if (!(failure instanceof StasisError) || failure.status === undefined) return false;
  if (NOT_NOW.includes(failure.status)) return true;
  return repeatable && LOST_BETWEEN.includes(failure.status);
}

/**
 * Milliseconds before the next attempt, after `made` attempts; at least the service's
 * `retry-after`.
 */
export function pauseMs(retry: Retry, made: number, failure: unknown): number {
  const grown = Math.min(retry.longestMs, retry.firstMs * 2 ** Math.min(made, 30));
  const asked = failure instanceof StasisError ? (failure.retryAfter ?? 0) * 1000 : 0;
  return Math.max(grown * (0.5 + Math.random() / 2), Math.min(asked, 60_000));
}

/** Waits; rejects with the signal's reason if it is aborted first. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    signal?.throwIfAborted();
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}
