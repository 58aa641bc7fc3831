//! Records: machines, their instructions, output, checkpoints and templates, in one SQLite file.
//!
//!   machine ─┬─ instructions ── outputs
//!            └─ checkpoints ──► images (kept by the engine, by content)
//!   template ─────────────────► image, root
//!
//! One process has a store open at a time. Every change is one transaction. What a client was
//! told survives the end of this process at once, and the end of the host from the next
//! checkpoint on, whose transaction is synced with all before it. A store written by a newer
//! program is refused; one written by an older program is brought up to date when it is opened.
//!
//! What is refused here, so that no order of calls can bring it about:
//!   a write for a machine that was removed; its number is never given to another
//!   a branch of a machine that is not there, or with a smaller number than its parent
//!   an image that is recorded while nobody holds it

#![forbid(unsafe_code)]

mod artifacts;
mod checkpoints;
mod error;
mod events;
mod held;
mod import;
mod instructions;
mod machines;
mod schema;
mod templates;
mod tokens;

pub use checkpoints::{Checkpoint, NewCheckpoint};
pub use error::{Error, Result};
pub use held::HeldImage;
pub use import::Imported;
pub use instructions::{Finished, NewInstruction};
pub use machines::{MachineId, MachineRecord, NewRecord};
pub use templates::TemplateRecord;
pub use tokens::TokenRecord;

use rusqlite::Connection;
use std::path::Path;
use std::sync::{Mutex, MutexGuard};

pub struct Store {
    connection: Mutex<Connection>,
}

impl Store {
    /// Opens or makes the store in `dir`. The caller holds the directory's lock.
    pub fn open(dir: &Path) -> Result<Store> {
        let mut connection = Connection::open(dir.join("records.db"))?;
        schema::prepare(&mut connection)?;
        Ok(Store { connection: Mutex::new(connection) })
    }

    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    /// Runs `change` as one transaction that is on disk when this returns.
    fn durably<T>(&self, change: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        let mut connection = self.lock();
        connection.execute_batch("PRAGMA synchronous = FULL")?;
        let changed = (|| {
            let transaction = connection.transaction()?;
            let value = change(&transaction)?;
            transaction.commit()?;
            Ok(value)
        })();
        connection.execute_batch("PRAGMA synchronous = NORMAL")?;
        changed
    }

    /// Writes the file anew when most of it is empty; how many bytes that freed. Everybody waits
    /// meanwhile, for no longer than it takes to write what is left.
    pub fn shrink(&self) -> Result<u64> {
        const WORTH_IT: u64 = 32 << 20;
        let connection = self.lock();
        let number = |what: &str| -> Result<u64> {
            let ask = format!("PRAGMA {what}");
            Ok(connection.query_row(&ask, [], |row| row.get::<_, i64>(0))?.unsigned_abs())
        };
        let size = |what: &str| Ok::<u64, Error>(number(what)? * number("page_size")?);
        let (before, empty) = (size("page_count")?, size("freelist_count")?);
        if empty < WORTH_IT || empty < before / 2 {
            return Ok(0);
        }
        connection.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)")?;
        Ok(before.saturating_sub(size("page_count")?))
    }

    /// Whether SQLite finds its own file sound; otherwise what it says.
    pub fn check(&self) -> Result<Option<String>> {
        let said: String = self.lock().query_row("PRAGMA integrity_check", [], |row| row.get(0))?;
        Ok((said != "ok").then_some(said))
    }
}
