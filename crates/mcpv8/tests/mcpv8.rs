//! Runs, heaps and sessions on real machines.

use stasis_api::NewMachine;
use stasis_machine::DocumentChange;
use stasis_mcpv8::{Error, ExecutionInfo, HeapTags, PageRequest, V8, V8Mode, V8RunRequest};
use stasis_testbed::{TestHost, until};
use std::time::{Duration, Instant};

const ACCOUNT: &str = "test";

struct Bed {
    v8: V8,
    bed: TestHost,
}

impl Bed {
    fn start() -> Bed {
        let bed = TestHost::of("javascript");
        Bed { v8: V8::new(bed.host.clone()), bed }
    }

    fn submit(&self, request: V8RunRequest) -> Result<String, Error> {
        self.v8.run(ACCOUNT, request)
    }

    fn run(&self, request: V8RunRequest) -> (ExecutionInfo, String) {
        let id = self.submit(request).expect("accepted");
        self.ended(&id)
    }

    fn ended(&self, id: &str) -> (ExecutionInfo, String) {
        until("the run is over", || self.v8.open_execution(ACCOUNT, id).is_none());
        self.v8.finished(ACCOUNT, id).expect("an execution")
    }

    /// Recovery has no end that can be waited for; that of a run can.
    fn ended_after_recovery(&self, id: &str) -> (ExecutionInfo, String) {
        let is_over = || self.v8.execution(ACCOUNT, id).is_ok_and(|info| info.is_over());
        until("the run is over", is_over);
        self.v8.finished(ACCOUNT, id).expect("an execution")
    }

    fn stateless(&self, code: &str) -> (ExecutionInfo, String) {
        self.run(V8RunRequest { mode: V8Mode::Stateless, ..code_of(code) })
    }

    fn session(&self, session: &str, code: &str) -> (ExecutionInfo, String) {
        self.run(V8RunRequest { session: Some(session.into()), ..code_of(code) })
    }
}

fn code_of(code: &str) -> V8RunRequest {
    V8RunRequest { code: Some(code.into()), ..V8RunRequest::default() }
}

#[test]
fn programs_end_with_their_output() {
    let bed = Bed::start();
    for (code, output) in [
        (
            "const { code, success, stdout, stderr } = await child_process.exec('pwd; echo $A \
             >&2; exit 4', \
             { cwd: '/tmp', env: { A: 'b' } }); console.log(code, success, stdout.trim(), \
             stderr.trim())",
            "4 false /tmp b",
        ),
        (
            "const end = await new Deno.Command('printf', { args: ['%s', 'a b'] }).output(); \
             console.log(end.code, end.success, end.stdout.constructor.name, end.stdout.length)",
            "0 true Uint8Array 3",
        ),
        ("console.log((await child_process.exec('kill -9 $$')).code)", "137"),
        (
            "for (const way of ['spawn', 'outputSync']) { \
             try { new Deno.Command('ls')[way]() } catch (error) { \
             console.log(error.message.includes(way)) } }",
            "true\ntrue",
        ),
        (
            "try { await new Deno.Command('/nowhere').output() } catch (error) { \
             console.log(error.code) }",
            "ENOENT",
        ),
    ] {
        let (info, printed) = bed.stateless(code);
        assert_eq!((&*info.status, &*printed), ("completed", output), "{code} {:?}", info.error);
    }
}

