//! Random sequences of calls from several threads on the same few machines of a real host, by seed:
//! in any order, no failure is internal, no call waits for ever, and recorded data exists.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use stasis_api::{Durability, Exec, Name, NewMachine, Problem};
use stasis_machine::{AdoptSelection, Branch, Error, Host, Machine, Steps};
use stasis_testbed::{TestHost, value};
use std::collections::HashSet;
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(300);
const MACHINES: u8 = 3;

#[derive(Debug, Clone, Copy)]
enum Call {
    Create,
    Exec(Durability),
    Branch(Option<u64>),
    Remove,
    Wake,
    Swap,
    RollBack(Option<u64>),
    Undo,
    Promote,
    Adopt,
    Collect,
    Prune,
    PutFile,
}

/// A call on one of the machines, and on another where it needs two.
type Step = (Call, u8, u8);

fn call() -> impl Strategy<Value = Step> {
    let seq = || prop::option::of(0..4_u64);
    let call = prop_oneof![
        2 => Just(Call::Create),
        4 => Just(Call::Exec(Durability::Memory)),
        2 => Just(Call::Exec(Durability::Local)),
        3 => seq().prop_map(Call::Branch),
        3 => Just(Call::Remove),
        2 => Just(Call::Wake),
        3 => Just(Call::Swap),
        2 => seq().prop_map(Call::RollBack),
        2 => Just(Call::Undo),
        1 => Just(Call::Promote),
        1 => Just(Call::Adopt),
        2 => Just(Call::Collect),
        1 => Just(Call::Prune),
        2 => Just(Call::PutFile),
    ];
    (call, 0..MACHINES, 0..MACHINES)
}

fn name(number: u8) -> Name {
    format!("m-{number}").parse().expect("a name")
}

fn act(host: &Arc<Host>, (call, own, other): Step) -> Result<(), Error> {
    if let Call::Create = call {
        let new = NewMachine { name: Some(name(own)), ..NewMachine::default() };
        return host.create("test", new).map(drop);
    }
    if let Call::Collect = call {
        return host.collect().map(drop);
    }
    let machine = host.machine(name(own).as_str())?;
    match call {
        Call::Exec(durability) => {
            let code = "n = globals().get('n', 0) + 1; n".to_owned();
            let exec = Exec { code, durability: Some(durability), ..Exec::default() };
            machine.submit(exec).and_then(|seq| machine.wait(seq)).map(drop)
        }
        Call::Branch(seq) => {
            let names = vec![Some(name(other))];
            host.branch(&machine, Branch { seq, names, ..Branch::default() }).map(drop)
        }
        Call::Remove => host.remove(&machine),
        Call::Wake => host.wake(&machine),
        Call::Swap => host.swap(&machine),
        Call::RollBack(seq) => host.roll_back(&machine, seq),
        Call::Undo => host.undo(&machine, Steps::default()),
        Call::Promote => {
            let other = host.machine(name(other).as_str())?;
            host.promote(&machine, Some(&other)).map(drop)
        }
        Call::Adopt => {
            let from = host.place(&host.machine(name(other).as_str())?, None)?;
            let wanted = AdoptSelection {
                variables: vec!["n".into()],
                force: true,
                ..AdoptSelection::default()
            };
            host.adopt(&machine, &from, wanted).map(drop)
        }
        Call::Prune => host.prune_all(&machine).map(drop),
        Call::PutFile => {
            let mut file = machine.put_file("/tmp/put", None)?;
            file.write(b"put")?;
            file.finish(Some(Durability::Local)).map(drop)
        }
        Call::Create | Call::Collect => unreachable!("done above"),
    }
}

/// Failures that are ours.
fn run(host: &Arc<Host>, threads: Vec<Vec<Step>>) -> Vec<String> {
    let (tell, told) = mpsc::channel();
    let count = threads.len();
    for steps in threads {
        let (host, tell) = (host.clone(), tell.clone());
        std::thread::spawn(move || {
            let ours = |step: &Step| match act(&host, *step) {
                Err(error) if error.problem() == Problem::Internal => {
                    Some(format!("{step:?}: {} {error}", error.code()))
                }
                _ => None,
            };
            let failures: Vec<String> = steps.iter().filter_map(ours).collect();
            drop(host);
            let _ = tell.send(failures);
        });
    }
    let all = (0..count).map(|_| told.recv_timeout(PATIENCE).expect("every call is answered"));
    all.flatten().collect()
}

fn is_sound(host: &Arc<Host>) {
    let machines = host.machines();
    let names: HashSet<String> = machines.iter().map(|one| one.name().to_string()).collect();
    assert_eq!(names.len(), machines.len(), "one machine for each name");
    for machine in &machines {
        assert_eq!(value(machine, "6 * 7"), "42", "{}", machine.name());
        host.lineage(machine).expect("a lineage");
    }
    host.collect().expect("collect");
    let found = host.check_store(false).expect("check").findings;
    assert!(found.is_empty(), "{found:?}");
}

fn clear(host: &Arc<Host>) {
    let machines: Vec<Arc<Machine>> = host.machines();
    machines.iter().for_each(|machine| host.remove(machine).expect("removed"));
}

#[test]
fn calls_in_any_order() {
    let cases = if std::env::var_os("STASIS_SOAK").is_some() { 400 } else { 6 };
    let config = Config { cases, max_shrink_iters: 0, ..Config::default() };
    let bed = TestHost::start();
    let steps = prop::collection::vec(call(), 6..12);
    let threads = prop::collection::vec(steps, 4);
    let ran = TestRunner::new(config).run(&threads, |threads| {
        let failures = run(&bed.host, threads);
        prop_assert!(failures.is_empty(), "{:#?}", failures);
        is_sound(&bed.host);
        clear(&bed.host);
        Ok(())
    });
    ran.unwrap_or_else(|error| panic!("{error}"));
    let bed = bed.reopen();
    assert!(bed.host.machines().is_empty() && bed.host.check_store(false).is_ok());
}
