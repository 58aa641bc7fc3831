//! The changes of each checkpoint, and the disk use of a machine.
//!
//! Changed files are found on request, by comparing two images. The records cache the result under
//! the names of both images.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use stasis_api::{DiskUse, FileChanges, Instruction, Point};
use stasis_engine::{Difference, ImageId};
use stasis_records::Checkpoint;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum names reported for one checkpoint.
const NAMES: usize = 20;

/// The recorded result of one comparison.
#[derive(Serialize, Deserialize)]
struct Known {
    before: ImageId,
    after: ImageId,
    files: FileChanges,
}

impl Host {
    /// The checkpoints of a machine with the changes of each, oldest first; with `files`, also the
    /// changed files.
    pub fn points(&self, machine: &Arc<Machine>, files: bool) -> Result<Vec<Point>> {
        let checkpoints = self.history(machine)?;
        let log = machine.instructions(0, u32::MAX.into())?;
        let mut known = match files {
            true => self.known_changes(machine)?,
            false => BTreeMap::new(),
        };
        let mut before: Option<Checkpoint> = None;
        let mut points = Vec::new();
        for one in checkpoints {
            let changes = match files {
                true => {
                    Some(self.changes(machine, before.as_ref(), &one, known.remove(&one.seq))?)
                }
                false => None,
            };
            points.push(point(&log, before.as_ref(), &one, changes));
            before = Some(one);
        }
        Ok(points)
    }

    fn known_changes(&self, machine: &Arc<Machine>) -> Result<BTreeMap<u64, Known>> {
        let all = self.inner().records.changes(machine.id)?.into_iter();
        let parsed = all.filter_map(|(seq, text)| Some((seq, serde_json::from_str(&text).ok()?)));
        Ok(parsed.collect())
    }

    fn changes(
        &self,
        machine: &Arc<Machine>,
        before: Option<&Checkpoint>,
        one: &Checkpoint,
        known: Option<Known>,
    ) -> Result<FileChanges> {
        let start = || machine.record().start_image;
        let before = before.map_or_else(start, |before| before.image);
        let same = |known: &Known| known.before == before && known.after == one.image;
        if let Some(known) = known.filter(same) {
            return Ok(known.files);
        }
        let files = summary(&self.files_between(before, one.image)?);
        let known = Known { before, after: one.image, files };
        if let Ok(text) = serde_json::to_string(&known) {
            self.inner().records.note_changes(machine.id, one.seq, text)?;
        }
        Ok(known.files)
    }

    fn files_between(&self, before: ImageId, after: ImageId) -> Result<Vec<(String, Difference)>> {
        let engine = &self.inner().engine;
        let read = |id: ImageId| -> Result<_> {
            let gone =
                || Error::State("a checkpoint was removed in the meantime: try again".into());
            let held = self.inner().hold(id, gone)?;
            Ok(engine.contents(&self.inner().look_into(&held)?)?)
        };
        Ok(read(before)?.differences(&read(after)?)?)
    }

    /// Disk use of a machine with all its checkpoints.
    pub fn disk_use(&self, machine: &Arc<Machine>) -> Result<DiskUse> {
        let mut before = None;
        let found = loop {
            let (own, others) = self.inner().records.images_by_owner(machine.id)?;
            let groups = [("own".to_owned(), own), ("others".to_owned(), others)];
            match self.inner().engine.store().usage(&groups) {
                // one of them may have been removed and collected meanwhile
                Err(_) if before.as_ref() != Some(&groups) => before = Some(groups),
                found => break found?,
            }
        };
        let used = found.first().map(|(_, used)| *used).unwrap_or_default();
        let checkpoints = self.history(machine)?.len() as u64;
        let retention = self.retention(machine);
        Ok(DiskUse { own_bytes: used.own, shared_bytes: used.shared, checkpoints, retention })
    }
}

fn point(
    log: &[Instruction],
    before: Option<&Checkpoint>,
    one: &Checkpoint,
    files: Option<FileChanges>,
) -> Point {
    let from = before.map_or(0, |before| before.seq + 1);
    let own = log.iter().filter(|ran| (from..=one.seq).contains(&ran.seq) && !ran.rolled_back);
    let touched = own.filter_map(|ran| ran.outcome.as_ref()).flat_map(|end| &end.touched);
    let variables: BTreeSet<&String> = touched.collect();
    let code = log.iter().find(|ran| ran.seq == one.seq).map(|ran| ran.code.clone());
    Point {
        seq: one.seq,
        at: one.at,
        bytes: one.bytes,
        label: one.label.clone(),
        code: code.unwrap_or_default(),
        variables: variables.into_iter().cloned().collect(),
        files,
    }
}

fn summary(differences: &[(String, Difference)]) -> FileChanges {
    let count = |wanted| differences.iter().filter(|(_, kind)| *kind == wanted).count() as u64;
    FileChanges {
        added: count(Difference::Added),
        changed: count(Difference::Changed),
        removed: count(Difference::Removed),
        names: differences.iter().take(NAMES).map(|(path, _)| path.clone()).collect(),
    }
}
