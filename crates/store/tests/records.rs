//! Records through their own surface, over closings of the store.

use stasis_api::{Address, Name, Template, Timestamp};
use stasis_api::{Chunk, Durability, Exec, Limits, Network, Outcome, Receipt, Status, Stream};
use stasis_store::{
    Error, Finished, HeldImage, MachineId, MachineRecord, NewCheckpoint, NewInstruction, NewRecord,
    Store, TemplateRecord,
};
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
        parent: None,
        parent_id: None,
        reseed: false,
        retention: None,
    }
}

/// An image in name only.
struct Image(&'static str);

impl HeldImage for Image {
    fn name(&self) -> String {
        self.0.to_owned()
    }
}

const START: Image = Image("start");

fn store() -> (TempDir, Store) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Store::open(dir.path()).expect("open");
    let template = Template {
        name: "python".into(),
        digest: "t".into(),
        created_at: Timestamp::UNIX_EPOCH,
        language: "python".into(),
        version: String::new(),
        recipe: String::new(),
        image: START.name(),
        root: String::new(),
    };
    let record = TemplateRecord { template, details: serde_json::Value::Null };
    store.add_template(&record, &START).expect("a template");
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

const IMAGES: [&str; 4] = ["image 0", "image 1", "image 2", "image 3"];

fn checkpoint(store: &Store, machine: &MachineRecord, seq: u64) {
    let image = IMAGES[seq as usize];
    let new = NewCheckpoint { seq, at: Timestamp::now(), bytes: 4096 };
    store.add_checkpoint(machine.id, &Image(image), new).expect("add a checkpoint");
}

#[test]
fn machines_are_as_they_were_written() {
    let (dir, store) = store();
    let made = store.add_machine(record("one"), &START).expect("add");
    let store = reopen(dir.path(), store);
    assert_eq!(store.machines().expect("list"), std::slice::from_ref(&made));
    assert!(matches!(store.add_machine(record("one"), &START), Err(Error::NameTaken(_))));
    let both = store.add_machines(vec![record("two"), record("one")], &START);
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
    let machine = store.add_machine(record("one"), &START).expect("add");
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
    let machine = store.add_machine(record("one"), &START).expect("add");
    let chunk = |seq| Chunk { stream: Stream::Stdout, data: format!("line {seq}"), seq };
    store.add_outputs(machine.id, 0, &[chunk(0), chunk(1)]).expect("add");
    store.add_outputs(machine.id, 0, &[chunk(2)]).expect("add");
    assert_eq!(store.outputs(machine.id, 0, 1).expect("read"), [chunk(1), chunk(2)]);
    assert!(store.outputs(machine.id, 1, 0).expect("read").is_empty());
}

#[test]
fn going_back_marks_and_forgets() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one"), &START).expect("add");
    for seq in 0..4 {
        add(&store, &machine, seq, Status::Running);
        finish(&store, &machine, seq);
        checkpoint(&store, &machine, seq);
    }
    let other = store.roll_back(machine.id, &Image("image 2"), Some(1));
    assert!(matches!(other, Err(Error::Missing(_))), "that is not the image of this checkpoint");
    store.roll_back(machine.id, &Image("image 1"), Some(1)).expect("roll back");
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
    let one = store.add_machine(record("one"), &START).expect("add");
    let other = store.add_machine(record("other"), &START).expect("add");
    store.swap_names(one.id, other.id).expect("exchange");
    assert_eq!(store.machine(one.id).expect("one").made.name, name("other"));
    assert_eq!(store.machine(other.id).expect("other").made.name, name("one"));
}

#[test]
fn a_key_names_one_instruction() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one"), &START).expect("add");
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
    store.add_machine(record("one"), &START).expect("add");
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
    let machines =
        ["one", "two"].map(|name| store.add_machine(record(name), &START).expect("add").id);
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

#[test]
fn a_number_is_given_once() {
    let (dir, store) = store();
    let one = store.add_machine(record("one"), &START).expect("add").id;
    store.remove_machine(one).expect("remove");
    assert!(matches!(store.remove_machine(one), Err(Error::Removed(_))), "it is gone");
    let other = store.add_machine(record("one"), &START).expect("add").id;
    assert!(other > one, "{other:?} after {one:?}");
    store.remove_machine(other).expect("remove");
    let store = reopen(dir.path(), store);
    let third = store.add_machine(record("one"), &START).expect("add").id;
    assert!(third > other, "{third:?} after {other:?}, over a restart");
}

