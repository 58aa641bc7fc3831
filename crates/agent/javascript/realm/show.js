// The forms in which a value can be shown, cut to a size.
//
// A value offers forms beside its text by a method `[Symbol.for('Jupyter.display')]` that returns a
// MIME bundle. All of this may run user code, so it is called where it can be interrupted.
'use strict';

const { inspect, stringify } = node;
const { apply } = Reflect;
const BUNDLE = Symbol.for('Jupyter.display');
const DEEPEST = 64;

// Like Node's prompt shows a value; a string in full.
function text(value) {
  const options = { showProxy: true, maxStringLength: typeof value === 'string' ? null : 10000 };
  try {
    return `${inspect(value, options)}`;
  } catch (error) {
    return `<${typeof value} that cannot be shown: ${plain(error)}>`;
  }
}

// An error as one line of text, for any thrown value.
function plain(error) {
  try {
    return `${error}`;
  } catch {
    return 'an error that cannot be shown';
  }
}

function bundle(value) {
  const data = { 'text/plain': text(value) };
  if (typeof value !== 'object' || value === null || node.types.isProxy(value)) return data;
  const method = value[BUNDLE];
  if (typeof method !== 'function') return data;
  return { ...data, ...checked(apply(method, value, [])) };
}

// A bundle made by user code: only values that a report can contain.
function checked(found) {
  const data = {};
  for (const kind of Object.keys(found ?? {})) {
    const value = found[kind];
    if (typeof value === 'string') data[kind] = value;
    else if (kind.endsWith('json')) data[kind] = json(value);
    else throw new TypeError(`display: ${kind} is ${typeof value}, not text`);
  }
  return data;
}

function raw(found) {
  const data = checked(found);
  return { ...data, 'text/plain': data['text/plain'] ?? '' };
}

function json(value) {
  const found = JSON.parse(stringify(value) ?? 'null');
  if (depth(found, 0) > DEEPEST) throw new RangeError(`display: nested deeper than ${DEEPEST}`);
  return found;
}

function depth(value, at) {
  if (typeof value !== 'object' || value === null || at > DEEPEST) return at;
  return Object.values(value).reduce((most, one) => Math.max(most, depth(one, at + 1)), at);
}

// UTF-8 bytes of a code unit; each half of a surrogate pair counts for two.
function width(code) {
  return code < 0x80 ? 1 : code < 0x800 || (code >= 0xd800 && code <= 0xdfff) ? 2 : 3;
}

function bytes(text) {
  let count = 0;
  for (let at = 0; at < text.length; at++) count += width(text.charCodeAt(at));
  return count;
}

// The beginning of a text, at most so many bytes, and its size if something was cut.
function shorten(text, most) {
  if (text.length * 3 <= most) return [text, undefined];
  const size = bytes(text);
  if (size <= most) return [text, undefined];
  let [at, left] = [0, most];
  for (; left >= width(text.charCodeAt(at)); at++) left -= width(text.charCodeAt(at));
  const half = at === 0 ? 0 : text.charCodeAt(at - 1);
  return [text.slice(0, half >= 0xd800 && half <= 0xdbff ? at - 1 : at), size];
}

// Cuts a bundle to a size. Returns it, and a description of the omitted parts.
function fit(data, most) {
  const notes = [];
  const [plain, size] = shorten(data['text/plain'], most);
  if (size !== undefined) notes.push(`text/plain cut to ${most} of ${size} bytes`);
  const out = { 'text/plain': plain };
  let left = most;
  const others = Object.keys(data).filter((kind) => kind !== 'text/plain');
  const weighed = others.map((kind) => [weight(data[kind]), kind]);
  for (const [weight, kind] of weighed.sort(([one], [other]) => one - other)) {
    if (weight > left) {
      notes.push(`${kind} left out, ${weight} bytes`);
    } else {
      left -= weight;
      out[kind] = data[kind];
    }
  }
  return [out, notes];
}

function weight(value) {
  return bytes(typeof value === 'string' ? value : JSON.stringify(value));
}

Object.assign(exports, { bundle, bytes, fit, plain, raw, shorten, text });
