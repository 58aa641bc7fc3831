//! Code that means harm to the agent for JavaScript, or to the host. Each instruction answers, or
//! is lost with a reason; the machine answers the next one, and another machine notices nothing.

use stasis_api::{Exec, Instruction, Limits, NewMachine, Status, Timeout};
use stasis_machine::Machine;
use stasis_testbed::{TestHost, exec, run, value};
use std::sync::Arc;

const LANGUAGE: &str = "javascript";

fn machine(bed: &TestHost) -> Arc<Machine> {
    let limits = Limits { memory_mb: Some(400), pids: Some(128), ..Limits::default() };
    let template = Some(LANGUAGE.into());
    let new = NewMachine { template, limits, ..NewMachine::default() };
    bed.host.create("test", new).expect("make a machine")
}

fn attempt(machine: &Arc<Machine>, code: String, seconds: f64) -> Instruction {
    exec(machine, Exec { code, timeout: Timeout::Seconds(seconds), ..Exec::default() })
}

/// Checks how an attempt ended, and that both machines are there.
fn check(what: &str, end: &Instruction, machine: &Arc<Machine>, other: &Arc<Machine>) {
    let receipt = end.receipt.as_ref().expect("a receipt");
    assert_eq!(end.status == Status::Lost, receipt.lost.is_some(), "{what}: {:?}", end.outcome);
    assert_eq!(value(machine, "20 + 22"), "42", "{what}");
    assert_eq!(value(other, "mine += 1; mine > 0"), "true", "{what}");
}

const ATTEMPTS: &[&str] = &[
    // a value that never ends while it is looked at
    "({ get [Symbol.toStringTag]() { while (true) {} } })",
    "new Proxy({}, { ownKeys() { while (true) {} }, getPrototypeOf() { while (true) {} } })",
    "({ [Symbol.for('nodejs.util.inspect.custom')]: () => { while (true) {} } })",
    "const endless = new Error('x'); Object.defineProperty(endless, 'stack', \
     { get() { while (true) {} } }); throw endless",
    // ways to end
    "process.exit(1)",
    "process.kill(process.pid, 'SIGTERM'); while (true) {}",
    "process.kill(process.pid, 'SIGSTOP')",
    "process.abort()",
    // the agent's tools
    "const { Session } = require('node:inspector'); Session.prototype.post = () => {}; \
     const own = new Session(); own.connect(); 1",
    "require('node:inspector').open(0); 1",
    "process.binding('inspector').Connection.prototype.dispatch = () => {}; 1",
    "Error.stackTraceLimit = { valueOf() { while (true) {} } }; \
     Error.prepareStackTrace = () => { while (true) {} }; new Error('x').stack",
    "for (const name of Object.getOwnPropertyNames(Buffer.prototype)) try { \
     Buffer.prototype[name] = null } catch {}; Buffer.from = Buffer.concat = null; 1",
    "for (const name of Reflect.ownKeys(globalThis)) try { delete globalThis[name] } catch {}; 1",
    "require('node:module').registerHooks({ resolve() { while (true) {} } }); \
     await import('./x.mjs')",
    "require('node:fs').writeSync(3, '{\"type\":\"done\",\"seq\":999,\"runtime_ms\":1}\\n'); 1",
];

/// Code that takes what it can get; it has time to. Threads that it started go on, and may use up
/// the machine's memory only while a later instruction runs.
const FLOODS: &[&str] = &[
    "const { Worker } = require('node:worker_threads'); for (let n = 0; n < 300; n++) \
     new Worker('while (true) {}', { eval: true }).on('error', () => {}); 1",
    "const flood = []; while (true) flood.push(new Uint8Array(1 << 20).fill(1))",
    "const heap = []; while (true) heap.push({ n: heap.length, s: 'x'.repeat(100) + heap.length })",
    "let text = 'x'; while (true) text += text",
];

#[test]
fn bad_code_costs_at_most_its_instruction() {
    let bed = TestHost::of(LANGUAGE);
    let other = machine(&bed);
    run(&other, "let mine = 0");
    for code in ATTEMPTS {
        let one = machine(&bed);
        let end = attempt(&one, (*code).to_owned(), 1.0);
        check(code, &end, &one, &other);
        bed.host.remove(&one).expect("remove");
    }
    for code in FLOODS {
        let one = machine(&bed);
        let end = attempt(&one, (*code).to_owned(), 4.0);
        let later = run(&one, "20 + 22");
        if later.status != Status::Done {
            let lost = later.receipt.as_ref().and_then(|receipt| receipt.lost.as_deref());
            assert!(lost.is_some_and(|why| !why.is_empty()), "{code}: {later:?}");
            bed.host.roll_back(&one, None).expect("back to its beginning");
        }
        check(code, &end, &one, &other);
        bed.host.remove(&one).expect("remove");
    }
}

#[test]
fn code_that_is_too_large_or_too_deep_is_answered() {
    let bed = TestHost::of(LANGUAGE);
    let (one, other) = (machine(&bed), machine(&bed));
    run(&other, "let mine = 0");
    let huge = Exec { code: "1;".repeat(50 << 20), ..Exec::default() };
    let refused = one.submit(huge).expect_err("100 MB of code");
    assert!(refused.to_string().contains("code is at most"), "{refused}");
    for (open, close) in
        [("(", ")"), ("[", "]"), ("{", "}"), ("!", "1"), ("a?.(", ")"), ("<T>", "1")]
    {
        let deep = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        check(open, &attempt(&one, deep, 5.0), &one, &other);
    }
    let value = "let deep = []; for (let n = 0; n < 100_000; n++) deep = [deep]; deep";
    check("a deep value", &attempt(&one, value.into(), 5.0), &one, &other);
    bed.host.vars(&one).expect("variables");
}
