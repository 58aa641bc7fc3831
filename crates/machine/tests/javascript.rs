//! JavaScript machines through their own surface: what Python's tests in `life.rs` ask, and what
//! only an event loop has.

use stasis_api::{Durability, Exec, Instruction, NewMachine, State, Status, Stream, Timeout};
use stasis_machine::{AdoptSelection, Branch, Machine, Steps};
use stasis_testbed::{TestHost, error_name, exec, lines, run, until, value};
use std::sync::Arc;

const LANGUAGE: &str = "javascript";

pub fn bed() -> TestHost {
    TestHost::of(LANGUAGE)
}

pub fn machine(bed: &TestHost) -> Arc<Machine> {
    let new = NewMachine { template: Some(LANGUAGE.into()), ..NewMachine::default() };
    bed.host.create("test", new).expect("make a machine")
}

/// An instruction's error, with its frames.
pub fn traceback(end: &Instruction) -> String {
    let outcome = end.outcome.clone().expect("an outcome");
    outcome.error.expect("an error").traceback
}

#[test]
fn values_output_errors_and_state() {
    let bed = bed();
    let machine = machine(&bed);
    let end = run(&machine, "console.log('a'); console.error('b'); console.info('c'); let x = 6");
    assert_eq!((end.seq, end.status), (0, Status::Done));
    assert_eq!(end.outcome.expect("an outcome").value, None);
    assert_eq!(lines(&machine, 0, None), ["a", "b", "c"]);
    assert_eq!(lines(&machine, 0, Some(Stream::Stderr)), ["b"]);
    assert_eq!(value(&machine, "x * 7"), "42");
    let end = run(&machine, "null.y");
    assert_eq!((end.status, error_name(&end)), (Status::Failed, "TypeError"));
    assert!(end.receipt.expect("a receipt").intact);
    assert_eq!(machine.language().name(), LANGUAGE);
    for (code, shown) in [
        ("{a: 1, b: [1, 'x']}", "{ a: 1, b: [ 1, 'x' ] }"),
        ("{ let inner = 2; inner + 1 }", "3"),
        ("new Map([[1, {}]])", "Map(1) { 1 => {} }"),
        ("10n ** 20n", "100000000000000000000n"),
        ("null", "null"),
        ("await Promise.resolve('late')", "'late'"),
        ("Promise.resolve(5)", "Promise { 5 }"),
    ] {
        assert_eq!(value(&machine, code), shown, "{code}");
    }
}

#[test]
fn names_persist_and_can_be_declared_again() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let a = 1; const b = 2; class C { x = 1 }; function f() { return a + b }");
    assert_eq!(value(&machine, "f() + new C().x"), "4");
    run(&machine, "let a = 10; const b = 20; class C { x = 100 }; function f() { return a - b }");
    assert_eq!(value(&machine, "f() + new C().x"), "90");
    run(&machine, "const { p, q } = await Promise.resolve({ p: 1, q: 2 })");
    assert_eq!(value(&machine, "p + q"), "3");
    assert_eq!(error_name(&run(&machine, "let broken = null.x")), "TypeError");
    assert_eq!(value(&machine, "let broken = 1; broken"), "1");
}

