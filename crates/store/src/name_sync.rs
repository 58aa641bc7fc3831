//! Syncs a directory for all who wait for that.
//!
//!   named ─► wanted ─┐                          ┌─► answered
//!   named ─► wanted ─┴─► a thread syncs once ───┴─► answered
//!
//! A sync covers everything that was named before it began, and takes as long for one name as for
//! many. It runs in a thread of its own, so that a caller who waits need not sync for those who
//! came later.

use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;

type DirSync = Box<dyn Fn() -> io::Result<()> + Send>;

#[derive(Default)]
struct State {
    /// Syncs that were begun, and that have ended.
    begun: u64,
    ended: u64,
    /// The last one that is wanted.
    wanted: u64,
    /// The last one that failed, and how.
    failed: Option<(u64, io::ErrorKind, String)>,
    over: bool,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// The thread that syncs, until this is dropped.
pub struct NameSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A sync that begins after it was wanted.
#[must_use = "a sync can fail; wait for it"]
struct WantedSync(u64);

impl NameSync {
    pub fn start(dir: &Path) -> io::Result<NameSync> {
        let dir = File::open(dir)?;
        NameSync::start_with(Box::new(move || dir.sync_all()))
    }

    fn start_with(sync: DirSync) -> io::Result<NameSync> {
        let shared = Arc::new(Shared::default());
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("stasis-names".into());
        let thread = thread.spawn(move || own.serve(&sync))?;
        Ok(NameSync { shared, thread: Some(thread) })
    }

    /// Syncs everything that is named by now.
    pub fn sync(&self) -> io::Result<()> {
        self.wait(self.want())
    }

    fn want(&self) -> WantedSync {
        let mut state = self.shared.state.lock();
        let number = state.begun + 1;
        state.wanted = state.wanted.max(number);
        self.shared.changed.notify_all();
        WantedSync(number)
    }

    fn wait(&self, WantedSync(number): WantedSync) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        while state.ended < number {
            self.shared.changed.wait(&mut state);
        }
        match &state.failed {
            Some((failed, kind, why)) if *failed >= number => {
                Err(io::Error::new(*kind, why.clone()))
            }
            _ => Ok(()),
        }
    }
}

impl Drop for NameSync {
    fn drop(&mut self) {
        self.shared.state.lock().over = true;
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self, sync: &DirSync) {
        let mut state = self.state.lock();
        while !state.over {
            if state.begun >= state.wanted {
                self.changed.wait(&mut state);
                continue;
            }
            state.begun += 1;
            drop(state);
            let synced = sync();
            state = self.state.lock();
            state.ended = state.begun;
            if let Err(error) = synced {
                state.failed = Some((state.ended, error.kind(), error.to_string()));
            }
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::mpsc;

    /// Each thread names something and waits for a sync; one covers the names there as it began.
    #[test]
    fn a_sync_covers_what_was_named_before() {
        let (named, synced) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (all, done) = (named.clone(), synced.clone());
        let names = NameSync::start_with(Box::new(move || {
            let covered = all.load(Ordering::SeqCst);
            std::thread::yield_now();
            done.fetch_max(covered, Ordering::SeqCst);
            Ok(())
        }));
        let names = names.expect("a thread");
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let own = named.fetch_add(1, Ordering::SeqCst) + 1;
                        names.sync().expect("synced");
                        assert!(synced.load(Ordering::SeqCst) >= own);
                    }
                });
            }
        });
    }

    /// Two that come while one is under way share the next, and its error is theirs alone.
    #[test]
    fn a_sync_is_shared_and_so_is_its_error() {
        let (begun, is_begun) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<bool>();
        let names = NameSync::start_with(Box::new(move || {
            begun.send(()).expect("a listener");
            let fails = may_go_on.recv().expect("told");
            if fails { Err(io::ErrorKind::StorageFull.into()) } else { Ok(()) }
        }));
        let names = names.expect("a thread");
        let first = names.want();
        is_begun.recv().expect("begun");
        let (second, third) = (names.want(), names.want());
        go_on.send(false).expect("a thread");
        names.wait(first).expect("synced");
        is_begun.recv().expect("the second");
        go_on.send(true).expect("a thread");
        for shared in [second, third] {
            let error = names.wait(shared).expect_err("failed");
            assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        }
        let last = names.want();
        is_begun.recv().expect("the third");
        go_on.send(false).expect("a thread");
        names.wait(last).expect("synced");
    }
}
