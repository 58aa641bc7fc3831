//! History, lineage, exchanged names, looking into the past, comparing, adopting, varying and
//! exploring, through the host's own surface.

use stasis_api::{Change, Exec, Name, Retention, Timeout, Timestamp, Update, Vary};
use stasis_machine::{AdoptSelection, Branch, BranchPlan, Error, Explore, Export, Machine, Steps};
use stasis_testbed::{TestHost, error_name, run, value};
use std::sync::Arc;

/// Runs code whose checkpoint is on disk when this returns.
fn keep(machine: &Arc<Machine>, code: &str) {
    let durability = Some(stasis_api::Durability::Local);
    let exec = Exec { code: code.into(), durability, ..Exec::default() };
    let end = stasis_testbed::exec(machine, exec);
    let error = end.outcome.and_then(|outcome| outcome.error);
    assert!(error.is_none(), "{code}: {error:?}");
}

fn branch(bed: &TestHost, source: &Arc<Machine>, seq: Option<u64>, name: &str) -> Arc<Machine> {
    let name: Name = name.parse().expect("a name");
    let one = Branch { seq, names: vec![Some(name)], ..Branch::default() };
    bed.host.branch(source, one).expect("branch").remove(0)
}

#[test]
fn checkpoints_say_what_they_changed() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "open('a.txt', 'w').write('one')\nx = [1]\ny = 2");
    keep(&machine, "x.append(2)\nopen('b.txt', 'w').write('b')\nopen('a.txt', 'w').write('two')");
    keep(&machine, "import os\nos.remove('a.txt')\ndel y");
    bed.host.label(&machine, 1, Some("tidy")).expect("label");
    for _ in 0..2 {
        let points = bed.host.points(&machine, true).expect("points");
        let counts: Vec<_> = points
            .iter()
            .map(|point| {
                let files = point.files.as_ref().expect("files");
                (files.added, files.changed, files.removed)
            })
            .collect();
        assert_eq!(counts, [(1, 0, 0), (1, 1, 0), (0, 0, 1)], "{points:?}");
        let touched: Vec<_> = points.iter().map(|point| point.variables.join(" ")).collect();
        assert_eq!(touched, ["x y", "x", "y"]);
        assert_eq!(points[1].label.as_deref(), Some("tidy"));
        assert!(points[0].bytes > 0 && points[0].code.starts_with("open('a.txt'"));
    }
    let disk = bed.host.disk_use(&machine).expect("disk use");
    assert!(disk.own_bytes > 0 && disk.shared_bytes > disk.own_bytes, "{disk:?}");
    assert_eq!(disk.checkpoints, 3);
}

#[test]
fn lineage_survives_removed_ancestors_and_exchanged_names() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "n = 0");
    let root = machine.name();
    let child = branch(&bed, &machine, Some(0), "child");
    keep(&child, "n = 1");
    let grandchild = branch(&bed, &child, None, "grandchild");
    let lineage = bed.host.lineage(&grandchild).expect("lineage");
    let names: Vec<_> = lineage.ancestors.iter().map(|one| one.machine.to_string()).collect();
    assert_eq!(names, ["child".to_owned(), root.to_string()]);
    assert_eq!(lineage.tree.machine, root);
    assert_eq!(lineage.tree.children[0].children[0].machine.as_str(), "grandchild");

    let former = bed.host.promote(&child, None).expect("promote");
    assert_eq!((former.number(), former.name().as_str()), (machine.number(), "child"));
    let found = bed.host.machine(root.as_str()).expect("by name");
    assert_eq!(value(&found, "n"), "1");
    assert_eq!(value(&bed.host.machine("child").expect("by name"), "n"), "0");
    let parent = grandchild.describe().parent.expect("a parent");
    assert_eq!((parent.machine, parent.seq), (root.clone(), Some(0)));

    drop((machine, child, grandchild, former, found));
    let bed = bed.reopen();
    let child = bed.host.machine(root.as_str()).expect("by name");
    assert_eq!(value(&child, "n"), "1");
    bed.host.remove(&child).expect("remove");
    let grandchild = bed.host.machine("grandchild").expect("still there");
    assert_eq!(value(&grandchild, "n + 10"), "11");
    let lineage = bed.host.lineage(&grandchild).expect("lineage");
    assert!(lineage.ancestors[0].removed);
    assert_eq!(lineage.tree.machine.as_str(), "grandchild");
    let more = branch(&bed, &grandchild, None, "more");
    assert_eq!(value(&more, "n + 20"), "21");
    assert_eq!(bed.host.families(None).len(), 2);
}

