//! The thread that measures the disk use of every machine with a limit, and kills a machine that
//! exceeds it.
//!
//!   a look takes long ─► the machine's next one comes later; others do not wait for it
//!   the file system fills by more than a machine has left ─► it is looked at soon all the same
//!
//! A runaway machine is killed about half a second after it exceeded its limit. It can make a
//! measurement slow, with as many files as it may have, so the interval must not be what protects
//! the host: its writes show in the file system's free space, which costs nothing to read.
//!
//! Files behind descriptors in flight cannot be counted. A machine may have such descriptors, but
//! while it has, the file system must not fill by more than the machine may still write: those
//! might be its files. If others write that much, it is ended for theirs.

use crate::disk::{DiskAccount, DiskExcess, DiskFinding};
use crate::error::{ErrorContext, Result};
use crate::unlinked::UnlinkedScope;
use crate::walls::Walls;
use parking_lot::Mutex;
use stasis_sys::{files, libc, process};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Minimum time between two measurements of a machine.
const PERIOD: Duration = Duration::from_millis(500);
/// How often to see whether a look is due.
const TICK: Duration = Duration::from_millis(100);
/// Looks take about this part of a processor.
const SHARE: u32 = 20;
/// Looks at a machine that may be filling the disk take this part.
const HASTE: u32 = 4;
/// A look that takes longer is followed by another check of who is due: cheap ones go first.
const DEAR: Duration = Duration::from_millis(20);
/// Mapped files are looked for at one of so many looks: it takes longer than all the rest.
const MAPPED: u64 = 4;

/// One machine, for as long as its init lives.
struct Watched {
    init: OwnedFd,
    account: Arc<DiskAccount>,
    looks: u64,
    /// At first, when it was met: it has written nothing by then.
    last: LastLook,
    /// Free space before it had its current descriptors in flight.
    unhidden: Option<DiskRoom>,
}

/// The space a machine had left, and the space in use on the whole file system at that time.
#[derive(Debug, Clone, Copy)]
struct DiskRoom {
    left: u64,
    taken: u64,
}

impl DiskRoom {
    /// Whether the file system has filled since then by more than the machine could write.
    fn is_filled(&self, taken: u64) -> bool {
        taken.saturating_sub(self.taken) > self.left
    }
}

/// Duration and result of a machine's last measurement.
#[derive(Debug, Clone, Copy)]
struct LastLook {
    ended: Instant,
    cost: Duration,
    room: DiskRoom,
}

#[derive(Default)]
struct Shared {
    /// Machines that the thread has not met yet.
    unmet: Mutex<Vec<Watched>>,
    over: AtomicBool,
}

pub struct DiskWatch {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for DiskWatch {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl DiskWatch {
    pub fn start() -> Result<DiskWatch> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new()
            .name("stasis-disk".into())
            .spawn(move || watch(&own))
            .doing(|| "start a thread".into())?;
        Ok(DiskWatch { shared, thread: Some(thread) })
    }

    /// Watches a machine from now on.
    pub fn add(&self, walls: &Walls) -> Result<()> {
        let init = walls.init.pidfd.try_clone().doing(|| "copy a descriptor".into())?;
        let account = walls.disk.clone();
        let room = DiskRoom {
            left: account.limit().map_or(u64::MAX, |limit| limit.bytes),
            taken: taken_beside(&account),
        };
        let last = LastLook { ended: Instant::now(), cost: Duration::ZERO, room };
        let watched = Watched { init, account, looks: 0, last, unhidden: None };
        self.shared.unmet.lock().push(watched);
        Ok(())
    }
}

impl Watched {
    fn is_gone(&self) -> bool {
        process::pidfd_wait(self.init.as_fd(), 0).unwrap_or(true)
    }

    fn cost(&self) -> Duration {
        self.last.cost
    }

