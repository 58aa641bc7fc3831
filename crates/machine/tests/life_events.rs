//! State that no V8 snapshot holds, through every event of a machine's life: each program sets
//! something up, and after each event a step of it has to find it as it was.
//!
//!   swap, restart of the service (kill -9), branch, undo, export and import, many at once

use stasis_api::{Durability, Exec, Name, NewMachine, Status};
use stasis_machine::{Branch, Export, Machine, Steps};
use stasis_testbed::{TestHost, exec, run, value};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const LANGUAGE: &str = "javascript";

/// A program: its name, what sets it up, and an expression that goes one step on. Step `n` has the
/// value `n`, whatever happened in between.
const PROGRAMS: &[(&str, &str, &str)] = &[
    (
        "timers",
        "let fired = 0; let now = 0; const every = setInterval(() => { fired += 1 }, 2); \
         let wake; setTimeout(() => { wake = 'up' }, 1)",
        "await (async () => { const before = fired; while (fired === before || wake !== 'up') \
         await new Promise((done) => setTimeout(done, 2)); return ++now })()",
    ),
    (
        "promises",
        "let settle; let turn = 0; let next = new Promise((done) => { settle = done }); \
         const follow = async () => { while (true) { const add = await next; \
         next = new Promise((done) => { settle = done }); turn += add } }; follow(); 0",
        "settle(1); await new Promise((done) => setImmediate(done)); turn",
    ),
    (
        "closures",
        "const count = (() => { let own = 0; const seen = new WeakMap(); const key = {}; \
         return () => { seen.set(key, ++own); return seen.get(key) } })()",
        "count()",
    ),
    (
        "generators",
        "const sync = (function* () { let n = 1; while (true) { try { yield n++ } finally {} } \
         })(); \
         const slow = (async function* () { let n = 1; while (true) { await null; yield n++ } })()",
        "await (async () => { const one = sync.next().value; const other = (await \
         slow.next()).value; \
         if (one !== other) throw new Error(`${one} ${other}`); return one })()",
    ),
    (
        "open files",
        "const fs = require('node:fs'); const file = fs.openSync('log', 'w+'); \
         fs.unlinkSync('log'); \
         let at = 0; const stream = fs.createWriteStream('stream')",
        "await (async () => { fs.writeSync(file, 'x'); at += 1; \
         await new Promise((done) => stream.write('y', done)); \
         const buffer = Buffer.alloc(100); const read = fs.readSync(file, buffer, 0, 100, 0); \
         if (fs.readFileSync('stream', 'utf8').length !== at) throw new Error('stream'); \
         return read })()",
    ),
    (
        "internal sockets",
        "const net = require('node:net'); let answered = 0; let hear; \
         const server = net.createServer((socket) => socket.on('data', (data) => \
         socket.write(String(Number(data) + 1)))); \
         await new Promise((done) => server.listen(0, '127.0.0.1', done)); \
         const socket = net.connect(server.address().port, '127.0.0.1'); \
         await new Promise((done) => socket.once('connect', done)); \
         socket.on('data', (data) => hear(Number(data)))",
        "answered = await new Promise((done) => { hear = done; socket.write(String(answered)) })",
    ),
    (
        "unix sockets",
        "const net = require('node:net'); let answered = 0; let hear; \
         const server = net.createServer((socket) => socket.on('data', (data) => \
         socket.write(String(Number(data) + 1)))); \
         await new Promise((done) => server.listen('/tmp/own.sock', done)); \
         const socket = net.connect('/tmp/own.sock'); \
         await new Promise((done) => socket.once('connect', done)); \
         socket.on('data', (data) => hear(Number(data)))",
        "answered = await new Promise((done) => { hear = done; socket.write(String(answered)) })",
    ),
    (
        // (module (memory (export "m") 1) (func (export "f") (result i32)
        //   (i32.store (i32.const 0) (i32.add (i32.load (i32.const 0)) (i32.const 1)))
        //   (i32.load (i32.const 0))))
        "WebAssembly",
        "const bytes = new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 5, 1, 96, 0, 1, 127, 3, 2, \
         1, 0, \
         5, 3, 1, 0, 1, 7, 9, 2, 1, 109, 2, 0, 1, 102, 0, 0, 10, 22, 1, 20, 0, 65, 0, 65, 0, 40, \
         2, \
         0, 65, 1, 106, 54, 2, 0, 65, 0, 40, 2, 0, 11]); \
         const wasm = new WebAssembly.Instance(new WebAssembly.Module(bytes)).exports; \
         wasm.m.grow(3); new Uint8Array(wasm.m.buffer)[200000] = 7",
        "(() => { if (new Uint8Array(wasm.m.buffer)[200000] !== 7) throw new Error('memory'); \
         return wasm.f() })()",
    ),
    (
        "worker threads",
        "const { Worker } = require('node:worker_threads'); let heard; \
         const shared = new Int32Array(new SharedArrayBuffer(4)); \
         const worker = new Worker(`const { parentPort, workerData } = \
         require('node:worker_threads'); \
         let own = 0; parentPort.on('message', () => { Atomics.add(workerData, 0, 1); \
         parentPort.postMessage(++own) })`, { eval: true, workerData: shared }); \
         worker.on('message', (count) => heard(count))",
        "await (async () => { const count = await new Promise((done) => { heard = done; \
         worker.postMessage('go') }); if (shared[0] !== count) throw new Error('shared'); \
         return count })()",
    ),
    (
        "child processes",
        "const child = require('node:child_process').spawn('sh', ['-c', \
         'n=0; while read line; do n=$((n+1)); echo $n; done']); let said; \
         child.stdout.on('data', (data) => said(Number(data)))",
        "await new Promise((done) => { said = done; child.stdin.write('go\\n') })",
    ),
    (
        "module bindings",
        "require('node:fs').writeFileSync('counter.mjs', 'export let n = 0; export const up = () \
         => ++n; \
         export default class { step() { return up() } }'); \
         import Counter, { up } from './counter.mjs'; const live = await import('./counter.mjs'); \
         const counter = new Counter()",
        "(() => { const n = counter.step(); if (live.n !== n) throw new Error('live'); return n \
         })()",
    ),
    (
        "async contexts",
        "const { AsyncLocalStorage } = require('node:async_hooks'); const store = new \
         AsyncLocalStorage(); \
         let go; const loop = store.run({ n: 0 }, async () => { while (true) { \
         const done = await new Promise((next) => { go = next }); done(++store.getStore().n) } \
         }); 0",
        "await new Promise((done) => go(done))",
    ),
    (
        "finalizers and weak references",
        "let keep = { n: 0 }; const weak = new WeakRef(keep); \
         const ended = []; const registry = new FinalizationRegistry((what) => ended.push(what)); \
         registry.register(keep, 'keep')",
        "(() => { if (ended.length) throw new Error('collected'); return ++weak.deref().n })()",
    ),
];