#[test]
fn a_machine_is_notified_of_a_rollback() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let hook = "import stasis\nseen = []\n\
                stasis.on_wake(lambda reason, changed: seen.append(reason))";
    keep(&machine, hook);
    run(&machine, "other = 1");
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "seen"), "['rollback']");
    let branched = branch(&bed, &machine, None, "told");
    assert_eq!(value(&branched, "seen"), "['rollback', 'branch']");
}

#[test]
fn the_past_is_looked_at_without_a_trace() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "x = 1\nimport os\nos.makedirs('d')\nopen('d/a.txt', 'w').write('old')");
    keep(&machine, "x = 2\nopen('d/a.txt', 'w').write('new')\nos.symlink('a.txt', 'd/link')");
    let before = bed.host.machines().len();
    let home = value(&machine, "os.getcwd()").trim_matches('\'').to_owned();
    machine.settle().expect("settle");
    let head = machine.describe();
    let place = bed.host.place(&machine, Some(0)).expect("a place");
    let vars = bed.host.vars_at(&place).expect("vars");
    let x = vars.iter().find(|var| var.name == "x").expect("x");
    assert_eq!(x.repr, "1");
    let file = format!("{home}/d/a.txt");
    assert_eq!(bed.host.read_at(&place, &file).expect("a file"), b"old");
    let now = bed.host.place(&machine, None).expect("a place");
    assert_eq!(bed.host.read_at(&now, &file).expect("a file"), b"new");
    let listed = bed.host.files_at(&now, &format!("{home}/d")).expect("a list");
    let names: Vec<_> = listed.iter().map(|one| one.path.rsplit('/').next()).collect();
    assert_eq!(names, [Some("a.txt"), Some("link")]);
    // a file of the template, and what is not there or leads elsewhere
    assert!(!bed.host.read_at(&now, "/opt/stasis/agent/__main__.py").expect("a file").is_empty());
    assert!(bed.host.files_at(&now, "/").expect("a list").len() > 3);
    for path in ["/etc/../etc/passwd", "a\0b"] {
        assert!(matches!(bed.host.read_at(&now, path), Err(Error::Unusable(_))), "{path}");
    }
    let link = format!("{home}/d/link");
    assert!(matches!(bed.host.read_at(&now, &link), Err(Error::NoFile { .. })));
    assert_eq!(bed.host.machines().len(), before);
    assert_eq!(machine.describe().checkpoint, head.checkpoint);
    assert_eq!(value(&machine, "x"), "2");
}

