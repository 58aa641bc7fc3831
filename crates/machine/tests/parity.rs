//! One table of behaviours for all languages. A row has a check and, for each language, the
//! programs that the check runs; the check itself knows no language. Every row runs in each.

use stasis_api::{
    Change, Durability, Exec, Instruction, Limits, Name, NewMachine, State, Status, Stream,
    Timeout, Vary,
};
use stasis_machine::{AdoptSelection, Branch, BranchPlan, Explore, Export, Machine, Steps};
use stasis_template::{NoProgress, Recipe};
use stasis_testbed::{TestHost, error_name, exec, lines, run, until};
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Where a row runs: a host, and the language of its machines.
struct Place {
    bed: TestHost,
    language: &'static str,
}

impl Place {
    fn machine(&self) -> Arc<Machine> {
        self.limited(Limits::default())
    }

    fn limited(&self, limits: Limits) -> Arc<Machine> {
        let template = Some(self.language.into());
        let new = NewMachine { template, limits, ..NewMachine::default() };
        self.bed.host.create("test", new).expect("make a machine")
    }

    fn branch(&self, source: &Arc<Machine>, reseed: bool) -> Arc<Machine> {
        let branch = Branch { names: vec![None], reseed, ..Branch::default() };
        self.bed.host.branch(source, branch).expect("branch").remove(0)
    }

    fn undo(&self, machine: &Arc<Machine>) {
        machine.settle().expect("settle");
        self.bed.host.undo(machine, Steps::default()).expect("undo");
    }
}

/// Runs code that must succeed, and is on disk when this returns.
fn keep(machine: &Arc<Machine>, code: &str) -> Instruction {
    let durability = Some(Durability::Local);
    let end = exec(machine, Exec { code: code.into(), durability, ..Exec::default() });
    assert_eq!(end.status, Status::Done, "{code}: {:?}", end.outcome);
    end
}

/// The output of a program that must succeed.
fn printed(machine: &Arc<Machine>, code: &str) -> String {
    let end = run(machine, code);
    assert_eq!(end.status, Status::Done, "{code}: {:?}", end.outcome);
    lines(machine, end.seq, Some(Stream::Stdout)).join("\n")
}

fn queue(place: &Place, codes: &[&str]) {
    let [slow, double, add, show] = codes else { panic!("{codes:?}") };
    let machine = place.machine();
    let submit =
        |code: &str| machine.submit(Exec { code: code.into(), ..Exec::default() }).expect("submit");
    let all = [submit(slow), submit(double), submit(add), submit(add), submit(show)];
    assert!(machine.cancel(all[3]).expect("cancel"));
    let ends: Vec<Status> =
        all.iter().map(|seq| machine.wait(*seq).expect("an end").status).collect();
    assert_eq!(ends, [Status::Done, Status::Done, Status::Done, Status::Cancelled, Status::Done]);
    assert_eq!(lines(&machine, all[4], None), ["3"]);
}

fn streaming(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    let seq = machine.submit(Exec { code: codes[0].into(), ..Exec::default() }).expect("submit");
    until("the first line comes", || lines(&machine, seq, None) == ["first"]);
    assert_eq!(machine.instruction(seq).expect("in the log").status, Status::Running);
    machine.wait(seq).expect("an end");
    assert_eq!(lines(&machine, seq, Some(Stream::Stdout)), ["first", "last"]);
    assert_eq!(lines(&machine, seq, Some(Stream::Stderr)), ["wrong"]);
}

fn timeouts(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    for code in &codes[2..] {
        let timeout = Timeout::Seconds(2.0);
        let end = exec(&machine, Exec { code: (*code).into(), timeout, ..Exec::default() });
        assert_eq!((end.status, error_name(&end)), (Status::Interrupted, "TimeoutError"), "{code}");
        assert!(end.receipt.expect("a receipt").intact, "{code}");
        assert_eq!(printed(&machine, codes[1]), "2", "{code}");
    }
}

fn interrupts(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    for (count, code) in codes[2..].iter().enumerate() {
        let endless = Exec { code: (*code).into(), timeout: Timeout::Never, ..Exec::default() };
        let seq = machine.submit(endless).expect("submit");
        until("it has begun", || lines(&machine, seq, None) == ["on"]);
        assert!(machine.interrupt().expect("interrupt"), "{code}");
        let end = machine.wait(seq).expect("an end");
        assert_eq!(end.status, Status::Interrupted, "{code}: {:?}", end.outcome);
        assert!(end.receipt.expect("a receipt").intact, "{code}");
        assert_eq!(printed(&machine, codes[1]), (count + 1).to_string(), "{code}");
    }
}

