//! Named failure points, where tests make a step fail or the process die.
//!
//! A point costs one relaxed load unless something is armed. Arm by hand for the calling thread
//! ([`arm`]), or for a whole process before it starts:
//!
//!   STASIS_FAULT="capture.twins=kill"       die there, as by kill -9
//!   STASIS_FAULT="pack.write=enospc:3"      at the third time: half of the write, then a full disk
//!
//! `error` fails the step, `kill` ends the process, `enospc` fails it as a full disk would,
//! `short` lets a write take half of its bytes once (nothing else is affected by it).

#![forbid(unsafe_code)]

use parking_lot::{Mutex, MutexGuard};
use stasis_sys::{libc, process};
use std::cell::Cell;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Once};
use std::thread::ThreadId;

/// Every point, in the order a capture, a restore, a park, a collection and an import pass them.
pub const POINTS: [&str; 31] = [
    "capture.frozen",
    "capture.state",
    "capture.descriptors",
    "capture.files",
    "capture.twins",
    "capture.thawed",
    "capture.shared",
    "capture.pages",
    "pack.write",
    "pack.written",
    "pack.synced",
    "capture.held",
    "image.write",
    "image.written",
    "image.synced",
    "restore.walls",
    "restore.objects",
    "clone.ordered",
    "clone.staged",
    "restore.cloned",
    "park.cloned",
    "collect.marked",
    "collect.images",
    "collect.packs",
    "collect.layers",
    "collect.removed",
    "rewrite.written",
    "rewrite.named",
    "import.pack",
    "import.pages",
    "import.image",
];

/// Points of machines: before and after their changes are recorded, and as a driver enters each
/// state.
pub const OF_MACHINES: [&str; 24] = [
    "branch.captured",
    "branch.recorded",
    "branch.unsaved",
    "rollback.decided",
    "rollback.recorded",
    "promote.decided",
    "promote.recorded",
    "adopt.carried",
    "import.laid",
    "import.recorded",
    "driver.asked",
    "driver.instruction",
    "driver.waking",
    "warm.parking",
    "files.looking",
    "state.swapped",
    "state.waking",
    "state.ready",
    "state.saving",
    "state.starting",
    "state.running",
    "state.storing",
    "state.ending",
    "state.leaving",
];

/// That of records: before the changes that share a transaction are committed.
pub const OF_RECORDS: [&str; 1] = ["records.commit"];

fn is_point(name: &str) -> bool {
    [&POINTS[..], &OF_MACHINES, &OF_RECORDS].iter().any(|points| points.contains(&name))
}

/// The error of a step that was made to fail.
#[derive(Debug, thiserror::Error)]
#[error("pass {name}: {source}")]
pub struct Injected {
    pub name: &'static str,
    pub source: io::Error,
}

#[derive(Clone)]
pub enum Fault {
    Error,
    Kill,
    Short,
    Enospc,
    /// For tests that do something to the tree at this very moment.
    Call(Arc<dyn Fn() + Send + Sync>),
}

struct Armed {
    name: String,
    fault: Fault,
    /// Times to let pass first.
    skip: u32,
    /// Only when this thread comes by; `None` for any.
    thread: Option<ThreadId>,
}

static ANY: AtomicBool = AtomicBool::new(true);
static READ_ENVIRONMENT: Once = Once::new();
static ARMED: Mutex<Vec<Armed>> = Mutex::new(Vec::new());

fn armed() -> MutexGuard<'static, Vec<Armed>> {
    ARMED.lock()
}

