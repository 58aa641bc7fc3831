// Takes orders one at a time and answers them, until the host hangs up.
//
// A line that is not an order is named on standard error and has no answer.
'use strict';

const { native, process } = node;
const carry = use('carry');
const imports = use('imports');
const inspector = use('inspector');
const session = use('session');
const surroundings = use('surroundings');
const variables = use('variables');
const { complete } = use('complete');
const { shell } = use('shell');
const { hooks, onWake, wake } = use('wake');
const { plain } = use('show');

const GENERATION = 1;
const WAKE = '{"op":"wake"';

const ORDERS = {
  __proto__: null,
  exec: session.execute,
  wake(order, done) {
    const changed = guarded('wake', () => wake(order)) ?? [];
    for (const hook of [...hooks]) {
      // one that waits for something does so between instructions
      guarded('onWake', () => void hook(order.reason, node.list(...changed)));
    }
    session.send({ type: 'awake', generation: GENERATION, changed });
    done();
  },
  vars(order, done) {
    const vars = guarded('vars', variables.describe) ?? [];
    variables.forget();
    inspector.release();
    session.send({ type: 'vars', vars });
    done();
  },
  complete({ code, cursor }, done) {
    const found = guarded('complete', () => complete(code, cursor));
    const [start, names] = found ?? [cursor, []];
    inspector.release();
    session.send({ type: 'complete', start, names });
    done();
  },
  save({ names, path }, done) {
    carried(guarded('save', () => carry.save(names, path)));
    done();
  },
  load({ path }, done) {
    carried(guarded('load', () => carry.load(path)));
    done();
  },
  // an answer that came too late: the instruction that asked was interrupted
  fetched(order, done) {
    done();
  },
  freeze(order, done) {
    node.gc();
    session.send({ type: 'frozen' });
    done();
  },
};

function carried(found) {
  const [names, failed] = found ?? [[], { '*': 'failed; standard error says why' }];
  inspector.release();
  session.send({ type: 'carried', names, failed });
}

// Calls what may run user code on the way; undefined when that failed or was interrupted.
function guarded(name, call) {
  let found;
  try {
    if (native.guard(() => (found = call()))) return found;
    native.write(2, `agent: ${name} was interrupted\n`);
  } catch (error) {
    native.write(2, `agent: ${name} failed: ${plain(error)}\n`);
  }
  return undefined;
}

// The start of a line that was sent before the machine was captured may precede the first order
// afterwards.
function parsed(line) {
  try {
    return JSON.parse(line);
  } catch (error) {
    const at = line.lastIndexOf(WAKE);
    if (at <= 0) throw error;
    return JSON.parse(line.slice(at));
  }
}

// Carries out an order; a message for the inspector, if that is how.
function hear(line) {
  try {
    const order = parsed(line);
    return ORDERS[order.op](order, native.end);
  } catch (error) {
    // user code has broken something the agent relies on: an answer there must be
    const failed = `agent: the order was not carried out: ${plain(error)}`;
    if (!session.fail(failed)) {
      native.write(2, `${failed}\n`);
      native.end();
    }
  }
  return undefined;
}

function main() {
  inspector.connect();
  imports.hook();
  surroundings.furnish(session.display, shell, onWake);
  variables.remember();
  native.start([hear, session.interrupted, session.sent]);
  native.heed();
  const version = process.version.slice(1);
  const orders = Object.keys(ORDERS);
  const language = 'javascript';
  session.send({ type: 'ready', generation: GENERATION, language, version, orders });
}

Object.assign(exports, { main });
