// Runs instructions at the top level of one script that never ends.
//
//   source ─► Runtime.evaluate (replMode) ─► promise ─► value or exception ─► forms ─► Done
//
// The inspector answers when all of the instruction has ended, including code after an `await`.
// Until then the event loop runs, and an interrupt may end any code in it. The agent itself answers
// an interrupted instruction: its promise may never settle. No promise of the agent's own is
// involved, because terminating user code drops pending reactions.
'use strict';

const { native, process } = node;
const inspector = use('inspector');
const { bundle, fit, raw, shorten } = use('show');
const errors = use('errors');
const imports = use('imports');
const places = use('places');
const tools = use('tools');
const { prepare } = use('surroundings');

const PIECE = 1 << 20;

// The running instruction.
let running;
// Callbacks that an interrupt calls, such as those that end child processes.
const ends = new Set();

function send(report) {
  native.send(JSON.stringify(report));
}

// The message that runs an instruction. The inspector may answer it before or after it is `sent`.
function execute(order, done) {
  const { seq, code, prepared, max_bytes: most, max_whole: whole = 0 } = order;
  const source = { seq, text: code, ...wrapped(prepared?.code ?? code) };
  const own = { seq, most, whole, source, prepared, done, start: now() };
  places.remember(seq, prepared?.places);
  running = own;
  imports.begin(order.fetch === true ? seq : undefined);
  tools.begin(order.tools === true ? seq : undefined);
  prepare();
  return inspector.instruction(source.code, `instruction:${seq}`, (result, error) => {
    if (error !== undefined) own.refused = error.message;
    else if (own.waits) heard(own, result);
    else own.result = result;
  });
}

function sent(whole) {
  const own = running;
  if (own === undefined) return;
  if (!whole) return interrupted();
  if (own.result !== undefined) return settled(own, own.result);
  if (own.refused !== undefined) return abandon(own, own.refused);
  own.waits = true;
  if (!native.open()) interrupted();
}

// The parser reads `{a: 1}` as a block; if it can be an object, it is one.
function wrapped(code) {
  if (/^\s*\{/.test(code) && /\}\s*$/.test(code)) {
    try {
      new node.Script(`(async () => (${code}\n))`);
      return { code: `(${code}\n)`, shift: 1 };
    } catch {
      // a block, or an error that the block shows better
    }
  }
  return { code, shift: 0 };
}

function heard(own, result) {
  native.shut();
  if (own === running) settled(own, result);
}

// An interrupt ended the instruction, or may end what it waits for.
function interrupted() {
  const own = running;
  if (own === undefined) return;
  inspector.forget();
  for (const end of ends) end();
  ends.clear();
  answer(own, { how: 'interrupted', error: errors.interrupted() });
}

// Calls a function on an interrupt. Returns a function that removes it.
function onInterrupt(end) {
  ends.add(end);
  return () => ends.delete(end);
}

function settled(own, { result, exceptionDetails }) {
  own.took = now() - own.start;
  let report;
  const finished = native.guard(() => {
    report = exceptionDetails === undefined ? shown(own, result) : failed(own, exceptionDetails);
  });
  if (!finished) return interrupted();
  answer(own, report);
}

function shown(own, result) {
  const value = result === undefined ? undefined : inspector.value(result);
  if (value === undefined) return { how: 'completed' };
  let whole;
  try {
    whole = bundle(value);
  } catch (error) {
    return { how: 'failed', error: errors.failure(error, own.source) };
  }
  const [text, size] = shorten(whole['text/plain'], own.most);
  const [data, notes] = fit(whole, own.most);
  if (size !== undefined) notes.unshift(`value cut to ${own.most} of ${size} bytes`);
  own.parts = notes.length === 0 ? undefined : [whole, data];
  const cut = notes.length === 0 ? undefined : notes.join('; ');
  return { how: 'completed', value: text, data, cut };
}

// Only an error of the parser names a script and has no stack: then nothing has run, and the host
// may be able to convert the code.
function failed(own, { exception, lineNumber, columnNumber, scriptId, stackTrace }) {
  const { prepared, source } = own;
  const thrown = inspector.value(exception);
  const unparsed =
    exception.className === 'SyntaxError' && scriptId !== undefined && stackTrace === undefined;
  if (!unparsed) return { how: 'failed', error: errors.failure(thrown, source) };
  const line = lineNumber + 1;
  const made = columnNumber + 1 - (lineNumber === 0 ? source.shift : 0);
  const column = places.column(own.seq, line, made);
  const error = isFurther(prepared, line, column)
    ? errors.syntax(prepared.message, source, prepared.line, prepared.column)
    : errors.syntax(thrown, source, line, column);
  return { how: 'failed', error, unparsed: prepared === undefined };
}

// Whether the host could parse more of the code than V8.
function isFurther(prepared, line, column) {
  if (prepared?.kind !== 'refused') return false;
  return prepared.line > line || (prepared.line === line && prepared.column > column);
}

// Ends the instruction, once.
function answer(own, report) {
  if (own !== running) return;
  running = undefined;
  imports.begin(undefined);
  tools.begin(undefined);
  if (own.parts !== undefined) parts(own, 'value', ...own.parts);
  const runtime_ms = own.took ?? now() - own.start;
  send({ type: 'done', seq: own.seq, runtime_ms, ...report });
  inspector.release();
  own.done();
}

// Ends an instruction that the agent could not execute.
function abandon(own, message) {
  const error = { name: 'Error', message, traceback: `${message}\n` };
  answer(own, { how: 'failed', error });
}

// The same, for the running one; false if there is none.
function fail(message) {
  if (running === undefined) return false;
  abandon(running, message);
  return true;
}

// Sends full values that the result will contain cut.
function parts({ seq, whole }, name, before, after) {
  for (const kind of Object.keys(before)) {
    const value = before[kind];
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    if (after[kind] === value || text.length > whole) continue;
    for (let start = 0; start < text.length; start += PIECE) {
      const piece = text.slice(start, start + PIECE);
      const last = start + PIECE >= text.length;
      send({ type: 'part', seq, name, kind, text: piece, last });
    }
  }
}

// Shows values while an instruction runs. With `raw`, a value is a MIME bundle.
function display(value, options) {
  const whole = options?.raw === true ? raw(value) : bundle(value);
  if (running === undefined) {
    native.write(1, `${whole['text/plain']}\n`);
    return;
  }
  const [data, notes] = fit(whole, running.most);
  const cut = notes.length === 0 ? undefined : notes.join('; ');
  if (cut !== undefined) parts(running, 'display', whole, data);
  native.settle();
  send({ type: 'display', seq: running.seq, data, cut });
  native.settle();
}

const clock = process.hrtime.bigint;
function now() {
  return Number(clock()) / 1e6;
}

Object.assign(exports, { display, execute, fail, interrupted, onInterrupt, send, sent });
