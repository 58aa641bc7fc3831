// Proves: a Deno process survives with pending timers, suspended promises and a half-read file.
// How: an interval ticks and a far timeout waits; a check sees the first go on and the second not fire, resumes
// a suspended function and reads on in the file. Speaks the protocol of ../c/program.h by itself. Run with
// `deno run --allow-read --allow-write`.
let steps = 0, ticks = 0, fired = false, failure = null, open, waiter, file;
const encoder = new TextEncoder(), decoder = new TextDecoder();
const PATIENCE = 60000;

const say = (line) => Deno.stdout.write(encoder.encode(line + '\n'));
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
function expect(what, got, expected = true) {
  if (JSON.stringify(got) !== JSON.stringify(expected)) failure ??= `${what}, expected ${JSON.stringify(expected)}, got ${JSON.stringify(got)}`;
}

function suspend() {
  const gate = new Promise((resolve) => { open = resolve; });
  waiter = (async () => (await gate) * 2)();
}

async function setup() {
  setInterval(() => { ticks++; }, 10);
  setTimeout(() => { fired = true; }, 3600 * 1000);
  suspend();
  await Deno.writeTextFile('input', '0123456789'.repeat(1000));
  file = await Deno.open('input', { read: true });
  await file.seek(1234, Deno.SeekMode.Start);
}

async function check() {
  const before = ticks, end = performance.now() + PATIENCE;
  while (ticks < before + 3 && performance.now() < end) await sleep(5);
  expect('interval goes on', ticks >= before + 3);
  expect('far timeout', fired, false);
  open(21);
  expect('suspended function', await waiter, 42);
  suspend();
  const buffer = new Uint8Array(5);
  await file.read(buffer);
  expect('file read on', decoder.decode(buffer), '0123456789'.repeat(2).slice((1234 + steps) % 10, (1234 + steps) % 10 + 5));
  await file.seek(1234 + steps, Deno.SeekMode.Start);
}

async function step() {
  steps++;
  await file.seek(1234 + steps, Deno.SeekMode.Start);
}

async function answer(command) {
  if (command === 'check') {
    try { await check(); } catch (error) { expect('check', String(error), 'no exception'); }
    await say(failure === null ? 'ok' : `fail ${failure}`);
  } else if (command === 'step') {
    await step();
    await say('stepped');
  } else if (command === 'digest') {
    await say(`steps ${steps}`);
  } else {
    await say(`unknown ${command}`);
  }
}

await setup();
await say('ready');
let text = '';
for await (const chunk of Deno.stdin.readable) {
  text += decoder.decode(chunk);
  for (let end; (end = text.indexOf('\n')) >= 0;) {
    const command = text.slice(0, end).trim();
    text = text.slice(end + 1);
    if (command === 'quit') Deno.exit(0);
    await answer(command);
  }
}
Deno.exit(0);
