//! Calls of tools.
//!
//!   ask:    waiting ──► approved ──► running ──► completed, failed
//!              ├──────► denied                └► unknown, if the service ended first
//!              └──────► expired, cancelled
//!   allow:  running ──► completed, failed, unknown         deny: denied
//!
//! A call is written down as running before it is sent. One that is found running when a store is
//! opened was perhaps sent: it is never sent again. A call that waits is answered once.

use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::machines::{image, require, text, time, value};
use crate::{MachineId, Records};
use rusqlite::{Row, params};
use stasis_api::{PolicyVerdict, Timestamp, ToolCallInfo, ToolCallState};
use stasis_image::ImageId;

/// A call that was made.
#[derive(Debug, Clone, PartialEq)]
pub struct NewCall {
    pub seq: u64,
    /// The number the agent gave its request.
    pub request: u64,
    pub server: String,
    pub tool: String,
    /// JSON text.
    pub arguments: String,
    pub state: ToolCallState,
    pub verdict: PolicyVerdict,
    pub reason: String,
    pub at: Timestamp,
    pub expires_at: Option<Timestamp>,
}

/// A call, and what clients do not see of it.
#[derive(Debug, Clone, PartialEq)]
pub struct CallRecord {
    pub machine: MachineId,
    pub account: String,
    pub request: u64,
    pub call: ToolCallInfo,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub struct CallEnd {
    pub state: ToolCallState,
    pub at: Timestamp,
    pub error: Option<String>,
}

/// A machine whose instruction waits for the answer to a call.
#[derive(Debug, Clone, PartialEq)]
pub struct ParkedMachine {
    pub seq: u64,
    pub call: u64,
    /// Its state in the middle of the instruction.
    pub image: ImageId,
    /// The driver's notes on the instruction, as JSON text.
    pub progress: String,
}

const COLUMNS: &str = "call.id, machine, machines.name, machines.account, seq, request, server, \
                       tool, arguments, state, verdict, reason, called_ms, call.expires_ms, \
                       answered_ms, answered_by, note, finished_ms, error \
                       FROM tool_calls AS call JOIN machines ON machines.id = machine";

impl Records {
    /// Writes a call down; its number.
    pub fn add_call(&self, machine: MachineId, new: NewCall) -> Result<u64> {
        self.write(move |connection| {
            require(connection, machine)?;
            let sql = "INSERT INTO tool_calls (machine, seq, request, server, tool, arguments, \
                       state, verdict, reason, called_ms, expires_ms) \
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
            connection.prepare_cached(sql)?.execute(params![
                machine.0,
                new.seq as i64,
                new.request as i64,
                new.server,
                new.tool,
                new.arguments,
                new.state.word(),
                text(&new.verdict)?,
                new.reason,
                new.at.as_millisecond(),
                new.expires_at.map(|at| at.as_millisecond()),
            ])?;
            Ok(connection.last_insert_rowid() as u64)
        })
    }

    /// Answers a call that waits. False if it does not wait any more.
    pub fn answer_call(
        &self,
        id: u64,
        state: ToolCallState,
        by: String,
        note: Option<String>,
        at: Timestamp,
    ) -> Result<bool> {
        self.write_synced(move |connection| {
            let sql = "UPDATE tool_calls SET state = ?2, answered_ms = ?3, answered_by = ?4, \
                       note = ?5 WHERE id = ?1 AND state = 'waiting'";
            let at = at.as_millisecond();
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.execute(params![id as i64, state.word(), at, by, note])? == 1)
        })
    }

    /// An approved call is about to be sent. False if it is not to be sent any more.
    pub fn start_call(&self, id: u64) -> Result<bool> {
        self.write(move |connection| {
            let sql =
                "UPDATE tool_calls SET state = 'running' WHERE id = ?1 AND state = 'approved'";
            Ok(connection.prepare_cached(sql)?.execute([id as i64])? == 1)
        })
    }

    /// A call is over, unless it already was.
    pub fn end_call(&self, id: u64, end: CallEnd) -> Result<bool> {
        self.write(move |connection| {
            let sql = "UPDATE tool_calls SET state = ?2, finished_ms = ?3, error = ?4 \
                       WHERE id = ?1 AND state IN ('waiting', 'approved', 'running')";
            let at = end.at.as_millisecond();
            let mut statement = connection.prepare_cached(sql)?;
            Ok(statement.execute(params![id as i64, end.state.word(), at, end.error])? == 1)
        })
    }