fn errors(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    let end = run(&machine, codes[1]);
    let outcome = end.outcome.expect("an outcome");
    let error = outcome.error.expect("an error");
    assert_eq!((end.status, &*error.name, &*error.message), (Status::Failed, "RangeOf", "too far"));
    assert!(error.traceback.contains("too far"), "{}", error.traceback);
    assert_eq!(printed(&machine, codes[2]), "2");
    let end = run(&machine, codes[3]);
    assert_eq!((end.status, error_name(&end)), (Status::Failed, "SyntaxError"));
}

fn variables(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    let vars = place.bed.host.vars(&machine).expect("variables");
    let names: Vec<&str> = vars.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["count", "numbers", "words"]);
    assert_eq!(vars[0].kind, codes[1]);
    assert_eq!(vars[1].shape.as_deref(), Some("1000"), "{vars:?}");
    let bytes: Vec<u64> = vars.iter().map(|one| one.bytes.expect("a size")).collect();
    assert!(bytes[1] >= 8000 && bytes[0] < 1000, "{vars:?}");
    let complete = |code: &str| {
        place.bed.host.complete(&machine, code.into(), code.chars().count()).expect("names")
    };
    assert_eq!(complete("cou"), (0, vec!["count".to_owned()]));
    assert_eq!(complete("é + wor"), (4, vec!["words".to_owned()]));
}

fn comparing(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    let other = place.branch(&machine, false);
    keep(&other, codes[1]);
    let at = |machine| place.bed.host.place(machine, None).expect("a state");
    let found = place.bed.host.compare(&at(&machine), &at(&other)).expect("a comparison");
    let variables: Vec<_> =
        found.variables.iter().map(|one| (one.name.as_str(), one.change)).collect();
    assert_eq!(variables, [("b", Change::Changed), ("c", Change::Added)]);
    let files: Vec<_> = found.files.iter().map(|one| (&*one.path, one.change)).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    let diff = found.files[0].diff.as_deref().expect("a text");
    assert!(diff.contains("-two") && diff.contains("+2"), "{diff}");
    let output = found.outputs[0].right.as_ref().expect("the other's");
    assert_eq!(output.output, "right");
    let same = place.bed.host.compare(&at(&machine), &at(&machine)).expect("a comparison");
    assert!(same.variables.is_empty() && same.files.is_empty() && same.outputs.is_empty());
}

fn adopting(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    let other = place.branch(&machine, false);
    keep(&other, codes[1]);
    keep(&machine, codes[2]);
    let from = place.bed.host.place(&other, None).expect("a state");
    let wanted = |names: &[&str], force| AdoptSelection {
        variables: names.iter().map(|name| (*name).to_owned()).collect(),
        files: Vec::new(),
        force,
    };
    let refused = place.bed.host.adopt(&machine, &from, wanted(&["a", "b"], false));
    let refused = refused.expect("an answer");
    assert_eq!((refused.seq, refused.conflicts.len()), (None, 1), "{refused:?}");
    assert_eq!(printed(&machine, codes[3]), "1 3");
    let adopted = place.bed.host.adopt(&machine, &from, wanted(&["a", "missing"], false));
    let adopted = adopted.expect("an answer");
    assert_eq!(adopted.variables, ["a"], "{adopted:?}");
    assert!(adopted.failed.contains_key("missing"), "{adopted:?}");
    assert_eq!(printed(&machine, codes[3]), "2 3");
    place.bed.host.adopt(&machine, &from, wanted(&["b"], true)).expect("an answer");
    assert_eq!(printed(&machine, codes[3]), "2 2");
}

fn promoting_and_exploring(place: &Place, codes: &[&str]) {
    let host = &place.bed.host;
    let machine = place.machine();
    keep(&machine, codes[0]);
    let name = machine.name();
    let child = place.branch(&machine, false);
    keep(&child, codes[1]);
    let former = host.promote(&child, None).expect("promote");
    assert_eq!(former.number(), machine.number());
    assert_eq!(printed(&host.machine(name.as_str()).expect("by name"), codes[2]), "1");
    let candidate = |code: &&str| Vary { code: Some((*code).into()), ..Vary::default() };
    let candidates = codes[3..6].iter().map(candidate).collect();
    let ask = Explore { candidates, score: "best".into(), ..Explore::default() };
    let machine = host.machine(name.as_str()).expect("by name");
    let explored = host.explore(&machine, ask).expect("explored");
    let scores: Vec<_> = explored.candidates.iter().map(|one| one.score).collect();
    assert_eq!(scores, [Some(3.0), None, Some(7.0)]);
    assert_eq!(printed(&host.machine(name.as_str()).expect("by name"), codes[2]), "7");
}

