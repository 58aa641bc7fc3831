//! Records through their own surface, over closings of the store.

use stasis_api::{Address, Name, Timestamp};
use stasis_api::{Chunk, Durability, Exec, Limits, Network, Outcome, Receipt, Status, Stream};
use stasis_store::{Checkpoint, Error, Finished, MachineRecord, NewInstruction, NewRecord, Store};
use std::path::Path;
use tempfile::TempDir;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn record(text: &str) -> NewRecord {
    NewRecord {
        name: name(text),
        account: "a".into(),
        template: "t".into(),
        created_at: Timestamp::from_millisecond(1_700_000_000_000).expect("a time"),
        expires_at: None,
        tags: [("k".to_owned(), "v".to_owned())].into(),
        limits: Limits { memory_mb: Some(512), ..Limits::default() },
        env: Default::default(),
        durability: Durability::Local,
        network: Network::None,
        image: "start".into(),
        parent: None,
        parent_id: None,
        reseed: false,
        retention: None,
    }
}

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("open");
    (dir, store)
}

fn reopen(dir: &Path, store: Store) -> Store {
    drop(store);
    Store::open(dir).expect("open again")
}

fn add(store: &Store, machine: &MachineRecord, seq: u64, status: Status) {
    let exec = Exec { code: format!("code {seq}"), ..Exec::default() };
    let new = NewInstruction { seq, exec, status, at: Timestamp::now() };
    store.add_instruction(machine.id, &new).expect("add an instruction");
}

fn finish(store: &Store, machine: &MachineRecord, seq: u64) {
    let address = Address { machine: machine.made.name.clone(), seq: Some(seq) };
    let receipt = Receipt { address, intact: true, durable: None, lost: None, notes: Vec::new() };
    let outcome = Outcome { value: Some("1".into()), ..Outcome::default() };
    let end =
        Finished { seq, status: Status::Done, at: Timestamp::now(), outputs: 1, outcome, receipt };
    store.finish_instruction(machine.id, &end).expect("finish");
}

fn checkpoint(store: &Store, machine: &MachineRecord, seq: u64) {
    let image = format!("image {seq}");
    let new = Checkpoint { seq, image, at: Timestamp::now(), bytes: 4096, label: None };
    store.add_checkpoint(machine.id, &new).expect("add a checkpoint");
}

#[test]
fn machines_are_as_they_were_written() {
    let (dir, store) = store();
    let made = store.add_machine(record("one")).expect("add");
    let store = reopen(dir.path(), store);
    assert_eq!(store.machines().expect("list"), std::slice::from_ref(&made));
    assert!(matches!(store.add_machine(record("one")), Err(Error::NameTaken(_))));
    let both = store.add_machines(vec![record("two"), record("one")]);
    assert!(matches!(both, Err(Error::NameTaken(_))));
    assert_eq!(store.machines().expect("list").len(), 1, "all or none");
    let changed = NewRecord { tags: Default::default(), ..made.made.clone() };
    store.set_machine(made.id, &changed).expect("change");
    assert_eq!(store.machine(made.id).expect("one").made, changed);
    store.remove_machine(made.id).expect("remove");
    assert!(store.machines().expect("list").is_empty());
}

#[test]
fn what_was_cut_off_is_found_again() {
    let (dir, store) = store();
    let machine = store.add_machine(record("one")).expect("add");
    for (seq, status) in [(0, Status::Running), (1, Status::Running), (2, Status::Queued)] {
        add(&store, &machine, seq, status);
    }
    finish(&store, &machine, 0);
    let store = reopen(dir.path(), store);
    let pending = store.pending(machine.id).expect("pending");
    let seen: Vec<_> = pending.iter().map(|(one, exec)| (one.seq, exec.code.as_str())).collect();
    assert_eq!(seen, [(1, "code 1"), (2, "code 2")]);
    assert_eq!(store.machine(machine.id).expect("one").next_seq, 3);
}

