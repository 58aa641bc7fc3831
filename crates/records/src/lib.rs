//! Records: machines, their instructions, output, checkpoints and templates, in one SQLite file.
//!
//!   machine ─┬─ instructions ── outputs
//!            └─ checkpoints ──► images (kept by the engine, by content)
//!   template ─────────────────► image, root
//!
//! One process has a store open at a time. One connection writes (`writer.rs`), a few others read
//! (`readers.rs`). The changes are named after the events of a machine:
//!
//!   create, branch, import, update, promote, delete     a machine
//!   accept, start, output, finish                        an instruction
//!   checkpoint, replace_head, roll_back, label, free     its states
//!   set_policy, remove_policy                            a named policy
//!   add_call, answer_call, start_call, end_call, park    a call of a tool
//!   change_documents                                     texts that a surface keeps
//!
//! A change takes effect as a whole or not at all. Once it is answered it survives the end of this
//! process, and the end of the host from the next checkpoint on, whose transaction is synced with
//! all before it. The log is synced right behind an undo, a redo or a rollback (`wal.rs`). A store
//! written by a newer program is refused; one written by an older program is migrated when it is
//! opened.
//!
//! Refused here, so that no order of calls can cause it:
//!   a write for a machine that was removed; its number is never given to another
//!   a branch of a machine that is not there, or with a smaller number than its parent
//!   an image that is recorded without being held

#![forbid(unsafe_code)]

mod artifacts;
mod calls;
mod checkpoints;
mod documents;
mod error;
mod events;
mod held;
mod import;
mod instructions;
mod machines;
mod policies;
mod readers;
mod schema;
mod templates;
mod tokens;
mod wal;
mod writer;

pub use calls::{CallEnd, CallRecord, NewCall, ParkedMachine};
pub use checkpoints::{Checkpoint, NewCheckpoint};
pub use documents::DocumentChange;
pub use error::{Error, Result};
pub use held::HeldImage;
pub use import::Imported;
pub use instructions::{FinishedInstruction, NewInstruction};
pub use machines::{MachineId, MachineRecord, NewRecord};
pub use readers::forbid_records_on_this_thread;
pub use templates::TemplateRecord;
pub use tokens::TokenRecord;
pub use wal::SyncTime;
pub use writer::PendingChange;

use readers::ReaderPool;
use rusqlite::Connection;
use std::path::Path;
use wal::LogSync;
use writer::{RecordsWriter, WriteMode};

pub struct Records {
    // closed first: the last connection to close cleans up, which a read-only one cannot
    readers: ReaderPool,
    writer: RecordsWriter,
    log: LogSync,
}

impl Records {
    /// Opens or makes the store in `dir`. The caller holds the directory's lock.
    pub fn open(dir: &Path) -> Result<Records> {
        let file = dir.join("records.db");
        let mut connection = Connection::open(&file)?;
        schema::prepare(&mut connection)?;
        let (readers, log) = (ReaderPool::open(&file)?, LogSync::start(&file)?);
        Ok(Records { readers, writer: RecordsWriter::start(connection)?, log })
    }

    /// Applies a change, which survives the end of this process when this returns.
    fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.send(WriteMode::Together, change).wait()
    }

    /// Applies a change, which survives the end of the host when this returns, and with it
    /// everything before it.
    fn write_synced<T: Send + 'static>(
        &self,
        change: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        self.send(WriteMode::Synced, change).wait()
    }

    /// Makes a change, which survives the end of the host when this returns, or soon after.
    fn write_at<T: Send + 'static>(
        &self,
        time: SyncTime,
        change: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        match time {
            SyncTime::First => self.write_synced(change),
            SyncTime::Behind => self.write(change).inspect(|_| self.log.soon()),
        }
    }

    /// Has everything that was answered survive the end of the host.
    pub fn sync(&self) -> Result<()> {
        self.log.now().map_err(|error| Error::NotWritten(std::sync::Arc::new(error)))
    }

    fn send<T: Send + 'static>(
        &self,
        how: WriteMode,
        change: impl FnOnce(&Connection) -> Result<T> + Send + 'static,
    ) -> PendingChange<T> {
        readers::check_thread();
        self.writer.send(how, change)
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        self.readers.read(read)
    }

    /// Rewrites the file when most of it is empty; returns the freed bytes. Changes wait meanwhile,
    /// at most for the time it takes to write the rest.
    pub fn shrink(&self) -> Result<u64> {
        self.send(WriteMode::Alone, shrink).wait()
    }

    /// Whether SQLite finds its own file sound; otherwise its message.
    pub fn check(&self) -> Result<Option<String>> {
        self.read(|connection| {
            let said: String =
                connection.query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
            Ok((said != "ok").then_some(said))
        })
    }
}

fn shrink(connection: &Connection) -> Result<u64> {
    const WORTH_IT: u64 = 32 << 20;
    let number = |what: &str| -> Result<u64> {
        let ask = format!("PRAGMA {what}");
        Ok(connection.query_row(&ask, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
    };
    let size = |what: &str| Ok::<u64, Error>(number(what)? * number("page_size")?);
    let (before, empty) = (size("page_count")?, size("freelist_count")?);
    if empty < WORTH_IT || empty < before / 2 {
        return Ok(0);
    }
    // the new file is first written to a temporary one, which may be large
    connection.execute_batch(
        "PRAGMA temp_store = FILE; VACUUM; PRAGMA temp_store = MEMORY;
         PRAGMA wal_checkpoint(TRUNCATE)",
    )?;
    Ok(before.saturating_sub(size("page_count")?))
}
