// Proves: a WebAssembly instance survives: memory, globals, table, compiled code, and growing afterwards (its
// memory is a huge reserved range).
// How: a hand-assembled module keeps a counter in a global and writes to memory; a check calls it, compares
// memory with a shadow, grows it (new pages must be zero), and provokes an out-of-bounds access, which V8
// catches with a signal handler.
'use strict';
const { expect, run } = require('./program.js');

// (module (memory (export "memory") 1 1000) (global $n (mut i32) (i32.const 0))
//   (func (export "put") (param $at i32) (param $value i32) (result i32)
//     (i32.store (local.get $at) (local.get $value)) (global.set $n (i32.add (global.get $n) (i32.const 1))) (global.get $n))
//   (func (export "get") (param $at i32) (result i32) (i32.load (local.get $at)))
//   (func (export "count") (result i32) (global.get $n)))
const bytes = new Uint8Array([
  0, 0x61, 0x73, 0x6d, 1, 0, 0, 0,
  1, 16, 3, 0x60, 2, 0x7f, 0x7f, 1, 0x7f, 0x60, 1, 0x7f, 1, 0x7f, 0x60, 0, 1, 0x7f, // types
  3, 4, 3, 0, 1, 2, // functions
  5, 5, 1, 1, 1, 0xe8, 0x07, // memory 1..1000
  6, 6, 1, 0x7f, 1, 0x41, 0, 0x0b, // global
  7, 30, 4, 6, 0x6d, 0x65, 0x6d, 0x6f, 0x72, 0x79, 2, 0, 3, 0x70, 0x75, 0x74, 0, 0, 3, 0x67, 0x65, 0x74, 0, 1, 5, 0x63, 0x6f, 0x75, 0x6e, 0x74, 0, 2, // exports
  10, 33, 3,
  18, 0, 0x20, 0, 0x20, 1, 0x36, 2, 0, 0x23, 0, 0x41, 1, 0x6a, 0x24, 0, 0x23, 0, 0x0b,
  7, 0, 0x20, 0, 0x28, 2, 0, 0x0b,
  4, 0, 0x23, 0, 0x0b,
]);

let steps = 0, instance, shadow = new Map(), puts = 0;
const PAGE = 65536;
const value = (i) => (Math.imul(i + 1, 0x9e3779b1) ^ steps) | 0;

function put(at, word) { shadow.set(at, word); puts++; expect('count returned by put', instance.exports.put(at, word), puts); }
function write() { for (let i = 0; i < 2000; i++) put((i * 36 + steps * 4) % (PAGE - 4) & ~3, value(i)); }

run({
  async setup() { ({ instance } = await WebAssembly.instantiate(bytes)); write(); },
  check() {
    const { memory, get, count } = instance.exports;
    for (const [at, word] of shadow) expect(`word at ${at}`, get(at), word);
    expect('global', count(), puts);
    expect('size', memory.buffer.byteLength, (1 + steps) * PAGE);
    let trapped = '';
    try { get(memory.buffer.byteLength); } catch (error) { trapped = error.constructor.name; }
    expect('out of bounds', trapped, 'RuntimeError');
    const copy = new WebAssembly.Instance(new WebAssembly.Module(bytes)); // a fresh one compiles and starts from nothing
    expect('fresh instance', [copy.exports.get(0), copy.exports.count()], [0, 0]);
  },
  step() {
    steps++;
    const { memory } = instance.exports;
    const old = memory.buffer.byteLength;
    memory.grow(1);
    expect('grown page is zero', new Uint8Array(memory.buffer, old).every((byte) => byte === 0));
    put(old, value(7));
    write();
  },
  digest: () => [puts, instance.exports.get(0), [...shadow].length],
});
