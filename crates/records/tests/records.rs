//! Records through their own surface, over closings of the store.

mod common;

use stasis_api::{Address, Name, Timestamp};
use stasis_api::{Chunk, Exec, Limits, Outcome, Receipt, Status, Stream};
use stasis_image::ImageId;
use stasis_records::{
    Error, FinishedInstruction, HeldImage, MachineId, MachineRecord, NewCheckpoint, NewInstruction,
    NewRecord, Records, SyncTime,
};
use std::path::Path;
use tempfile::TempDir;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

/// A machine with tags and a limit.
fn record(text: &str) -> NewRecord {
    NewRecord {
        created_at: Timestamp::from_millisecond(1_700_000_000_000).expect("a time"),
        tags: [("k".to_owned(), "v".to_owned())].into(),
        limits: Limits { memory_mb: Some(512), ..Limits::default() },
        ..common::record(text)
    }
}

/// An image in name only.
struct Image(&'static str);

impl HeldImage for Image {
    fn id(&self) -> ImageId {
        ImageId::of(self.0.as_bytes())
    }
}

const START: Image = Image("start");

fn store() -> (TempDir, Records) {
    let dir = tempfile::tempdir().expect("a directory");
    let store = Records::open(dir.path()).expect("open");
    store.add_template(&common::template(), &START).expect("a template");
    (dir, store)
}

fn reopen(dir: &Path, store: Records) -> Records {
    drop(store);
    Records::open(dir).expect("open again")
}

fn add(store: &Records, machine: &MachineRecord, seq: u64, status: Status) {
    let exec = Exec { code: format!("code {seq}"), ..Exec::default() };
    let new = NewInstruction { seq, exec, status, at: Timestamp::now() };
    store.accept(machine.id, new).wait().expect("add an instruction");
}

fn finish(store: &Records, machine: &MachineRecord, seq: u64) {
    let address = Address { machine: machine.made.name.clone(), seq: Some(seq) };
    let (durable, lost, notes, modules) = (None, None, Vec::new(), Vec::new());
    let receipt = Receipt { address, intact: true, durable, lost, notes, modules };
    let outcome = Outcome { value: Some("1".into()), ..Outcome::default() };
    let end = FinishedInstruction {
        seq,
        status: Status::Done,
        at: Timestamp::now(),
        outputs: 1,
        outcome,
        receipt,
    };
    store.finish(machine.id, end, Vec::new()).expect("finish");
}

const IMAGES: [&str; 4] = ["image 0", "image 1", "image 2", "image 3"];

fn checkpoint(store: &Records, machine: &MachineRecord, seq: u64) {
    let image = IMAGES[seq as usize];
    let new = NewCheckpoint { seq, at: Timestamp::now(), bytes: 4096 };
    store.checkpoint(machine.id, &Image(image), new).expect("add a checkpoint");
}

#[test]
fn machines_are_as_they_were_written() {
    let (dir, store) = store();
    let made = store.create(record("one"), &START).expect("add");
    let store = reopen(dir.path(), store);
    assert_eq!(store.machines().expect("list"), std::slice::from_ref(&made));
    assert!(matches!(store.create(record("one"), &START), Err(Error::NameTaken(_))));
    let both = store.branch(vec![record("two"), record("one")], &START);
    assert!(matches!(both, Err(Error::NameTaken(_))));
    assert_eq!(store.machines().expect("list").len(), 1, "all or none");
    let changed = NewRecord { tags: Default::default(), ..made.made.clone() };
    store.update(made.id, changed.clone()).expect("change");
    assert_eq!(store.machine(made.id).expect("one").made, changed);
    store.delete(made.id).expect("remove");
    assert!(store.machines().expect("list").is_empty());
}

#[test]
fn unfinished_instructions_are_found_after_reopening() {
    let (dir, store) = store();
    let machine = store.create(record("one"), &START).expect("add");
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
    let machine = store.create(record("one"), &START).expect("add");
    let chunk =
        |seq| Chunk { stream: Stream::Stdout, data: format!("line {seq}"), seq, prompt: false };
    store.output(machine.id, 0, vec![chunk(0), chunk(1)]).expect("add");
    store.output(machine.id, 0, vec![chunk(2)]).expect("add");
    assert_eq!(store.outputs(machine.id, 0, 1).expect("read"), [chunk(1), chunk(2)]);
    assert!(store.outputs(machine.id, 1, 0).expect("read").is_empty());
}

#[test]
fn going_back_marks_and_something_new_forgets() {
    let (_dir, store) = store();
    let machine = store.create(record("one"), &START).expect("add");
    for seq in 0..4 {
        add(&store, &machine, seq, Status::Running);
        finish(&store, &machine, seq);
        checkpoint(&store, &machine, seq);
    }
    let other = store.roll_back(machine.id, &Image("image 2"), Some(1), SyncTime::First);
    assert!(matches!(other, Err(Error::Missing(_))), "that is not the image of this checkpoint");
    store.roll_back(machine.id, &Image("image 1"), Some(1), SyncTime::First).expect("roll back");
    let record = store.machine(machine.id).expect("one");
    assert_eq!((record.head_image, record.head_seq), (Image("image 1").id(), Some(1)));
    let marks: Vec<bool> = store
        .instructions(machine.id, 0, 10)
        .expect("list")
        .iter()
        .map(|one| one.rolled_back)
        .collect();
    assert_eq!(marks, [false, false, true, true]);
    // kept until something new runs, and not among the states of the machine
    let uses = |image| store.images_in_use().expect("list").contains(&Image(image).id());
    assert!(uses("image 3"));
    assert_eq!(store.checkpoints(machine.id).expect("list").len(), 2);
    assert!(store.checkpoint_at(machine.id, 3).expect("look").is_none());
    assert_eq!(store.undone(machine.id).expect("list"), [2, 3]);
    store.redo(machine.id, &Image("image 2"), 2, SyncTime::Behind).expect("redo");
    assert_eq!(store.ran(machine.id, None, 10).expect("list"), [2, 1, 0]);
    assert_eq!(store.undone(machine.id).expect("list"), [3]);
    add(&store, &machine, 4, Status::Running);
    assert!(!uses("image 3") && store.images_in_use().expect("list").contains(&START.id()));
    assert!(store.undone(machine.id).expect("list").is_empty());
    assert!(store.instruction(machine.id, 3).expect("look").expect("there").rolled_back);
}

#[test]
fn names_are_exchanged_whole() {
    let (_dir, store) = store();
    let one = store.create(record("one"), &START).expect("add");
    let other = store.create(record("other"), &START).expect("add");
    store.promote(one.id, other.id).expect("exchange");
    assert_eq!(store.machine(one.id).expect("one").made.name, name("other"));
    assert_eq!(store.machine(other.id).expect("other").made.name, name("one"));
}

#[test]
fn a_key_names_one_instruction() {
    let (_dir, store) = store();
    let machine = store.create(record("one"), &START).expect("add");
    let exec = Exec { idempotency_key: Some("k".into()), ..Exec::default() };
    let new = NewInstruction { seq: 0, exec, status: Status::Queued, at: Timestamp::now() };
    // sent together, as by a client that tries again before it is answered
    let first = store.accept(machine.id, new.clone());
    let again = store.accept(machine.id, NewInstruction { seq: 1, ..new });
    assert_eq!(first.wait().expect("accepted"), None);
    assert_eq!(again.wait().expect("known"), Some(0));
    assert_eq!(store.instruction_with_key(machine.id, "k").expect("find"), Some(0));
    assert!(store.instruction(machine.id, 1).expect("look").is_none());
    assert_eq!(store.machine(machine.id).expect("one").next_seq, 1);
}

#[test]
fn a_newer_store_is_refused_and_left_alone() {
    let (dir, store) = store();
    store.create(record("one"), &START).expect("add");
    drop(store);
    let file = dir.path().join("records.db");
    let raw = rusqlite::Connection::open(&file).expect("open the file");
    raw.pragma_update(None, "user_version", 999).expect("a form of the future");
    drop(raw);
    let refused = Records::open(dir.path()).err().expect("it is refused");
    assert_eq!(refused.code(), "store.newer");
    let raw = rusqlite::Connection::open(&file).expect("open the file");
    let count: i64 =
        raw.query_row("SELECT count(*) FROM machines", [], |row| row.get(0)).expect("count");
    assert_eq!(count, 1);
}

#[test]
fn a_file_that_is_mostly_empty_is_made_small_and_others_are_left_alone() {
    let (dir, store) = store();
    let machines = ["one", "two"].map(|name| store.create(record(name), &START).expect("add").id);
    let data = "x".repeat(1 << 20);
    for seq in 0..40 {
        let chunk = Chunk { stream: Stream::Stdout, data: data.clone(), seq, prompt: false };
        store.output(machines[0], 0, vec![chunk]).expect("add");
    }
    let kept = Chunk { stream: Stream::Stdout, data: "kept".into(), seq: 0, prompt: false };
    store.output(machines[1], 0, vec![kept.clone()]).expect("add");
    assert_eq!(store.shrink().expect("shrink"), 0, "it is full");
    store.delete(machines[0]).expect("remove");
    assert!(store.shrink().expect("shrink") >= 39 << 20);
    assert!(std::fs::metadata(dir.path().join("records.db")).expect("a file").len() < 1 << 20);
    assert_eq!(store.outputs(machines[1], 0, 0).expect("read"), [kept]);
    assert_eq!(store.check().expect("check"), None);
}

#[test]
fn a_number_is_given_once() {
    let (dir, store) = store();
    let one = store.create(record("one"), &START).expect("add").id;
    store.delete(one).expect("remove");
    assert!(matches!(store.delete(one), Err(Error::Removed(_))), "it is gone");
    let other = store.create(record("one"), &START).expect("add").id;
    assert!(other > one, "{other:?} after {one:?}");
    store.delete(other).expect("remove");
    let store = reopen(dir.path(), store);
    let third = store.create(record("one"), &START).expect("add").id;
    assert!(third > other, "{third:?} after {other:?}, over a restart");
}

/// A driver that comes late meets this, whatever it is about to write.
#[test]
fn nothing_is_written_for_a_machine_that_was_removed() {
    let (_dir, store) = store();
    let machine = store.create(record("one"), &START).expect("add");
    add(&store, &machine, 0, Status::Running);
    checkpoint(&store, &machine, 0);
    store.delete(machine.id).expect("remove");
    let next = store.create(record("one"), &START).expect("add");
    let id = machine.id;
    let at = Timestamp::now();
    let exec = Exec::default();
    let status = Status::Queued;
    let address = Address { machine: machine.made.name.clone(), seq: Some(0) };
    let (durable, lost, notes, modules) = (None, None, Vec::new(), Vec::new());
    let receipt = Receipt { address, intact: true, durable, lost, notes, modules };
    let outcome = Outcome::default();
    let end =
        FinishedInstruction { seq: 0, status: Status::Done, at, outputs: 0, outcome, receipt };
    let chunk = Chunk { stream: Stream::Stdout, data: "x".into(), seq: 0, prompt: false };
    let new = NewCheckpoint { seq: 1, at, bytes: 1 };
    let branch = NewRecord { parent_id: Some(id), ..record("branch") };
    let writes = [
        store.accept(id, NewInstruction { seq: 1, exec, status, at }).wait().map(drop),
        store.start(id, 0, at),
        store.finish(id, end, Vec::new()),
        store.output(id, 0, vec![chunk]),
        store.checkpoint(id, &Image("late"), new),
        store.replace_head(id, &Image("late"), None),
        store.roll_back(id, &Image("image 0"), Some(0), SyncTime::First),
        store.roll_back(id, &START, None, SyncTime::First),
        store.update(id, machine.made.clone()),
        store.promote(id, next.id),
        store.promote(next.id, id),
        store.create(branch, &START).map(drop),
    ];
    for (at, write) in writes.into_iter().enumerate() {
        assert!(matches!(write, Err(Error::Removed(_))), "write {at}: {write:?}");
    }
    assert_eq!(store.machine(next.id).expect("the other one"), next);
    assert_eq!(store.machines().expect("list").len(), 1);
    assert!(!store.images_in_use().expect("images").contains(&Image("late").id()));
}

#[test]
fn a_template_is_removed_only_when_unused() {
    let (_dir, store) = store();
    let machine = store.create(record("one"), &START).expect("add");
    assert_eq!(store.remove_template("t").expect("refused"), 1);
    store.delete(machine.id).expect("remove");
    assert_eq!(store.remove_template("t").expect("removed"), 0);
    let late = store.create(record("one"), &START);
    assert!(matches!(late, Err(Error::NoTemplate(_))), "{late:?}");
}

/// Records of an older program: reused ids, and machines that are their own parents.
#[test]
fn an_older_store_is_healed_and_keeps_what_it_had() {
    let (dir, store) = store();
    let one = store.create(record("one"), &START).expect("add");
    add(&store, &one, 0, Status::Queued);
    let branch = NewRecord { parent_id: Some(one.id), ..record("branch") };
    let branch = store.create(branch, &START).expect("add");
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
        "PRAGMA foreign_keys = OFF; DROP TABLE documents; DROP TABLE policies; DROP TABLE parked;
         DROP TABLE tool_calls;
         {sql}; INSERT INTO older SELECT * FROM machines;
         DROP TABLE machines; ALTER TABLE older RENAME TO machines;
         UPDATE machines SET parent_id = id WHERE name = 'one'; PRAGMA user_version = 5;"
    ))
    .expect("an older form");
    drop(raw);
    let store = Records::open(dir.path()).expect("brought up to date");
    assert_eq!(store.machine(one.id).expect("one").made.parent_id, None, "the link is cut");
    assert_eq!(store.machine(branch.id).expect("branch").made.parent_id, Some(one.id));
    assert_eq!(store.pending(one.id).expect("its log").len(), 1, "nothing of it went");
    store.delete(branch.id).expect("remove");
    let next = store.create(record("two"), &START).expect("add").id;
    assert!(next > branch.id, "{next:?}");
    assert!(next > MachineId(0) && store.check().expect("check").is_none());
    assert!(matches!(store.create(record("two"), &START), Err(Error::NameTaken(_))));
}
