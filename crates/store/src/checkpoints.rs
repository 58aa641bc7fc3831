//! Checkpoints: which image is the state after which instruction.

use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::machines::{optional, require, there, time};
use crate::{MachineId, Store};
use rusqlite::{Row, params};
use stasis_api::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub seq: u64,
    pub image: String,
    pub at: Timestamp,
    /// What it added to the store.
    pub bytes: u64,
    pub label: Option<String>,
}

/// A checkpoint as it is added.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewCheckpoint {
    pub seq: u64,
    pub at: Timestamp,
    pub bytes: u64,
}

const COLUMNS: &str = "seq, image, at_ms, bytes, label";

impl Store {
    /// Records a machine's newest state. When this returns it survives the end of the host, and
    /// with it everything recorded before.
    pub fn add_checkpoint(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        new: NewCheckpoint,
    ) -> Result<()> {
        let image = image.name();
        self.durably(|connection| {
            require(connection, machine)?;
            connection
                .prepare_cached(
                    "INSERT INTO checkpoints (machine, seq, image, at_ms, bytes) \
                     VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (machine, seq) DO UPDATE SET \
                     image = excluded.image, at_ms = excluded.at_ms, bytes = excluded.bytes",
                )?
                .execute(params![
                    machine.0,
                    new.seq as i64,
                    image,
                    new.at.as_millisecond(),
                    new.bytes as i64,
                ])?;
            set_head(connection, machine, &image, Some(new.seq))
        })
    }

    /// A state that belongs to no instruction of its own: a new machine's, or one whose files were
    /// changed from outside.
    pub fn set_head(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        seq: Option<u64>,
    ) -> Result<()> {
        let image = image.name();
        self.durably(|connection| {
            if let Some(seq) = seq {
                connection.execute(
                    "UPDATE checkpoints SET image = ?3 WHERE machine = ?1 AND seq = ?2",
                    params![machine.0, seq as i64, image],
                )?;
            }
            set_head(connection, machine, &image, seq)
        })
    }

    /// Goes back: the head is that of an earlier checkpoint, what came after is marked. A
    /// checkpoint that was given up meanwhile, or is of another image by now, is missing.
    pub fn roll_back(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        seq: Option<u64>,
    ) -> Result<()> {
        let image = image.name();
        self.durably(|connection| {
            require(connection, machine)?;
            if let Some(seq) = seq {
                let sql =
                    "SELECT 1 FROM checkpoints WHERE machine = ?1 AND seq = ?2 AND image = ?3";
                let mut kept = connection.prepare_cached(sql)?;
                if !kept.exists(params![machine.0, seq as i64, image])? {
                    return Err(Error::Missing(format!("checkpoint {seq}")));
                }
            }
            Store::mark_rolled_back(connection, machine, seq)?;
            connection.execute(
                "DELETE FROM checkpoints WHERE machine = ?1 AND seq > ?2",
                params![machine.0, seq.map_or(-1, |seq| seq as i64)],
            )?;
            set_head(connection, machine, &image, seq)
        })
    }