#[test]
fn two_states_are_compared() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "a = 1\nb = [1, 2]\nopen('t.txt', 'w').write('one\\ntwo\\n')\ndef f(): pass");
    let other = branch(&bed, &machine, None, "other");
    keep(&machine, "print('left')\na");
    keep(&other, "b.append(3)\nc = 'new'\nopen('t.txt', 'w').write('one\\n2\\n')\nprint('right')");
    let left = bed.host.place(&machine, None).expect("a place");
    let right = bed.host.place(&other, None).expect("a place");
    let found = bed.host.compare(&left, &right).expect("a comparison");
    assert_eq!(found.base.expect("a base").seq, Some(0));
    let variables: Vec<_> =
        found.variables.iter().map(|one| (one.name.as_str(), one.change)).collect();
    assert_eq!(variables, [("b", Change::Changed), ("c", Change::Added)]);
    assert_eq!(found.variables[0].right.as_ref().expect("b").repr, "[1, 2, 3]");
    assert_eq!(found.files.len(), 1, "{:?}", found.files);
    let diff = found.files[0].diff.as_deref().expect("text");
    assert!(diff.contains("-two") && diff.contains("+2"), "{diff}");
    let outputs = &found.outputs[0];
    assert_eq!(outputs.left.as_ref().expect("left").output, "left");
    assert_eq!(outputs.right.as_ref().expect("right").output, "right");
    let same = bed.host.compare(&left, &left).expect("a comparison");
    assert!(same.variables.is_empty() && same.files.is_empty() && same.outputs.is_empty());
}

#[test]
fn parts_of_a_branch_are_adopted_and_conflicts_are_not_overwritten() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "a = 1\nb = 1\nopen('f.txt', 'w').write('base')\nopen('g.txt', 'w').write('g')");
    let other = branch(&bed, &machine, None, "donor");
    keep(
        &other,
        "import numpy as np\na = 2\nb = 2\nbig = np.arange(1000)\npair = (big, big)\n\
         lock = __import__('threading').Lock()\nimport os\nos.makedirs('out')\n\
         open('out/r.bin', 'wb').write(bytes(range(256)) * 40)\n\
         open('f.txt', 'w').write('donor')\nos.remove('g.txt')",
    );
    let home = value(&other, "os.getcwd()").trim_matches('\'').to_owned();
    run(&machine, "b = 3");
    let place = bed.host.place(&other, None).expect("a place");
    let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let wanted = AdoptSelection { variables: names(&["a", "b"]), ..AdoptSelection::default() };
    let refused = bed.host.adopt(&machine, &place, wanted.clone()).expect("an answer");
    assert_eq!((refused.seq, refused.conflicts.len()), (None, 1), "{refused:?}");
    assert_eq!(refused.conflicts[0].name, "b");
    assert_eq!(value(&machine, "a, b"), "(1, 3)");

    let variables = names(&["a", "big", "pair", "lock", "missing"]);
    let files = vec![format!("{home}/out"), format!("{home}/f.txt"), format!("{home}/g.txt")];
    let wanted = AdoptSelection { variables, files, force: false };
    let adopted = bed.host.adopt(&machine, &place, wanted).expect("an answer");
    assert_eq!(adopted.conflicts, []);
    assert_eq!(adopted.variables, ["a", "big", "pair"], "{adopted:?}");
    assert!(adopted.failed.contains_key("lock") && adopted.failed.contains_key("missing"));
    assert_eq!(
        value(&machine, "a, b, len(big), pair[0] is pair[1], pair[0] is big"),
        "(2, 3, 1000, True, True)"
    );
    let check = "len(open('out/r.bin', 'rb').read()), open('f.txt').read(), \
                 __import__('os').path.exists('g.txt'), __import__('os').listdir('/tmp')";
    assert_eq!(value(&machine, check), "(10240, 'donor', False, [])");
    let seq = adopted.seq.expect("a number");
    assert!(
        machine.instruction(seq).expect("in the log").code.starts_with("# adopted from donor@")
    );

    let wanted = AdoptSelection { variables: names(&["b"]), files: Vec::new(), force: true };
    let forced = bed.host.adopt(&machine, &place, wanted).expect("an answer");
    assert_eq!((forced.variables, forced.conflicts.len()), (names(&["b"]), 1));
    machine.settle().expect("settle");
    assert_eq!(value(&machine, "b"), "2");
    // it is an instruction like others: it can be taken back
    bed.host.undo(&machine, Steps::default()).expect("undo the question");
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "b"), "3");
}

