// One session of real work. Instructions are separated by lines of `// ---`; each ends in a value that
// is the same in plain Node, and whenever and however often the machine was out of memory in between.
const fs = require('node:fs'); const path = require('node:path'); let total = 0; total
// ---
function area(radius) { return Math.round(Math.PI * radius ** 2 * 1e6) / 1e6 }
[0, 1, 2].map(area)
// ---
const later = (ms, value) => new Promise((done) => setTimeout(done, ms, value)); typeof later
// ---
await later(5, 'awaited')
// ---
class Account { #balance = 0; static made = 0; constructor(owner) { this.owner = owner; Account.made++ } add(n) { this.#balance += n; return this } get balance() { return this.#balance } }
// ---
const ann = new Account('ann').add(10); ann.balance
// ---
ann.add(5).add(-1).balance
// ---
[Account.made, ann]
// ---
const squares = (function* () { for (let n = 0; ; n++) yield n * n })(); [squares.next().value, squares.next().value]
// ---
[squares.next().value, squares.next().value]
// ---
const counter = (() => { let own = 0; return { up: () => ++own, get own() { return own } } })(); counter.up()
// ---
counter.up(); counter.up()
// ---
const log = fs.openSync('transcript.txt', 'w+'); fs.writeSync(log, 'first\n')
// ---
fs.writeSync(log, 'second\n'); fs.readFileSync('transcript.txt', 'utf8')
// ---
const buffer = Buffer.alloc(5); [fs.readSync(log, buffer, 0, 5, 0), buffer.toString()]
// ---
let ticks = 0; const ticker = setInterval(() => { ticks += 1 }, 5); 'ticking'
// ---
while (ticks < 2) await later(5); ticks >= 2
// ---
let fired = []; setTimeout(() => fired.push('timer'), 30); setImmediate(() => fired.push('immediate')); fired.length
// ---
while (fired.length < 2) await later(5); fired
// ---
let settle; const promise = new Promise((done) => { settle = done }).then((n) => n + 1); promise
// ---
settle(41); await promise
// ---
promise
// ---
const map = new Map([['a', { n: 1 }], ['b', [1, 2]]]); map.set(map.get('a'), 'by identity'); map.size
// ---
map.get(map.get('a'))
// ---
map
// ---
const set = new Set('hello'); [...set].join('')
// ---
set.add('!'); set.delete('h'); set
// ---
const weak = new WeakMap([[ann, 'secret']]); weak.get(ann)
// ---
const cycle = { name: 'loop' }; cycle.self = cycle; cycle
// ---
cycle.self.self === cycle
// ---
const seen = []; const watched = new Proxy({ x: 1 }, { get(own, key) { seen.push(String(key)); return own[key] } }); watched.x + watched.x
// ---
seen
// ---
const tag = Symbol('tag'); const tagged = { [tag]: 1, plain: 2 }; tagged
// ---
tagged[tag]
// ---
const pattern = /\d+/g; const text = 'a1 b22 c333'; pattern.exec(text)[0]
// ---
pattern.exec(text)[0]
// ---
pattern.lastIndex
// ---
2n ** 100n
// ---
const typed = new Float64Array([1.5, 2.5, 3.5]); typed.map((n) => n * 2)
// ---
new DataView(typed.buffer).getFloat64(8, true)
// ---
const shared = new SharedArrayBuffer(16); const atoms = new Int32Array(shared); Atomics.add(atoms, 0, 7)
// ---
Atomics.load(atoms, 0)
// ---
const wasm = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, 1, 0, 6, 6, 1, 127, 1, 65, 0, 11, 7, 5, 1, 1, 110, 0, 0, 10, 13, 1, 11, 0, 35, 0, 65, 1, 106, 36, 0, 35, 0, 11]))); wasm.exports.n()
// ---
wasm.exports.n() + wasm.exports.n()
// ---
const memory = new WebAssembly.Memory({ initial: 1, maximum: 4 }); new Uint8Array(memory.buffer)[100] = 9; memory.grow(1)
// ---
[memory.buffer.byteLength, new Uint8Array(memory.buffer)[100]]
// ---
const child = require('node:child_process').spawn('cat'); let echoed = ''; child.stdout.on('data', (piece) => { echoed += piece }); typeof child.pid
// ---
child.stdin.write('one '); while (echoed.length < 4) await later(5); echoed
// ---
child.stdin.write('two'); while (echoed.length < 7) await later(5); echoed
// ---
const { Worker } = require('node:worker_threads'); const worker = new Worker("const { parentPort } = require('node:worker_threads'); let sum = 0; parentPort.on('message', (n) => parentPort.postMessage(sum += n))", { eval: true }); const heard = []; worker.on('message', (n) => heard.push(n)); worker.postMessage(5); while (heard.length < 1) await later(5); heard
// ---
worker.postMessage(6); while (heard.length < 2) await later(5); heard
// ---
const net = require('node:net'); const server = net.createServer((peer) => peer.on('data', (piece) => peer.write(`echo ${piece}`))); await new Promise((done) => server.listen(0, '127.0.0.1', done)); server.listening
// ---
const socket = net.connect(server.address().port, '127.0.0.1'); let answered = ''; socket.on('data', (piece) => { answered += piece }); socket.write('hi'); while (answered.length < 7) await later(5); answered
// ---
socket.write('ho'); while (answered.length < 14) await later(5); answered
// ---
const { EventEmitter, once } = require('node:events'); const events = new EventEmitter(); let heardEvents = 0; events.on('ping', (n) => { heardEvents += n }); events.emit('ping', 3)
// ---
events.emit('ping', 4); heardEvents
// ---
const waits = once(events, 'pong'); events.emit('pong', 'late'); await waits
// ---
async function* pages() { for (let n = 1; n <= 3; n++) { await later(1); yield n } } const book = pages(); (await book.next()).value
// ---
const rest = []; for await (const page of book) rest.push(page); rest
// ---
const { AsyncLocalStorage } = require('node:async_hooks'); const storage = new AsyncLocalStorage(); await storage.run('inner', async () => { await later(1); return storage.getStore() })
// ---
const zlib = require('node:zlib'); zlib.gunzipSync(zlib.gzipSync('compressed')).toString()
// ---
const hash = require('node:crypto').createHash('sha256'); hash.update('part one, '); typeof hash.digest
// ---
hash.update('part two'); hash.digest('hex')
// ---
const url = require('node:url'); new url.URL('../b?c=d', 'https://example.com/x/a').href
// ---
JSON.stringify({ b: [1, { c: null }], a: 'é' })
// ---
structuredClone(new Map([[1, new Date(0)]]))
// ---
new Intl.NumberFormat('en-US', { style: 'currency', currency: 'EUR' }).format(1234.5)
// ---
new Date(Date.UTC(2026, 10, 18, 3, 4, 5)).toISOString()
// ---
null.missing
// ---
total += 1; total
// ---
throw new RangeError('on purpose')
// ---
try { JSON.parse('{bad') } catch (error) { error.name }
// ---
undefinedName
// ---
const { a, ...others } = { a: 1, b: 2, c: 3 }; [a, others]
// ---
label: for (let i = 0; i < 5; i++) { for (let j = 0; j < 5; j++) { if (i * j === 6) break label; total += j } } total
// ---
[3, 1, 2].toSorted().with(0, 9)
// ---
Object.groupBy([1, 2, 3, 4], (n) => (n % 2 ? 'odd' : 'even'))
// ---
const registry = new Map(); const object = { big: new Array(1000).fill(7) }; registry.set('ref', new WeakRef(object)); registry.get('ref').deref().big.length
// ---
const abort = new AbortController(); let aborted; abort.signal.addEventListener('abort', () => { aborted = abort.signal.reason }); abort.abort('why'); aborted
// ---
const stream = require('node:stream').Readable.from(['x', 'y', 'z']); (await stream.toArray()).join('-')
// ---
console.log('printed %s %o', 1, { a: 1 }); console.log(new Map([[1, 2]]))
// ---
let lines = fs.readFileSync('transcript.txt', 'utf8').split('\n'); lines
// ---
fs.closeSync(log); fs.unlinkSync('transcript.txt'); fs.existsSync('transcript.txt')
// ---
socket.destroy(); server.close(); child.kill(); await worker.terminate(); clearInterval(ticker); 'closed'
// ---
[counter.own, squares.next().value, ann.balance, map.size, seen.length]
// ---
(() => { try { return 'tried' } finally { total = 100 } })() + total
// ---
`${[1, 2, 3].map((n) => n * total)}`
// ---
globalThis.made = { deep: { deeper: { deepest: { out: 1 } } } }; made