fn randomness(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    // what is drawn ahead of time is there when the branches are made
    printed(&machine, codes[1]);
    machine.settle().expect("settle");
    let drawn = |reseed: bool| -> Vec<Vec<String>> {
        let branch = Branch { names: vec![None; 4], reseed, ..Branch::default() };
        let vary = vec![Vary { code: Some(codes[1].into()), ..Vary::default() }; 4];
        let plan = BranchPlan { branch, vary, timeout: Timeout::Seconds(120.0) };
        let (_machines, told) = place.bed.host.branch_varied(&machine, plan).expect("branches");
        told.into_iter()
            .map(|end| {
                let seq = end.instruction.expect("an end").seq;
                lines(&end.machine, seq, None)
            })
            .collect()
    };
    let distinct = |all: &[Vec<String>], index: usize| {
        all.iter().map(|drawn| drawn[index].clone()).collect::<HashSet<_>>().len()
    };
    // the first line is for simulation, the others are for secrets
    for (reseed, simulated) in [(false, 1), (true, 4)] {
        let all = drawn(reseed);
        assert_eq!(distinct(&all, 0), simulated, "{all:?}");
        for index in 1..all[0].len() {
            assert_eq!(distinct(&all, index), 4, "{all:?}");
        }
    }
}

fn wake_hooks(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    run(&machine, codes[1]);
    place.undo(&machine);
    assert_eq!(printed(&machine, codes[2]), "rollback");
    place.bed.host.swap(&machine).expect("swap");
    assert_eq!(printed(&machine, codes[2]), "rollback wake");
    machine.settle().expect("settle");
    let branch = place.branch(&machine, false);
    assert_eq!(printed(&branch, codes[2]), "rollback wake branch");
    assert_eq!(printed(&branch, codes[3]), branch.name().to_string());
}

fn artifacts(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    let end = run(&machine, codes[0]);
    let outcome = end.outcome.expect("an outcome");
    assert!(
        outcome.cut.as_deref().is_some_and(|cut| cut.contains("value cut")),
        "{:?}",
        outcome.cut
    );
    run(&machine, codes[1]);
    let kept = machine.artifacts().expect("artifacts");
    let names: Vec<_> = kept.iter().map(|one| &*one.artifact.name).collect();
    assert_eq!(names, ["value", "output"]);
    for one in &kept {
        let (about, file) = machine.artifact(&one.artifact.id).expect("an artifact");
        let bytes = std::io::read_to_string(file).expect("a text");
        assert_eq!((bytes.len() as u64, about.cut), (about.size, false));
        assert!(bytes.starts_with(if about.name == "value" { "'ééé" } else { "line 0\n" }));
    }
}

fn displays(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    let end = run(&machine, codes[0]);
    let shown = end.outcome.expect("an outcome").shown;
    let kinds: Vec<Vec<&str>> =
        shown.iter().map(|one| one.data.keys().map(String::as_str).collect()).collect();
    for (index, kind) in
        ["image/png", "image/svg+xml", "text/html", "application/json"].into_iter().enumerate()
    {
        assert!(kinds[index].contains(&kind), "{kinds:?}");
    }
    assert_eq!(shown[0].data["image/png"], "iVBORw==");
    assert_eq!(shown[3].data["application/json"], serde_json::json!({ "a": [1] }));
}

fn limits(place: &Place, codes: &[&str]) {
    let limits = Limits { memory_mb: Some(400), disk_mb: Some(64), ..Limits::default() };
    let machine = place.limited(limits);
    keep(&machine, codes[0]);
    for code in &codes[2..] {
        let end = run(&machine, code);
        assert!(
            matches!(end.status, Status::Lost | Status::Failed),
            "{code}: {:?} {:?}",
            end.status,
            end.outcome
        );
        assert!(end.outcome.and_then(|outcome| outcome.error).is_some(), "{code}: a reason");
        assert_eq!(printed(&machine, codes[1]), "1", "{code}");
    }
}

