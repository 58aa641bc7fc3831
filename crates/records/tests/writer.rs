//! The writer: changes that share a transaction, and transactions that fail.

mod common;

use common::{record, start, template};
use stasis_api::{Address, Chunk, Exec, Outcome, Receipt, Status, Stream, Timestamp};
use stasis_fault::Fault;
use stasis_image::ImageId;
use stasis_records::{Error, FinishedInstruction, HeldImage, MachineId, NewInstruction, Records};
use stasis_sys::{libc, mount, namespace};
use std::path::Path;
use std::sync::{Arc, Mutex, mpsc};
use tempfile::TempDir;

/// An image in name only.
struct Image;

impl HeldImage for Image {
    fn id(&self) -> ImageId {
        start()
    }
}

fn records() -> (TempDir, Records) {
    let dir = tempfile::tempdir().expect("a directory");
    let records = records_in(dir.path());
    (dir, records)
}

fn records_in(dir: &Path) -> Records {
    let records = Records::open(dir).expect("open");
    records.add_template(&template(), &Image).expect("a template");
    records
}

fn machine(records: &Records, name: &str) -> MachineId {
    records.create(record(name), &Image).expect("create").id
}

fn queued(seq: u64) -> NewInstruction {
    NewInstruction { seq, exec: Exec::default(), status: Status::Queued, at: Timestamp::now() }
}

fn finished(seq: u64) -> FinishedInstruction {
    let address = Address { machine: "m".parse().expect("a name"), seq: Some(seq) };
    let (durable, lost, notes, modules) = (None, None, Vec::new(), Vec::new());
    let receipt = Receipt { address, intact: true, durable, lost, notes, modules };
    let (status, at, outcome) = (Status::Done, Timestamp::now(), Outcome::default());
    FinishedInstruction { seq, status, at, outputs: 0, outcome, receipt }
}

/// How many transactions the log beside the file holds: in SQLite's format, the last frame of each
/// says how many pages the file has after it.
fn commits(dir: &Path) -> usize {
    const HEADER: usize = 32;
    const FRAME: usize = 24;
    let log = std::fs::read(dir.join("records.db-wal")).expect("a log");
    let page = u32::from_be_bytes(log[8..12].try_into().expect("four bytes")) as usize;
    let frames = log[HEADER..].chunks(FRAME + page);
    frames.filter(|frame| frame.len() >= FRAME && frame[4..8] != [0; 4]).count()
}

/// Keeps the writer from committing the next transaction until what this gives is dropped.
fn hold_next_commit() -> (stasis_fault::FaultGuard, mpsc::Sender<()>) {
    let (release, released) = mpsc::channel::<()>();
    let released = Mutex::new(released);
    let wait = move || {
        // the thread that releases it sends nothing
        let _ = released.lock().expect("a lock").recv();
    };
    (stasis_fault::arm("records.commit", Fault::Call(Arc::new(wait))), release)
}

#[test]
fn changes_that_wait_share_a_transaction() {
    let (dir, records) = records();
    let id = machine(&records, "m");
    let before = commits(dir.path());
    let (_guard, release) = hold_next_commit();
    let first = records.accept(id, queued(0));
    // while the first is held up, or together with it
    let rest: Vec<_> = (1..64).map(|seq| records.accept(id, queued(seq))).collect();
    drop(release);
    first.wait().expect("accepted");
    for one in rest {
        one.wait().expect("accepted");
    }
    let transactions = commits(dir.path()) - before;
    assert!((1..=2).contains(&transactions), "64 changes, {transactions} transactions");
    assert_eq!(records.machine(id).expect("a machine").next_seq, 64);
}

#[test]
fn many_threads_make_fewer_transactions_than_changes() {
    const THREADS: u64 = 32;
    const EACH: u64 = 4;
    let (dir, records) = records();
    let ids: Vec<_> = (0..THREADS).map(|at| machine(&records, &format!("m-{at}"))).collect();
    let before = commits(dir.path());
    std::thread::scope(|scope| {
        for id in ids.iter().copied() {
            let records = &records;
            scope.spawn(move || {
                for seq in 0..EACH {
                    records.accept(id, queued(seq)).wait().expect("accepted");
                    records.start(id, seq, Timestamp::now()).expect("started");
                    records.finish(id, finished(seq), Vec::new()).expect("finished");
                    // every thread sees an answered change
                    let read = records.instruction(id, seq).expect("read").expect("there");
                    assert_eq!(read.status, Status::Done);
                }
            });
        }
    });
    let (changes, made) = ((THREADS * EACH * 3) as usize, commits(dir.path()) - before);
    assert!(made < changes, "{changes} changes, {made} transactions");
    for id in ids {
        assert_eq!(records.instructions(id, 0, 100).expect("a log").len() as u64, EACH);
    }
}

