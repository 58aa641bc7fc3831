//! Imports a machine from a file. Nothing in the file is trusted.
//!
//!   head (verified) ─► fits here? ─► packs (every page verified) ─► images ─► artifacts ─► root
//!                                                       one record ◄── images checked ◄──┘
//!
//! The record is written last, in one transaction. If the process is killed before that, only files
//! are left, which the next collection removes. The import refuses, with the reason, another image
//! format, a missing processor feature, and a root file system that is missing or different.

use super::bundle::{ExportManifest, FORMAT};
use crate::agent;
use crate::artifacts::Incoming;
use crate::error::{Error, ErrorContext, Result};
use crate::host::{Host, check};
use crate::machine::Machine;
use crate::pinned::PinnedImage;
use stasis_api::{EventKind, Name, Network, Status, TemplateInfo, Timestamp};
use stasis_engine::{BundleHead, Image, ImageId, SectionKind, fault};
use stasis_records::{Checkpoint, HeldImage, Imported, NewRecord, TemplateRecord};
use std::collections::HashMap;
use std::io::Read;
use std::sync::Arc;

/// Maximum length of labels, codes and other recorded texts.
const LONGEST_LABEL: usize = 200;
const MOST_ARTIFACTS: usize = 200_000;

impl Host {
    /// Imports a machine, under `name` or its old name.
    pub fn import(
        &self,
        account: &str,
        name: Option<Name>,
        from: &mut dyn Read,
    ) -> Result<Arc<Machine>> {
        let head = BundleHead::read(from)?;
        let about: ExportManifest = serde_json::from_slice(&head.about)
            .map_err(|error| unfit(format!("its description is malformed: {error}")))?;
        self.fits(&about)?;
        // before anything is read, and again when it is added
        self.inner().admit_machines(account, 1)?;
        let name = name.unwrap_or_else(|| about.machine.name.clone());
        if self.machine_of(account, name.as_str()).is_ok() {
            return Err(stasis_records::Error::NameTaken(name.to_string()).into());
        }
        // no collection removes a root whose machine is not recorded yet
        let _root = self.inner().importing.read();
        let images = self.take_parts(&head, &about.template.root, from)?;
        let artifacts = self.take_artifacts(&head, &about, from)?;
        self.take_root(&about, from)?;
        for image in images.values() {
            self.inner().engine.check(image).map_err(strange)?;
        }
        let imported = self.record_of(account, name, &about, &images)?;
        fault::point("import.laid")?;
        let held: Vec<PinnedImage> = images.into_values().map(PinnedImage).collect();
        let named: Vec<&dyn HeldImage> = held.iter().map(|one| one as &dyn HeldImage).collect();
        let record = || Ok(self.inner().records.import(imported, &named)?);
        let coming = self.inner().expect_machines(account, 1)?;
        let machine = self.insert(self.inner().name_artifacts(artifacts, record)?);
        drop(coming);
        fault::point("import.recorded")?;
        machine.event_at(EventKind::MachineCreated, None);
        Ok(machine)
    }

    /// Whether the machine could run here, checked before anything is written.
    fn fits(&self, about: &ExportManifest) -> Result<()> {
        let form = SectionKind::form();
        if about.format != FORMAT || about.form != form {
            let theirs = format!("{} of Stasis {}", about.form, about.stasis);
            return Err(unfit(format!(
                "its images have format {theirs}; this host uses format {form}"
            )));
        }
        check(&about.machine.limits, &about.machine.tags, &about.machine.env)?;
        self.agent_fits(about)?;
        let base = agent::layers(&about.template.root).1;
        let own = stasis_template::inspect(&self.inner().dirs.roots, base).ok();
        match (own, &about.root) {
            (Some(here), Some(there)) if here.digest == there.digest => Ok(()),
            (Some(_), _) => {
                Err(unfit(format!("its root file system {base:?} differs from the one here")))
            }
            (None, Some(there)) if about.carries_root && there.name == base => Ok(()),
            (None, _) => Err(unfit(format!(
                "its root file system {base:?} is neither here nor in the file: export it with \
                 its root, or build the template `{}` from its recipe first",
                about.template.name
            ))),
        }
    }

    fn agent_fits(&self, about: &ExportManifest) -> Result<()> {
        let Some(layer) = agent::layers(&about.template.root).0 else {
            return Err(unfit("its root has no agent".into()));
        };
        let carried =
            |files: &agent::AgentFiles| agent::is_plain(files) && agent::name(files) == *layer;
        let here = agent::is_here(&self.inner().dirs.roots, layer);
        if here || about.agent.as_ref().is_some_and(carried) {
            return Ok(());
        }
        Err(unfit(format!("its agent {layer:?} is neither here nor in the file")))
    }

    /// Imports the missing layers of its root; its agent's layer was checked.
    fn take_root(&self, about: &ExportManifest, from: &mut dyn Read) -> Result<()> {
        let roots = &self.inner().dirs.roots;
        let (layer, base) = agent::layers(&about.template.root);
        let lacks = !layer.is_some_and(|layer| agent::is_here(roots, layer));
        if let Some(files) = about.agent.as_ref().filter(|_| lacks) {
            agent::place(roots, files).doing(|| format!("place {layer:?}"))?;
        }
        if stasis_template::inspect(roots, base).is_ok() {
            return Ok(());
        }
        let missing = || unfit("its root is not in the file".into());
        let promised = about.root.as_ref().ok_or_else(missing)?;
        match stasis_template::import(roots, promised, from) {
            Ok(_) => Ok(()),
            Err(stasis_template::Error::Image(said)) => Err(unfit(said)),
            Err(error) => Err(error.into()),
        }
    }