#[test]
fn errors_show_the_frames_of_user_code() {
    let bed = bed();
    let machine = machine(&bed);
    let end = run(&machine, "function f() {\n  throw new RangeError('no')\n}\nf()");
    assert_eq!(
        traceback(&end),
        "instruction 0:2\n  throw new RangeError('no')\n        ^\nRangeError: no\n    \
         at f (instruction 0:2:9)\n    at instruction 0:4:1\n"
    );
    let end = run(&machine, "let fine = 1\nlet z = = 3");
    assert_eq!(error_name(&end), "SyntaxError");
    assert_eq!(
        traceback(&end),
        "instruction 1:2\nlet z = = 3\n        ^\nSyntaxError: Unexpected token '='\n    \
         at instruction 1:2:9\n"
    );
    let end = run(&machine, "await (async () => { await 1; throw new Error('late') })()");
    assert!(traceback(&end).contains("at instruction 2:1:"), "{}", traceback(&end));
    let end = run(&machine, "throw { odd: 1 }");
    assert_eq!(traceback(&end), "Uncaught { odd: 1 }\n");
    let end = run(&machine, "process.exit(3)");
    assert_eq!((end.status, error_name(&end)), (Status::Failed, "SystemExit"));
    // an uncaught error in a callback is printed, and ends nothing
    let code = "setTimeout(() => { throw new Error('in a timer') }, 1); \
                await new Promise((done) => setTimeout(done, 50)); 'on'";
    let end = run(&machine, code);
    assert_eq!(end.outcome.expect("an outcome").value.as_deref(), Some("'on'"));
    let said = lines(&machine, end.seq, Some(Stream::Stderr)).join("\n");
    assert!(said.contains("Uncaught Error: in a timer"), "{said}");
}

#[test]
fn output_comes_in_order_also_that_of_children() {
    let bed = bed();
    let machine = machine(&bed);
    let code = "console.log('one'); require('node:child_process').execSync('echo two', \
                { stdio: 'inherit' }); require('node:fs').writeSync(1, 'three\\n'); \
                process.stderr.write('four\\n'); process.stdout.write('five\\n'); \
                console.warn('six'); process.stdout.write('seven')";
    run(&machine, code);
    assert_eq!(lines(&machine, 0, None), ["one", "two", "three", "four", "five", "six", "seven"]);
    let shell = machine.language().shell("echo from the shell; exit 3");
    assert_eq!(value(&machine, &shell), "3");
    assert_eq!(lines(&machine, 1, None), ["from the shell"]);
    let end = run(&machine, "display({ 'text/html': '<b>x</b>' }, { raw: true }); display([1])");
    let shown = end.outcome.expect("an outcome").shown;
    assert_eq!(shown[0].data["text/html"], "<b>x</b>");
    assert_eq!(shown[1].data["text/plain"], "[ 1 ]");
    let code = "({ [Symbol.for('Jupyter.display')]: () => ({ 'application/json': { a: [1] } }) })";
    let data = run(&machine, code).outcome.expect("an outcome").data.expect("data");
    assert_eq!(data["application/json"]["a"][0], 1);
}

/// Code that never ends, in every place where code can be. Each says `on` when it is there.
const ENDLESS: [&str; 9] = [
    "while (true) {}",
    "await 1; while (true) {}",
    "await new Promise(() => {})",
    "await new Promise(() => setTimeout(() => { while (true) {} }, 1))",
    "while (true) await 0",
    "try { while (true) {} } finally { while (true) {} }",
    "process.on('SIGINT', () => {}); while (true) {}",
    "({ [Symbol.for('nodejs.util.inspect.custom')]() { while (true) {} } })",
    "new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, \
     1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, 102, 0, 0, 10, 9, 1, 7, 0, 3, 64, 12, 0, 11, \
     11]))).exports.f()",
];

#[test]
fn an_interrupt_keeps_the_state() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let n = -1; let ticks = 0; setInterval(() => { ticks += 1 }, 5)");
    for (index, code) in ENDLESS.iter().enumerate() {
        let code = format!("n = {index}; console.log('on'); {code}");
        let endless = Exec { code, timeout: Timeout::Never, ..Exec::default() };
        let seq = machine.submit(endless).expect("submit");
        until("it says so", || lines(&machine, seq, None) == ["on"]);
        assert!(machine.interrupt().expect("interrupt"), "{index}");
        let end = machine.wait(seq).expect("its end");
        assert_eq!(end.status, Status::Interrupted, "{index}: {:?}", end.outcome);
        assert!(end.receipt.expect("a receipt").intact, "{index}");
        assert_eq!(value(&machine, "n"), index.to_string());
    }
    let code = "const before = ticks; while (ticks < before + 3) \
                await new Promise((done) => setTimeout(done, 5)); 'the timer goes on'";
    assert_eq!(value(&machine, code), "'the timer goes on'");
}