#[test]
fn branches_vary_and_fail_one_by_one() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "x = 10");
    let vary = (0..4)
        .map(|n| Vary {
            code: Some(if n == 2 { "1 / 0".into() } else { "x * k".into() }),
            variables: [("k".to_owned(), n.into())].into(),
            ..Vary::default()
        })
        .collect();
    let wanted = Branch { names: vec![None; 5], ..Branch::default() };
    let varied = BranchPlan { branch: wanted, vary, timeout: Timeout::Seconds(300.0) };
    let (machines, told) = bed.host.branch_varied(&machine, varied).expect("branches");
    assert_eq!(machines.len(), 5);
    let mut ends: Vec<_> = told.into_iter().collect();
    ends.sort_by_key(|end| end.index);
    let said: Vec<String> = ends
        .into_iter()
        .map(|end| {
            let outcome = end.instruction.expect("an end").outcome.expect("an outcome");
            outcome.value.or(outcome.error.map(|error| error.name)).unwrap_or_default()
        })
        .collect();
    assert_eq!(said, ["0", "10", "ZeroDivisionError", "30"]);
    assert_eq!(value(&machine, "x"), "10");
}

#[test]
fn the_best_candidate_takes_the_name() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "best = 0");
    let name = machine.name();
    let candidate = |code: &str| Vary { code: Some(code.into()), ..Vary::default() };
    let candidates =
        vec![candidate("best = 3"), candidate("raise ValueError"), candidate("best = 7")];
    let ask = Explore { candidates, score: "best".into(), ..Explore::default() };
    let explored = bed.host.explore(&machine, ask.clone()).expect("explored");
    let scores: Vec<_> = explored.candidates.iter().map(|one| one.score).collect();
    assert_eq!(scores, [Some(3.0), None, Some(7.0)]);
    assert!(
        explored.candidates[1].error.as_deref().is_some_and(|said| said.contains("ValueError"))
    );
    let winner = bed.host.machine(name.as_str()).expect("by name");
    assert_eq!(value(&winner, "best"), "7");
    assert!(explored.former.is_none());
    assert_eq!(bed.host.machines().len(), 1);
    let failing = Explore { candidates: vec![candidate("1/0")], ..ask.clone() };
    let none = bed.host.explore(&winner, failing).expect("explored");
    assert!(none.best.is_none());
    assert_eq!(bed.host.machines().len(), 1);
    let kept = bed.host.explore(&winner, Explore { keep: true, ..ask }).expect("explored");
    let former = kept.former.expect("the machine as it was").name;
    assert_eq!(value(&bed.host.machine(former.as_str()).expect("by name"), "best"), "7");
    assert_eq!(bed.host.machines().len(), 4);
}

#[test]
fn exploring_the_past_keeps_what_came_after_it() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "x = 1");
    keep(&machine, "x = 2");
    let candidates = vec![Vary { code: Some("x += 10".into()), ..Vary::default() }];
    let ask = Explore { seq: Some(0), candidates, score: "x".into(), ..Explore::default() };
    let former = bed.host.explore(&machine, ask).expect("explored").former;
    let former = former.expect("what ran after the state").name;
    assert_eq!(value(&bed.host.machine(former.as_str()).expect("by name"), "x"), "2");
}