#[test]
fn a_change_that_fails_does_not_fail_those_beside_it() {
    let (dir, records) = records();
    let id = machine(&records, "m");
    let before = commits(dir.path());
    let (_guard, release) = hold_next_commit();
    let changes = [(id, 0), (MachineId(999), 0), (id, 0), (id, 1)];
    let sent = changes.map(|(id, seq)| records.accept(id, queued(seq)));
    drop(release);
    let answers = sent.map(|one| one.wait());
    assert!(answers[0].is_ok() && answers[3].is_ok(), "{answers:?}");
    assert!(matches!(answers[1], Err(Error::Removed(999))), "{answers:?}");
    assert!(matches!(answers[2], Err(Error::Database(_))), "the number is taken: {answers:?}");
    assert!(commits(dir.path()) - before <= 2, "they were beside each other");
    assert_eq!(records.instructions(id, 0, 10).expect("a log").len(), 2);
}

/// Nothing of the transaction exists, all callers get an error, and the next change succeeds.
fn fails_whole(fault: Fault) {
    let (_dir, records) = records();
    let id = machine(&records, "m");
    let guard = stasis_fault::arm("records.commit", fault);
    let sent = [0, 1, 2].map(|seq| records.accept(id, queued(seq)));
    let failed: Vec<_> = sent.into_iter().filter_map(|one| one.wait().err()).collect();
    assert!(guard.fired() && !failed.is_empty());
    assert!(failed.iter().all(|error| error.code() == "store.not_written"), "{failed:?}");
    let kept = records.instructions(id, 0, 10).expect("a log").len();
    assert_eq!(kept + failed.len(), 3);
    records.accept(id, queued(7)).wait().expect("the writer goes on");
    assert_eq!(records.check().expect("check"), None);
}

#[test]
fn a_full_disk_fails_one_transaction() {
    fails_whole(Fault::Enospc);
}

#[test]
fn a_panic_fails_one_transaction() {
    fails_whole(Fault::Call(Arc::new(|| panic!("on purpose"))));
}

/// In a separate thread, whose mounts are private.
#[test]
fn a_full_disk_fails_only_changes_that_do_not_fit() {
    let test = std::thread::spawn(|| {
        let dir = tempfile::tempdir().expect("a directory");
        namespace::unshare(libc::CLONE_NEWNS).expect("a mount namespace of our own");
        let private = libc::MS_REC | libc::MS_PRIVATE;
        mount::mount("none", "/", "", private, None).expect("make it private");
        let path = dir.path().to_str().expect("a plain path");
        mount::mount("tmpfs", path, "tmpfs", 0, Some("size=2m")).expect("a small disk");
        let records = records_in(dir.path());
        let id = machine(&records, "m");
        records.accept(id, queued(0)).wait().expect("accepted");
        let ballast = dir.path().join("ballast");
        std::fs::write(&ballast, vec![1; 4 << 20]).expect_err("more than there is room for");
        let data = "x".repeat(256 << 10);
        let line = Chunk { stream: Stream::Stdout, data, seq: 0, prompt: false };
        let full = records.output(id, 0, vec![line.clone()]).expect_err("the disk is full");
        assert_eq!(full.code(), "store.not_written", "{full}");
        assert_eq!(records.instruction(id, 0).expect("read").expect("there").seq, 0);
        std::fs::remove_file(&ballast).expect("make room");
        records.output(id, 0, vec![line.clone()]).expect("the writer goes on");
        assert_eq!(records.outputs(id, 0, 0).expect("read"), [line]);
        assert_eq!(records.check().expect("check"), None);
        drop(records);
        mount::unmount_detached(path).expect("unmount");
    });
    test.join().expect("it holds");
}