#[test]
fn a_timeout_keeps_the_state() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let n = 1");
    for code in ["n = 2; while (true) {}", "n = 2; await new Promise(() => {})"] {
        let timeout = Timeout::Seconds(3.0);
        let end = exec(&machine, Exec { code: code.into(), timeout, ..Exec::default() });
        assert_eq!((end.status, error_name(&end)), (Status::Interrupted, "TimeoutError"));
        assert_eq!(value(&machine, "n"), "2");
    }
}

/// Leftovers of an instruction keep running between instructions; an interrupt of the next one ends
/// them if they keep it from starting.
#[test]
fn a_callback_that_never_ends_does_not_take_the_machine() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let n = 1; setTimeout(() => { n = 2; while (true) {} }, 1)");
    let mut values = (0..50).map(|_| {
        let timeout = Timeout::Seconds(1.0);
        let end = exec(&machine, Exec { code: "n".into(), timeout, ..Exec::default() });
        assert_ne!(end.status, Status::Lost, "{:?}", end.outcome);
        end.outcome.and_then(|outcome| outcome.value)
    });
    assert!(values.any(|value| value.as_deref() == Some("2")));
}

/// A hook is user code too: an endless one costs at most the instruction that had to wait for it.
#[test]
fn a_wake_hook_that_never_ends_does_not_take_the_machine() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let n = 1; let isEndless = true; stasis.onWake(() => { while (isEndless) {} })");
    bed.host.swap(&machine).expect("swap");
    let timeout = Timeout::Seconds(3.0);
    let end = exec(&machine, Exec { code: "isEndless = false".into(), timeout, ..Exec::default() });
    assert_ne!(end.status, Status::Running, "{:?}", end.outcome);
    let end = exec(&machine, Exec { code: "isEndless = false".into(), timeout, ..Exec::default() });
    assert_ne!(end.status, Status::Lost, "{:?}", end.outcome);
    assert_eq!(value(&machine, "n"), "1");
    assert_eq!(error_name(&run(&machine, "stasis.onWake(1)")), "TypeError");
}

/// Timers, promises, closures, suspended generators, open files, child processes.
#[test]
fn waiting_work_survives_a_swap() {
    let bed = bed();
    let machine = machine(&bed);
    run(
        &machine,
        "const fs = require('node:fs'); let fired = 0; let settle; \
         const later = new Promise((done) => { settle = done }).then((x) => x + 1); \
         setTimeout(() => { fired += 1 }, 300); setInterval(() => { fired += 10 }, 100_000); \
         const next = (function* () { let n = 0; while (true) yield n++ })(); next.next(); \
         const count = (() => { let own = 0; return () => ++own })(); count(); \
         const file = fs.openSync('note.txt', 'w+'); fs.writeSync(file, 'hello'); \
         const memory = new WebAssembly.Memory({ initial: 1 }); \
         new Uint8Array(memory.buffer)[9] = 7; \
         const child = require('node:child_process').spawn('cat'); let echoed = ''; \
         child.stdout.on('data', (piece) => { echoed += piece })",
    );
    for round in 1..4 {
        bed.host.swap(&machine).expect("swap out");
        assert_eq!(machine.describe().state, State::Swapped);
        let state =
            value(&machine, "[next.next().value, count(), new Uint8Array(memory.buffer)[9]]");
        assert_eq!(state, format!("[ {round}, {}, 7 ]", round + 1));
    }
    let wait = "while (fired === 0) await new Promise((done) => setTimeout(done, 10)); fired";
    assert_eq!(value(&machine, wait), "1");
    assert_eq!(value(&machine, "settle(41); await later"), "42");
    assert_eq!(
        value(&machine, "fs.writeSync(file, '!'); fs.readFileSync('note.txt', 'utf8')"),
        "'hello!'"
    );
    let talk = "child.stdin.write('still here'); \
                while (echoed === '') await new Promise((done) => setTimeout(done, 10)); echoed";
    assert_eq!(value(&machine, talk), "'still here'");
}