    /// Imports artifacts, which have no names yet.
    fn take_artifacts(
        &self,
        head: &BundleHead,
        about: &ExportManifest,
        from: &mut dyn Read,
    ) -> Result<Vec<Incoming>> {
        let sizes: HashMap<String, u64> = head
            .files
            .iter()
            .map(|(hash, len)| (blake3::Hash::from_bytes(*hash).to_string(), *len))
            .collect();
        let known = |kept: &stasis_api::KeptArtifact| {
            let artifact = &kept.artifact;
            let short = artifact.name.len() + artifact.kind.len() <= LONGEST_LABEL;
            short && sizes.get(&artifact.id) == Some(&artifact.size)
        };
        if !about.artifacts.iter().all(known) {
            return Err(unfit("an artifact it names is not in the file".into()));
        }
        let artifact_store = &self.inner().artifact_store;
        head.files.iter().map(|(hash, len)| artifact_store.take_in(*hash, *len, from)).collect()
    }

    /// Imports all images and packs of a file; returns the images by name.
    fn take_parts(
        &self,
        head: &BundleHead,
        root: &str,
        from: &mut dyn Read,
    ) -> Result<HashMap<ImageId, Image>> {
        let engine = &self.inner().engine;
        let fits = |manifest: &_| engine.check_fit(manifest);
        let images = engine.store().import_parts(head, from, &fits).map_err(strange)?;
        if images.iter().any(|image| image.manifest.meta.root != root) {
            return Err(unfit("an image has another root than its template".into()));
        }
        Ok(images.into_iter().map(|image| (image.id, image)).collect())
    }

    fn record_of(
        &self,
        account: &str,
        name: Name,
        about: &ExportManifest,
        images: &HashMap<ImageId, Image>,
    ) -> Result<Imported> {
        let has = |image: ImageId| match images.contains_key(&image) {
            true => Ok(image),
            false => Err(unfit("an image it needs is not in the file".into())),
        };
        let machine = &about.machine;
        let template = self.template_of(about, images)?;
        let made = NewRecord {
            name,
            account: account.to_owned(),
            template: template.template.digest.clone(),
            created_at: machine.created_at,
            expires_at: None,
            tags: machine.tags.clone(),
            limits: machine.limits,
            env: machine.env.clone(),
            durability: machine.durability,
            checkpoints: machine.checkpoints,
            network: Network::None,
            parent: about.parent.clone(),
            parent_id: None,
            reseed: false,
            retention: machine.retention,
        };
        let mut checkpoints = Vec::new();
        for one in &about.checkpoints {
            let label = one.label.clone().filter(|label| label.len() <= LONGEST_LABEL);
            let (image, at, bytes) = (has(one.image)?, one.at, one.bytes.min(i64::MAX as u64));
            checkpoints.push(Checkpoint { seq: one.seq, image, at, bytes, label });
        }
        ordered(about)?;
        let mut instructions = about.instructions.clone();
        for one in instructions.iter_mut().filter(|one| !one.status.is_over()) {
            one.status = Status::Lost;
        }
        Ok(Imported {
            made,
            template,
            start_image: has(machine.start_image)?,
            head_image: has(machine.head_image)?,
            head_seq: machine.head_seq,
            next_seq: machine.next_seq,
            checkpoints,
            instructions,
            outputs: about.outputs.clone(),
            artifacts: about.artifacts.clone(),
        })
    }

    /// Its template, under a name that is not used yet.
    fn template_of(
        &self,
        about: &ExportManifest,
        images: &HashMap<ImageId, Image>,
    ) -> Result<TemplateRecord> {
        let missing = || unfit("its template's image is not in the file".into());
        let image: ImageId = about.template.image.parse().map_err(|_| missing())?;
        if !images.contains_key(&image) {
            return Err(missing());
        }
        let digest = blake3::hash(format!("imported\n{image}").as_bytes()).to_hex().to_string();
        let template = TemplateInfo {
            name: format!("imported-{}", &digest[..12]),
            digest,
            created_at: Timestamp::now(),
            image: image.to_string(),
            ..about.template.clone()
        };
        let details = serde_json::json!({ "packages": [], "bytes": 0, "form": about.form });
        Ok(TemplateRecord { template, image, details })
    }
}

/// Whether the numbers of the log are consistent.
fn ordered(about: &ExportManifest) -> Result<()> {
    let next = about.machine.next_seq;
    let rising = |seqs: &[u64]| {
        seqs.windows(2).all(|two| two[0] < two[1]) && seqs.iter().all(|seq| *seq < next)
    };
    let instructions: Vec<u64> = about.instructions.iter().map(|one| one.seq).collect();
    let checkpoints: Vec<u64> = about.checkpoints.iter().map(|one| one.seq).collect();
    let outputs: Vec<u64> = about.outputs.iter().map(|(seq, _)| *seq).collect();
    let known = |seq: &u64| instructions.binary_search(seq).is_ok();
    let fine = next <= u64::from(u32::MAX)
        && [&instructions, &checkpoints, &outputs].into_iter().all(|seqs| rising(seqs))
        && about.machine.head_seq.is_none_or(|seq| seq < next)
        && outputs.iter().all(known)
        && about.artifacts.iter().all(|kept| known(&kept.seq))
        && about.artifacts.len() <= MOST_ARTIFACTS;
    if fine { Ok(()) } else { Err(unfit("the numbers in its log are inconsistent".into())) }
}

/// A fault in a part is an error of the file, not of the host.
fn strange(error: stasis_engine::Error) -> Error {
    if error.is_io() { error.into() } else { unfit(error.to_string()) }
}

fn unfit(what: String) -> Error {
    Error::Unfit(what)
}