/// A machine for each program, all of them set up.
struct Lives {
    bed: TestHost,
    names: Vec<Name>,
    steps: u64,
}

fn keep(machine: &Arc<Machine>, code: &str, what: &str) -> Option<String> {
    let durability = Some(Durability::Local);
    let end = exec(machine, Exec { code: code.into(), durability, ..Exec::default() });
    assert_eq!(end.status, Status::Done, "{what}: {:?}", end.outcome);
    end.outcome.and_then(|outcome| outcome.value)
}

impl Lives {
    fn begin() -> Lives {
        let bed = TestHost::of(LANGUAGE);
        let make = |(what, setup, _): &(&str, &str, &str)| {
            let new = NewMachine { template: Some(LANGUAGE.into()), ..NewMachine::default() };
            let machine = bed.host.create("test", new).expect("make a machine");
            keep(&machine, setup, what);
            machine.name()
        };
        let names = PROGRAMS.iter().map(make).collect();
        Lives { bed, names, steps: 0 }
    }

    fn each(&self, mut act: impl FnMut(&Arc<Machine>, usize)) {
        for (index, name) in self.names.iter().enumerate() {
            act(&self.bed.host.machine(name.as_str()).expect("by name"), index);
        }
    }

    /// Every program goes one step on.
    fn step(&mut self, after: &str) {
        self.steps += 1;
        let wanted = self.steps.to_string();
        self.each(|machine, index| {
            let (what, _, step) = PROGRAMS[index];
            let what = format!("{what}, after {after}");
            assert_eq!(keep(machine, step, &what).as_deref(), Some(&*wanted), "{what}");
        });
    }
}