#[test]
fn undo_roll_back_and_branch() {
    let bed = bed();
    let machine = machine(&bed);
    for n in 0..4 {
        run(&machine, &format!("x = {n}"));
        machine.settle().expect("settle");
    }
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "x"), "2");
    let branch = Branch { seq: Some(1), names: vec![None, None], ..Branch::default() };
    let branches = bed.host.branch(&machine, branch).expect("branch");
    for (index, branch) in branches.iter().enumerate() {
        assert_eq!(value(branch, &format!("x += {index}; x")), (1 + index).to_string());
    }
    bed.host.roll_back(&machine, None).expect("to the beginning");
    assert_eq!(error_name(&run(&machine, "x")), "ReferenceError");
}

#[test]
fn machines_and_branches_differ_in_randomness() {
    let bed = bed();
    let machine = machine(&bed);
    let code = "[Math.random(), crypto.randomUUID(), require('node:crypto').randomInt(2 ** 40), \
                crypto.getRandomValues(new Uint32Array(1))[0]].join(' ')";
    // what Node draws ahead of time is there when the branches are made
    run(&machine, code);
    let branch = Branch { names: vec![None, None], ..Branch::default() };
    let branches = bed.host.branch(&machine, branch).expect("branch");
    let all: Vec<String> =
        branches.iter().chain([&self::machine(&bed)]).map(|one| value(one, code)).collect();
    for (one, other) in [(0, 1), (0, 2), (1, 2)] {
        let pairs = all[one].split(' ').zip(all[other].split(' ')).enumerate();
        // the first is for simulation: branches share it unless they ask for another
        for (index, (a, b)) in pairs.skip(usize::from(other == 1)) {
            assert_ne!(a, b, "generator {index} of {one} and {other}");
        }
    }
}

#[test]
fn saved_state_survives_the_host() {
    let bed = bed();
    let machine = machine(&bed);
    let name = machine.name().to_string();
    run(&machine, "let x = { y: 1 }; const f = () => x.y");
    machine.settle().expect("settle");
    drop(machine);
    let bed = bed.reopen();
    let machine = bed.host.machine(&name).expect("it is there");
    assert_eq!(value(&machine, "f()"), "1");
}

/// Each of these ends the process; the machine is back at its checkpoint by the next instruction.
#[test]
fn killing_the_process_costs_one_instruction() {
    let bed = bed();
    let machine = machine(&bed);
    let durability = Some(Durability::Local);
    exec(&machine, Exec { code: "let kept = [1, 2]".into(), durability, ..Exec::default() });
    let deaths = [
        "kept.push(3); process.abort()",
        "kept.push(3); process.kill(process.pid, 'SIGKILL')",
        "kept.push(3); process.reallyExit(3)",
    ];
    for code in deaths {
        let end = run(&machine, code);
        assert_eq!(end.status, Status::Lost, "{code}");
        assert!(end.receipt.expect("a receipt").lost.is_some());
        assert_eq!(value(&machine, "kept"), "[ 1, 2 ]", "{code}");
    }
}

#[test]
fn variables_are_listed_and_names_completed() {
    let bed = bed();
    let machine = machine(&bed);
    run(
        &machine,
        "let count = 3; const list = [1, 2, 3]; class Point { x = 1 }; const at = new Point(); \
         var word = 'hi'; function twice(n) { return 2 * n }; const odd = new Proxy({}, \
         { get() { throw new Error('looked at') } }); Object.defineProperty(globalThis, \
         'endless', { get() { while (true) {} } })",
    );
    let vars = bed.host.vars(&machine).expect("variables");
    let seen: Vec<(&str, &str)> = vars.iter().map(|one| (&*one.name, &*one.kind)).collect();
    let wanted = [
        ("Point", "class"),
        ("at", "Point"),
        ("count", "number"),
        ("list", "Array"),
        ("odd", "Proxy"),
        ("twice", "function"),
        ("word", "string"),
    ];
    assert_eq!(seen, wanted);
    assert_eq!((&*vars[3].repr, vars[3].shape.as_deref()), ("[ 1, 2, 3 ]", Some("3")));
    let complete =
        |code: &str| bed.host.complete(&machine, code.into(), code.chars().count()).expect("names");
    assert_eq!(complete("cou"), (0, vec!["count".to_owned()]));
    assert_eq!(complete("let é = Math.flo"), (13, vec!["floor".to_owned()]));
    let (start, names) = complete("at.");
    assert!(start == 3 && names.contains(&"x".to_owned()), "{names:?}");
    assert_eq!(complete("endless.x"), (8, Vec::new()));
}

