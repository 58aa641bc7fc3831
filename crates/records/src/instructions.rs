//! The log of instructions, and their output.
//!
//!   queued ──► running ──► done, failed, interrupted, lost
//!      └─────► cancelled
//!
//! An instruction is written down as running before the machine sees it. An instruction
//! that is still running when the records are opened was cut off: it is never run again.

use crate::error::{Error, Result};
use crate::machines::{maybe, optional, require, text, there, time, value};
use crate::writer::{PendingChange, WriteMode};
use crate::{MachineId, Records};
use rusqlite::{Connection, Row, params};
use stasis_api::{Chunk, Exec, Instruction, Outcome, Receipt, Status, Timestamp};

/// An instruction as it is accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInstruction {
    pub seq: u64,
    pub exec: Exec,
    pub status: Status,
    pub at: Timestamp,
}

/// The end of an instruction.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedInstruction {
    pub seq: u64,
    pub status: Status,
    pub at: Timestamp,
    pub outputs: u64,
    pub outcome: Outcome,
    pub receipt: Receipt,
}

const COLUMNS: &str = "seq, code, status, queued_ms, started_ms, finished_ms, outputs, \
                       rolled_back, outcome, receipt";

impl Records {
    /// Accepts an instruction under its number, unless one with the same idempotency key was
    /// accepted before: that one's number, then. The answer is waited for apart, so that a caller
    /// can send several in order under a lock and wait without it.
    pub fn accept(&self, machine: MachineId, new: NewInstruction) -> PendingChange<Option<u64>> {
        self.send(WriteMode::Together, move |connection| {
            if let Some(key) = &new.exec.idempotency_key
                && let Some(seq) = with_key(connection, machine, key)?
            {
                return Ok(Some(seq));
            }
            add(connection, machine, new).map(|()| None)
        })
    }

    /// An instruction runs from now on. Nothing that was undone can be redone any more.
    pub fn start(&self, machine: MachineId, seq: u64, at: Timestamp) -> Result<()> {
        self.write(move |connection| {
            let sql = "UPDATE instructions SET status = 'running', started_ms = ?3 \
                       WHERE machine = ?1 AND seq = ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let started = statement.execute(params![machine.0, seq as i64, at.as_millisecond()])?;
            there(machine, started)?;
            drop_undone(connection, machine)
        })
    }

    /// An instruction is over. `rest` is output that is not recorded yet.
    pub fn finish(
        &self,
        machine: MachineId,
        end: FinishedInstruction,
        rest: Vec<Chunk>,
    ) -> Result<()> {
        self.write(move |connection| {
            let sql = "UPDATE instructions SET status = ?3, finished_ms = ?4, outputs = ?5, \
                       outcome = ?6, receipt = ?7 WHERE machine = ?1 AND seq = ?2";
            let changed = connection.prepare_cached(sql)?.execute(params![
                machine.0,
                end.seq as i64,
                word(end.status),
                end.at.as_millisecond(),
                end.outputs as i64,
                text(&end.outcome)?,
                text(&end.receipt)?,
            ])?;
            there(machine, changed)?;
            add_outputs(connection, machine, end.seq, &rest)
        })
    }

    /// Lines of output of an instruction that runs.
    pub fn output(&self, machine: MachineId, seq: u64, chunks: Vec<Chunk>) -> Result<()> {
        self.write(move |connection| {
            require(connection, machine)?;
            add_outputs(connection, machine, seq, &chunks)
        })
    }

