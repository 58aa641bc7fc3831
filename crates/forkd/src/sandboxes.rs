//! Sandboxes: machines that forkd's clients made.

use crate::error::{Error, Result};
use crate::snapshots::{SNAPSHOT, SnapshotSource};
use crate::views::{Ping, SandboxInfo};
use crate::{FROM, Forkd, KIND, SUSPENDED, TAG, check_tag, tag};
use serde::Deserialize;
use stasis_api::{Checkpoints, Limits, Name, NewMachine, Update};
use stasis_machine::{Branch, Machine};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const SANDBOX: &str = "sandbox";
/// The least memory a machine can have, in MiB.
const LEAST_MEMORY: u64 = 64;

#[derive(Debug, Clone, Deserialize)]
pub struct Spawn {
    pub snapshot_tag: String,
    #[serde(default = "one")]
    pub n: i64,
    #[serde(default)]
    pub memory_limit_mib: Option<u64>,
    #[serde(default)]
    pub live_fork: bool,
}

/// A machine for forkd's clients. They have no undo: their instructions share states.
pub(crate) fn sandbox(template: Option<String>, tags: BTreeMap<String, String>) -> NewMachine {
    NewMachine { template, tags, checkpoints: Checkpoints::Grouped, ..NewMachine::default() }
}

fn one() -> i64 {
    1
}

impl Spawn {
    /// The limits of each: never more than the snapshot's.
    fn limits(&self, most: Option<u64>) -> Limits {
        let asked = self.memory_limit_mib.map(|mib| mib.max(LEAST_MEMORY));
        let memory_mb = asked.map(|mib| most.map_or(mib, |most| mib.min(most)));
        Limits { memory_mb, ..Limits::default() }
    }
}

impl Forkd {
    pub(crate) fn sandbox(&self, account: &str, id: &str) -> Result<Arc<Machine>> {
        let missing = || Error::new(404, format!("sandbox {id} not found"));
        let found = self.host.machine_of(account, id).ok();
        let found = found.filter(|one| {
            tag(one, KIND).as_deref() == Some(SANDBOX) && tag(one, SUSPENDED).is_none()
        });
        found.ok_or_else(missing)
    }

    pub fn spawn(&self, account: &str, ask: &Spawn) -> Result<Vec<SandboxInfo>> {
        match ask.n {
            n if n < 1 => return Err(Error::new(400, "n must be ≥ 1")),
            n if n > 1000 => return Err(Error::new(400, "n must be ≤ 1000 (sanity cap)")),
            _ => {}
        }
        check_tag(&ask.snapshot_tag)?;
        let made = self.machines(account, ask, ask.n as usize, &[])?;
        Ok(made.iter().map(|machine| SandboxInfo::of(machine, 0)).collect())
    }

    /// Machines from a snapshot, all or none.
    pub(crate) fn machines(
        &self,
        account: &str,
        ask: &Spawn,
        count: usize,
        more: &[(&str, String)],
    ) -> Result<Vec<Arc<Machine>>> {
        let missing = || Error::new(404, format!("snapshot {} not found", ask.snapshot_tag));
        let source = self.source(account, &ask.snapshot_tag).ok_or_else(missing)?;
        let own = [(KIND, SANDBOX.to_owned()), (TAG, ask.snapshot_tag.clone())];
        let tags: BTreeMap<String, String> = own
            .into_iter()
            .chain(more.iter().cloned())
            .map(|(key, value)| (key.to_owned(), value))
            .collect();
        let mut made = Vec::new();
        let done = match source {
            SnapshotSource::Template(template) => {
                self.make_from_template(account, &template, tags, ask, count, &mut made)
            }
            SnapshotSource::Machine(machine) => {
                self.make_from_snapshot(&machine, tags, ask, count, &mut made)
            }
        };
        match done {
            Ok(()) => Ok(made),
            Err(error) => {
                made.iter().for_each(|machine| drop(self.host.remove(machine)));
                Err(Error::during("restore_many")(error))
            }
        }
    }