/// A program that goes on writing does not keep the run from ending.
#[test]
fn a_program_that_floods_its_output_keeps_no_run() {
    let bed = Bed::start();
    let code = "const { spawn } = await import('node:child_process'); \
                spawn('yes', [], { stdio: 'inherit' }).unref()";
    let start = Instant::now();
    let (info, _) = bed.stateless(code);
    assert_ne!(info.status, "running");
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn stateless_runs_are_modules_on_machines_of_their_own() {
    let bed = Bed::start();
    for (code, output) in [
        ("console.log(await Promise.resolve(1 + 1))", "2"),
        ("import { basename } from 'node:path'; console.log(basename('/a/b'))", "b"),
        ("export const x = 1; console.log(import.meta.url.endsWith('main_0.mjs'))", "true"),
        ("enum E { A = 3 } const n: number = E.A; console.log(n)", "3"),
        ("setTimeout(() => console.log('later'), 50); console.log('now')", "now\nlater"),
        (
            "console.info('a'); console.warn('b'); console.error('c')",
            "[INFO] a\n[WARN] b\n[ERROR] c",
        ),
        ("", ""),
    ] {
        let (info, printed) = bed.stateless(code);
        assert_eq!((&*info.status, &info.error, &*printed), ("completed", &None, output), "{code}");
        assert_eq!((info.result.as_deref(), &info.heap), (Some(""), &None));
    }
    let (info, printed) = bed.stateless("console.log('before');\nnull.x");
    assert_eq!((&*info.status, &*printed), ("failed", "before"));
    let error = info.error.expect("an error");
    assert!(error.starts_with("TypeError: ") && error.contains("main_0.mjs:2:6"), "{error}");
    assert!(!error.contains("instruction"), "{error}");
    let (info, _) = bed.stateless("let x = = 1");
    assert_eq!(info.status, "failed");
    assert!(info.error.is_some_and(|error| error.starts_with("SyntaxError: ")));
    let (info, _) = bed.stateless("import pad from 'npm:left-pad'");
    assert!(info.error.is_some_and(|error| error.contains("npm: imports need a network")));
    let (info, _) = bed.stateless("setTimeout(() => { throw new Error('late') }, 10)");
    assert!(info.error.is_some_and(|error| error.starts_with("Error: late")));
    let (info, printed) = bed.run(V8RunRequest { repl: true, ..code_of("const a = 2; a * 21") });
    assert_eq!((info.result.as_deref(), &*printed), (Some("42"), ""));
    // machines of the others are removed after their answers
    until("only the run with state left a machine", || bed.bed.host.machines().len() == 1);
}

#[test]
fn hot_loops_end_at_their_limit_and_runs_can_be_cancelled() {
    let bed = Bed::start();
    let limit = |code: &str| V8RunRequest { execution_timeout_secs: Some(1), ..code_of(code) };
    for code in ["while (true) {}", "setInterval(() => {}, 5)", "await new Promise(() => {})"] {
        let since = Instant::now();
        let (info, _) = bed.run(V8RunRequest { mode: V8Mode::Stateless, ..limit(code) });
        assert_eq!(info.error.as_deref(), Some("Execution timed out"), "{code}");
        assert_eq!(info.status, "timed_out", "{code}");
        assert!(since.elapsed() < Duration::from_secs(20), "{code}: {:?}", since.elapsed());
    }
    let id = bed.submit(code_of("console.log('begun'); await new Promise(() => {})"));
    let id = id.expect("accepted");
    let page = || bed.v8.output(ACCOUNT, &id, &PageRequest::default()).expect("a page");
    until("it prints before it is over", || page().data == "begun");
    assert_eq!(page().status, "running");
    bed.v8.cancel(ACCOUNT, &id).expect("cancelled");
    let (info, _) = bed.ended(&id);
    assert_eq!(info.status, "cancelled");
    let again = bed.v8.cancel(ACCOUNT, &id).expect_err("over");
    assert!(again.message.ends_with("is not running (status: cancelled)"), "{again}");
    assert_eq!(bed.v8.executions(ACCOUNT).expect("a list").len(), 4);
}

#[test]
fn a_failed_run_loses_nothing_and_heaps_are_states() {
    let bed = Bed::start();
    let (first, _) = bed.session("s", "globalThis.n = 1; globalThis.m = new Map([['k', 1]])");
    let heap = first.heap.expect("a heap");
    assert_eq!(heap.len(), 64);
    for code in ["n = 100; throw new Error('no')", "n = 100; process.abort()"] {
        let (info, _) = bed.session("s", code);
        assert_eq!((&*info.status, &info.heap), ("failed", &None), "{code}");
        let (_, printed) = bed.session("s", "console.log(n, m.get('k'))");
        assert_eq!(printed, "1 1", "after {code}");
    }
    let (_, printed) = bed.session("s", "console.log(++n)");
    assert_eq!(printed, "2");
    // the first heap is unchanged, and usable by any client of the account, any number of times
    for _ in 0..2 {
        let (info, printed) =
            bed.run(V8RunRequest { heap: Some(heap.clone()), ..code_of("console.log(++n)") });
        assert_eq!((&*info.status, &*printed), ("completed", "2"));
        assert_ne!(info.heap.as_ref(), Some(&heap));
    }
    let log = bed.v8.session_log(ACCOUNT, "s").expect("a log");
    assert_eq!(log.len(), 4);
    assert_eq!((&log[0].input_heap, &log[0].output_heap), (&None, &Some(heap.clone())));
    assert_eq!(log[1].input_heap.as_ref(), Some(&heap));
    let unknown = V8RunRequest { heap: Some("0".repeat(64)), ..code_of("1") };
    assert_eq!(bed.submit(unknown).expect_err("unknown").status, 404);
    let odd = V8RunRequest { heap: Some("../../etc/passwd".into()), ..code_of("1") };
    assert_eq!(bed.submit(odd).expect_err("no key").status, 400);
}

#[test]
fn state_beyond_v8_snapshots_persists_in_a_session() {
    let bed = Bed::start();
    let wasm = "const bytes = new Uint8Array([0,97,115,109,1,0,0,0,1,5,1,96,0,1,127,3,2,1,0,7,5,1,\
                1,102,0,0,10,6,1,4,0,65,42,11]);\n\
                globalThis.wasm = new WebAssembly.Instance(new WebAssembly.Module(bytes));\n\
                globalThis.gen = (function* () { yield 1; yield 2 })(); gen.next();\n\
                (await import('node:fs')).writeFileSync('kept.txt', 'file');\n\
                globalThis.ticks = 0; setInterval(() => { ticks += 1 }, 5).unref()";
    let (info, _) = bed.session("s", wasm);
    assert_eq!((&*info.status, info.error), ("completed", None));
    let check = "const { readFileSync } = await import('node:fs');\n\
                 await new Promise((done) => setTimeout(done, 50));\n\
                 const text = readFileSync('kept.txt', 'utf8');\n\
                 console.log(wasm.exports.f(), gen.next().value, text, ticks > 0)";
    let (info, printed) = bed.session("s", check);
    assert_eq!((info.error, &*printed), (None, "42 2 file true"));
    // the first run left its program in the state, and the second one only called it
    let machine = bed.bed.host.machines().pop().expect("the session's machine");
    let code = |seq| machine.instruction(seq).expect("an instruction").code;
    assert!(code(0).starts_with("await (\n// Runs one piece of code"), "{}", code(0));
    assert!(code(1).starts_with("await globalThis[Symbol.for('mcp-v8')].run("), "{}", code(1));
}

/// Runs at a REPL's prompt leave no program; the module after them brings it.
#[test]
fn a_state_without_the_program_gets_it() {
    let bed = Bed::start();
    let run = |code: &str, repl| {
        let session = Some("s".into());
        bed.run(V8RunRequest { session, repl, ..code_of(code) })
    };
    assert_eq!(run("let a = 1; a", true).0.status, "completed");
    assert_eq!(run("a += 1; console.log(a)", true).1, "2");
    assert_eq!(run("globalThis.b = 5; console.log(typeof a)", false).1, "number");
    assert_eq!(run("console.log(a, b)", true).1, "2 5");
    assert_eq!(run("console.log(b)", false).1, "5");
}

/// After a few runs there is a template with the program; runs see no difference.
#[test]
fn later_machines_start_with_the_program() {
    let bed = Bed::start();
    let code = "console.warn(typeof n, typeof child_process.exec);\n\
                console.warn(Object.keys(globalThis).length);\n\
                import { basename } from 'node:path';\n\
                console.log(basename('/a/b'), import.meta.url);\n\
                globalThis.n = 1; console.log(Math.random() !== 0.5)";
    let (info, first) = bed.stateless(code);
    assert_eq!((&*info.status, info.error), ("completed", None));
    let is_built = || bed.bed.host.template(Some("javascript-mcp-v8")).is_ok();
    assert!(!is_built(), "not for a single run");
    for _ in 0..2 {
        bed.stateless("1");
    }
    until("the template is built", is_built);
    // the first instruction of a new session, once the program knows of the template
    let first_code = |v8: &V8, session: String| {
        let request = V8RunRequest { session: Some(session), ..code_of(code) };
        let id = v8.run(ACCOUNT, request).expect("accepted");
        until("the run is over", || v8.open_execution(ACCOUNT, &id).is_none());
        let (info, printed) = v8.finished(ACCOUNT, &id).expect("an execution");
        assert_eq!((&*info.status, info.error, &*printed), ("completed", None, &*first));
        let newest = bed.bed.host.machines().into_iter().max_by_key(|machine| machine.number());
        let machine = newest.expect("a machine");
        assert_eq!(machine.describe().template, "javascript", "what policies go by");
        machine.instruction(0).expect("an instruction").code
    };
    let call = "await globalThis[Symbol.for('mcp-v8')].run(";
    let sessions = std::cell::Cell::new(0);
    let next = || format!("session-{}", sessions.replace(sessions.get() + 1));
    until("the program is there", || first_code(&bed.v8, next()).starts_with(call));
    assert_eq!(bed.stateless(code).1, first);
    // at the prompt of a REPL nothing is different
    let prompt = V8RunRequest { repl: true, mode: V8Mode::Stateless, ..code_of("console.info(1)") };
    assert_eq!(bed.run(prompt).1, "1");
    // another service over the same host finds it
    assert!(first_code(&V8::new(bed.bed.host.clone()), next()).starts_with(call));
}

#[test]
fn tags_accounts_and_forks() {
    let bed = Bed::start();
    let tags = HeapTags::from([("kind".to_owned(), "base".to_owned())]);
    let tagged = V8RunRequest { tags: Some(tags.clone()), ..code_of("globalThis.x = 5") };
    let (info, _) = bed.run(V8RunRequest { session: Some("a".into()), ..tagged });
    let heap = info.heap.expect("a heap");
    assert_eq!(bed.v8.heaps_with(ACCOUNT, &tags).expect("found"), [(heap.clone(), tags.clone())]);
    assert_eq!(bed.v8.heap_tags(ACCOUNT, &heap).expect("tags"), tags);
    bed.v8.delete_heap_tags(ACCOUNT, &heap, Some("other, kind")).expect("deleted");
    assert!(bed.v8.heaps_with(ACCOUNT, &tags).expect("none").is_empty());
    bed.v8.fork_session(ACCOUNT, "a", "b").expect("forked");
    bed.v8.fork_session(ACCOUNT, "a", "b").expect("nothing to do");
    let (_, printed) = bed.session("b", "console.log(x++)");
    assert_eq!(printed, "5");
    let (_, printed) = bed.session("a", "console.log(x)");
    assert_eq!(printed, "5");
    assert_eq!(bed.v8.sessions(ACCOUNT).expect("a list"), ["a", "b"]);
    // another account sees none of it
    let id = info.execution_id;
    assert_eq!(bed.v8.execution("other", &id).expect_err("hidden").status, 404);
    assert_eq!(bed.v8.heap_tags("other", &heap).expect_err("hidden").status, 404);
    assert!(bed.v8.sessions("other").expect("a list").is_empty());
    let theirs = V8RunRequest { heap: Some(heap), ..code_of("1") };
    assert_eq!(bed.v8.run("other", theirs).expect_err("hidden").status, 404);
}

#[test]
fn sessions_run_at_once_and_each_is_a_line() {
    let bed = Bed::start();
    let of = |session: &str, code: &str| {
        bed.submit(V8RunRequest { session: Some(session.into()), ..code_of(code) })
            .expect("accepted")
    };
    let endless = of("a", "globalThis.n = 1; console.log('runs'); await new Promise(() => {})");
    let page = || bed.v8.output(ACCOUNT, &endless, &PageRequest::default()).expect("a page");
    until("the first run runs", || page().data == "runs");
    let next = of("a", "console.log(globalThis.n)");
    // other sessions neither wait for it nor for each other
    let others = ["b", "c"].map(|name| of(name, "console.log('other')"));
    for id in &others {
        assert_eq!(bed.ended(id).1, "other");
    }
    let status = |id: &str| bed.v8.execution(ACCOUNT, id).expect("an execution").status;
    assert_eq!((&*status(&endless), &*status(&next)), ("running", "running"));
    bed.v8.cancel(ACCOUNT, &endless).expect("cancelled");
    // what waited for it starts from the state before it
    assert_eq!(bed.ended(&next).1, "undefined");
    assert_eq!(status(&endless), "cancelled");
}

#[test]
fn artifacts_outlive_their_run() {
    let bed = Bed::start();
    let code = "artifact('chart', 'image/png', new Uint8Array([1, 2, 3]));\n\
                artifact('t', 'text/plain', 'é')";
    let (info, _) = bed.stateless(code);
    assert_eq!((info.error, info.artifacts.len()), (None, 2));
    let (meta, bytes) = bed.v8.artifact(ACCOUNT, "chart").expect("an artifact");
    assert_eq!((&*meta.mime_type, meta.size_bytes, bytes), ("image/png", 3, vec![1, 2, 3]));
    assert_eq!(meta.execution_id, Some(info.execution_id));
    let (info, _) = bed.stateless("artifact('chart', 'text/csv', 'a,b'); 1");
    assert_eq!(info.artifacts.len(), 1);
    assert_eq!(bed.v8.artifact(ACCOUNT, "chart").expect("replaced").1, b"a,b");
    assert_eq!(bed.v8.artifacts(ACCOUNT).expect("a list").len(), 2);
    assert_eq!(bed.v8.artifact("other", "chart").expect_err("hidden").status, 404);
    let (info, _) = bed.stateless("artifact('', 'a/b', '')");
    assert_eq!((&*info.status, info.artifacts.len()), ("failed", 0));
}

#[test]
fn everything_is_there_after_a_crash() {
    let bed = Bed::start();
    let (info, _) = bed.session("s", "globalThis.n = 7; console.log('said')");
    let (id, heap) = (info.execution_id, info.heap.expect("a heap"));
    let Bed { v8, bed } = bed;
    drop(v8);
    let bed = bed.reopen();
    let bed = Bed { v8: V8::new(bed.host.clone()), bed };
    let (info, printed) = bed.v8.finished(ACCOUNT, &id).expect("an execution");
    assert_eq!((&*info.status, &*printed, info.heap), ("completed", "said", Some(heap)));
    let (_, printed) = bed.session("s", "console.log(++n)");
    assert_eq!(printed, "8");
    assert_eq!(bed.v8.session_log(ACCOUNT, "s").expect("a log").len(), 2);
}

/// The state after a kill between the creation of a run's machine and the submission of its
/// instruction.
#[test]
fn a_run_that_never_began_leaves_no_machine() {
    let bed = Bed::start();
    let (info, _) = bed.session("s", "globalThis.n = 7");
    let Bed { v8, bed } = bed;
    drop(v8);
    let id = "0".repeat(36);
    let mut begun = serde_json::to_value(&info).expect("JSON");
    begun["execution_id"] = id.clone().into();
    begun["status"] = "running".into();
    let run = serde_json::json!({ "run": { "code": "1", "repl": false, "mode": "heap", "heap": null,
        "session": "s", "memory_mb": null, "seconds": 30, "tags": null }, "place": null });
    let put = |kind, value: &serde_json::Value| DocumentChange::Put {
        kind,
        key: id.clone(),
        value: value.to_string(),
    };
    let changes = vec![put("v8.execution", &begun), put("v8.running", &run)];
    bed.host.change_documents(ACCOUNT, changes).expect("on record");
    let new = NewMachine {
        template: Some("javascript".into()),
        tags: [("mcp-v8".to_owned(), id.clone())].into(),
        ..NewMachine::default()
    };
    bed.host.create(ACCOUNT, new).expect("a machine");
    assert_eq!(bed.host.machines().len(), 2);
    let bed = Bed { v8: V8::new(bed.host.clone()), bed };
    let (info, _) = bed.ended_after_recovery(&id);
    assert_eq!(info.status, "failed");
    assert!(info.error.is_some_and(|error| error.contains("run it again")));
    assert_eq!(bed.bed.host.machines().len(), 1);
    let (_, printed) = bed.session("s", "console.log(++n)");
    assert_eq!(printed, "8");
}
