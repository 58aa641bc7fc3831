//! What policies let machines use up: refused when it is gone, shared with branches and with the
//! account, and kept over a restart.

use stasis_api::{Exec, Name, Network, NewMachine, Status};
use stasis_machine::{Branch, Error, EventSelector, Machine};
use stasis_policy::document;
use stasis_testbed::{TestHost, exec, run, value};
use std::sync::Arc;

fn policy(bed: &TestHost, text: &str) {
    let document = document::parse(text).expect("a policy");
    bed.host.set_policy("spent".parse().expect("a name"), document).expect("set");
}

fn machine(bed: &TestHost, account: &str) -> Arc<Machine> {
    let network = Some(Network::Policy("spent".parse().expect("a name")));
    let new = NewMachine { network, ..NewMachine::default() };
    bed.host.create(account, new).expect("a machine")
}

fn named(bed: &TestHost, name: &Name) -> Arc<Machine> {
    bed.host.machine(name.as_str()).expect("the machine")
}

fn refused(machine: &Arc<Machine>, rule: &str) {
    let submitted = machine.submit(Exec { code: "1".into(), ..Exec::default() });
    let error = submitted.expect_err("it is used up");
    assert_eq!(error.code(), "budget.used_up", "{error}");
    assert!(error.to_string().contains(rule), "{error}");
}

type Branches = Result<Vec<Arc<Machine>>, Error>;

fn branch(bed: &TestHost, source: &Arc<Machine>, count: usize) -> Branches {
    bed.host.branch(source, Branch { names: vec![None; count], ..Branch::default() })
}

#[test]
fn a_branch_draws_from_the_budget_of_its_parent() {
    let bed = TestHost::start();
    policy(&bed, "[budget]\ninstructions = 5\nbranches = 2");
    let work = machine(&bed, "test");
    (0..3).for_each(|n| assert_eq!(value(&work, &n.to_string()), n.to_string()));
    let code = |made: Branches| made.err().map(|error| error.code());
    assert_eq!(code(branch(&bed, &work, 3)), Some("budget.used_up"), "too many");
    let own = branch(&bed, &work, 2).expect("two branches");
    assert_eq!(code(branch(&bed, &work, 1)), Some("budget.used_up"));
    assert_eq!(code(branch(&bed, &own[0], 1)), Some("budget.used_up"));
    assert_eq!(value(&own[0], "4"), "4");
    assert_eq!(value(&own[1], "5"), "5");
    [&work, &own[0], &own[1]].into_iter().for_each(|one| refused(one, "budget.instructions"));
    // another line has its own
    let other = machine(&bed, "test");
    assert_eq!(value(&other, "6"), "6");
    // nothing comes back, whatever happens to the machine
    bed.host.roll_back(&work, Some(0)).expect("rolled back");
    bed.host.swap(&work).expect("swapped");
    refused(&work, "budget.instructions");
    let wanted = EventSelector { account: "test".into(), ..EventSelector::default() };
    let events = bed.host.events_after(0, &wanted, 10_000).events;
    let told = events.iter().filter_map(|event| event.refused.as_ref());
    let told: Vec<_> =
        told.filter(|one| one.rule.as_deref() == Some("budget.instructions")).collect();
    // once, though three machines of the line were refused
    assert_eq!(told.len(), 1, "{told:?}");
    let counted = bed.host.refusal_counts();
    let by = ("spent".to_owned(), "budget.branches".to_owned());
    assert!(counted.contains(&(by, 1)), "{counted:?}");
    // a change applies at once
    policy(&bed, "[budget]\ninstructions = 6");
    assert_eq!(value(&work, "7"), "7");
    refused(&own[0], "budget.instructions");
    policy(&bed, "");
    assert_eq!(value(&own[0], "8"), "8");
}

#[test]
fn an_account_has_one_budget_and_keeps_it_over_a_restart() {
    let bed = TestHost::start();
    let text = "[budget]\ninstructions = 3\n[account_budget]\ninstructions = 4";
    policy(&bed, text);
    let (one, other) = (machine(&bed, "a"), machine(&bed, "a"));
    (0..3).for_each(|_| drop(value(&one, "1")));
    refused(&one, "budget.instructions");
    assert_eq!(value(&other, "1"), "1");
    refused(&other, "account_budget.instructions");
    assert_eq!(value(&machine(&bed, "b"), "2"), "2", "another account");
    let names = [one.name(), other.name()];
    drop((one, other));
    assert!(bed.host.close().is_empty());
    let bed = bed.reopen();
    refused(&named(&bed, &names[0]), "budget.instructions");
    refused(&named(&bed, &names[1]), "account_budget.instructions");
    policy(&bed, "[budget]\ninstructions = 4\n[account_budget]\ninstructions = 5");
    assert_eq!(value(&named(&bed, &names[0]), "3"), "3");
    refused(&named(&bed, &names[1]), "account_budget.instructions");
}

#[test]
fn processor_time_ends_the_instruction_that_uses_it_up() {
    let bed = TestHost::start();
    policy(&bed, "[budget]\ncpu_seconds = 1");
    let work = machine(&bed, "test");
    run(&work, "kept = 1");
    let code = "for _ in iter(int, 1): pass";
    let end = exec(&work, Exec { code: code.into(), ..Exec::default() });
    assert_eq!(end.status, Status::Interrupted, "{end:?}");
    let receipt = end.receipt.expect("a receipt");
    assert!(receipt.intact, "its state is kept");
    assert!(receipt.notes.iter().any(|note| note.contains("budget.cpu_seconds")), "{receipt:?}");
    refused(&work, "budget.cpu_seconds");
    policy(&bed, "[budget]\ncpu_seconds = 100");
    assert_eq!(value(&work, "kept"), "1");
}
