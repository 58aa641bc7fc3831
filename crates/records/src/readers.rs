//! Connections that only read. Each read sees the records as of one commit, and neither waits for
//! the writer nor makes it wait.
//!
//! Reads may wait for the disk, so a thread that answers many clients declares that it makes none
//! ([`forbid_records_on_this_thread`]).

use crate::error::Result;
use crate::schema;
use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::{Connection, OpenFlags};
use std::cell::Cell;
use std::path::Path;

/// Reads at a time; more wait for one of these to end.
const READERS: usize = 4;

thread_local! {
    static FORBIDDEN: Cell<bool> = const { Cell::new(false) };
}

/// From now on this thread must not use records. Debug builds panic where it does.
pub fn forbid_records_on_this_thread() {
    FORBIDDEN.set(true);
}

pub(crate) fn check_thread() {
    debug_assert!(
        !FORBIDDEN.get(),
        "records were accessed on a thread that must not wait for the disk"
    );
}

pub(crate) struct ReaderPool {
    idle: Mutex<Vec<Connection>>,
    freed: Condvar,
}

/// A connection that goes back when this is dropped.
struct Lent<'a> {
    readers: &'a ReaderPool,
    connection: Option<Connection>,
}

impl ReaderPool {
    pub fn open(file: &Path) -> Result<ReaderPool> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = |_| {
            let connection = Connection::open_with_flags(file, flags)?;
            schema::prepare_reader(&connection)?;
            Ok(connection)
        };
        let idle = (0..READERS).map(open).collect::<Result<_>>()?;
        Ok(ReaderPool { idle: Mutex::new(idle), freed: Condvar::new() })
    }

    pub fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        check_thread();
        let lent = self.lend();
        let connection = lent.connection.as_ref().expect("lent until it is dropped");
        read(connection)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Connection>> {
        self.idle.lock()
    }

    fn lend(&self) -> Lent<'_> {
        let mut idle = self.lock();
        loop {
            if let Some(connection) = idle.pop() {
                return Lent { readers: self, connection: Some(connection) };
            }
            self.freed.wait(&mut idle);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.readers.lock().extend(self.connection.take());
        self.readers.freed.notify_one();
    }
}