fn deaths(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    for code in &codes[2..] {
        let end = run(&machine, code);
        assert_eq!(end.status, Status::Lost, "{code}");
        assert!(end.receipt.expect("a receipt").lost.is_some(), "{code}");
        assert_eq!(printed(&machine, codes[1]), "1", "{code}");
    }
}

fn travelling(place: &Place, codes: &[&str]) {
    let host = &place.bed.host;
    let machine = place.machine();
    keep(&machine, codes[0]);
    keep(&machine, codes[1]);
    let mut bytes = Vec::new();
    host.export(&machine, Export { history: true, root: false }, &mut bytes).expect("export");
    let name: Name = "moved".parse().expect("a name");
    let moved = host.import("someone", Some(name), &mut &bytes[..]).expect("import");
    assert_eq!(printed(&moved, codes[2]), "2 file");
    host.roll_back(&moved, Some(0)).expect("back");
    assert_eq!(printed(&moved, codes[2]), "1 file");
    assert_eq!(printed(&machine, codes[2]), "2 file");
}

fn going_back_and_forth(place: &Place, codes: &[&str]) {
    let host = &place.bed.host;
    let machine = place.machine();
    keep(&machine, codes[0]);
    for _ in 0..3 {
        keep(&machine, codes[1]);
    }
    host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(printed(&machine, codes[2]), "3");
    place.undo(&machine);
    host.redo(&machine, Steps::default()).expect("redo");
    assert_eq!(printed(&machine, codes[2]), "3");
    host.swap(&machine).expect("swap");
    assert_eq!(machine.describe().state, State::Swapped);
    assert_eq!(printed(&machine, codes[2]), "3");
    host.roll_back(&machine, Some(0)).expect("roll back");
    assert_eq!(printed(&machine, codes[2]), "1");
}

fn keys(place: &Place, codes: &[&str]) {
    let machine = place.machine();
    keep(&machine, codes[0]);
    let once =
        || Exec { code: codes[1].into(), idempotency_key: Some("k".into()), ..Exec::default() };
    let seq = machine.submit(once()).expect("submit");
    machine.wait(seq).expect("an end");
    assert_eq!(machine.submit(once()).expect("the same"), seq);
    assert_eq!(printed(&machine, codes[2]), "2");
}

/// Packages of a recipe are there in every machine of its template.
fn templates(place: &Place, codes: &[&str]) {
    let [package, missing, code] = codes else { panic!("{codes:?}") };
    let language = place.language;
    let recipe = |package: &str| {
        let text = format!(
            "name = \"with-a-package\"\nlanguage = \"{language}\"\npackages = [{package:?}]\n"
        );
        Recipe::parse(&text).expect("a recipe")
    };
    place.bed.host.build_template(&recipe(package), &NoProgress).expect("built");
    let new = NewMachine { template: Some("with-a-package".into()), ..NewMachine::default() };
    let machine = place.bed.host.create("test", new).expect("a machine");
    assert_eq!(printed(&machine, code), "007");
    let refused = place.bed.host.build_template(&recipe(missing), &NoProgress);
    let refused = refused.expect_err("no such version").to_string();
    assert!(refused.contains(package.split(['=', '@']).next().expect("a name")), "{refused}");
}

type Check = fn(&Place, &[&str]);

