//! Snapshots: templates, and machines that are kept to be branched and never run.

use crate::error::{Error, Result};
use crate::sandboxes::sandbox;
use crate::views::{SnapshotDetail, SnapshotInfo};
use crate::{DIFF, FROM, Forkd, ForkdCaller, KIND, PARENT_TAG, PAUSE, TAG, check_tag, tag};
use serde::Deserialize;
use stasis_api::Update;
use stasis_machine::{Branch, Machine};
use stasis_template::{NoProgress, Recipe};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(crate) const SNAPSHOT: &str = "snapshot";
/// Links of a chain that are followed.
const DEEPEST: usize = 4096;

#[derive(Debug, Clone, Deserialize)]
pub struct CreateSnapshot {
    pub tag: String,
    pub kernel: String,
    /// A template's name, or a recipe as TOML.
    pub rootfs: String,
    #[serde(default = "ten")]
    pub boot_wait_secs: u64,
}

fn ten() -> u64 {
    10
}

fn yes() -> bool {
    true
}

#[derive(Debug, Clone, Default, Deserialize)]
pub struct SandboxBranchRequest {
    #[serde(default)]
    pub tag: Option<String>,
    #[serde(default)]
    pub mode: Option<SnapshotMode>,
    #[serde(default)]
    pub diff: bool,
    #[serde(default)]
    pub live: bool,
    #[serde(default)]
    pub measure_diff: bool,
    #[serde(default = "yes")]
    pub wait: bool,
    #[serde(default)]
    pub parent_tag: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SnapshotMode {
    Full,
    Diff,
    Live,
}

impl SandboxBranchRequest {
    /// The requested mode; all are the same here except for the reported data.
    fn mode(&self) -> Result<SnapshotMode> {
        let flags = [self.measure_diff, self.diff, self.live];
        let set = flags.iter().filter(|flag| **flag).count();
        match self.mode {
            Some(_) if set > 0 => {
                Err(Error::new(400, "`mode` cannot be combined with diff, live or measure_diff"))
            }
            Some(mode) => Ok(mode),
            None if set > 1 => {
                Err(Error::new(400, "measure_diff, diff and live are mutually exclusive"))
            }
            None if self.diff => Ok(SnapshotMode::Diff),
            None if self.live => Ok(SnapshotMode::Live),
            None => Ok(SnapshotMode::Full),
        }
    }
}

/// The target of a tag.
pub(crate) enum SnapshotSource {
    Template(String),
    Machine(Arc<Machine>),
}

impl Forkd {
    /// All snapshots, by tag. An account's own hides a template of the same name.
    pub fn list_snapshots(&self, account: &str) -> Result<Vec<SnapshotInfo>> {
        let templates = self.host.templates().map_err(Error::during("list"))?;
        let mut all = std::collections::BTreeMap::new();
        // newest first: an older one of the same name does not count
        for template in templates.iter().filter(|one| check_tag(&one.name).is_ok()) {
            all.entry(template.name.clone()).or_insert(SnapshotInfo::of_template(template));
        }
        for machine in self.of_kind(account, SNAPSHOT) {
            let info = SnapshotInfo::of_machine(&machine);
            all.insert(info.tag.clone(), info);
        }
        Ok(all.into_values().collect())
    }

    pub(crate) fn snapshot(&self, account: &str, wanted: &str) -> Option<Arc<Machine>> {
        let mut all = self.of_kind(account, SNAPSHOT).into_iter();
        all.find(|one| tag(one, TAG).as_deref() == Some(wanted))
    }

    pub(crate) fn source(&self, account: &str, wanted: &str) -> Option<SnapshotSource> {
        if let Some(machine) = self.snapshot(account, wanted) {
            return Some(SnapshotSource::Machine(machine));
        }
        self.host
            .template(Some(wanted))
            .is_ok()
            .then(|| SnapshotSource::Template(wanted.to_owned()))
    }

