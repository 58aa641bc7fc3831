//! Maintenance of the store: collection, checks, statistics.

use crate::agent;
use crate::error::{Error, Result};
use crate::host::Host;
use stasis_api::{StoreChecked, StoreFinding, StoreFreed, StoreStats};
use stasis_engine::ImageId;
use std::collections::HashSet;
use std::ops::ControlFlow;
use std::time::Duration;

/// Packs compressed per round, so that a round does not occupy a processor for long.
const COLD_ROUND: usize = 8;
/// The same for states that are stored as differences.
const THIN_ROUND: Duration = Duration::from_millis(250);

impl Host {
    /// Frees what no machine, checkpoint or template needs.
    pub fn collect(&self) -> Result<StoreFreed> {
        let inner = self.inner();
        let freed = inner.engine.collect(|| {
            let keep = inner.images_in_use()?;
            // after a crash the records must not name what is removed now
            inner.records.sync()?;
            Ok::<_, Error>(keep)
        })?;
        let beside = self.collect_artifacts()? + self.collect_roots()? + self.shrink_records();
        Ok(StoreFreed {
            images: freed.images,
            packs: freed.packs,
            layers: freed.layers.len() as u64,
            bytes: freed.bytes + beside,
        })
    }

    /// Bytes by which the records' file shrank. On a full disk there may be no space for a smaller
    /// copy: the data freed so far stays freed.
    fn shrink_records(&self) -> u64 {
        self.inner().records.shrink().unwrap_or_else(|error| {
            tracing::warn!(%error, "the records' file stays as large as it is");
            0
        })
    }

    /// Removes roots of imports that failed; returns the freed bytes.
    fn collect_roots(&self) -> Result<u64> {
        let inner = self.inner();
        let Some(_alone) = inner.importing.try_write() else { return Ok(0) };
        let templates = self.templates()?;
        let used: HashSet<&str> =
            templates.iter().map(|template| agent::layers(&template.root).1).collect();
        let mut freed = 0;
        for root in stasis_template::list(&inner.dirs.roots)? {
            if root.imported && !used.contains(root.name.as_str()) {
                stasis_template::remove(&inner.dirs.roots, &root.name)?;
                freed += root.bytes;
            }
        }
        Ok(freed)
    }

    /// Compresses a few packs that no template and no recently used machine needs; returns the
    /// freed space. Packs of old checkpoints stay compressed.
    pub fn compress_cold(&self) -> Result<u64> {
        let inner = self.inner();
        let Some(age) = inner.settings.cold_after else { return Ok(0) };
        let fresh = |machine: &std::sync::Arc<crate::Machine>| machine.used_at().elapsed() < age;
        let heads = self.machines().into_iter().filter(fresh);
        let heads = heads.map(|machine| machine.record().head_image);
        let templates = inner.records.templates()?.into_iter().map(|record| record.image);
        let hot: HashSet<ImageId> = heads.chain(templates).collect();
        Ok(inner.engine.store().compress_cold(&hot, age, COLD_ROUND)?)
    }

    /// Stores states older than `age` as differences to their predecessors, for a limited time;
    /// returns the freed space. Current states of machines and templates stay fast to read.
    pub fn thin_states(&self, age: Duration) -> Result<u64> {
        let inner = self.inner();
        let heads = self.machines().into_iter().map(|machine| machine.record().head_image);
        let templates = inner.records.templates()?.into_iter().map(|record| record.image);
        let hot: HashSet<ImageId> = heads.chain(templates).collect();
        let keep = inner.images_in_use()?;
        Ok(inner.engine.store().thin(&keep, &hot, age, THIN_ROUND)?)
    }

    /// Reads all data in use and lists the damage. With `repair`, damaged
    /// pages are replaced by intact copies.
    pub fn check_store(&self, repair: bool) -> Result<StoreChecked> {
        let inner = self.inner();
        let keep = inner.images_in_use()?;
        let repair = match repair {
            true => stasis_engine::Repair::FromCopies,
            false => stasis_engine::Repair::Nothing,
        };
        let store = inner.engine.store();
        let checked = store.check(&keep, repair, |_| ControlFlow::Continue(()))?;
        // data removed meanwhile may have been collected, which is not damage
        let now = inner.images_in_use()?;
        let concerns = |one: &&stasis_engine::DamageFinding| {
            one.images.is_empty() || one.images.iter().any(|id| now.contains(id))
        };
        let findings = checked.findings.iter().filter(concerns);
        let mut findings: Vec<StoreFinding> = findings.map(|one| self.name(one)).collect();
        if let Some(said) = inner.records.check()? {
            findings.push(StoreFinding {
                code: "store.database".into(),
                what: format!("the records: {said}"),
                affects: Vec::new(),
                repaired: false,
            });
        }
        Ok(StoreChecked { complete: checked.complete, findings })
    }

    /// A finding in terms of machines.
    fn name(&self, finding: &stasis_engine::DamageFinding) -> StoreFinding {
        let images: HashSet<ImageId> = finding.images.iter().copied().collect();
        let needs = |machine: &std::sync::Arc<crate::Machine>| {
            let head = machine.record().head_image;
            let checkpoints = self.history(machine).unwrap_or_default();
            images.contains(&head) || checkpoints.iter().any(|one| images.contains(&one.image))
        };
        let machines = self.machines().into_iter().filter(needs);
        let templates = self.inner().records.templates().unwrap_or_default().into_iter();
        let templates = templates.filter(|record| images.contains(&record.image));
        let affects = machines
            .map(|machine| format!("machine {}", machine.name()))
            .chain(templates.map(|record| format!("template {}", record.template.name)))
            .collect();
        let (code, what) = (finding.code().to_owned(), finding.to_string());
        StoreFinding { code, what, affects, repaired: finding.repaired }
    }

    pub fn store_stats(&self) -> Result<StoreStats> {
        let (inner, mut keep) = (self.inner(), HashSet::new());
        loop {
            let before = std::mem::replace(&mut keep, inner.images_in_use()?);
            match inner.engine.store().stats(&keep) {
                // one of them may have been removed and collected meanwhile
                Err(_) if keep != before => {}
                counted => return Ok(counted?),
            }
        }
    }
}

impl crate::host::HostInner {
    fn images_in_use(&self) -> Result<HashSet<ImageId>> {
        Ok(self.records.images_in_use()?.into_iter().collect())
    }
}
