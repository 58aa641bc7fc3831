//! The log of events, in batches, bounded.

use crate::Records;
use crate::error::Result;
use rusqlite::params;

impl Records {
    /// Adds a batch with the numbers `first` to `last`, and removes those up to `old`.
    pub fn log_events(&self, first: u64, last: u64, batch: String, old: u64) -> Result<()> {
        self.write(move |connection| {
            let sql = "INSERT OR REPLACE INTO events (first, last, batch) VALUES (?1, ?2, ?3)";
            let row = params![first as i64, last as i64, batch];
            connection.prepare_cached(sql)?.execute(row)?;
            let sql = "DELETE FROM events WHERE last <= ?1";
            connection.prepare_cached(sql)?.execute([old as i64])?;
            Ok(())
        })
    }

    /// All kept batches, oldest first.
    pub fn events(&self) -> Result<Vec<String>> {
        self.read(|connection| {
            let sql = "SELECT batch FROM events ORDER BY first";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}
