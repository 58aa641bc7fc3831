// Proves: Node's timers survive: intervals go on, short timeouts fire once and not early, far ones stay
// pending.
// How: an interval and a chain of short timeouts run all the time and check themselves against
// performance.now(); a check waits for both to move on, lets an immediate and a microtask run in order, and
// looks at the far timeout.
'use strict';
const { expect, run, until } = require('./program.js');

let steps = 0, ticks = 0, links = 0, far, farFired = false, log = [];

function chain() {
  const start = performance.now();
  setTimeout(() => {
    expect('timeout not early', performance.now() - start >= 28);
    links++;
    chain();
  }, 30);
}

run({
  setup() {
    setInterval(() => { ticks++; }, 10);
    chain();
    far = setTimeout(() => { farFired = true; }, 3600 * 1000);
  },
  async check() {
    const before = [ticks, links];
    await until('interval goes on', () => ticks > before[0] + 2);
    await until('timeouts go on', () => links > before[1] + 1);
    expect('far timeout', farFired, false);
    expect('far timeout known', far.hasRef());
    log = [];
    setImmediate(() => log.push('immediate'));
    process.nextTick(() => log.push('tick'));
    Promise.resolve().then(() => log.push('microtask'));
    await until('callbacks', () => log.length === 3);
    expect('each callback ran', [...log].sort(), ['immediate', 'microtask', 'tick']);
  },
  step() { steps++; clearTimeout(far); far = setTimeout(() => { farFired = true; }, (3600 + steps) * 1000); },
  digest: () => steps,
});
