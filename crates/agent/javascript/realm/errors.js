// The error of an instruction, as Node prints it, without the agent's frames.
//
//   instruction 7:2
//     throw new RangeError('no');
//           ^
//   RangeError: no
//       at f (instruction 7:2:9)
//
// The thrown value is the user's object: its name, message and stack may be anything, and reading
// them may run user code. So this is called where it can be interrupted.
'use strict';

const { isNativeError } = node.types;
const places = use('places');
const { plain, text } = use('show');

const LONGEST = 64 << 10;
const FRAMES = 100;
const URL = /\binstruction:(\d+):(\d+):(\d+)/g;
const INTERRUPTED = 'Interrupted';

// The `error` of a report.
function failure(thrown, source) {
  if (!isNativeError(thrown)) {
    const message = text(thrown);
    return described('Uncaught', message, `Uncaught ${message}`);
  }
  const name = word(thrown, 'name') || 'Error';
  const own = word(thrown, 'message');
  const message = `${own}${hintFor(own)}`;
  const head = message === '' ? name : `${name}: ${message}`;
  const frames = framesOf(word(thrown, 'stack'));
  const lines = [...place(frames[0], source), head, ...frames.map((frame) => `    at ${frame}`)];
  return described(name, message, [...lines, ...cause(thrown)].join('\n'));
}

// A syntax error has no frames, but a line and a column. It is V8's error, or the host's message.
function syntax(thrown, source, line, column) {
  const name = 'SyntaxError';
  const message = typeof thrown === 'string' ? thrown : word(thrown, 'message');
  const hint = hintFor(message);
  const where = `instruction ${source.seq}:${line}:${column}`;
  const lines = [...place(where, source), `${name}: ${message}${hint}`, `    at ${where}`];
  return described(name, `${message} (${where})${hint}`, lines.join('\n'));
}

function hintFor(message) {
  const imports = /^Cannot use import statement/.test(message);
  return imports ? '; use import() or require() where it is not at the top level' : '';
}

// Frames with readable instruction names, and columns of the user's text.
function readable(frames) {
  return frames.replace(URL, (whole, seq, line, made) => {
    return `instruction ${seq}:${line}:${places.column(Number(seq), Number(line), Number(made))}`;
  });
}

function described(name, message, traceback) {
  return { name: cut(name), message: cut(message), traceback: cut(`${traceback}\n`) };
}

function interrupted() {
  const words = 'the instruction was interrupted; the state is kept';
  return described(INTERRUPTED, words, `${INTERRUPTED}: ${words}`);
}

// A property as text, of any type.
function word(thrown, name) {
  try {
    const found = thrown[name];
    return typeof found === 'string' ? found : found === undefined ? '' : text(found);
  } catch (error) {
    return plain(error);
  }
}

// The frames of user code.
function framesOf(stack) {
  const lines = stack.split('\n').filter((line) => line.startsWith('    at '));
  const own = (line) => !line.includes(node.agent) && !/\(?node:[\w/]+:\d+:\d+\)?$/.test(line);
  const frames = lines.filter(own).map((line) => readable(line.slice(7)));
  return frames.slice(0, FRAMES);
}

// The line of the instruction that a frame is in, with a mark below its column.
function place(frame, source) {
  const found = /instruction (\d+):(\d+):(\d+)\)?$/.exec(frame ?? '');
  if (found === null || Number(found[1]) !== source.seq) return [];
  const line = source.text.split('\n')[Number(found[2]) - 1];
  if (line === undefined || line.length > 200) return [];
  const before = line.slice(0, Number(found[3]) - 1).replace(/[^\t]/g, ' ');
  return [`instruction ${found[1]}:${found[2]}`, line, `${before}^`];
}

function cause(thrown) {
  const found = word(thrown, 'cause');
  return found === '' ? [] : [`  [cause]: ${readable(found)}`];
}

// Keeps the beginning and, more of it, the end of a long text.
function cut(text) {
  if (text.length <= LONGEST) return text;
  const [head, tail] = [text.slice(0, LONGEST / 4), text.slice(-LONGEST / 2)];
  const left = text.length - head.length - tail.length;
  return `${head}\n... ${left} characters left out ...\n${tail}`;
}

Object.assign(exports, { failure, interrupted, syntax });
