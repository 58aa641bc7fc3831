// The globals of user code, and the hooks the agent needs in them: restored before every
// instruction, whatever the last one changed.
'use strict';

const { native, process } = node;
const { text } = use('show');
const { apply } = Reflect;
const {
  hasUncaughtExceptionCaptureCallback: isCaught,
  listenerCount,
  emit,
  on,
  setUncaughtExceptionCaptureCallback: capture,
} = process;

const streams = { stdout: node.stream(1), stderr: node.stream(2) };

function define(object, name, value) {
  node.defineProperty(object, name, { value, writable: true, configurable: true });
}

// Prints an error that nothing caught outside an instruction, in a timer or a promise. It ends
// neither the machine nor the instruction.
function uncaught(error) {
  try {
    if (apply(listenerCount, process, ['uncaughtException']) > 0) {
      apply(emit, process, ['uncaughtException', error, 'uncaughtException']);
      return;
    }
  } catch (other) {
    native.write(2, `Uncaught ${text(other)}\n`);
  }
  native.write(2, `Uncaught ${text(error)}\n`);
}

function exit(code = process.exitCode ?? 0) {
  const error = new node.global.Error(
    `exit with ${text(code)}: the instruction has ended, the machine goes on`,
  );
  define(error, 'name', 'SystemExit');
  throw error;
}

// The host's form of an `import` statement: a module, if it has these exports.
function named(module, from, names) {
  for (const name of names) {
    if (name in module) continue;
    const what = `The requested module '${from}' does not provide an export named '${name}'`;
    throw new node.global.SyntaxError(what);
  }
  return module;
}

function prepare() {
  for (const name of ['stdout', 'stderr']) {
    if (process[name] !== streams[name]) {
      const get = () => streams[name];
      node.defineProperty(process, name, { get, configurable: true, enumerable: true });
    }
  }
  if (!apply(isCaught, process, [])) apply(capture, process, [uncaught]);
}

// Once, before any user code.
function furnish(display, shell, onWake) {
  prepare();
  define(process, 'exit', exit);
  define(node.global, 'display', display);
  define(node.global, '__stasis__', { named, shell });
  const machine = () => process.env.STASIS_MACHINE;
  define(node.global, 'stasis', { machine, onWake });
  define(node.global, 'require', node.createRequire(`${process.cwd()}/instruction`));
  process.argv.length = 1;
  process.exitCode = undefined;
  // a listener of user code takes the signal from the agent; the agent takes it back
  apply(on, process, ['newListener', (name) => name === 'SIGINT' && native.heed()]);
}

Object.assign(exports, { furnish, prepare });
