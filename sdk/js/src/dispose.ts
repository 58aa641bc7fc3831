/**
 * The method that `await using` calls at the end of a block; older runtimes have no symbol for it
 * yet.
 *
 * @module
 */

export const asyncDispose: typeof Symbol.asyncDispose = (Symbol.asyncDispose ??
  Symbol.for("Symbol.asyncDispose")) as typeof Symbol.asyncDispose;
