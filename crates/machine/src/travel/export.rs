//! Exports a machine as one file.
//!
//!   checkpoint ─► images held ─► pages they need ─► head ─► images ─► packs ─► artifacts ─► root
//!
//! With its history, or only the current state. The file contains the pages that the machine's
//! images need, and nothing of other machines that share its packs. The root file system comes last
//! and can be left out: it is named by its digest, and a host that has it skips it.

use super::bundle::{ExportManifest, Exported, ExportedCheckpoint, FORMAT};
use crate::agent;
use crate::error::{Error, ErrorContext, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_engine::{BundleHead, Image, ImageId, SectionKind};
use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// Instructions read at once.
const PAGE: u64 = 500;

/// The parts to include.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Export {
    /// All checkpoints and the log.
    pub history: bool,
    /// The files of its template, which another host may lack.
    pub root: bool,
}

impl Host {
    /// Writes a machine to `out`.
    pub fn export(&self, machine: &Arc<Machine>, what: Export, out: &mut dyn Write) -> Result<()> {
        // holds the exported state while it is being written
        let now = self.place(machine, None)?;
        let about = self.about(machine, what)?;
        let images = self.held(&about)?;
        drop(now);
        let store = self.inner().engine.store();
        let mut packs = Vec::new();
        for (root, slots) in store.needs(&images) {
            packs.push((root, store.export_pack(root, &slots)?));
        }
        let mut parts = Vec::new();
        for image in &images {
            parts.push((image.id, store.export_image(image.id)?));
        }
        let mut artifacts = self.contents_of(machine, &about)?;
        let head = BundleHead {
            about: serde_json::to_vec(&about).map_err(std::io::Error::other).doing(writing)?,
            images: parts.iter().map(|(id, bytes)| (*id, bytes.len() as u64)).collect(),
            packs: packs.iter().map(|(root, scrap)| (*root, scrap.len)).collect(),
            files: artifacts.iter().map(|(hash, len, _)| (*hash, *len)).collect(),
        };
        out.write_all(&head.encode()?).doing(writing)?;
        for (_, bytes) in &parts {
            out.write_all(bytes).doing(writing)?;
        }
        for (_, scrap) in &mut packs {
            std::io::copy(&mut scrap.file, out).doing(writing)?;
        }
        for (_, _, file) in &mut artifacts {
            std::io::copy(file, out).doing(writing)?;
        }
        if let Some(root) = about.root.filter(|_| about.carries_root) {
            stasis_template::export(&self.inner().dirs.roots, &root.name, out)?;
        }
        out.flush().doing(writing)
    }

    /// Each artifact once: hash, length and contents.
    fn contents_of(
        &self,
        machine: &Arc<Machine>,
        about: &ExportManifest,
    ) -> Result<Vec<([u8; 32], u64, File)>> {
        let ids: BTreeSet<&str> =
            about.artifacts.iter().map(|kept| kept.artifact.id.as_str()).collect();
        let one = |id: &str| {
            let (artifact, file) = machine.artifact(id)?;
            let odd = |_| Error::Invalid(format!("{id:?} is not the name of an artifact"));
            Ok((*blake3::Hash::from_hex(id).map_err(odd)?.as_bytes(), artifact.size, file))
        };
        ids.into_iter().map(one).collect()
    }

    fn about(&self, machine: &Arc<Machine>, what: Export) -> Result<ExportManifest> {
        let record = machine.record().clone();
        let template = self.inner().records.template(&record.made.template)?;
        let missing = || Error::NoTemplate(record.made.template.clone());
        let template = template.ok_or_else(missing)?.template;
        let roots = &self.inner().dirs.roots;
        let (layer, base) = agent::layers(&template.root);
        let agent = layer.and_then(|layer| agent::read(roots, layer));
        let root = stasis_template::inspect(roots, base).ok();
        if what.root && (agent.is_none() || root.is_none()) {
            let said = format!("the files of its template ({}) are not whole", template.root);
            return Err(Error::Invalid(said));
        }
        let made = record.made;
        let start_image = match what.history {
            true => record.start_image,
            false => record.head_image,
        };
        let mut about = ExportManifest {
            format: FORMAT,
            stasis: env!("CARGO_PKG_VERSION").to_owned(),
            form: SectionKind::form(),
            machine: Exported {
                name: made.name,
                created_at: made.created_at,
                tags: made.tags,
                limits: made.limits,
                env: made.env,
                durability: made.durability,
                checkpoints: made.checkpoints,
                retention: made.retention,
                start_image,
                head_image: record.head_image,
                head_seq: record.head_seq,
                next_seq: record.next_seq,
            },
            parent: made.parent,
            template,
            agent,
            root,
            carries_root: what.root,
            checkpoints: Vec::new(),
            instructions: Vec::new(),
            outputs: Vec::new(),
            artifacts: Vec::new(),
        };
        self.past(machine, what.history, &mut about)?;
        let logged: BTreeSet<u64> = about.instructions.iter().map(|one| one.seq).collect();
        about.artifacts = machine.artifacts()?;
        about.artifacts.retain(|kept| logged.contains(&kept.seq));
        Ok(about)
    }

    /// Checkpoints and log; without history, only the part that belongs to the current state.
    fn past(
        &self,
        machine: &Arc<Machine>,
        history: bool,
        about: &mut ExportManifest,
    ) -> Result<()> {
        let head = about.machine.head_seq;
        let kept = self.history(machine)?.into_iter();
        let kept = kept.filter(|one| history || Some(one.seq) == head);
        about.checkpoints = kept
            .map(|one| ExportedCheckpoint {
                seq: one.seq,
                image: one.image,
                at: one.at,
                bytes: one.bytes,
                label: one.label,
            })
            .collect();
        let mut from = if history { 0 } else { head.unwrap_or(about.machine.next_seq) };
        loop {
            let some = machine.instructions(from, PAGE)?;
            let Some(last) = some.last() else { return Ok(()) };
            from = last.seq + 1;
            for one in some.into_iter().filter(|one| one.status.is_over()) {
                let chunks = self.inner().records.outputs(machine.id, one.seq, 0)?;
                if !chunks.is_empty() {
                    about.outputs.push((one.seq, chunks));
                }
                about.instructions.push(one);
            }
        }
    }

    /// Every image the file needs, and the template's, which makes restores fastest.
    fn held(&self, about: &ExportManifest) -> Result<Vec<Image>> {
        let machine = &about.machine;
        let kept = about.checkpoints.iter().map(|one| one.image);
        let missing = |_| Error::NoTemplate(about.template.name.clone());
        let template = about.template.image.parse().map_err(missing)?;
        let own = [machine.start_image, machine.head_image, template];
        let ids: BTreeSet<ImageId> = kept.chain(own).collect();
        let gone = || Error::NoMachine(machine.name.to_string());
        let held = |id| self.inner().look_into(&self.inner().hold(id, gone)?);
        ids.into_iter().map(held).collect()
    }
}

fn writing() -> String {
    "write a machine to a file".into()
}