#[test]
fn reseeded_branches_differ_and_others_do_not() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "import random, secrets, uuid, numpy as np\nrandom.seed(1)\nnp.random.seed(1)");
    let count: usize = if std::env::var_os("STASIS_SOAK").is_some() { 1000 } else { 50 };
    let draw = "(random.random(), float(np.random.rand())), \
                (secrets.token_hex(8), str(uuid.uuid1()), \
                __import__('os').urandom(8).hex(), __import__('ssl').RAND_bytes(8).hex())";
    let drawn = |reseed: bool, count: usize| -> Vec<(String, String)> {
        let wanted = Branch { names: vec![None; count], reseed, ..Branch::default() };
        let vary = vec![Vary { code: Some(draw.into()), ..Vary::default() }; count];
        let varied = BranchPlan { branch: wanted, vary, timeout: Timeout::Seconds(300.0) };
        let (machines, told) = bed.host.branch_varied(&machine, varied).expect("branches");
        let values = told.into_iter().map(|end| {
            let outcome = end.instruction.expect("an end").outcome.expect("an outcome");
            let value = outcome.value.unwrap_or_else(|| panic!("{:?}", outcome.error));
            let (simulated, guarded) = value.split_once("), (").expect("two tuples");
            (simulated.to_owned(), guarded.to_owned())
        });
        let values: Vec<_> = values.collect();
        for machine in machines {
            bed.host.remove(&machine).expect("remove");
        }
        values
    };
    let distinct = |values: &[(String, String)], of: fn(&(String, String)) -> &String| {
        values.iter().map(of).collect::<std::collections::HashSet<_>>().len()
    };
    let same = drawn(false, count);
    assert_eq!((distinct(&same, |v| &v.0), distinct(&same, |v| &v.1)), (1, count));
    let fresh = drawn(true, count);
    assert_eq!((distinct(&fresh, |v| &v.0), distinct(&fresh, |v| &v.1)), (count, count));
}

#[test]
fn checkpoints_are_freed_by_rule_and_what_is_reachable_stays() {
    let bed = TestHost::start();
    let machine = bed.machine();
    for n in 0..6 {
        keep(&machine, &format!("n = {n}\nblock = bytes([{n}]) * 300_000"));
    }
    bed.host.label(&machine, 1, Some("kept")).expect("label");
    let from_third = branch(&bed, &machine, Some(3), "from-third");
    let rule = Retention { last: Some(2), ..Retention::default() };
    let update = Update { retention: Some(Some(rule)), ..Update::default() };
    bed.host.update(&machine, update).expect("update");
    assert_eq!(bed.host.prune(Timestamp::now()).expect("prune"), 2);
    assert_eq!(bed.host.prune(Timestamp::now()).expect("prune"), 0);
    assert!(bed.host.collect().expect("collect").images > 0);
    let left: Vec<u64> =
        bed.host.history(&machine).expect("history").iter().map(|one| one.seq).collect();
    assert_eq!(left, [1, 3, 4, 5], "one has a label, a branch started from another");
    assert_eq!(value(&from_third, "n"), "3");
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(value(&machine, "n"), "4");
    bed.host.undo(&machine, Steps::default()).expect("undo");
    bed.host.undo(&machine, Steps::default()).expect("to where the branch began");
    // the state before that was removed: undo does not skip it
    let refused = bed.host.undo(&machine, Steps::default()).expect_err("freed");
    assert!(matches!(refused, Error::NoCheckpoint { seq: 2, .. }), "{refused}");
    bed.host.roll_back(&machine, Some(1)).expect("to the label");
    assert_eq!(value(&machine, "n"), "1");
    assert!(bed.host.check_store(false).expect("check").findings.is_empty());
}

/// Where a machine was written to, and the bytes.
fn exported(bed: &TestHost, machine: &Arc<Machine>, history: bool) -> Vec<u8> {
    let mut bytes = Vec::new();
    bed.host.export(machine, Export { history, root: false }, &mut bytes).expect("export");
    bytes
}