    fn make_from_template(
        &self,
        account: &str,
        template: &str,
        tags: BTreeMap<String, String>,
        ask: &Spawn,
        count: usize,
        made: &mut Vec<Arc<Machine>>,
    ) -> stasis_machine::Result<()> {
        for _ in 0..count {
            let (name, tags) = (Some(fresh_id()), tags.clone());
            let (template, limits) = (Some(template.to_owned()), ask.limits(None));
            let new = NewMachine { name, limits, ..sandbox(template, tags) };
            made.push(self.host.create(account, new)?);
        }
        Ok(())
    }

    /// Children of one snapshot are reseeded, so that their random numbers differ.
    fn make_from_snapshot(
        &self,
        snapshot: &Arc<Machine>,
        tags: BTreeMap<String, String>,
        ask: &Spawn,
        count: usize,
        made: &mut Vec<Arc<Machine>>,
    ) -> stasis_machine::Result<()> {
        let names = (0..count).map(|_| Some(fresh_id())).collect();
        let branch = Branch { names, reseed: true, ..Branch::default() };
        made.extend(self.host.branch(snapshot, branch)?);
        let limits = ask.limits(snapshot.describe().limits.memory_mb);
        for machine in made {
            let (tags, limits) = (Some(tags.clone()), Some(limits));
            self.host.update(machine, Update { tags, limits, ..Update::default() })?;
        }
        Ok(())
    }

    pub fn list_sandboxes(&self, account: &str) -> Vec<SandboxInfo> {
        let counts = self.branches(account);
        let all = self.of_kind(account, SANDBOX).into_iter();
        all.filter(|one| tag(one, SUSPENDED).is_none())
            .map(|one| SandboxInfo::of(&one, counts.get(one.name().as_str()).copied().unwrap_or(0)))
            .collect()
    }

    /// Number of snapshots made of each sandbox.
    fn branches(&self, account: &str) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for from in self.of_kind(account, SNAPSHOT).iter().filter_map(|one| tag(one, FROM)) {
            *counts.entry(from).or_insert(0) += 1;
        }
        counts
    }

    pub fn get_sandbox(&self, account: &str, id: &str) -> Result<SandboxInfo> {
        let machine = self.sandbox(account, id)?;
        let count = self.branches(account).get(id).copied().unwrap_or(0);
        Ok(SandboxInfo::of(&machine, count))
    }

    pub fn kill_sandbox(&self, account: &str, id: &str) -> Result<()> {
        let machine = self.sandbox(account, id)?;
        self.host.remove(&machine).map_err(Error::during("kill"))
    }

    /// Wakes a sandbox and describes its contents.
    pub fn ping(&self, account: &str, id: &str) -> Result<Ping> {
        let machine = self.sandbox(account, id)?;
        self.host.wake(&machine).map_err(Error::during("ping"))?;
        let template = self.host.template(Some(&machine.describe().template));
        let packages = template.ok().map(|record| record.details["packages"].clone());
        let lines = packages.as_ref().and_then(|list| list.as_array()).into_iter().flatten();
        let numpy = lines.filter_map(|line| line.as_str()?.strip_prefix("numpy==")).next();
        Ok(Ping {
            pong: true,
            numpy_version: numpy.unwrap_or("none").to_owned(),
            pid: 1,
            agent_lang: machine.language().name().into(),
            warmup_ready: true,
        })
    }
}

/// An unguessable name in forkd's form.
fn fresh_id() -> Name {
    let now = stasis_api::Timestamp::now().as_second();
    let text = format!("sb-{now:x}-{:016x}", u64::from_ne_bytes(stasis_machine::random()));
    text.parse().expect("letters, digits and dashes are a name")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_never_wider_than_the_snapshots() {
        let ask = |memory_limit_mib| Spawn {
            snapshot_tag: String::new(),
            n: 1,
            memory_limit_mib,
            live_fork: false,
        };
        assert_eq!(ask(Some(512)).limits(Some(256)).memory_mb, Some(256));
        assert_eq!(ask(Some(128)).limits(Some(256)).memory_mb, Some(128));
        assert_eq!(ask(Some(1)).limits(None).memory_mb, Some(LEAST_MEMORY));
        assert_eq!(ask(None).limits(Some(256)).memory_mb, None);
    }
}
