//! The log of events, in batches, bounded.

use crate::Store;
use crate::error::Result;
use rusqlite::params;

impl Store {
    /// Adds a batch with the numbers `first` to `last`, and forgets those up to `old`.
    pub fn add_events(&self, first: u64, last: u64, batch: &str, old: u64) -> Result<()> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        transaction
            .prepare_cached(
                "INSERT OR REPLACE INTO events (first, last, batch) VALUES (?1, ?2, ?3)",
            )?
            .execute(params![first as i64, last as i64, batch])?;
        transaction.prepare_cached("DELETE FROM events WHERE last <= ?1")?.execute([old as i64])?;
        Ok(transaction.commit()?)
    }

    /// All batches that are kept, oldest first.
    pub fn events(&self) -> Result<Vec<String>> {
        let connection = self.lock();
        let mut statement = connection.prepare_cached("SELECT batch FROM events ORDER BY first")?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}