/// A behaviour: its name, its check, and its programs in each language.
struct Row(&'static str, Check, &'static [&'static str], &'static [&'static str]);

const TABLE: &[Row] = &[
    Row(
        "queue",
        queue,
        &["import time; time.sleep(0.3); x = 1", "x *= 2", "x += 1", "print(x)"],
        &[
            "await new Promise((done) => setTimeout(done, 300)); let x = 1",
            "x *= 2",
            "x += 1",
            "console.log(x)",
        ],
    ),
    Row(
        "streaming",
        streaming,
        &["import sys, time\nprint('first')\ntime.sleep(1)\nprint('wrong', file=sys.stderr)\n\
           print('last')"],
        &["console.log('first'); await new Promise((done) => setTimeout(done, 1000)); \
           console.error('wrong'); console.log('last')"],
    ),
    Row(
        "timeouts",
        timeouts,
        &[
            "n = 1\nimport asyncio, time",
            "print(n)",
            "n = 2\nwhile True: pass",
            "n = 2\ntime.sleep(1000)",
            "n = 2\nawait asyncio.Event().wait()",
        ],
        &[
            "let n = 1",
            "console.log(n)",
            "n = 2; while (true) {}",
            "n = 2; await new Promise((done) => setTimeout(done, 1000000))",
            "n = 2; await new Promise(() => {})",
        ],
    ),
    Row(
        "interrupts",
        interrupts,
        &[
            "n = 0\nimport asyncio, time",
            "print(n)",
            "n += 1\nprint('on', flush=True)\nwhile True: pass",
            "n += 1\nprint('on', flush=True)\nawait asyncio.sleep(0)\nwhile True: pass",
            "n += 1\nprint('on', flush=True)\nawait asyncio.Event().wait()",
            "n += 1\nprint('on', flush=True)\ntime.sleep(1000)",
        ],
        &[
            "let n = 0",
            "console.log(n)",
            "n += 1; console.log('on'); while (true) {}",
            "n += 1; console.log('on'); await null; while (true) {}",
            "n += 1; console.log('on'); await new Promise(() => {})",
            "n += 1; console.log('on'); new WebAssembly.Instance(new WebAssembly.Module(new \
             Uint8Array([0, 97, 115, 109, 1, 0, 0, 0, 1, 4, 1, 96, 0, 0, 3, 2, 1, 0, 7, 5, 1, 1, \
             102, 0, 0, 10, 9, 1, 7, 0, 3, 64, 12, 0, 11, 11]))).exports.f()",
        ],
    ),
    Row(
        "errors",
        errors,
        &[
            "n = 1\nclass RangeOf(Exception): pass",
            "n = 2\nraise RangeOf('too far')",
            "print(n)",
            "def (",
        ],
        &[
            "let n = 1; class RangeOf extends Error { name = 'RangeOf' }",
            "n = 2; throw new RangeOf('too far')",
            "console.log(n)",
            "let = = 1",
        ],
    ),
    Row(
        "variables and completion",
        variables,
        &["count = 3\nnumbers = list(range(1000))\nwords = {'a': 'b'}", "int"],
        &[
            "let count = 3; const numbers = Array.from({ length: 1000 }, (_, n) => n + 0.5); \
           let words = { a: 'b' }",
            "number",
        ],
    ),
    Row(
        "comparing",
        comparing,
        &[
            "a = 1\nb = [1]\nopen('t.txt', 'w').write('one\\ntwo\\n')\ndef f(): pass",
            "b.append(2)\nc = 'new'\nopen('t.txt', 'w').write('one\\n2\\n')\nprint('right')",
        ],
        &[
            "let a = 1; let b = [1]; require('node:fs').writeFileSync('t.txt', 'one\\ntwo\\n'); \
             function f() {}",
            "b.push(2); let c = 'new'; require('node:fs').writeFileSync('t.txt', 'one\\n2\\n'); \
             console.log('right')",
        ],
    ),
    Row(
        "adopting",
        adopting,
        &["a = 1\nb = 1", "a = 2\nb = 2", "b = 3", "print(a, b)"],
        &["let a = 1; let b = 1", "a = 2; b = 2", "b = 3", "console.log(a, b)"],
    ),
    Row(
        "promoting and exploring",
        promoting_and_exploring,
        &["best = 0", "best = 1", "print(best)", "best = 3", "raise ValueError", "best = 7"],
        &[
            "let best = 0",
            "best = 1",
            "console.log(best)",
            "best = 3",
            "throw new Error()",
            "best = 7",
        ],
    ),
    Row(
        "randomness",
        randomness,
        &[
            "import random, secrets, ssl, uuid",
            "print(random.random())\nprint(secrets.token_hex(8))\nprint(uuid.uuid4())\n\
             print(ssl.RAND_bytes(8).hex())",
        ],
        &[
            "const own = require('node:crypto')",
            "console.log(Math.random()); console.log(own.randomBytes(8).toString('hex')); \
             console.log(crypto.randomUUID()); \
             console.log(crypto.getRandomValues(new Uint32Array(2)).join())",
        ],
    ),
    Row(
        "wake hooks",
        wake_hooks,
        &[
            "import stasis\nseen = []\nstasis.on_wake(lambda reason, changed: 1 / 0)\n\
             stasis.on_wake(lambda reason, changed: seen.append(reason))",
            "other = 1",
            "print(*seen)",
            "print(stasis.machine())",
        ],
        &[
            "const seen = []; stasis.onWake(() => { throw new Error('no') }); \
             stasis.onWake((reason, changed) => { seen.push(reason) })",
            "let other = 1",
            "console.log(...seen)",
            "console.log(stasis.machine())",
        ],
    ),
    Row(
        "artifacts",
        artifacts,
        &["'é' * (9 << 20)", "for i in range(1_000_000): print('line', i)"],
        &[
            "'é'.repeat(9 << 20)",
            "let all = ''; for (let n = 0; n < 1_000_000; n++) all += `line ${n}\\n`; \
             process.stdout.write(all)",
        ],
    ),
    Row(
        "displays",
        displays,
        &["for one in [{'image/png': 'iVBORw=='}, {'image/svg+xml': '<svg/>'}, \
           {'text/html': '<b>x</b>'}, {'application/json': {'a': [1]}}]: display(one, raw=True)"],
        &["for (const one of [{ 'image/png': 'iVBORw==' }, { 'image/svg+xml': '<svg/>' }, \
           { 'text/html': '<b>x</b>' }, { 'application/json': { a: [1] } }]) \
           display(one, { raw: true })"],
    ),
    Row(
        "limits",
        limits,
        &[
            "n = 1",
            "print(n)",
            "n = 2\nblock = [bytearray(1 << 20) for _ in range(2000)]",
            "n = 2\nwith open('big', 'wb') as f:\n    for _ in range(500): f.write(b'x' * (1 << \
             20))\n\
             import time; time.sleep(5)",
        ],
        &[
            "let n = 1",
            "console.log(n)",
            "n = 2; const block = []; while (true) block.push(Buffer.alloc(1 << 20, 1))",
            "n = 2; const piece = Buffer.alloc(1 << 20, 1); for (let i = 0; i < 500; i++) \
             require('node:fs').appendFileSync('big', piece); \
             await new Promise((done) => setTimeout(done, 5000))",
        ],
    ),
    Row(
        "deaths",
        deaths,
        &[
            "n = 1\nimport os, signal",
            "print(n)",
            "n = 2\nos._exit(3)",
            "n = 2\nos.abort()",
            "n = 2\nos.kill(os.getpid(), signal.SIGKILL)",
        ],
        &[
            "let n = 1",
            "console.log(n)",
            "n = 2; process.reallyExit(3)",
            "n = 2; process.abort()",
            "n = 2; process.kill(process.pid, 'SIGKILL')",
        ],
    ),
    Row(
        "export and import",
        travelling,
        &["n = 1\nopen('f', 'w').write('file')", "n = 2", "print(n, open('f').read())"],
        &[
            "let n = 1; const fs = require('node:fs'); fs.writeFileSync('f', 'file')",
            "n = 2",
            "console.log(n, fs.readFileSync('f', 'utf8'))",
        ],
    ),
    Row(
        "going back and forth",
        going_back_and_forth,
        &["n = 1", "n += 1", "print(n)"],
        &["let n = 1", "n += 1", "console.log(n)"],
    ),
    Row(
        "templates with packages",
        templates,
        &["six==1.17.0", "six==99.0.0", "import six; print(six.text_type(7).zfill(3))"],
        &[
            "left-pad@1.3.0",
            "left-pad@99.0.0",
            "import pad from 'left-pad'; console.log(pad('7', 3, '0'))",
        ],
    ),
    Row("keys", keys, &["n = 1", "n += 1", "print(n)"], &["let n = 1", "n += 1", "console.log(n)"]),
];

/// Runs every row, each on machines of its own, and names those that fail.
fn all_rows(bed: TestHost, language: &'static str, programs: fn(&Row) -> &'static [&'static str]) {
    let place = Place { bed, language };
    let only = std::env::var("STASIS_TEST_ROW").ok();
    let mut failed = Vec::new();
    for row in TABLE.iter().filter(|row| only.as_deref().is_none_or(|only| only == row.0)) {
        let ran = catch_unwind(AssertUnwindSafe(|| row.1(&place, programs(row))));
        if ran.is_err() {
            failed.push(row.0);
        }
    }
    assert!(failed.is_empty(), "{language}: {failed:?}");
}

#[test]
fn python() {
    all_rows(TestHost::start(), "python", |row| row.2);
}

#[test]
fn javascript() {
    all_rows(TestHost::of("javascript"), "javascript", |row| row.3);
}
