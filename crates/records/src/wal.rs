//! Makes changes durable that were answered before they were.
//!
//!   change ─► committed ─► answered
//!                └─► a thread syncs SQLite's log, once for all changes that came meanwhile
//!
//! A committed change is in the log, from which SQLite restores it after a crash of the host if the
//! log is on disk. If a sync fails, the changes stay as unsynced ones are, and the next synced
//! transaction meets the error.

use parking_lot::{Condvar, Mutex};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// When a change survives the end of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncTime {
    /// Before it is answered.
    First,
    /// Right after it is answered.
    Behind,
}

struct Shared {
    log: PathBuf,
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Default)]
struct Wanted {
    sync: bool,
    over: bool,
}

/// The log of the records, and the thread that syncs it. Dropping it waits for the
/// requested syncs.
pub(crate) struct LogSync {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl LogSync {
    /// For the log beside this file.
    pub fn start(database: &Path) -> io::Result<LogSync> {
        let mut log = database.as_os_str().to_owned();
        log.push("-wal");
        let (wanted, changed) = Default::default();
        let shared = Arc::new(Shared { log: log.into(), wanted, changed });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("stasis-sync".into());
        let thread = thread.spawn(move || own.serve())?;
        Ok(LogSync { shared, thread: Some(thread) })
    }

    /// Has the log synced, and does not wait.
    pub fn soon(&self) {
        self.shared.wanted.lock().sync = true;
        self.shared.changed.notify_one();
    }

    /// Syncs the log.
    pub fn now(&self) -> io::Result<()> {
        self.shared.sync()
    }
}

impl Drop for LogSync {
    fn drop(&mut self) {
        self.shared.wanted.lock().over = true;
        self.shared.changed.notify_one();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn serve(&self) {
        loop {
            let over = {
                let mut wanted = self.wanted.lock();
                while !wanted.sync && !wanted.over {
                    self.changed.wait(&mut wanted);
                }
                if !std::mem::take(&mut wanted.sync) {
                    return;
                }
                wanted.over
            };
            // the next synced transaction meets the same error, and reports it to its caller
            let _ = self.sync();
            if over {
                return;
            }
        }
    }

    fn sync(&self) -> io::Result<()> {
        match File::open(&self.log) {
            Ok(log) => log.sync_data(),
            // everything is in the file itself
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_shared_and_ends_with_its_owner() {
        let dir = tempfile::tempdir().expect("a directory");
        let database = dir.path().join("records.db");
        let log = LogSync::start(&database).expect("a thread");
        log.now().expect("no log: all of it is in the file");
        std::fs::create_dir(dir.path().join("records.db-wal")).expect("a directory");
        log.now().expect("a directory can be synced");
        (0..100).for_each(|_| log.soon());
        let shared = log.shared.clone();
        drop(log);
        assert!(!shared.wanted.lock().sync, "what was wanted was done");
    }
}
