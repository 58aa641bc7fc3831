// Describes the variables of the session: `let`, `const` and `class` at the top level, and globals
// that instructions added. Reading them may run user code.
'use strict';

const { getOwnPropertyDescriptor, getOwnPropertyNames, global, inspect, types } = node;
const inspector = use('inspector');

const LONGEST = 200;
const MOST = 2000;
const MOST_BYTES = 16 << 20;
// Bytes of a value stored in its variable.
const WORD = 8;
const NAME = /^[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*$/u;
const OPTIONS = {
  breakLength: Infinity,
  customInspect: false,
  depth: 2,
  maxArrayLength: 8,
  maxStringLength: LONGEST,
  showProxy: true,
};

// Names from before any instruction.
let before;

function remember() {
  before = new Set(getOwnPropertyNames(global));
}

function names() {
  const added = getOwnPropertyNames(global).filter((name) => !before.has(name));
  const all = new Set([...inspector.lexicalNames(), ...added]);
  return [...all].filter((name) => NAME.test(name)).sort();
}

function describe() {
  const found = names().slice(0, MOST);
  return found.map((name) => [name, valueOf(name)]).filter(([, one]) => one).map(variable);
}

// In a box; none for a variable whose declaration failed before it had a value, and for a getter,
// which is not called.
function valueOf(name) {
  const own = getOwnPropertyDescriptor(global, name);
  if (own !== undefined) return 'value' in own ? own : undefined;
  const found = inspector.look(`[${name}]`);
  return found === undefined ? undefined : { value: found[0] };
}

function variable([name, { value }]) {
  const repr = brief(value);
  return {
    name,
    kind: attempt(kind, value) ?? typeof value,
    shape: attempt(shape, value),
    bytes: attempt(size, value),
    repr: repr.length > LONGEST ? `${repr.slice(0, LONGEST - 1)}…` : repr,
    digest: attempt(digest, value),
  };
}

function attempt(call, value) {
  try {
    return call(value);
  } catch {
    return undefined;
  }
}

function brief(value) {
  return attempt((value) => inspect(value, OPTIONS), value) ?? `<${typeof value}>`;
}

function isObject(value) {
  return typeof value === 'object' && value !== null;
}

// The name of a value's class; `class` for classes, the type for values without one.
function kind(value) {
  if (value === null) return 'null';
  if (typeof value === 'function') return brief(value).startsWith('[class ') ? 'class' : 'function';
  if (!isObject(value)) return typeof value;
  if (types.isProxy(value)) return 'Proxy';
  const name = Object.getPrototypeOf(value)?.constructor?.name;
  return typeof name === 'string' && name !== '' ? name.slice(0, LONGEST) : 'Object';
}

function shape(value) {
  if (typeof value === 'string') return `${value.length}`;
  if (!isObject(value) || types.isProxy(value)) return undefined;
  if (types.isMap(value) || types.isSet(value)) return `${value.size}`;
  if (Array.isArray(value) || types.isTypedArray(value)) return `${value.length}`;
  return Object.getPrototypeOf(value) === global.Object.prototype
    ? `${Object.keys(value).length}`
    : undefined;
}

function size(value) {
  if (typeof value === 'string') return value.length;
  if (typeof value === 'bigint') return WORD * (1 + Math.ceil(value.toString(16).length / 16));
  if (isObject(value)) return types.isProxy(value) ? undefined : serialized(value)?.length;
  return typeof value === 'function' || typeof value === 'symbol' ? undefined : WORD;
}

// The hash of a structured clone of a value, where it has one.
function digest(value) {
  if (typeof value === 'function' || typeof value === 'symbol') return undefined;
  const found = serialized(value);
  return found === undefined ? undefined : node.hash('sha256', found);
}

let last = [];

function serialized(value) {
  if (isObject(value) && last[0] === value) return last[1];
  const found = node.serialize(value);
  last = [value, found.length > MOST_BYTES ? undefined : found];
  return last[1];
}

function forget() {
  last = [];
}

Object.assign(exports, { describe, forget, names, remember, valueOf });