/// A driver that comes late meets this, whatever it is about to write.
#[test]
fn nothing_is_written_for_a_machine_that_was_removed() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one"), &START).expect("add");
    add(&store, &machine, 0, Status::Running);
    checkpoint(&store, &machine, 0);
    store.remove_machine(machine.id).expect("remove");
    let next = store.add_machine(record("one"), &START).expect("add");
    let id = machine.id;
    let at = Timestamp::now();
    let exec = Exec::default();
    let status = Status::Queued;
    let address = Address { machine: machine.made.name.clone(), seq: Some(0) };
    let receipt = Receipt { address, intact: true, durable: None, lost: None, notes: Vec::new() };
    let outcome = Outcome::default();
    let end = Finished { seq: 0, status: Status::Done, at, outputs: 0, outcome, receipt };
    let chunk = Chunk { stream: Stream::Stdout, data: "x".into(), seq: 0 };
    let new = NewCheckpoint { seq: 1, at, bytes: 1 };
    let branch = NewRecord { parent_id: Some(id), ..record("branch") };
    let writes = [
        store.add_instruction(id, &NewInstruction { seq: 1, exec, status, at }),
        store.start_instruction(id, 0, at),
        store.finish_instruction(id, &end),
        store.add_outputs(id, 0, &[chunk]),
        store.add_checkpoint(id, &Image("late"), new),
        store.set_head(id, &Image("late"), None),
        store.roll_back(id, &Image("image 0"), Some(0)),
        store.roll_back(id, &START, None),
        store.set_machine(id, &machine.made),
        store.swap_names(id, next.id),
        store.swap_names(next.id, id),
        store.add_machine(branch, &START).map(drop),
    ];
    for (at, write) in writes.into_iter().enumerate() {
        assert!(matches!(write, Err(Error::Removed(_))), "write {at}: {write:?}");
    }
    assert_eq!(store.machine(next.id).expect("the other one"), next);
    assert_eq!(store.machines().expect("list").len(), 1);
    assert!(!store.images_in_use().expect("images").contains(&"late".to_owned()));
}

#[test]
fn a_template_goes_only_when_nothing_stands_on_it() {
    let (_dir, store) = store();
    let machine = store.add_machine(record("one"), &START).expect("add");
    assert_eq!(store.remove_template("t").expect("refused"), 1);
    store.remove_machine(machine.id).expect("remove");
    assert_eq!(store.remove_template("t").expect("removed"), 0);
    let late = store.add_machine(record("one"), &START);
    assert!(matches!(late, Err(Error::NoTemplate(_))), "{late:?}");
}

/// What an older program could write: ids used again, and machines that are their own parents.
#[test]
fn an_older_store_is_healed_and_keeps_what_it_had() {
    let (dir, store) = store();
    let one = store.add_machine(record("one"), &START).expect("add");
    add(&store, &one, 0, Status::Queued);
    let branch = NewRecord { parent_id: Some(one.id), ..record("branch") };
    let branch = store.add_machine(branch, &START).expect("add");
    drop(store);
    let raw = rusqlite::Connection::open(dir.path().join("records.db")).expect("open the file");
    let refused = raw.execute("UPDATE machines SET parent_id = id WHERE name = 'one'", []);
    assert!(refused.is_err(), "no machine is its own parent");
    // back to the form before numbers were given once
    let sql: String = raw
        .query_row("SELECT sql FROM sqlite_master WHERE name = 'machines'", [], |row| row.get(0))
        .expect("the table");
    let sql = sql.replacen("machines", "older", 1).replace(" AUTOINCREMENT", "");
    let sql = sql.replace(" CHECK (parent_id < id)", "");
    raw.execute_batch(&format!(
        "PRAGMA foreign_keys = OFF; {sql}; INSERT INTO older SELECT * FROM machines;
         DROP TABLE machines; ALTER TABLE older RENAME TO machines;
         UPDATE machines SET parent_id = id WHERE name = 'one'; PRAGMA user_version = 5;"
    ))
    .expect("an older form");
    drop(raw);
    let store = Store::open(dir.path()).expect("brought up to date");
    assert_eq!(store.machine(one.id).expect("one").made.parent_id, None, "the link is cut");
    assert_eq!(store.machine(branch.id).expect("branch").made.parent_id, Some(one.id));
    assert_eq!(store.pending(one.id).expect("its log").len(), 1, "nothing of it went");
    store.remove_machine(branch.id).expect("remove");
    let next = store.add_machine(record("two"), &START).expect("add").id;
    assert!(next > branch.id, "{next:?}");
    assert!(next > MachineId(0) && store.check().expect("check").is_none());
    assert!(matches!(store.add_machine(record("two"), &START), Err(Error::NameTaken(_))));
}