    pub fn instruction(&self, machine: MachineId, seq: u64) -> Result<Option<Instruction>> {
        let sql = format!("SELECT {COLUMNS} FROM instructions WHERE machine = ?1 AND seq = ?2");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            optional(statement.query_row(params![machine.0, seq as i64], |row| Ok(read(row))))
        })
    }

    /// Instructions from `from` on, at most `limit`, in order.
    pub fn instructions(
        &self,
        machine: MachineId,
        from: u64,
        limit: u64,
    ) -> Result<Vec<Instruction>> {
        let sql = format!(
            "SELECT {COLUMNS} FROM instructions WHERE machine = ?1 AND seq >= ?2 \
             ORDER BY seq LIMIT ?3"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let range = params![machine.0, from as i64, limit as i64];
            let rows = statement.query_and_then(range, read)?;
            rows.collect()
        })
    }

    /// The instruction that was accepted with this key.
    pub fn instruction_with_key(&self, machine: MachineId, key: &str) -> Result<Option<u64>> {
        self.read(|connection| with_key(connection, machine, key))
    }

    /// Instructions that waited or ran when the store was last closed, with their options.
    pub fn pending(&self, machine: MachineId) -> Result<Vec<(Instruction, Exec)>> {
        let sql = format!(
            "SELECT {COLUMNS}, exec FROM instructions \
             WHERE machine = ?1 AND status IN ('queued', 'running') ORDER BY seq"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then([machine.0], |row| {
                let instruction = read(row)?;
                let exec: Exec = value(row, 10)?;
                Ok((instruction.clone(), Exec { code: instruction.code, ..exec }))
            })?;
            rows.collect()
        })
    }

    /// Instructions after `after` whose effects are in the machine's state, newest first.
    pub fn ran(&self, machine: MachineId, after: Option<u64>, limit: u64) -> Result<Vec<u64>> {
        let sql = "SELECT seq FROM instructions WHERE machine = ?1 AND rolled_back = 0 \
                   AND status IN ('done', 'failed', 'interrupted') AND seq > ?2 \
                   ORDER BY seq DESC LIMIT ?3";
        let after = after.map_or(-1, |seq| seq as i64);
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        self.seqs(sql, params![machine.0, after, limit])
    }

    /// Instructions that were undone and can be redone, oldest first.
    pub fn undone(&self, machine: MachineId) -> Result<Vec<u64>> {
        let sql = "SELECT seq FROM instructions WHERE machine = ?1 AND rolled_back = 1 \
                   AND status IN ('done', 'failed', 'interrupted') \
                   AND seq > (SELECT coalesce(head_seq, -1) FROM machines WHERE id = ?1) \
                   ORDER BY seq";
        self.seqs(sql, params![machine.0])
    }

    fn seqs(&self, sql: &str, params: impl rusqlite::Params) -> Result<Vec<u64>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params, |row| Ok(row.get::<_, i64>(0)? as u64))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Lines of output from number `from` on.
    pub fn outputs(&self, machine: MachineId, seq: u64, from: u64) -> Result<Vec<Chunk>> {
        let sql = "SELECT chunks FROM outputs WHERE machine = ?1 AND seq = ?2 ORDER BY first";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then(params![machine.0, seq as i64], |row| {
                value::<Vec<Chunk>>(row, 0)
            })?;
            let batches = rows.collect::<Result<Vec<_>>>()?;
            Ok(batches.into_iter().flatten().filter(|chunk| chunk.seq >= from).collect())
        })
    }
}

fn with_key(connection: &Connection, machine: MachineId, key: &str) -> Result<Option<u64>> {
    let sql = "SELECT seq FROM instructions WHERE machine = ?1 AND key = ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(params![machine.0, key], |row| row.get::<_, i64>(0));
    optional(found.map(|seq| Ok(seq as u64)))
}

fn add(connection: &Connection, machine: MachineId, new: NewInstruction) -> Result<()> {
    require(connection, machine)?;
    let started = (new.status == Status::Running).then(|| new.at.as_millisecond());
    let mut exec = new.exec;
    let code = std::mem::take(&mut exec.code);
    connection
        .prepare_cached(
            "INSERT INTO instructions (machine, seq, code, exec, key, status, queued_ms, \
             started_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
        )?
        .execute(params![
            machine.0,
            new.seq as i64,
            code,
            text(&exec)?,
            exec.idempotency_key,
            word(new.status),
            new.at.as_millisecond(),
            started,
        ])?;
    connection
        .prepare_cached("UPDATE machines SET next_seq = ?2 WHERE id = ?1")?
        .execute(params![machine.0, new.seq as i64 + 1])?;
    if started.is_some() {
        drop_undone(connection, machine)?;
    }
    Ok(())
}