#[test]
fn a_machine_moves_to_another_directory_with_its_past() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "import numpy as np\na = np.arange(50_000)\nopen('f.txt', 'w').write('file')");
    keep(&machine, "b = int(a.sum())\nprint('said')\nb");
    bed.host.label(&machine, 0, Some("first")).expect("label");
    let whole = exported(&bed, &machine, true);
    let bare = exported(&bed, &machine, false);
    let other = TestHost::start();
    let moved = other.host.import("someone", None, &mut &whole[..]).expect("import");
    assert_eq!((moved.name(), moved.account().as_str()), (machine.name(), "someone"));
    assert_eq!(value(&moved, "b, open('f.txt').read()"), "(1249975000, 'file')");
    let labels: Vec<_> = other.host.history(&moved).expect("history");
    assert_eq!(labels[0].label.as_deref(), Some("first"));
    assert_eq!(stasis_testbed::lines(&moved, 1, None), ["said"]);
    other.host.roll_back(&moved, Some(0)).expect("back");
    assert_eq!(error_name(&run(&moved, "b")), "NameError");
    let twice = other.host.import("someone", None, &mut &whole[..]).map(drop);
    let twice = twice.expect_err("the name is taken");
    assert_eq!(twice.code(), "machine.name_taken");
    let name: Name = "bare".parse().expect("a name");
    let bare = other.host.import("someone", Some(name), &mut &bare[..]).expect("import");
    assert_eq!(value(&bare, "len(a)"), "50000");
    assert_eq!(other.host.history(&bare).expect("history")[0].seq, 1);
    // the first goes, with all that only it had; the second stays whole
    other.host.remove(&moved).expect("remove");
    other.host.collect().expect("collect");
    assert!(other.host.check_store(false).expect("check").findings.is_empty());
    other.host.swap(&bare).expect("swap");
    assert_eq!(value(&bare, "int(a[-1])"), "49999");
}

/// Packs are shared between machines: what another one has in them does not leave with this one.
#[test]
fn a_file_has_only_the_pages_its_machine_needs() {
    let bed = TestHost::start();
    let first = bed.machine();
    keep(&first, "import os\nshared = os.urandom(8 << 20)");
    let second = branch(&bed, &first, None, "second");
    keep(&first, "own = os.urandom(8 << 20)");
    keep(&second, "del shared\nimport gc\ngc.collect()\nx = 1");
    let (first, second) = (exported(&bed, &first, false), exported(&bed, &second, false));
    // random bytes do not compress: each of the two blocks is in the first file, none in the other
    assert!(first.len() > second.len() + (15 << 20), "{} {}", first.len(), second.len());
}

#[test]
fn damaged_and_hostile_files_are_refused_and_leave_nothing() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "x = 1");
    let good = exported(&bed, &machine, false);
    let other = TestHost::start();
    let machines = other.host.machines().len();
    let refused = |bytes: &[u8]| {
        let error = other.host.import("test", None, &mut &bytes[..]).map(drop).expect_err("bad");
        let code = error.code().to_owned();
        assert!(code.starts_with("bundle.") || code.starts_with("import."), "{code}: {error}");
    };
    for cut in [0, 56, good.len() / 2, good.len() - 1] {
        refused(&good[..cut]);
    }
    for at in (0..good.len()).step_by(good.len() / 7 + 1) {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        // a byte in the padding of a pack may mean nothing
        if let Ok(taken) = other.host.import("test", None, &mut &bad[..]) {
            assert_eq!(value(&taken, "x"), "1");
            other.host.remove(&taken).expect("remove");
        }
    }
    refused(b"PK\x03\x04 this is another kind of file, and long enough to be looked at whole");
    assert_eq!(other.host.machines().len(), machines);
    other.host.collect().expect("collect");
    let name: Name = "fine".parse().expect("a name");
    let taken = other.host.import("test", Some(name), &mut &good[..]).expect("import");
    assert_eq!(value(&taken, "x"), "1");
}

/// A file whose description was changed by an attacker who can correct its digest.
fn resealed(file: &[u8], change: impl FnOnce(&mut serde_json::Value)) -> Vec<u8> {
    let mut rest = file;
    let mut head = stasis_engine::BundleHead::read(&mut rest).expect("a head");
    let mut about = serde_json::from_slice(&head.about).expect("a description");
    change(&mut about);
    head.about = serde_json::to_vec(&about).expect("a description");
    [head.encode().expect("a head"), rest.to_vec()].concat()
}

