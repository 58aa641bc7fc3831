//! Which artifacts which instruction has; their contents are files beside the store.

use crate::error::Result;
use crate::machines::{require, text, value};
use crate::{MachineId, Records};
use rusqlite::{Connection, params};
use stasis_api::{Artifact, KeptArtifact};

pub(crate) fn add_artifact(
    connection: &Connection,
    machine: MachineId,
    seq: u64,
    place: usize,
    artifact: &Artifact,
) -> Result<()> {
    let sql = "INSERT OR REPLACE INTO artifacts (machine, seq, place, id, artifact) \
               VALUES (?1, ?2, ?3, ?4, ?5)";
    let (seq, place, about) = (seq as i64, place as i64, text(artifact)?);
    let row = params![machine.0, seq, place, artifact.id, about];
    connection.prepare_cached(sql)?.execute(row)?;
    Ok(())
}

impl Records {
    pub fn keep_artifacts(&self, machine: MachineId, seq: u64, all: &[Artifact]) -> Result<()> {
        let all = all.to_vec();
        self.write(move |connection| {
            require(connection, machine)?;
            let mut each = all.iter().enumerate();
            each.try_for_each(|(place, one)| add_artifact(connection, machine, seq, place, one))
        })
    }

    /// All artifacts of a machine, in order.
    pub fn artifacts(&self, machine: MachineId) -> Result<Vec<KeptArtifact>> {
        let sql = "SELECT seq, artifact FROM artifacts WHERE machine = ?1 ORDER BY seq, place";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then([machine.0], |row| {
                Ok(KeptArtifact { seq: row.get::<_, i64>(0)? as u64, artifact: value(row, 1)? })
            })?;
            rows.collect()
        })
    }

    /// Ids of all artifacts that a machine has.
    pub fn artifacts_in_use(&self) -> Result<Vec<String>> {
        self.read(|connection| {
            let mut statement = connection.prepare_cached("SELECT DISTINCT id FROM artifacts")?;
            let rows = statement.query_map([], |row| row.get(0))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}
