// The protocol every Node program here speaks; see ../c/program.h for the whole of it.
// A program calls run({setup, check, step, digest, finish}); each may be async. `expect` records the first failure.
'use strict';
const crypto = require('crypto');

const PATIENCE = 60000; // ms; the longest anything may take before it counts as lost
let failure = null;

function expect(what, got, expected = true) {
  const [a, b] = [JSON.stringify(got), JSON.stringify(expected)];
  if (a !== b && failure === null) failure = `${what}, expected ${b}, got ${a}`.slice(0, 500);
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

/** Waits for a promise, but not for ever. */
async function inTime(what, promise) {
  let timer;
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error(`${what}: nothing in ${PATIENCE} ms`)), PATIENCE); });
  try { return await Promise.race([promise, late]); } finally { clearTimeout(timer); }
}

async function until(what, condition) {
  const end = performance.now() + PATIENCE;
  while (!condition()) {
    if (performance.now() > end) { expect(what, 'stuck', 'to happen'); return; }
    await sleep(2);
  }
}

const sha = (value) => crypto.createHash('sha256').update(JSON.stringify(value)).digest('hex').slice(0, 16);
const say = (line) => new Promise((resolve) => process.stdout.write(line + '\n', resolve));

async function answer(program, command) {
  if (command === 'check') {
    try { await program.check(); } catch (error) { expect('check', String(error), 'no exception'); }
    await say(failure === null ? 'ok' : `fail ${failure}`);
  } else if (command === 'step') {
    await program.step();
    await say('stepped');
  } else if (command === 'digest') {
    await say(sha(await program.digest()));
  } else {
    await say(`unknown ${command}`);
  }
}

async function run(program) {
  await program.setup();
  const pid = process.pid;
  const check = program.check;
  program.check = async () => { await check(); expect('own pid', process.pid, pid); };
  await say('ready');
  let text = '';
  for await (const chunk of process.stdin) {
    text += chunk;
    for (let end; (end = text.indexOf('\n')) >= 0;) {
      const command = text.slice(0, end).trim();
      text = text.slice(end + 1);
      if (command === 'quit') { await leave(program); return; }
      await answer(program, command);
    }
  }
  await leave(program);
}

async function leave(program) {
  if (program.finish) await program.finish();
  process.exit(0);
}

module.exports = { PATIENCE, expect, inTime, run, sha, sleep, until };
