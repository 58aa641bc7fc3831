// Proves: suspended async functions, generators, streams and zlib state survive.
// How: an async generator is half run, a promise is awaited by several, a transform stream and a gzip stream
// have taken half their input; a check resumes each, compares with the whole, and sets the next one up. A file
// stream waits with data unread.
'use strict';
const fs = require('fs');
const zlib = require('zlib');
const { PassThrough, Transform } = require('stream');
const { expect, inTime, run, sha } = require('./program.js');

let steps = 0, state;

async function* numbers() { for (let n = 0, sum = 0; ; n++) { sum += n; await null; yield sum; } }
const collect = async (stream) => { const parts = []; for await (const part of stream) parts.push(part); return Buffer.concat(parts); };
const text = (from) => Array.from({ length: 5000 }, (_, i) => `line ${i * 7919 % 1000 + from + steps}\n`).join('');
const upper = () => new Transform({ transform(chunk, _, done) { done(null, String(chunk).toUpperCase()); } });

async function begin() {
  const generator = numbers();
  for (let i = 0; i < 10 + steps; i++) await generator.next();
  let open;
  const gate = new Promise((resolve) => { open = resolve; });
  const waiters = [1, 2, 3].map(async (n) => n * (await gate)); // suspended until the gate opens
  const transform = upper(), gzip = zlib.createGzip(), file = fs.createReadStream('input', { highWaterMark: 1000 });
  const out = collect(transform), packed = collect(gzip.pipe(new PassThrough()));
  transform.write(text(0));
  gzip.write(text(0));
  gzip.flush();
  const reader = file[Symbol.asyncIterator]();
  const first = (await reader.next()).value;
  state = { generator, open, waiters, transform, gzip, out, packed, reader, first };
}

async function finish() {
  const { generator, open, waiters, transform, gzip, out, packed, reader, first } = state;
  const n = 10 + steps;
  expect('generator', (await inTime('generator', generator.next())).value, n * (n + 1) / 2);
  open(7);
  expect('waiters', await inTime('waiters', Promise.all(waiters)), [7, 14, 21]);
  transform.end(text(1));
  expect('transform', sha(String(await inTime('transform', out))), sha((text(0) + text(1)).toUpperCase()));
  gzip.end(text(1));
  expect('gzip', sha(String(zlib.gunzipSync(await inTime('gzip', packed)))), sha(text(0) + text(1)));
  const rest = [first];
  for (;;) { const { value, done } = await inTime('file', reader.next()); if (done) break; rest.push(value); }
  expect('file', sha(String(Buffer.concat(rest))), sha('0123456789'.repeat(1000)));
}

run({
  async setup() { fs.writeFileSync('input', '0123456789'.repeat(1000)); await begin(); },
  async check() { await finish(); await begin(); },
  async step() { await finish(); steps++; await begin(); },
  digest: () => [steps, sha(text(0))],
});