    /// Creates a snapshot from a template or a recipe. Kernels and root file systems of virtual
    /// machines are not supported, and paths of a client are not opened.
    pub fn create_snapshot(
        &self,
        caller: &ForkdCaller,
        ask: &CreateSnapshot,
    ) -> Result<SnapshotInfo> {
        let account = caller.account.as_str();
        // a recipe is built, which is the templates' right
        if ask.rootfs.contains('\n') && !caller.may_build {
            let said = "the token lacks the scope `templates`, which a recipe requires";
            return Err(Error::new(403, said));
        }
        check_tag(&ask.tag)?;
        let recipe = Recipe::parse(&ask.rootfs).ok().filter(|_| ask.rootfs.contains('\n'));
        let known = self.host.template(Some(&ask.rootfs)).is_ok();
        if recipe.is_none() && !known {
            let said = format!(
                "rootfs not found: {}: virtual machines' files are not used here; give the name \
                 of a template, or a recipe as TOML",
                ask.rootfs.chars().take(200).collect::<String>()
            );
            return Err(Error::new(400, said));
        }
        if ask.boot_wait_secs > 60 {
            return Err(Error::new(400, "boot_wait_secs must be ≤ 60"));
        }
        let _reserved = self.reserve(account, &ask.tag)?;
        if self.source(account, &ask.tag).is_some() {
            let said = format!("snapshot {} already exists; DELETE first", ask.tag);
            return Err(Error::new(400, said));
        }
        let failed = Error::during("snapshot");
        let template = match recipe {
            Some(recipe) => self.host.build_template(&recipe, &NoProgress).map_err(&failed)?.name,
            None => ask.rootfs.clone(),
        };
        let tags = [(KIND, SNAPSHOT), (TAG, &ask.tag), (PARENT_TAG, &template)];
        let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
        let new = sandbox(Some(template), tags);
        let machine = self.host.create(account, new).map_err(failed)?;
        Ok(SnapshotInfo::of_machine(&machine))
    }

    pub fn delete_snapshot(
        &self,
        account: &str,
        wanted: &str,
        cascade: bool,
        force: bool,
    ) -> Result<()> {
        check_tag(wanted)?;
        if cascade && force {
            return Err(Error::new(400, "cascade and force are mutually exclusive"));
        }
        let children = self.dependents(account, wanted);
        if !children.is_empty() && !cascade && !force {
            let said = format!(
                "snapshot {wanted} has dependents: {}; use ?cascade=true or ?force=true",
                children.join(", ")
            );
            return Err(Error::new(409, said));
        }
        let Some(machine) = self.snapshot(account, wanted) else {
            return Err(match self.source(account, wanted) {
                Some(_) => Error::new(409, format!("{wanted} is a template: remove it as such")),
                None => Error::new(404, format!("snapshot {wanted} not found")),
            });
        };
        if cascade {
            for child in children {
                self.delete_snapshot(account, &child, true, false)?;
            }
        }
        self.host.remove(&machine).map_err(Error::during("delete"))
    }

    /// Tags of snapshots that were made on top of one.
    fn dependents(&self, account: &str, wanted: &str) -> Vec<String> {
        let all = self.of_kind(account, SNAPSHOT).into_iter();
        let own = all.filter(|one| tag(one, PARENT_TAG).as_deref() == Some(wanted));
        own.filter_map(|one| tag(&one, TAG)).collect()
    }

    pub fn snapshot_info(&self, account: &str, wanted: &str) -> Result<SnapshotDetail> {
        check_tag(wanted)?;
        let missing = || Error::new(404, format!("snapshot {wanted} not found"));
        let machine = match self.source(account, wanted).ok_or_else(missing)? {
            SnapshotSource::Machine(machine) => machine,
            SnapshotSource::Template(name) => return self.template_info(account, &name),
        };
        let info = SnapshotInfo::of_machine(&machine);
        let disk = self.host.disk_use(&machine).map_err(Error::during("info"))?;
        let ancestors = self.ancestors(account, wanted);
        Ok(SnapshotDetail {
            tag: info.tag,
            dir: info.dir,
            created_at_unix: Some(info.created_at_unix),
            memory_logical_bytes: disk.own_bytes + disk.shared_bytes,
            memory_physical_bytes: disk.own_bytes,
            vmstate_bytes: 0,
            parent_tag: tag(&machine, PARENT_TAG),
            parent_content_hash: None,
            chain_depth: ancestors.len() as u64,
            dependents: self.dependents(account, wanted),
            ancestors,
        })
    }

    fn template_info(&self, account: &str, name: &str) -> Result<SnapshotDetail> {
        let record = self.host.template(Some(name)).map_err(Error::during("info"))?;
        let info = SnapshotInfo::of_template(&record.template);
        let bytes = record.details["bytes"].as_u64().unwrap_or(0);
        Ok(SnapshotDetail {
            tag: info.tag,
            dir: info.dir,
            created_at_unix: Some(info.created_at_unix),
            memory_logical_bytes: bytes,
            memory_physical_bytes: bytes,
            vmstate_bytes: 0,
            parent_tag: None,
            parent_content_hash: None,
            chain_depth: 0,
            dependents: self.dependents(account, name),
            ancestors: Vec::new(),
        })
    }

    /// From the first of a chain to the parent.
    fn ancestors(&self, account: &str, wanted: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut next = self.snapshot(account, wanted).and_then(|one| tag(&one, PARENT_TAG));
        while let Some(parent) = next.filter(|_| found.len() < DEEPEST) {
            next = self.snapshot(account, &parent).and_then(|one| tag(&one, PARENT_TAG));
            found.push(parent);
        }
        found.reverse();
        found
    }