#[test]
fn state_beyond_v8_snapshots_survives_every_event() {
    let mut lives = Lives::begin();
    lives.step("the beginning");
    lives.each(|machine, _| lives.bed.host.swap(machine).expect("swap"));
    lives.step("a swap");
    // undo: a step is taken back, and the next one is the same again
    lives.step("a step");
    lives.each(|machine, _| lives.bed.host.undo(machine, Steps::default()).expect("undo"));
    lives.steps -= 1;
    lives.step("an undo");
    // the state an instruction dies in is not kept
    lives.each(|machine, index| {
        let end = run(machine, "process.kill(process.pid, 'SIGKILL')");
        assert_eq!(end.status, Status::Lost, "{}", PROGRAMS[index].0);
    });
    lives.step("a restore");
    // branches: each goes on from there on its own, and so does its source
    let next = (lives.steps + 1).to_string();
    lives.each(|machine, index| {
        let (what, _, step) = PROGRAMS[index];
        let branch = Branch { names: vec![None, None], ..Branch::default() };
        for branch in lives.bed.host.branch(machine, branch).expect("branches") {
            assert_eq!(value(&branch, step), next, "{what}, in a branch");
            lives.bed.host.remove(&branch).expect("remove");
        }
    });
    lives.step("branches");
    let Lives { bed, names, steps } = lives;
    let mut lives = Lives { bed: bed.reopen(), names, steps };
    lives.step("another host");
    // export and import: a copy elsewhere is at the same step
    let next = (lives.steps + 1).to_string();
    lives.each(|machine, index| {
        let (what, _, step) = PROGRAMS[index];
        let mut bytes = Vec::new();
        let export = Export { history: false, root: false };
        lives.bed.host.export(machine, export, &mut bytes).expect("export");
        let name: Name = format!("copy-{index}").parse().expect("a name");
        let copy = lives.bed.host.import("test", Some(name), &mut &bytes[..]).expect("import");
        assert_eq!(value(&copy, step), next, "{what}, imported");
        lives.bed.host.remove(&copy).expect("remove");
    });
    lives.step("an export");
    lives.each(|machine, _| lives.bed.host.roll_back(machine, Some(1)).expect("roll back"));
    lives.steps = 1;
    lives.step("a rollback");
}

/// Set in the process that is killed: the data directory.
const VICTIM: &str = "STASIS_TEST_LIFE_EVENTS";

/// Not a test of its own: the part of the next one that is killed.
#[test]
fn victim() {
    let Some(data) = std::env::var_os(VICTIM) else { return };
    let host = Arc::new(stasis_testbed::open(Path::new(&data)));
    for machine in host.machines() {
        let index: usize = machine.name().as_str()[1..].parse().expect("a number");
        let (what, _, step) = PROGRAMS[index];
        keep(&machine, step, what);
    }
    // everything that was answered is on disk: SIGKILL, with all of them in memory
    kill_own();
}

fn kill_own() -> ! {
    let own = std::process::id().to_string();
    let _ = Command::new("kill").args(["-9", &own]).status();
    unreachable!("killed");
}

#[test]
fn state_beyond_v8_snapshots_survives_kill_9() {
    let data = stasis_testbed::data_dir_of(LANGUAGE);
    let host = Arc::new(stasis_testbed::open(data.path()));
    for (index, (what, setup, _)) in PROGRAMS.iter().enumerate() {
        let name: Name = format!("p{index}").parse().expect("a name");
        let template = Some(LANGUAGE.into());
        let new = NewMachine { name: Some(name), template, ..NewMachine::default() };
        let machine = host.create("test", new).expect("make a machine");
        keep(&machine, setup, what);
    }
    drop(host);
    for round in 0..2 {
        let own = std::env::current_exe().expect("a program");
        let mut victim = Command::new(own);
        let done =
            victim.args(["life_events::victim", "--exact"]).env(VICTIM, data.path()).output();
        let done = done.expect("it runs");
        let signal = std::os::unix::process::ExitStatusExt::signal(&done.status);
        assert_eq!(signal, Some(9), "{round}: {}", String::from_utf8_lossy(&done.stdout));
    }
    let host = Arc::new(stasis_testbed::open(data.path()));
    for (index, (what, _, step)) in PROGRAMS.iter().enumerate() {
        let machine = host.machine(&format!("p{index}")).expect("by name");
        assert_eq!(keep(&machine, step, what).as_deref(), Some("3"), "{what}, after kill -9");
    }
}