    pub fn checkpoint(&self, machine: MachineId, seq: u64) -> Result<Option<Checkpoint>> {
        let sql = format!("SELECT {COLUMNS} FROM checkpoints WHERE machine = ?1 AND seq = ?2");
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&sql)?;
        optional(statement.query_row(params![machine.0, seq as i64], |row| Ok(read(row))))
    }

    pub fn checkpoints(&self, machine: MachineId) -> Result<Vec<Checkpoint>> {
        let sql = format!("SELECT {COLUMNS} FROM checkpoints WHERE machine = ?1 ORDER BY seq");
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_and_then([machine.0], read)?;
        rows.collect()
    }

    pub fn set_label(&self, machine: MachineId, seq: u64, label: Option<&str>) -> Result<bool> {
        let sql = "UPDATE checkpoints SET label = ?3 WHERE machine = ?1 AND seq = ?2";
        let changed = self.lock().execute(sql, params![machine.0, seq as i64, label])?;
        Ok(changed == 1)
    }

    /// Forgets checkpoints, except one that is the head by now; their images are freed by the next
    /// collection. How many were forgotten.
    pub fn drop_checkpoints(&self, machine: MachineId, seqs: &[u64]) -> Result<u64> {
        self.durably(|connection| {
            let sql = "DELETE FROM checkpoints WHERE machine = ?1 AND seq = ?2 AND seq IS NOT \
                       (SELECT head_seq FROM machines WHERE id = ?1)";
            let mut statement = connection.prepare_cached(sql)?;
            let mut dropped = 0;
            for seq in seqs {
                dropped += statement.execute(params![machine.0, *seq as i64])? as u64;
            }
            let sql = "UPDATE machines SET freed_seq = max(coalesce(freed_seq, -1), ?2) \
                       WHERE id = ?1";
            if let Some(last) = seqs.iter().max().filter(|_| dropped > 0) {
                connection.execute(sql, params![machine.0, *last as i64])?;
            }
            Ok(dropped)
        })
    }

    /// What somebody found out about a checkpoint, as JSON; whoever reads it sees whether it is
    /// still true.
    pub fn set_changes(&self, machine: MachineId, seq: u64, changes: &str) -> Result<()> {
        let sql = "UPDATE checkpoints SET changes = ?3 WHERE machine = ?1 AND seq = ?2";
        self.lock().execute(sql, params![machine.0, seq as i64, changes])?;
        Ok(())
    }

    /// What was found out about each checkpoint.
    pub fn changes(&self, machine: MachineId) -> Result<Vec<(u64, String)>> {
        let sql = "SELECT seq, changes FROM checkpoints WHERE machine = ?1 AND changes IS NOT NULL";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?));
        let rows = statement.query_map([machine.0], row)?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Every image that a machine refers to, and every image that others and templates do.
    pub fn images_by_owner(&self, machine: MachineId) -> Result<(Vec<String>, Vec<String>)> {
        let own = "SELECT image FROM checkpoints WHERE machine = ?1 \
                   UNION SELECT head_image FROM machines WHERE id = ?1 \
                   UNION SELECT start_image FROM machines WHERE id = ?1";
        let others = "WITH others AS (SELECT id, head_image, start_image FROM machines \
                      WHERE id <> ?1 AND account = (SELECT account FROM machines WHERE id = ?1)) \
                      SELECT image FROM checkpoints JOIN others ON machine = others.id \
                      UNION SELECT head_image FROM others \
                      UNION SELECT start_image FROM others \
                      UNION SELECT image FROM templates";
        let connection = self.lock();
        let list = |sql: &str| -> Result<Vec<String>> {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([machine.0], |row| row.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        };
        Ok((list(own)?, list(others)?))
    }

    /// Every image a record refers to.
    pub fn images_in_use(&self) -> Result<Vec<String>> {
        let sql = "SELECT image FROM checkpoints UNION SELECT head_image FROM machines \
                   UNION SELECT start_image FROM machines \
                   UNION SELECT image FROM templates";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| row.get(0))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }
}

fn set_head(
    connection: &rusqlite::Connection,
    machine: MachineId,
    image: &str,
    seq: Option<u64>,
) -> Result<()> {
    let changed = connection
        .prepare_cached("UPDATE machines SET head_image = ?2, head_seq = ?3 WHERE id = ?1")?
        .execute(params![machine.0, image, seq.map(|seq| seq as i64)])?;
    there(machine, changed)
}

fn read(row: &Row<'_>) -> Result<Checkpoint> {
    Ok(Checkpoint {
        seq: row.get::<_, i64>(0)? as u64,
        image: row.get(1)?,
        at: time(row.get(2)?),
        bytes: row.get::<_, i64>(3)? as u64,
        label: row.get(4)?,
    })
}