    /// A snapshot without a parent; here every one is, so this is another name.
    pub fn compact(&self, account: &str, wanted: &str, to: &str) -> Result<SnapshotInfo> {
        check_tag(wanted)?;
        check_tag(to)?;
        if wanted == to {
            return Err(Error::new(400, "`to` must differ from the source tag"));
        }
        let _reserved = self.reserve(account, to)?;
        if self.source(account, to).is_some() {
            return Err(Error::new(409, format!("snapshot {to} already exists; DELETE first")));
        }
        let missing = || Error::new(500, format!("compact: snapshot {wanted} not found"));
        let source = self.source(account, wanted).ok_or_else(missing)?;
        let from = format!("compact:{wanted}");
        let made = match source {
            SnapshotSource::Machine(machine) => self.keep(&machine, to, &from, &[])?,
            SnapshotSource::Template(template) => {
                let tags = [(KIND, SNAPSHOT), (TAG, to), (FROM, from.as_str())];
                let tags = tags.map(|(key, value)| (key.to_owned(), value.to_owned())).into();
                let new = sandbox(Some(template), tags);
                self.host.create(account, new).map_err(Error::during("compact"))?
            }
        };
        Ok(SnapshotInfo::of_machine(&made))
    }

    /// A branch of a machine that is kept as a snapshot.
    fn keep(
        &self,
        source: &Arc<Machine>,
        own: &str,
        from: &str,
        more: &[(&str, String)],
    ) -> Result<Arc<Machine>> {
        let failed = Error::during("branch");
        let branch = Branch { names: vec![None], ..Branch::default() };
        let made = self.host.branch(source, branch).map_err(&failed)?.remove(0);
        let own = [(KIND, SNAPSHOT.to_owned()), (TAG, own.to_owned()), (FROM, from.to_owned())];
        let all = own.into_iter().chain(more.iter().cloned());
        let tags = all.map(|(key, value)| (key.to_owned(), value)).collect();
        let update = Update { tags: Some(tags), ..Update::default() };
        let kept = self.host.update(&made, update).and_then(|()| self.host.wait_saved(&made));
        if let Err(error) = kept {
            let _ = self.host.remove(&made);
            return Err(failed(error));
        }
        Ok(made)
    }

    /// Stores a sandbox's state under a tag. Returns the snapshot, and whether the caller did not
    /// want to wait for it, which is never necessary.
    pub fn branch(
        &self,
        account: &str,
        id: &str,
        ask: &SandboxBranchRequest,
    ) -> Result<(SnapshotInfo, bool)> {
        let own = ask.tag.clone().unwrap_or_else(|| own_tag(id));
        check_tag(&own)?;
        let _reserved = self.reserve(account, &own)?;
        let mode = ask.mode()?;
        if !ask.wait && mode != SnapshotMode::Live {
            return Err(Error::new(400, "wait=false needs mode=live"));
        }
        if self.source(account, &own).is_some() {
            return Err(Error::new(409, format!("snapshot {own} already exists; DELETE first")));
        }
        let machine = self.sandbox(account, id)?;
        let base = tag(&machine, TAG).unwrap_or_default();
        if let Some(parent) = &ask.parent_tag {
            if *parent != base {
                let said = format!("parent_tag {parent} is not the sandbox's snapshot_tag {base}");
                return Err(Error::new(400, said));
            }
            if mode != SnapshotMode::Diff {
                return Err(Error::new(400, "parent_tag needs mode=diff"));
            }
        }
        let place = self.host.place(&machine, None).map_err(Error::during("branch"))?;
        let mut more = vec![(PAUSE, machine.last_pause().as_millis().to_string())];
        more.extend(ask.parent_tag.clone().map(|parent| (PARENT_TAG, parent)));
        if mode == SnapshotMode::Diff || ask.measure_diff {
            let kept = self.host.history(&machine).map_err(Error::during("branch"))?;
            let bytes = kept.iter().rev().find(|one| Some(one.seq) == place.seq);
            more.push((DIFF, bytes.map_or(0, |one| one.bytes).to_string()));
        }
        let made = self.keep(&machine, &own, id, &more)?;
        Ok((SnapshotInfo::of_machine(&made), !ask.wait))
    }
}

/// The tag of a branch that was given none.
fn own_tag(id: &str) -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let count = NEXT.fetch_add(1, Ordering::Relaxed) & 0xffff;
    let now = stasis_api::Timestamp::now().as_second();
    let id: String = id.chars().take(40).collect();
    format!("branch-{id}-{now}-{count:04x}").chars().take(64).collect()
}
