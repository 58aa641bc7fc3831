//! Undo and redo cover exactly the requested number of instructions; random sessions are in
//! `sessions`.

use stasis_api::{Checkpoints, Exec, NewMachine};
use stasis_machine::{Branch, Steps};
use stasis_testbed::{TestHost, run};

/// As a new user would: the last instruction goes, and no other, however fast they came.
#[test]
fn undo_takes_one_instruction_back() {
    let bed = TestHost::start();
    let machine = bed.machine();
    let seqs: Vec<u64> = (0..6)
        .map(|n| {
            let exec = Exec { code: format!("x = {n}"), ..Exec::default() };
            machine.submit(exec).expect("submit")
        })
        .collect();
    for seq in &seqs {
        machine.wait(*seq).expect("wait");
    }
    let x = || {
        let all = bed.host.vars(&machine).expect("variables");
        all.into_iter().find(|one| one.name == "x").map(|one| one.repr)
    };
    bed.host.undo(&machine, Steps::default()).expect("undo");
    assert_eq!(x().as_deref(), Some("4"));
    bed.host.undo(&machine, Steps { n: 3, grouped: false }).expect("undo three");
    assert_eq!(x().as_deref(), Some("1"));
    bed.host.redo(&machine, Steps { n: 4, grouped: false }).expect("redo all");
    assert_eq!(x().as_deref(), Some("5"));
    let refused = bed.host.redo(&machine, Steps::default()).expect_err("there is nothing");
    assert_eq!(refused.code(), "history.too_far");
    bed.host.undo(&machine, Steps { n: 2, grouped: false }).expect("undo two");
    run(&machine, "x = 'new'");
    let refused = bed.host.redo(&machine, Steps::default()).expect_err("something new ran");
    assert_eq!(refused.to_string(), "there is nothing to redo");
    assert_eq!(x().as_deref(), Some("'new'"));
}

/// Where instructions share a state, undo says so, and takes them along only if told.
#[test]
fn undo_of_grouped_instructions_is_announced() {
    let bed = TestHost::with(|settings| settings.at_risk = std::time::Duration::from_secs(60));
    let new = NewMachine { checkpoints: Checkpoints::Grouped, ..NewMachine::default() };
    let machine = bed.host.create("test", new).expect("make a machine");
    run(&machine, "x = 0");
    machine.settle().expect("saved");
    let submit = |n| machine.submit(Exec { code: format!("x = {n}"), ..Exec::default() });
    let seqs: Vec<u64> = (1..4).map(|n| submit(n).expect("submit")).collect();
    seqs.iter().for_each(|seq| drop(machine.wait(*seq).expect("wait")));
    machine.settle().expect("saved");
    let states = bed.host.history(&machine).expect("history").len();
    assert!(states < 4, "{states} states: the instructions were meant to share one");
    let refused = bed.host.undo(&machine, Steps::default()).expect_err("they share a state");
    assert_eq!(refused.code(), "checkpoint.shared");
    assert_eq!(machine.describe().checkpoint.and_then(|at| at.seq), Some(3));
    bed.host.undo(&machine, Steps { n: 1, grouped: true }).expect("undo");
    let seq = machine.describe().checkpoint.and_then(|at| at.seq);
    assert!(seq < Some(2), "{seq:?}");
    // one of them asks for a state of its own: so has the one before it
    run(&machine, "x = 4");
    let exact =
        Exec { code: "x = 5".into(), checkpoints: Some(Checkpoints::Exact), ..Exec::default() };
    stasis_testbed::exec(&machine, exact);
    bed.host.undo(&machine, Steps::default()).expect("undo one");
    assert_eq!(stasis_testbed::value(&machine, "x"), "4");
}

/// The state right after an instruction is available on request, before it was saved by itself.
#[test]
fn the_last_state_is_there_at_once() {
    let minute = std::time::Duration::from_secs(60);
    let bed = TestHost::with(|settings| (settings.settle, settings.at_risk) = (minute, minute));
    let machine = bed.machine();
    let count = || bed.host.history(&machine).expect("history").len();
    run(&machine, "x = 1");
    let first = run(&machine, "x = 2").seq;
    let before = count();
    bed.host.label(&machine, first, Some("two")).expect("label");
    assert_eq!(count(), before + 1, "the state was not saved by the label");

    let second = run(&machine, "x = 3").seq;
    let branch = Branch { seq: Some(second), names: vec![None], ..Branch::default() };
    let branched = bed.host.branch(&machine, branch).expect("branch");
    assert_eq!(stasis_testbed::value(&branched[0], "x"), "3");

    run(&machine, "x = 4");
    bed.host.roll_back(&machine, Some(first)).expect("roll back");
    assert_eq!(stasis_testbed::value(&machine, "x"), "2");
    bed.host.undo(&machine, Steps::default()).expect("undo what read the value");
    let missing = bed.host.label(&machine, 99, Some("none")).expect_err("no such state");
    assert_eq!(missing.code(), "checkpoint.not_found");
}

/// A rollback can be taken back too: what it leaves is saved first.
#[test]
fn a_rollback_is_redone() {
    let minute = std::time::Duration::from_secs(60);
    let bed = TestHost::with(|settings| (settings.settle, settings.at_risk) = (minute, minute));
    let machine = bed.machine();
    let first = run(&machine, "x = 1").seq;
    run(&machine, "x = 2");
    run(&machine, "x = 3");
    bed.host.roll_back(&machine, Some(first)).expect("roll back");
    bed.host.redo(&machine, Steps { n: 2, grouped: false }).expect("redo");
    assert_eq!(stasis_testbed::value(&machine, "x"), "3");
}