    /// Settles the calls that the last process left open, but for those of parked instructions: one
    /// that was perhaps sent is unknown, and one that was not is cancelled.
    pub fn settle_calls(&self, at: Timestamp) -> Result<()> {
        self.write(move |connection| {
            let sql = "UPDATE tool_calls SET finished_ms = ?1, \
                       state = CASE state WHEN 'running' THEN 'unknown' ELSE 'cancelled' END \
                       WHERE state IN ('waiting', 'approved', 'running') \
                       AND id NOT IN (SELECT call FROM parked)";
            connection.execute(sql, [at.as_millisecond()])?;
            Ok(())
        })
    }

    pub fn call(&self, id: u64) -> Result<Option<CallRecord>> {
        let sql = format!("SELECT {COLUMNS} WHERE call.id = ?1");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = statement.query_and_then([id as i64], read)?;
            rows.next().transpose()
        })
    }

    /// Calls of a machine, the newest first.
    pub fn calls(&self, machine: MachineId, limit: u64) -> Result<Vec<CallRecord>> {
        let sql = format!("SELECT {COLUMNS} WHERE machine = ?1 ORDER BY call.id DESC LIMIT ?2");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then(params![machine.0, limit as i64], read)?;
            rows.collect()
        })
    }

    /// Calls of an account that a person was asked about, the newest first; perhaps only those that
    /// wait.
    pub fn asked_calls(&self, account: &str, all: bool, limit: u64) -> Result<Vec<CallRecord>> {
        let sql = format!(
            "SELECT {COLUMNS} WHERE verdict = '\"ask\"' AND machines.account = ?1 \
             AND (?2 OR state = 'waiting') ORDER BY call.id DESC LIMIT ?3"
        );
        self.read(|connection| {
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_and_then(params![account, all, limit as i64], read)?;
            rows.collect()
        })
    }

    /// Notes the state of a machine whose instruction waits, in place of an earlier one.
    pub fn park(
        &self,
        machine: MachineId,
        (seq, call): (u64, u64),
        held: &impl HeldImage,
        progress: String,
    ) -> Result<()> {
        let image = held.id().to_string();
        self.write_synced(move |connection| {
            require(connection, machine)?;
            let sql = "INSERT OR REPLACE INTO parked (machine, seq, call, image, progress) \
                       VALUES (?1, ?2, ?3, ?4, ?5)";
            let row = params![machine.0, seq as i64, call as i64, image, progress];
            connection.execute(sql, row)?;
            Ok(())
        })
    }

    pub fn parked(&self, machine: MachineId) -> Result<Option<ParkedMachine>> {
        let sql = "SELECT seq, call, image, progress FROM parked WHERE machine = ?1";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query_and_then([machine.0], read_parked)?;
            rows.next().transpose()
        })
    }

    /// The instruction goes on, or is over.
    pub fn unpark(&self, machine: MachineId) -> Result<()> {
        self.write(move |connection| {
            connection.execute("DELETE FROM parked WHERE machine = ?1", [machine.0])?;
            Ok(())
        })
    }
}

fn read_parked(row: &Row<'_>) -> Result<ParkedMachine> {
    Ok(ParkedMachine {
        seq: row.get::<_, i64>(0)? as u64,
        call: row.get::<_, i64>(1)? as u64,
        image: image(row, 2)?,
        progress: row.get(3)?,
    })
}

fn read(row: &Row<'_>) -> Result<CallRecord> {
    let at =
        |column| -> Result<Option<Timestamp>> { Ok(row.get::<_, Option<i64>>(column)?.map(time)) };
    let (name, state): (String, String) = (row.get(2)?, row.get(9)?);
    let call = ToolCallInfo {
        id: row.get::<_, i64>(0)? as u64,
        machine: name.parse().map_err(|_| Error::Missing(format!("a machine called {name:?}")))?,
        seq: row.get::<_, i64>(4)? as u64,
        server: row.get(6)?,
        tool: row.get(7)?,
        arguments: row.get(8)?,
        state: serde_json::from_value(state.into())?,
        verdict: value(row, 10)?,
        reason: row.get(11)?,
        called_at: time(row.get(12)?),
        expires_at: at(13)?,
        answered_at: at(14)?,
        answered_by: row.get(15)?,
        note: row.get(16)?,
        finished_at: at(17)?,
        error: row.get(18)?,
    };
    Ok(CallRecord {
        machine: MachineId(row.get(1)?),
        account: row.get(3)?,
        request: row.get::<_, i64>(5)? as u64,
        call,
    })
}