thread_local! {
    /// The thread on whose behalf this one works.
    static OWNER: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

pub fn owner() -> ThreadId {
    OWNER.get().unwrap_or_else(|| std::thread::current().id())
}

/// Lets this thread meet faults armed for another.
pub fn adopt(owner: ThreadId) {
    OWNER.set(Some(owner));
}

/// Makes the calling thread fail at a point, once, until the guard is dropped.
pub fn arm(name: &str, fault: Fault) -> FaultGuard {
    arm_for(name, fault, Some(owner()));
    FaultGuard
}

/// Makes the next caller that passes a point fail there, once.
pub fn arm_for_all(name: &str, fault: Fault) {
    arm_for(name, fault, None);
}

fn arm_for(name: &str, fault: Fault, thread: Option<ThreadId>) {
    assert!(is_point(name), "there is no failure point {name:?}");
    armed().push(Armed { name: name.into(), fault, skip: 0, thread });
    ANY.store(true, Ordering::Relaxed);
}

/// Disarms its thread's faults.
pub struct FaultGuard;

impl FaultGuard {
    /// Whether everything armed has happened.
    pub fn fired(&self) -> bool {
        let own = Some(owner());
        armed().iter().all(|entry| entry.thread != own)
    }
}

impl Drop for FaultGuard {
    fn drop(&mut self) {
        let own = Some(owner());
        armed().retain(|entry| entry.thread != own);
    }
}

/// `NAME=FAULT[:N]`, separated by commas. Invalid entries are reported: a fault that silently never
/// happens would make a test pass.
fn read_environment() {
    let Ok(text) = std::env::var("STASIS_FAULT") else { return };
    for item in text.split(',').filter(|item| !item.is_empty()) {
        match parse(item) {
            Some(entry) => armed().push(entry),
            None => panic!("STASIS_FAULT: {item:?} is not NAME=error|kill|short|enospc[:N]"),
        }
    }
}

fn parse(item: &str) -> Option<Armed> {
    let (name, fault) = item.split_once('=')?;
    let (fault, time) = fault.split_once(':').unwrap_or((fault, "1"));
    let fault = match fault {
        "error" => Fault::Error,
        "kill" => Fault::Kill,
        "short" => Fault::Short,
        "enospc" => Fault::Enospc,
        _ => return None,
    };
    let skip = time.parse::<u32>().ok()?.checked_sub(1)?;
    is_point(name).then(|| Armed { name: name.into(), fault, skip, thread: None })
}

/// A step after which one may be made to fail.
#[inline]
pub fn point(name: &'static str) -> Result<(), Injected> {
    if !ANY.load(Ordering::Relaxed) {
        return Ok(());
    }
    match take(name) {
        None | Some(Fault::Short) => Ok(()),
        Some(fault) => happen(fault).map_err(|source| Injected { name, source }),
    }
}

/// Removes and returns the fault armed for this point and thread.
#[cold]
fn take(name: &str) -> Option<Fault> {
    debug_assert!(is_point(name), "{name} is in no list of points");
    READ_ENVIRONMENT.call_once(read_environment);
    let own = owner();
    let mut armed = armed();
    let found = armed
        .iter()
        .position(|entry| entry.name == name && entry.thread.is_none_or(|thread| thread == own));
    let taken = match found {
        Some(index) if armed[index].skip > 0 => {
            armed[index].skip -= 1;
            None
        }
        Some(index) => Some(armed.swap_remove(index).fault),
        None => None,
    };
    ANY.store(!armed.is_empty(), Ordering::Relaxed);
    taken
}

fn happen(fault: Fault) -> io::Result<()> {
    match fault {
        Fault::Error => Err(io::Error::other("an injected fault")),
        Fault::Enospc => Err(io::Error::from_raw_os_error(libc::ENOSPC)),
        Fault::Kill => {
            let _ = process::kill(std::process::id() as i32, libc::SIGKILL);
            loop {
                std::thread::park();
            }
        }
        Fault::Call(call) => {
            call();
            Ok(())
        }
        Fault::Short => Ok(()),
    }
}

/// A file whose writes are a failure point.
pub struct Writer<W> {
    name: &'static str,
    pub inner: W,
}

impl<W: Write> Writer<W> {
    pub fn new(name: &'static str, inner: W) -> Writer<W> {
        Writer { name, inner }
    }

    #[cold]
    fn write_armed(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(fault) = take(self.name) else { return self.inner.write(bytes) };
        let half = bytes.len().div_ceil(2);
        let written = self.inner.write(&bytes[..half])?;
        happen(fault)?;
        Ok(written)
    }
}

impl<W: Write> Write for Writer<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if ANY.load(Ordering::Relaxed) { self.write_armed(bytes) } else { self.inner.write(bytes) }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