#[test]
fn variables_are_adopted_from_a_branch() {
    let bed = bed();
    let machine = machine(&bed);
    run(&machine, "let best = { score: 1 }; const fixed = 1; function tool() { return 1 }");
    machine.settle().expect("settle");
    let branch = Branch { names: vec![None], ..Branch::default() };
    let other = bed.host.branch(&machine, branch).expect("a branch").remove(0);
    run(&other, "best = { score: 2, seen: new Set([1]) }; tool = () => 2");
    let place = bed.host.place(&other, None).expect("a place");
    let names = ["best", "tool"].map(str::to_owned).to_vec();
    let wanted = AdoptSelection { variables: names, ..AdoptSelection::default() };
    let adopted = bed.host.adopt(&machine, &place, wanted).expect("an answer");
    assert!(adopted.conflicts.is_empty(), "{adopted:?}");
    assert!(adopted.failed["tool"].contains("cloned"), "{adopted:?}");
    assert_eq!(value(&machine, "best"), "{ score: 2, seen: Set(1) { 1 } }");
    assert_eq!(value(&machine, "tool()"), "1");
}

/// User code replaces globals only for itself: the agent continues.
#[test]
fn an_agent_that_user_code_tries_to_break_answers() {
    let bed = bed();
    let machine = machine(&bed);
    let attempts = [
        "for (const one of [Array, String, Map, Set, Promise, RegExp, Function, Object]) \
         for (const name of Object.getOwnPropertyNames(one.prototype)) \
         if (!['constructor', '__proto__'].includes(name)) try { \
         one.prototype[name] = () => { throw new Error('mine') } } catch {}; 1",
        "Object.prototype.toJSON = () => 'x'; Object.defineProperty(Object.prototype, 'id', \
         { get() { throw 1 }, set() { throw 2 } }); 1",
        "Error.prepareStackTrace = () => { throw new Error('mine') }; 1",
        "JSON.stringify = JSON.parse = Reflect.apply = Object.keys = null; 1",
        "for (const name of Object.getOwnPropertyNames(globalThis)) try { \
         if (!['globalThis', 'undefined'].includes(name)) globalThis[name] = undefined } \
         catch {}; 1",
    ];
    for code in attempts {
        let fresh = self::machine(&bed);
        run(&fresh, code);
        assert_eq!(value(&fresh, "let z = 40; z + 2"), "42", "{code}");
        assert_eq!(run(&fresh, "throw 5").status, Status::Failed, "{code}");
        assert_eq!(value(&fresh, "await 7"), "7", "{code}");
        assert!(bed.host.vars(&fresh).is_ok(), "{code}");
    }
    let close =
        "for (let fd = 0; fd < 600; fd++) try { require('node:fs').closeSync(fd) } catch {}";
    let ended = run(&machine, close);
    assert!(matches!(ended.status, Status::Done | Status::Lost), "{:?}", ended.outcome);
    assert_eq!(value(&machine, "1 + 1"), "2");
}

#[test]
fn large_values_are_cut_and_say_so() {
    let bed = bed();
    let machine = machine(&bed);
    let end = run(&machine, "'é'.repeat(20_000_000)");
    let outcome = end.outcome.expect("an outcome");
    assert!(outcome.value.expect("a value").len() < 20_000_000);
    assert_eq!(value(&machine, "[...Array(1000).keys()].length"), "1000");
}
