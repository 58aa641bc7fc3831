//! The log of instructions, and their output.
//!
//!   queued ──► running ──► done, interrupted, lost
//!      └─────► cancelled
//!
//! An instruction is written down as running before the machine sees it. Whatever is found running
//! when a store is opened was cut off: it is never run again.

use crate::error::{Error, Result};
use crate::machines::{maybe, optional, require, text, there, time, value};
use crate::{MachineId, Store};
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

/// How an instruction ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    pub seq: u64,
    pub status: Status,
    pub at: Timestamp,
    pub outputs: u64,
    pub outcome: Outcome,
    pub receipt: Receipt,
}

const COLUMNS: &str = "seq, code, status, queued_ms, started_ms, finished_ms, outputs, \
                       rolled_back, outcome, receipt";

impl Store {
    /// Writes an instruction down; its number is the machine's next one.
    pub fn add_instruction(&self, machine: MachineId, new: &NewInstruction) -> Result<()> {
        let mut connection = self.lock();
        let transaction = connection.transaction()?;
        require(&transaction, machine)?;
        let started = (new.status == Status::Running).then(|| new.at.as_millisecond());
        let bare = Exec { code: String::new(), ..new.exec.clone() };
        transaction
            .prepare_cached(
                "INSERT INTO instructions (machine, seq, code, exec, key, status, queued_ms, \
                 started_ms) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
            )?
            .execute(params![
                machine.0,
                new.seq as i64,
                new.exec.code,
                text(&bare)?,
                new.exec.idempotency_key,
                word(new.status),
                new.at.as_millisecond(),
                started,
            ])?;
        transaction
            .prepare_cached("UPDATE machines SET next_seq = ?2 WHERE id = ?1")?
            .execute(params![machine.0, new.seq as i64 + 1])?;
        Ok(transaction.commit()?)
    }

    pub fn start_instruction(&self, machine: MachineId, seq: u64, at: Timestamp) -> Result<()> {
        let sql = "UPDATE instructions SET status = 'running', started_ms = ?3 \
                   WHERE machine = ?1 AND seq = ?2";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        there(machine, statement.execute(params![machine.0, seq as i64, at.as_millisecond()])?)
    }

    pub fn finish_instruction(&self, machine: MachineId, end: &Finished) -> Result<()> {
        let sql = "UPDATE instructions SET status = ?3, finished_ms = ?4, outputs = ?5, \
                   outcome = ?6, receipt = ?7 WHERE machine = ?1 AND seq = ?2";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let changed = statement.execute(params![
            machine.0,
            end.seq as i64,
            word(end.status),
            end.at.as_millisecond(),
            end.outputs as i64,
            text(&end.outcome)?,
            text(&end.receipt)?,
        ])?;
        there(machine, changed)
    }

    pub fn instruction(&self, machine: MachineId, seq: u64) -> Result<Option<Instruction>> {
        let sql = format!("SELECT {COLUMNS} FROM instructions WHERE machine = ?1 AND seq = ?2");
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&sql)?;
        optional(statement.query_row(params![machine.0, seq as i64], |row| Ok(read(row))))
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
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_and_then(params![machine.0, from as i64, limit as i64], read)?;
        rows.collect()
    }

    /// The instruction that was accepted with this key.
    pub fn instruction_with_key(&self, machine: MachineId, key: &str) -> Result<Option<u64>> {
        let sql = "SELECT seq FROM instructions WHERE machine = ?1 AND key = ?2";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let found = statement.query_row(params![machine.0, key], |row| row.get::<_, i64>(0));
        optional(found.map(|seq| Ok(seq as u64)))
    }

    /// What waited or ran when the store was last closed, with how it was to be run.
    pub fn pending(&self, machine: MachineId) -> Result<Vec<(Instruction, Exec)>> {
        let sql = format!(
            "SELECT {COLUMNS}, exec FROM instructions \
             WHERE machine = ?1 AND status IN ('queued', 'running') ORDER BY seq"
        );
        let connection = self.lock();
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_and_then([machine.0], |row| {
            let instruction = read(row)?;
            let exec: Exec = value(row, 10)?;
            Ok((instruction.clone(), Exec { code: instruction.code, ..exec }))
        })?;
        rows.collect()
    }

    /// Machines with something waiting or cut off.
    pub fn machines_with_pending(&self) -> Result<Vec<MachineId>> {
        let sql = "SELECT DISTINCT machine FROM instructions WHERE status IN ('queued', 'running')";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement.query_map([], |row| row.get(0).map(MachineId))?;
        Ok(rows.collect::<rusqlite::Result<_>>()?)
    }

    /// Marks what came after `seq` as undone; from the start on for `None`.
    pub(crate) fn mark_rolled_back(
        connection: &Connection,
        machine: MachineId,
        seq: Option<u64>,
    ) -> Result<()> {
        let after = seq.map_or(-1, |seq| seq as i64);
        connection.execute(
            "UPDATE instructions SET rolled_back = 1 WHERE machine = ?1 AND seq > ?2",
            params![machine.0, after],
        )?;
        Ok(())
    }

    pub fn add_outputs(&self, machine: MachineId, seq: u64, chunks: &[Chunk]) -> Result<()> {
        let Some(first) = chunks.first() else { return Ok(()) };
        let sql = "INSERT OR REPLACE INTO outputs (machine, seq, first, chunks) \
                   VALUES (?1, ?2, ?3, ?4)";
        let connection = self.lock();
        require(&connection, machine)?;
        let mut statement = connection.prepare_cached(sql)?;
        statement.execute(params![machine.0, seq as i64, first.seq as i64, text(&chunks)?])?;
        Ok(())
    }

    /// Lines of output from number `from` on.
    pub fn outputs(&self, machine: MachineId, seq: u64, from: u64) -> Result<Vec<Chunk>> {
        let sql = "SELECT chunks FROM outputs WHERE machine = ?1 AND seq = ?2 ORDER BY first";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        let rows = statement
            .query_and_then(params![machine.0, seq as i64], |row| value::<Vec<Chunk>>(row, 0))?;
        let batches = rows.collect::<Result<Vec<_>>>()?;
        Ok(batches.into_iter().flatten().filter(|chunk| chunk.seq >= from).collect())
    }
}

fn read(row: &Row<'_>) -> Result<Instruction> {
    let status: String = row.get(2)?;
    let outcome: Option<Outcome> = maybe(row, 8)?;
    let receipt: Option<Receipt> = maybe(row, 9)?;
    Ok(Instruction {
        seq: row.get::<_, i64>(0)? as u64,
        code: row.get(1)?,
        status: status_of(&status)?,
        queued_at: time(row.get(3)?),
        started_at: row.get::<_, Option<i64>>(4)?.map(time),
        finished_at: row.get::<_, Option<i64>>(5)?.map(time),
        outputs: row.get::<_, i64>(6)? as u64,
        rolled_back: row.get(7)?,
        outcome,
        receipt,
    })
}

const WORDS: [(Status, &str); 6] = [
    (Status::Queued, "queued"),
    (Status::Running, "running"),
    (Status::Done, "done"),
    (Status::Interrupted, "interrupted"),
    (Status::Cancelled, "cancelled"),
    (Status::Lost, "lost"),
];

pub(crate) fn word(status: Status) -> &'static str {
    WORDS.iter().find(|(own, _)| *own == status).map_or("lost", |(_, word)| word)
}

fn status_of(word: &str) -> Result<Status> {
    let found = WORDS.iter().find(|(_, own)| *own == word);
    let unknown = || Error::Missing(format!("a status called {word:?}"));
    found.map(|(status, _)| *status).ok_or_else(unknown)
}