#[test]
fn output_is_kept_in_order_and_read_from_any_line() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one")).expect("add");
    let chunk = |seq| Chunk { stream: Stream::Stdout, data: format!("line {seq}"), seq };
    store.add_outputs(machine.id, 0, &[chunk(0), chunk(1)]).expect("add");
    store.add_outputs(machine.id, 0, &[chunk(2)]).expect("add");
    assert_eq!(store.outputs(machine.id, 0, 1).expect("read"), [chunk(1), chunk(2)]);
    assert!(store.outputs(machine.id, 1, 0).expect("read").is_empty());
}

#[test]
fn going_back_marks_and_forgets() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one")).expect("add");
    for seq in 0..4 {
        add(&store, &machine, seq, Status::Running);
        finish(&store, &machine, seq);
        checkpoint(&store, &machine, seq);
    }
    store.roll_back(machine.id, "image 1", Some(1)).expect("roll back");
    let record = store.machine(machine.id).expect("one");
    assert_eq!((record.head_image.as_str(), record.head_seq), ("image 1", Some(1)));
    let marks: Vec<bool> = store
        .instructions(machine.id, 0, 10)
        .expect("list")
        .iter()
        .map(|one| one.rolled_back)
        .collect();
    assert_eq!(marks, [false, false, true, true]);
    let images = store.images_in_use().expect("list");
    assert!(images.contains(&"start".into()) && !images.contains(&"image 3".into()), "{images:?}");
}

#[test]
fn names_are_exchanged_whole() {
    let (_dir, store) = store();
    let one = store.add_machine(record("one")).expect("add");
    let other = store.add_machine(record("other")).expect("add");
    store.swap_names(one.id, other.id).expect("exchange");
    assert_eq!(store.machine(one.id).expect("one").made.name, name("other"));
    assert_eq!(store.machine(other.id).expect("other").made.name, name("one"));
}

#[test]
fn a_key_names_one_instruction() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one")).expect("add");
    let exec = Exec { idempotency_key: Some("k".into()), ..Exec::default() };
    let new = NewInstruction { seq: 0, exec, status: Status::Queued, at: Timestamp::now() };
    store.add_instruction(machine.id, &new).expect("add");
    assert_eq!(store.instruction_with_key(machine.id, "k").expect("find"), Some(0));
    assert!(store.add_instruction(machine.id, &NewInstruction { seq: 1, ..new }).is_err());
    assert_eq!(store.machine(machine.id).expect("one").next_seq, 1);
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let (dir, store) = store();
    store.add_machine(record("one")).expect("add");
    drop(store);
    let file = dir.path().join("records.db");
    let raw = rusqlite::Connection::open(&file).expect("open the file");
    raw.pragma_update(None, "user_version", 999).expect("a form of the future");
    drop(raw);
    let refused = Store::open(dir.path()).err().expect("it is refused");
    assert_eq!(refused.code(), "store.newer");
    let raw = rusqlite::Connection::open(&file).expect("open the file");
    let count: i64 =
        raw.query_row("SELECT count(*) FROM machines", [], |row| row.get(0)).expect("count");
    assert_eq!(count, 1);
}

#[test]
fn a_file_that_is_mostly_empty_is_made_small_and_others_are_left_alone() {
    let (dir, store) = store();
    let machines = ["one", "two"].map(|name| store.add_machine(record(name)).expect("add").id);
    let data = "x".repeat(1 << 20);
    for seq in 0..40 {
        let chunk = Chunk { stream: Stream::Stdout, data: data.clone(), seq };
        store.add_outputs(machines[0], 0, &[chunk]).expect("add");
    }
    let kept = Chunk { stream: Stream::Stdout, data: "kept".into(), seq: 0 };
    store.add_outputs(machines[1], 0, std::slice::from_ref(&kept)).expect("add");
    assert_eq!(store.shrink().expect("shrink"), 0, "it is full");
    store.remove_machine(machines[0]).expect("remove");
    assert!(store.shrink().expect("shrink") >= 39 << 20);
    assert!(std::fs::metadata(dir.path().join("records.db")).expect("a file").len() < 1 << 20);
    assert_eq!(store.outputs(machines[1], 0, 0).expect("read"), [kept]);
    assert_eq!(store.check().expect("check"), None);
}