/// Removes the states beyond the head, which were undone. Their instructions stay in the log,
/// rolled back permanently (2, where 1 can still be redone).
fn drop_undone(connection: &Connection, machine: MachineId) -> Result<()> {
    const HEAD: &str = "(SELECT coalesce(head_seq, -1) FROM machines WHERE id = ?1)";
    let states = format!("DELETE FROM checkpoints WHERE machine = ?1 AND seq > {HEAD}");
    let marks = format!(
        "UPDATE instructions SET rolled_back = 2 \
         WHERE machine = ?1 AND seq > {HEAD} AND rolled_back = 1"
    );
    connection.prepare_cached(&states)?.execute([machine.0])?;
    connection.prepare_cached(&marks)?.execute([machine.0])?;
    Ok(())
}

/// Marks the instructions after `seq` as undone; all of them for `None`.
pub(crate) fn mark_rolled_back(
    connection: &Connection,
    machine: MachineId,
    seq: Option<u64>,
) -> Result<()> {
    let after = seq.map_or(-1, |seq| seq as i64);
    connection.execute(
        "UPDATE instructions SET rolled_back = 1 \
         WHERE machine = ?1 AND seq > ?2 AND rolled_back = 0 AND status <> 'queued'",
        params![machine.0, after],
    )?;
    Ok(())
}

/// Removes the marks of an undo, up to `seq`.
pub(crate) fn mark_redone(connection: &Connection, machine: MachineId, seq: u64) -> Result<()> {
    connection.execute(
        "UPDATE instructions SET rolled_back = 0 \
         WHERE machine = ?1 AND seq <= ?2 AND rolled_back = 1",
        params![machine.0, seq as i64],
    )?;
    Ok(())
}

pub(crate) fn add_outputs(
    connection: &Connection,
    machine: MachineId,
    seq: u64,
    chunks: &[Chunk],
) -> Result<()> {
    let Some(first) = chunks.first() else { return Ok(()) };
    let sql = "INSERT OR REPLACE INTO outputs (machine, seq, first, chunks) \
               VALUES (?1, ?2, ?3, ?4)";
    let row = params![machine.0, seq as i64, first.seq as i64, text(&chunks)?];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

fn read(row: &Row<'_>) -> Result<Instruction> {
    let status: String = row.get(2)?;
    let outcome: Option<Outcome> = maybe(row, 8)?;
    let receipt: Option<Receipt> = maybe(row, 9)?;
    Ok(Instruction {
        seq: row.get::<_, i64>(0)? as u64,
        code: row.get(1)?,
        status: status_now(status_of(&status)?, outcome.as_ref()),
        queued_at: time(row.get(3)?),
        started_at: row.get::<_, Option<i64>>(4)?.map(time),
        finished_at: row.get::<_, Option<i64>>(5)?.map(time),
        outputs: row.get::<_, i64>(6)? as u64,
        rolled_back: row.get(7)?,
        outcome,
        receipt,
    })
}

const WORDS: [(Status, &str); 7] = [
    (Status::Queued, "queued"),
    (Status::Running, "running"),
    (Status::Done, "done"),
    (Status::Failed, "failed"),
    (Status::Interrupted, "interrupted"),
    (Status::Cancelled, "cancelled"),
    (Status::Lost, "lost"),
];

/// Older records call an instruction that failed `done`.
fn status_now(status: Status, outcome: Option<&Outcome>) -> Status {
    match (status, outcome) {
        (Status::Done, Some(outcome)) => Status::of(outcome),
        _ => status,
    }
}

pub(crate) fn word(status: Status) -> &'static str {
    WORDS.iter().find(|(own, _)| *own == status).map_or("lost", |(_, word)| word)
}

fn status_of(word: &str) -> Result<Status> {
    let found = WORDS.iter().find(|(_, own)| *own == word);
    let unknown = || Error::Missing(format!("a status called {word:?}"));
    found.map(|(status, _)| *status).ok_or_else(unknown)
}
