//! Checkpoints: which image is the state after which instruction.

use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::instructions::{mark_redone, mark_rolled_back};
use crate::machines::{image, optional, require, there, time};
use crate::{MachineId, Records, SyncTime};
use rusqlite::{Row, params};
use stasis_api::Timestamp;
use stasis_image::ImageId;
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq)]
pub struct Checkpoint {
    pub seq: u64,
    pub image: ImageId,
    pub at: Timestamp,
    /// Bytes it added to the store.
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
/// The state a machine is in. Later ones were undone, and stay until something new runs.
const HEAD: &str = "(SELECT coalesce(head_seq, -1) FROM machines WHERE id = ?1)";

impl Records {
    /// Records a machine's newest state. When this returns it survives the end of the host, and
    /// with it everything recorded before.
    pub fn checkpoint(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        new: NewCheckpoint,
    ) -> Result<()> {
        let image = image.id();
        self.write_synced(move |connection| {
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
                    image.to_string(),
                    new.at.as_millisecond(),
                    new.bytes as i64,
                ])?;
            set_head(connection, machine, image, Some(new.seq))
        })
    }

    /// Records the state after an instruction that was undone before its state was on disk. If
    /// something new ran since, the state is no longer reachable and is dropped.
    pub fn checkpoint_undone(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        new: NewCheckpoint,
    ) -> Result<()> {
        let image = image.id();
        self.write_synced(move |connection| {
            require(connection, machine)?;
            let sql = "INSERT OR IGNORE INTO checkpoints (machine, seq, image, at_ms, bytes) \
                       SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (SELECT 1 FROM instructions \
                       WHERE machine = ?1 AND seq = ?2 AND rolled_back = 1)";
            let (at, bytes) = (new.at.as_millisecond(), new.bytes as i64);
            let values = params![machine.0, new.seq as i64, image.to_string(), at, bytes];
            connection.prepare_cached(sql)?.execute(values)?;
            Ok(())
        })
    }

    /// A state without an instruction of its own: a new machine's, or one whose files were changed
    /// from outside.
    pub fn replace_head(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        seq: Option<u64>,
    ) -> Result<()> {
        let image = image.id();
        self.write_synced(move |connection| {
            if let Some(seq) = seq {
                connection.execute(
                    "UPDATE checkpoints SET image = ?3 WHERE machine = ?1 AND seq = ?2",
                    params![machine.0, seq as i64, image.to_string()],
                )?;
            }
            set_head(connection, machine, image, seq)
        })
    }

    /// Rolls back: the head is an earlier checkpoint, and later instructions are marked. Their
    /// states stay until something new runs, so that they can be redone. A checkpoint that was
    /// removed meanwhile, or has another image by now, counts as missing.
    pub fn roll_back(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        seq: Option<u64>,
        time: SyncTime,
    ) -> Result<()> {
        let image = image.id();
        self.write_at(time, move |connection| {
            require(connection, machine)?;
            if let Some(seq) = seq {
                require_state(connection, machine, seq, image)?;
            }
            mark_rolled_back(connection, machine, seq)?;
            set_head(connection, machine, image, seq)
        })
    }

    /// Goes forward again to a state that was undone.
    pub fn redo(
        &self,
        machine: MachineId,
        image: &dyn HeldImage,
        seq: u64,
        time: SyncTime,
    ) -> Result<()> {
        let image = image.id();
        self.write_at(time, move |connection| {
            require(connection, machine)?;
            require_state(connection, machine, seq, image)?;
            mark_redone(connection, machine, seq)?;
            set_head(connection, machine, image, Some(seq))
        })
    }

    /// States beyond the head, which were undone and can be redone.
    pub fn undone_checkpoints(&self, machine: MachineId) -> Result<Vec<Checkpoint>> {
        self.select(machine, &format!("seq > {HEAD} ORDER BY seq"))
    }

    pub fn checkpoint_at(&self, machine: MachineId, seq: u64) -> Result<Option<Checkpoint>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM checkpoints WHERE machine = ?1 AND seq = ?2 AND seq <= {HEAD}"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            optional(statement.query_row(params![machine.0, seq as i64], |row| Ok(read(row))))
        })
    }

    pub fn checkpoints(&self, machine: MachineId) -> Result<Vec<Checkpoint>> {
        self.select(machine, &format!("seq <= {HEAD} ORDER BY seq"))
    }

    fn select(&self, machine: MachineId, which: &str) -> Result<Vec<Checkpoint>> {
        let sql = format!("SELECT {COLUMNS} FROM checkpoints WHERE machine = ?1 AND {which}");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then([machine.0], read)?;
            rows.collect()
        })
    }

    /// Sets or removes a checkpoint's label; whether the checkpoint exists.
    pub fn label(&self, machine: MachineId, seq: u64, label: Option<&str>) -> Result<bool> {
        let label = label.map(str::to_owned);
        self.write(move |connection| {
            let sql = "UPDATE checkpoints SET label = ?3 WHERE machine = ?1 AND seq = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.execute(params![machine.0, seq as i64, label])? == 1)
        })
    }

    /// Removes checkpoints, except the current head; the next collection frees their images.
    /// Returns how many were removed.
    pub fn free(&self, machine: MachineId, seqs: &[u64]) -> Result<u64> {
        let seqs = seqs.to_vec();
        self.write_synced(move |connection| {
            let sql = "DELETE FROM checkpoints WHERE machine = ?1 AND seq = ?2 AND seq IS NOT \
                       (SELECT head_seq FROM machines WHERE id = ?1)";
            let mut statement = connection.prepare_cached(sql)?;
            let mut dropped = 0;
            for seq in &seqs {
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

    /// The instructions of a machine after which branches started that are still there.
    pub fn branch_points(&self, machine: MachineId) -> Result<BTreeSet<u64>> {
        let sql = "SELECT DISTINCT json_extract(parent, '$.seq') FROM machines \
                   WHERE parent_id = ?1 AND json_extract(parent, '$.seq') IS NOT NULL";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([machine.0], |row| row.get::<_, i64>(0))?;
            let seqs = rows.map(|seq| seq.map(|seq| seq as u64));
            Ok(seqs.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Cached data about a checkpoint, as JSON; the reader checks whether it is still valid.
    pub fn note_changes(&self, machine: MachineId, seq: u64, changes: String) -> Result<()> {
        self.write(move |connection| {
            let sql = "UPDATE checkpoints SET changes = ?3 WHERE machine = ?1 AND seq = ?2";
            connection.execute(sql, params![machine.0, seq as i64, changes])?;
            Ok(())
        })
    }

    /// The cached data of each checkpoint.
    pub fn changes(&self, machine: MachineId) -> Result<Vec<(u64, String)>> {
        let sql = "SELECT seq, changes FROM checkpoints WHERE machine = ?1 AND changes IS NOT NULL";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let row = |row: &Row<'_>| Ok((row.get::<_, i64>(0)? as u64, row.get(1)?));
            let rows = statement.query_map([machine.0], row)?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Every image that a machine refers to, and every image that others and templates do.
    pub fn images_by_owner(&self, machine: MachineId) -> Result<(Vec<ImageId>, Vec<ImageId>)> {
        let own = "SELECT image FROM checkpoints WHERE machine = ?1 \
                   UNION SELECT image FROM parked WHERE machine = ?1 \
                   UNION SELECT head_image FROM machines WHERE id = ?1 \
                   UNION SELECT start_image FROM machines WHERE id = ?1";
        let others = "WITH others AS (SELECT id, head_image, start_image FROM machines \
                      WHERE id <> ?1 AND account = (SELECT account FROM machines WHERE id = ?1)) \
                      SELECT image FROM checkpoints JOIN others ON machine = others.id \
                      UNION SELECT head_image FROM others \
                      UNION SELECT start_image FROM others \
                      UNION SELECT image FROM templates";
        self.read(|connection| {
            // both lists are of the same commit
            let connection = connection.unchecked_transaction()?;
            let list = |sql: &str| -> Result<Vec<ImageId>> {
                let mut statement = connection.prepare_cached(sql)?;
                let rows = statement.query_and_then([machine.0], |row| image(row, 0))?;
                rows.collect()
            };
            Ok((list(own)?, list(others)?))
        })
    }

    /// Every image a record refers to.
    pub fn images_in_use(&self) -> Result<Vec<ImageId>> {
        let sql = "SELECT image FROM checkpoints UNION SELECT head_image FROM machines \
                   UNION SELECT start_image FROM machines \
                   UNION SELECT image FROM templates UNION SELECT image FROM parked";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then([], |row| image(row, 0))?;
            rows.collect()
        })
    }
}

/// Refuses a state that was removed meanwhile, or has another image by now.
fn require_state(
    connection: &rusqlite::Connection,
    machine: MachineId,
    seq: u64,
    image: ImageId,
) -> Result<()> {
    let sql = "SELECT 1 FROM checkpoints WHERE machine = ?1 AND seq = ?2 AND image = ?3";
    let mut kept = connection.prepare_cached(sql)?;
    match kept.exists(params![machine.0, seq as i64, image.to_string()])? {
        true => Ok(()),
        false => Err(Error::Missing(format!("checkpoint {seq}"))),
    }
}

fn set_head(
    connection: &rusqlite::Connection,
    machine: MachineId,
    image: ImageId,
    seq: Option<u64>,
) -> Result<()> {
    let changed = connection
        .prepare_cached(
            "UPDATE machines SET head_image = ?2, head_seq = ?3, \
             parent = coalesce(unsaved_start, parent), unsaved_start = NULL WHERE id = ?1",
        )?
        .execute(params![machine.0, image.to_string(), seq.map(|seq| seq as i64)])?;
    there(machine, changed)
}

fn read(row: &Row<'_>) -> Result<Checkpoint> {
    Ok(Checkpoint {
        seq: row.get::<_, i64>(0)? as u64,
        image: image(row, 1)?,
        at: time(row.get(2)?),
        bytes: row.get::<_, i64>(3)? as u64,
        label: row.get(4)?,
    })
}