    /// Ends the machine if it has more than it may.
    fn look(&mut self, taken: u64) {
        self.looks += 1;
        let places = match self.looks.is_multiple_of(MAPPED) {
            true => UnlinkedScope::Everywhere,
            false => UnlinkedScope::Open,
        };
        let start = Instant::now();
        let DiskFinding { excess, left, hides } = self.account.look(places);
        let before = self.unhidden.unwrap_or(self.last.room);
        self.unhidden = hides.then_some(before);
        let hidden = hides && before.is_filled(taken);
        if let Some(excess) = excess.or(hidden.then_some(DiskExcess::Uncountable)) {
            self.account.note_end(excess);
            let _ = process::pidfd_kill(self.init.as_fd(), libc::SIGKILL);
        }
        let ended = Instant::now();
        let room = DiskRoom { left, taken };
        self.last = LastLook { ended, cost: ended - start, room };
    }
}

fn watch(shared: &Shared) {
    let mut machines: Vec<Watched> = Vec::new();
    while !shared.over.load(Ordering::Relaxed) {
        machines.append(&mut shared.unmet.lock());
        machines.retain(|machine| !machine.is_gone());
        // of those that are due at the same time, cheap ones come first
        machines.sort_by_key(Watched::cost);
        if !look_at_due(&mut machines, &shared.over) {
            std::thread::park_timeout(TICK);
        }
    }
}

/// Looks at machines that are due, the cheapest first; whether it stopped early, after a dear one.
fn look_at_due(machines: &mut [Watched], over: &AtomicBool) -> bool {
    // all of them are on one file system
    let taken = machines.first().map_or(0, |one| taken_beside(&one.account));
    let costs: Vec<Duration> = machines.iter().map(Watched::cost).collect();
    for (at, machine) in machines.iter_mut().enumerate() {
        let due = is_due(&machine.last, wait_after(&costs, at), Instant::now(), taken);
        if !due || machine.account.limit().is_none() {
            continue;
        }
        machine.look(taken);
        if machine.cost() > DEAR || over.load(Ordering::Relaxed) {
            return true;
        }
    }
    false
}

fn is_due(last: &LastLook, wait: Duration, now: Instant, taken: u64) -> bool {
    let since = now.saturating_duration_since(last.ended);
    since >= wait || (last.room.is_filled(taken) && since >= PERIOD.max(last.cost * HASTE))
}

/// The space in use on the file system a machine writes to.
fn taken_beside(account: &DiskAccount) -> u64 {
    files::bytes_taken(account.upper()).unwrap_or(0)
}

/// How long the machine at a place waits after a look, when each costs so much, in ascending order.
/// Together they stay near their share; one that costs much makes itself wait, not the cheap ones.
fn wait_after(costs: &[Duration], at: usize) -> Duration {
    let own = costs[at];
    let cheaper: Duration = costs[..at].iter().sum();
    let as_dear = own * u32::try_from(costs.len() - at).unwrap_or(u32::MAX);
    PERIOD.max((cheaper + as_dear) * SHARE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_dear_machine_makes_only_itself_wait() {
        let cheap = [MS; 40];
        assert_eq!(wait_after(&cheap, 7), 40 * MS * SHARE);
        let mut mixed = cheap.to_vec();
        mixed.push(3000 * MS);
        assert_eq!(wait_after(&mixed, 7), 41 * MS * SHARE);
        assert_eq!(wait_after(&mixed, 40), 3040 * MS * SHARE);
        assert_eq!(wait_after(&[Duration::ZERO], 0), PERIOD);
    }

    #[test]
    fn a_disk_that_fills_is_looked_at_before_its_time() {
        let now = Instant::now();
        let cost = 1000 * MS;
        let room = DiskRoom { left: 50 << 20, taken: 1 << 30 };
        let last = LastLook { ended: now, cost, room };
        let due =
            |after: Duration, more: u64| is_due(&last, cost * SHARE, now + after, (1 << 30) + more);
        assert!(!due(cost * 10, 50 << 20), "what it has left is not written yet");
        assert!(due(cost * HASTE, 51 << 20));
        assert!(!due(cost * (HASTE - 1), 51 << 20), "looks must not take a whole processor");
        assert!(due(cost * SHARE, 0));
        let met = LastLook { cost: Duration::ZERO, ..last };
        let first = |after: Duration| is_due(&met, PERIOD, now + after, 1 << 30);
        assert!(!first(PERIOD - MS) && first(PERIOD));
    }
}
