//! Imports a machine with its history, all or nothing.

use crate::artifacts::add_artifact;
use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::instructions::{add_outputs, word};
use crate::machines::{MachineRecord, NewRecord, insert, text};
use crate::{Checkpoint, MachineId, Records, TemplateRecord};
use rusqlite::{Connection, params};
use stasis_api::{Chunk, Instruction, KeptArtifact, Timestamp};
use stasis_image::ImageId;
use std::collections::HashSet;

pub struct Imported {
    pub made: NewRecord,
    /// Added if it is not there.
    pub template: TemplateRecord,
    pub start_image: ImageId,
    pub head_image: ImageId,
    pub head_seq: Option<u64>,
    pub next_seq: u64,
    pub checkpoints: Vec<Checkpoint>,
    pub instructions: Vec<Instruction>,
    pub outputs: Vec<(u64, Vec<Chunk>)>,
    pub artifacts: Vec<KeptArtifact>,
}

impl Records {
    /// Adds a machine with its checkpoints and its log, durably, in one transaction. Every image it
    /// names is held.
    pub fn import(&self, new: Imported, held: &[&dyn HeldImage]) -> Result<MachineRecord> {
        let held: HashSet<ImageId> = held.iter().map(|image| image.id()).collect();
        let own = [new.start_image, new.head_image, new.template.image];
        let mut images = own.into_iter().chain(new.checkpoints.iter().map(|one| one.image));
        if let Some(image) = images.find(|image| !held.contains(image)) {
            return Err(Error::NotHeld(image));
        }
        self.write_synced(move |connection| {
            let id = add(connection, &new)?;
            Ok(MachineRecord {
                id,
                made: new.made,
                next_seq: new.next_seq,
                start_image: new.start_image,
                head_image: new.head_image,
                head_seq: new.head_seq,
                freed_seq: None,
                lost_start: false,
                lineage: id,
            })
        })
    }
}

fn add(connection: &Connection, new: &Imported) -> Result<MachineId> {
    add_template(connection, &new.template)?;
    let id = insert(connection, &new.made, new.start_image)?;
    let head_seq = new.head_seq.map(|seq| seq as i64);
    connection.execute(
        "UPDATE machines SET head_image = ?2, head_seq = ?3, next_seq = ?4 WHERE id = ?1",
        params![id.0, new.head_image.to_string(), head_seq, new.next_seq as i64],
    )?;
    new.checkpoints.iter().try_for_each(|one| add_checkpoint(connection, id, one))?;
    new.instructions.iter().try_for_each(|one| add_instruction(connection, id, one))?;
    new.outputs.iter().try_for_each(|(seq, chunks)| add_outputs(connection, id, *seq, chunks))?;
    for (place, kept) in new.artifacts.iter().enumerate() {
        add_artifact(connection, id, kept.seq, place, &kept.artifact)?;
    }
    Ok(id)
}

fn add_template(connection: &Connection, new: &TemplateRecord) -> Result<()> {
    let template = &new.template;
    connection.execute(
        "INSERT OR IGNORE INTO templates (digest, name, created_ms, image, template) \
         VALUES (?1, ?2, ?3, ?4, ?5)",
        params![
            template.digest,
            template.name,
            template.created_at.as_millisecond(),
            new.image.to_string(),
            text(&(template, &new.details))?,
        ],
    )?;
    Ok(())
}

fn add_checkpoint(connection: &Connection, machine: MachineId, new: &Checkpoint) -> Result<()> {
    let sql = "INSERT INTO checkpoints (machine, seq, image, at_ms, bytes, label) \
               VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
    let (seq, bytes) = (new.seq as i64, new.bytes as i64);
    connection.prepare_cached(sql)?.execute(params![
        machine.0,
        seq,
        new.image.to_string(),
        new.at.as_millisecond(),
        bytes,
        new.label
    ])?;
    Ok(())
}

fn add_instruction(connection: &Connection, machine: MachineId, new: &Instruction) -> Result<()> {
    if !new.status.is_over() {
        return Err(Error::Missing("the end of an instruction".into()));
    }
    let sql = "INSERT INTO instructions (machine, seq, code, exec, status, queued_ms, started_ms, \
               finished_ms, outputs, rolled_back, outcome, receipt) \
               VALUES (?1, ?2, ?3, '{\"code\":\"\"}', ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    connection.prepare_cached(sql)?.execute(params![
        machine.0,
        new.seq as i64,
        new.code,
        word(new.status),
        new.queued_at.as_millisecond(),
        new.started_at.map(Timestamp::as_millisecond),
        new.finished_at.map(Timestamp::as_millisecond),
        new.outputs.min(i64::MAX as u64) as i64,
        new.rolled_back,
        new.outcome.as_ref().map(text).transpose()?,
        new.receipt.as_ref().map(text).transpose()?,
    ])?;
    Ok(())
}