#[test]
fn artifacts_travel_and_files_that_lie_are_refused() {
    let bed = TestHost::with(|settings| settings.max_output = 1000);
    let machine = bed.machine();
    keep(&machine, "for n in range(50_000): print('line', n)");
    let good = exported(&bed, &machine, true);
    let other = TestHost::start();
    let moved = other.host.import("someone", None, &mut &good[..]).expect("import");
    let kept = moved.artifacts().expect("artifacts");
    assert_eq!((kept.len(), &kept), (1, &machine.artifacts().expect("artifacts")));
    other.host.collect().expect("collect");
    let (_, mut file) = moved.artifact(&kept[0].artifact.id).expect("an artifact");
    let mut text = String::new();
    std::io::Read::read_to_string(&mut file, &mut text).expect("text");
    assert!(text.starts_with("line 0\n") && text.ends_with("line 49999\n"), "{}", text.len());
    other.host.remove(&moved).expect("remove");
    other.host.collect().expect("collect");
    let artifacts =
        || std::fs::read_dir(other.dir.path().join("artifacts")).expect("a list").count();
    assert_eq!(artifacts(), 0);

    let nothing = "0".repeat(64);
    let lies = [
        ("form", "other".into()),
        ("format", 1.into()),
        ("template/root", "agent-0+host-0".into()),
        ("template/root", "../../etc".into()),
        ("template/image", nothing.clone().into()),
        ("root/digest", nothing.clone().into()),
        ("machine/head_image", nothing.clone().into()),
        ("machine/start_image", "../x".into()),
        ("machine/next_seq", 0.into()),
        ("machine/limits", serde_json::json!({ "memory_mb": 1 })),
        ("artifacts/0/id", nothing.into()),
        ("artifacts/0/size", 1.into()),
        ("artifacts/0/seq", 99.into()),
    ];
    let refused = |what: &str, bytes: &[u8]| {
        let error = other.host.import("test", None, &mut &bytes[..]).map(drop).expect_err(what);
        let code = error.code();
        assert!(
            code == "import.unfit" || ["request.invalid", "request.range"].contains(&code),
            "{what}: {code}: {error}"
        );
    };
    for (at, value) in lies {
        let lie = |about: &mut serde_json::Value| {
            *about.pointer_mut(&format!("/{at}")).expect(at) = value
        };
        refused(at, &resealed(&good, lie));
    }
    let mut damaged = good.clone();
    *damaged.last_mut().expect("an artifact is last") ^= 1;
    refused("damaged", &damaged);
    assert!(other.host.machines().is_empty());
    other.host.collect().expect("collect");
    assert_eq!(artifacts(), 0);
}

/// Every file below a directory, and how long it is.
fn files_in(dir: &std::path::Path) -> Vec<(std::path::PathBuf, u64)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a list").flatten() {
        let about = entry.metadata().expect("it is there");
        match about.is_dir() {
            true => found.extend(files_in(&entry.path())),
            false => found.push((entry.path(), about.len())),
        }
    }
    found.sort();
    found
}

fn calls_into_a_vdso(manifest: &mut stasis_engine::fuzzing::model::Manifest) {
    manifest.meta.kernel = "9.9.9-elsewhere".into();
    for process in &mut manifest.processes {
        if let stasis_engine::fuzzing::model::ProcessState::Live(live) = &mut process.state {
            live.mm.vdso_hash = Some([7; 32]);
        }
    }
}

