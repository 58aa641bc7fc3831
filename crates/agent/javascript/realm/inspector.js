// The inspector of this process, used like a debugger does: JSON both ways.
//
// Node's own `Session` is JavaScript that user code can break; the connection below it is not.
'use strict';

const GROUP = 'stasis';
const NAME = '__stasis_keep__';
// Milliseconds.
const LONGEST_LOOK = 500;

let connection;
let taker;
let last = 0;
let taken;
const waiting = new Map();

// Messages without a waiting callback, such as the end of an interrupted instruction, are ignored.
function hear(text) {
  const { id, result, error } = JSON.parse(text);
  const then = waiting.get(id);
  if (then === undefined) return;
  waiting.delete(id);
  then(result, error);
}

// A message; `then` gets its result, once it was sent.
function message(method, params, then) {
  last += 1;
  waiting.set(last, then);
  return JSON.stringify({ id: last, method, params });
}

// The result of a message that is answered at once.
function ask(method, params) {
  let found;
  const text = message(method, params, (result) => (found = result));
  connection.dispatch(text);
  waiting.delete(last);
  return found ?? {};
}

// Drops every pending answer, and the connection with them: the inspector reports when a promise it
// waits for is collected, and during a collection that the agent requested it cannot report.
function forget() {
  waiting.clear();
  connection.disconnect();
  connect();
}

// The message that runs an instruction; `then` gets its value or its exception when it has ended.
function instruction(source, url, then) {
  const expression = `${source}\n//# sourceURL=${url}`;
  const params = { expression, replMode: true, awaitPromise: true, objectGroup: GROUP };
  return message('Runtime.evaluate', params, then);
}

// The value of an expression without side effects: undefined if it would change something or takes
// long.
function look(expression) {
  const params = { expression, objectGroup: GROUP, throwOnSideEffect: true, timeout: LONGEST_LOOK };
  const { result, exceptionDetails } = ask('Runtime.evaluate', params);
  return result === undefined || exceptionDetails !== undefined ? undefined : value(result);
}

// Assigns a value to a name at the top level; returns the reason of a failure.
function assign(name, value) {
  node.defineProperty(node.global, NAME, { value, configurable: true });
  const { exceptionDetails } = ask('Runtime.evaluate', { expression: `${name} = ${NAME}; 0` });
  delete node.global[NAME];
  return exceptionDetails?.exception?.description?.split('\n')[0];
}

// Names of `let`, `const` and `class` at the top level.
function lexicalNames() {
  return ask('Runtime.globalLexicalScopeNames', {}).names ?? [];
}

// The value behind a remote object.
function value({ type, subtype, objectId, unserializableValue, value: plain }) {
  if (objectId !== undefined) return take({ objectId });
  if (unserializableValue !== undefined) return take({ unserializableValue });
  return type === 'undefined' ? undefined : subtype === 'null' ? null : plain;
}

function take(argument) {
  taken = undefined;
  ask('Runtime.callFunctionOn', {
    functionDeclaration: 'function (value) { this(value); }',
    objectId: taker,
    arguments: [argument],
  });
  const found = taken;
  taken = undefined;
  return found;
}

// Releases the objects that the instruction's values and console messages keep alive.
function release() {
  ask('Runtime.releaseObjectGroup', { objectGroup: GROUP });
  ask('Runtime.discardConsoleEntries', {});
}

// Connects. The only way from a message back to a value is a function that is passed to it, which
// is a global for a moment.
function connect() {
  connection = new node.Connection(hear);
  node.native.attach([connection, connection.dispatch]);
  node.defineProperty(node.global, NAME, { value: keep, configurable: true });
  taker = ask('Runtime.evaluate', { expression: NAME }).result.objectId;
  delete node.global[NAME];
}

function keep(found) {
  taken = found;
}

Object.assign(exports, { assign, connect, forget, instruction, lexicalNames, look, release, value });
