// Reads orders one at a time and answers them, until the host closes the socket.
//
// A line that is not an order is named on standard error and has no answer.
'use strict';

const { native, process } = node;
const carry = use('carry');
const imports = use('imports');
const inspector = use('inspector');
const session = use('session');
const surroundings = use('surroundings');
const tools = use('tools');
const variables = use('variables');
const { complete } = use('complete');
const { shell } = use('shell');
const { hooks, onWake, rehearse, wake } = use('wake');
const { plain } = use('show');

const GENERATION = 1;
const WAKE = '{"op":"wake"';

const ORDERS = {
  __proto__: null,
  exec: session.execute,
  wake(order, done) {
    const changed = guarded('wake', () => wake(order)) ?? [];
    for (const hook of [...hooks]) {
      // a message that waits is handled between instructions
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
  // a late answer: its instruction was interrupted
  fetched(order, done) {
    done();
  },
  tool(order, done) {
    done();
  },
  freeze(order, done) {
    rehearse();
    node.gc();
    session.send({ type: 'frozen' });
    done();
  },
};

// The same in the middle of an instruction, which waits for the result of a tool. What it runs can be
// interrupted already, so it is not guarded again.
function wakeInside(order) {
  let changed = [];
  try {
    changed = wake(order);
    for (const hook of [...hooks]) hook(order.reason, node.list(...changed));
  } catch (error) {
    native.write(2, `agent: wake failed: ${plain(error)}\n`);
  } finally {
    session.send({ type: 'awake', generation: GENERATION, changed });
  }
}

function carried(found) {
  const [names, failed] = found ?? [[], { '*': 'failed; standard error says why' }];
  inspector.release();
  session.send({ type: 'carried', names, failed });
}

// Calls a function that may run user code; undefined if it failed or was interrupted.
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

// Executes an order; returns a message for the inspector, if it needs one.
function hear(line) {
  try {
    const order = parsed(line);
    return ORDERS[order.op](order, native.end);
  } catch (error) {
    // user code has broken something the agent relies on: the order must still be answered
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
  tools.furnish(wakeInside);
  variables.remember();
  native.start([hear, session.interrupted, session.sent]);
  native.heed();
  const version = process.version.slice(1);
  const orders = Object.keys(ORDERS);
  const language = 'javascript';
  session.send({ type: 'ready', generation: GENERATION, language, version, orders });
}

Object.assign(exports, { main });