#[test]
fn an_unfit_machine_is_refused_by_name_and_leaves_nothing() {
    use stasis_engine::fuzzing::{model::Manifest, with_images};
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(&machine, "import os\nx = os.urandom(100_000)");
    let good = exported(&bed, &machine, true);
    let other = TestHost::start();
    let content = other.dir.path().join("content");
    let before = files_in(&content);
    let flags = |m: &mut Manifest| m.meta.cpu.flags.extend(["zz_amx".into(), "zz_zbb".into()]);
    let state = |m: &mut Manifest| m.meta.cpu.xfeatures |= 1 << 62;
    let form = |about: &mut serde_json::Value| about["form"] = "9.9.9".into();
    let mut older = good.clone();
    older[15] = b'1';
    let unfit = [
        (with_images(&good, &flags), "this processor lacks zz_amx, zz_zbb"),
        (with_images(&good, &state), "this processor lacks extended state component 62"),
        (with_images(&good, &calls_into_a_vdso), "calls into the vdso of 9.9.9-elsewhere"),
        (resealed(&good, form), "its images have format 9.9.9 of Stasis"),
        (older, "another format: it starts with \"stasis machine 1\""),
    ];
    for (file, reason) in unfit {
        let error = other.host.import("test", None, &mut &file[..]).map(drop).expect_err(reason);
        let code = error.code();
        assert!(["import.unfit", "bundle.version"].contains(&code), "{code}: {error}");
        assert!(error.to_string().contains(reason), "{reason}: {error}");
        assert!(other.host.machines().is_empty());
        assert_eq!(files_in(&content), before, "{reason}");
    }
    // the same way of writing it, and nothing that does not fit
    let same = with_images(&good, &|manifest| manifest.meta.kernel = "9.9.9-elsewhere".into());
    let taken = other.host.import("test", None, &mut &same[..]).expect("import");
    assert_eq!(value(&taken, "len(x)"), "100000");
}

/// Identity, clocks and the hook, in every branch; `STASIS_SOAK=1` makes a thousand of them.
#[test]
fn a_branch_gets_its_name_and_the_time() {
    let bed = TestHost::start();
    let machine = bed.machine();
    keep(
        &machine,
        "import os, secrets, stasis, time\nseen = []\n\
         stasis.on_wake(lambda reason, changed: seen.append((reason, bool(changed))))\n\
         then = time.monotonic()\ntoken = secrets.token_hex(16)",
    );
    let count: usize = if std::env::var_os("STASIS_SOAK").is_some() { 1000 } else { 24 };
    let look = "'|'.join(map(str, [stasis.machine(), os.environ['STASIS_MACHINE'], seen, \
                time.time(), time.monotonic() >= then, secrets.token_hex(16), token]))";
    let before = Timestamp::now().as_second();
    let vary = vec![Vary { code: Some(look.into()), ..Vary::default() }; count];
    let wanted = Branch { names: vec![None; count], ..Branch::default() };
    let varied = BranchPlan { branch: wanted, vary, timeout: Timeout::Seconds(300.0) };
    let (_, told) = bed.host.branch_varied(&machine, varied).expect("branches");
    let (mut tokens, mut kept) = (std::collections::HashSet::new(), Vec::new());
    for end in told {
        let outcome = end.instruction.expect("an end").outcome.expect("an outcome");
        let value = outcome.value.unwrap_or_else(|| panic!("{:?}", outcome.error));
        let parts: Vec<&str> = value.trim_matches('\'').trim_matches('"').split('|').collect();
        let name = end.machine.name();
        assert_eq!((parts[0], parts[1]), (name.as_str(), name.as_str()));
        assert_eq!((parts[2], parts[4]), ("[('branch', True)]", "True"), "{value}");
        let time: f64 = parts[3].parse().expect("a time");
        let now = Timestamp::now().as_second();
        assert!((before - 2..=now + 2).contains(&(time as i64)), "{before} {time} {now}");
        tokens.insert(parts[5].to_owned());
        kept.push(parts[6].to_owned());
    }
    assert_eq!((tokens.len(), kept.len()), (count, count));
    // what the program drew before is its own state, the same in all
    kept.dedup();
    assert_eq!(kept.len(), 1);
    assert_eq!(value(&machine, "seen"), "[]");
}
