// Proves: worker threads survive: their heaps, messages between them, shared memory, a worker blocked in
// Atomics.wait.
// How: two workers compute without pause and answer messages; a third is blocked until a check notifies it;
// memory shared by all is counted up. Every answer is compared with what this thread computes itself.
'use strict';
const { Worker, isMainThread, parentPort, workerData } = require('worker_threads');
const { expect, inTime, run, until } = require('./program.js');

function mixed(n) { // something for the compiler to optimise
  let x = n | 0;
  for (let i = 0; i < 20000; i++) x = (Math.imul(x ^ (x >>> 15), 0x2c1b3c6d) + i) | 0;
  return x;
}

if (!isMainThread) {
  const cells = new Int32Array(workerData.shared);
  if (workerData.blocked) {
    for (let seen = 0; ; seen++) { // cell 1 is the bell, cell 2 counts its rings
      Atomics.wait(cells, 1, seen);
      Atomics.add(cells, 2, 1);
      Atomics.notify(cells, 2);
    }
  }
  const kept = new Map();
  const busy = () => { const n = kept.size % 100; if (mixed(n) !== mixed(n)) throw new Error('unequal'); Atomics.add(cells, 0, 1); setImmediate(busy); };
  parentPort.on('message', ({ id, n }) => { kept.set(n, mixed(n)); parentPort.postMessage({ id, value: kept.get(n), size: kept.size }); });
  busy();
} else {
  let steps = 0, rings = 0, next = 0, workers, cells;
  const waiting = new Map();
  const ask = (worker, n) => inTime('worker', new Promise((resolve) => { const id = next++; waiting.set(id, resolve); worker.postMessage({ id, n }); }));
  const start = (shared, blocked) => {
    const worker = new Worker(__filename, { workerData: { shared, blocked } });
    worker.on('message', (message) => { waiting.get(message.id)(message); waiting.delete(message.id); });
    worker.on('error', (error) => expect('worker', String(error), 'no error'));
    return worker;
  };
  run({
    async setup() {
      const shared = new SharedArrayBuffer(64);
      cells = new Int32Array(shared);
      workers = [start(shared, false), start(shared, false)];
      start(shared, true);
      for (const worker of workers) await ask(worker, 0);
    },
    async check() {
      const before = Atomics.load(cells, 0);
      await until('workers go on', () => Atomics.load(cells, 0) > before);
      for (const worker of workers) {
        const { value, size } = await ask(worker, steps);
        expect('answer', value, mixed(steps));
        expect('map kept by the worker', size, steps + 1);
      }
      expect('rings before the bell', Atomics.load(cells, 2), rings);
      rings++;
      Atomics.add(cells, 1, 1);
      Atomics.notify(cells, 1);
      await until('blocked worker wakes', () => Atomics.load(cells, 2) === rings);
    },
    async step() { steps++; for (const worker of workers) await ask(worker, steps); },
    digest: () => [steps, mixed(steps)],
  });
}
