//! A bound on what a machine writes to disk.
//!
//! Without quotas no file system says no for one directory, so a thread measures the private layer
//! of every machine that has a limit, again and again, and ends a machine that passed it. What
//! this promises: a runaway is ended after the next look, a second or so later (longer where a walk
//! takes long), and a single file never grows past the limit, which is a limit of the process. A
//! machine that is ended goes on from its last image.

use crate::error::{Doing, Result};
use crate::walls::Walls;
use stasis_sandbox::{DiskLimit, disk};
use stasis_sys::{libc, process};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Time between looks, at least.
const PERIOD: Duration = Duration::from_millis(500);
/// Looking takes at most this part of a processor.
const SHARE: u32 = 20;

/// One machine, for as long as its init lives.
struct Watched {
    upper: PathBuf,
    init: OwnedFd,
    limit: Arc<Mutex<Option<DiskLimit>>>,
}

#[derive(Default)]
struct Shared {
    machines: Mutex<Vec<Watched>>,
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
        let upper = PathBuf::from(&walls.files.upper);
        self.shared.machines().push(Watched { upper, init, limit: walls.disk.clone() });
        Ok(())
    }
}

impl Shared {
    fn machines(&self) -> MutexGuard<'_, Vec<Watched>> {
        self.machines.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Watched {
    fn is_gone(&self) -> bool {
        process::pidfd_wait(self.init.as_fd(), 0).unwrap_or(true)
    }

    fn limit(&self) -> Option<DiskLimit> {
        *self.limit.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Ends the machine if it has more than it may.
    fn look(&self) {
        let Some(limit) = self.limit() else { return };
        let usage = disk::usage(&self.upper, limit.files);
        if usage.bytes > limit.bytes || usage.files > limit.files {
            let _ = process::pidfd_kill(self.init.as_fd(), libc::SIGKILL);
        }
    }
}

fn watch(shared: &Shared) {
    while !shared.over.load(Ordering::Relaxed) {
        let start = Instant::now();
        // taken out so that nobody waits for a walk
        let mut machines = std::mem::take(&mut *shared.machines());
        machines.retain(|machine| !machine.is_gone());
        machines.iter().for_each(Watched::look);
        shared.machines().extend(machines);
        std::thread::park_timeout(PERIOD.max(start.elapsed() * SHARE));
    }
}
