//! The walls of this engine's machines beside their namespaces: found once, applied to each.
//!
//!   launch   the init takes ids, capabilities, calls and the rest from the program
//!            (`ProgramConfinement`)
//!   restore  the clone joins the cgroup, and is under Landlock and the filter before it runs
//!
//! An image that does not fit behind these walls, because it was captured without them, is refused.

use crate::error::{Error, ErrorContext, Result};
use crate::plan;
use stasis_image::model::*;
use stasis_sandbox::{
    Cgroup, Cgroups, IdRange, IdRanges, ResourceLimits, WallsConfig, cgroup, seccomp,
};
use stasis_spawner::CORE_LIMIT;
use stasis_spawner::protocol::{Entrance, LandlockRules, ProgramConfinement};
use stasis_sys::landlock::Ruleset;
use stasis_sys::{landlock, libc, process};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// The configuration of this engine's sandboxes.
pub struct Confinement {
    pub config: WallsConfig,
    ids: Option<IdRanges>,
    pub cgroups: Arc<Cgroups>,
    landlock: Option<Ruleset>,
    keyrings: bool,
}

/// A machine's place among the host's ids and cgroups.
pub struct MachineSlot {
    pub ids: IdRange,
    pub group: Arc<Cgroup>,
    pub entrances: Vec<OwnedFd>,
    pub entrance: Entrance,
}

impl Confinement {
    pub fn find(config: WallsConfig) -> Result<Confinement> {
        let cgroups = if config.cgroups { Cgroups::find() } else { Cgroups::none() };
        let version = if config.landlock { landlock::version() } else { 0 };
        let rules = stasis_sandbox::landlock::rules(version);
        if config.landlock && rules.is_none() {
            let what = format!("this kernel has Landlock {version}, machines need 6 (Linux 6.12)");
            return Err(std::io::Error::other(what)).doing(|| "build walls".into());
        }
        let ids = config.ids.as_deref().map(IdRanges::new);
        let keyrings = process::has_keyrings();
        Ok(Confinement { config, ids, cgroups, landlock: rules, keyrings })
    }

    /// Room for one more machine.
    pub fn place(&self) -> Result<MachineSlot> {
        let ids = self.ids.as_ref().map_or_else(|| Ok(IdRange::host()), IdRanges::take);
        let ids = ids.doing(|| "choose user ids for a machine".into())?;
        let make = || {
            let group = Arc::new(self.cgroups.make(self.config.limits)?);
            let entrances = group.entrances()?;
            Ok((group, entrances))
        };
        let (group, entrances) = make().doing(|| "make a cgroup".into())?;
        let (entrance, entrances) = match entrances {
            cgroup::Entrances::None => (Entrance::None, Vec::new()),
            cgroup::Entrances::Tasks(tasks) => (Entrance::Tasks(tasks.len() as u32), tasks),
            cgroup::Entrances::Directory(dir) => (Entrance::Directory, vec![dir]),
        };
        Ok(MachineSlot { ids, group, entrances, entrance })
    }

    /// Privileges that a launched program loses.
    pub fn launch(&self, limits: &ResourceLimits) -> ProgramConfinement {
        let rules = self.landlock.as_ref().map(|rules| LandlockRules {
            handled_files: rules.handled_files,
            scoped: rules.scoped,
            below: rules.below.clone(),
        });
        ProgramConfinement {
            unprivileged: self.config.unprivileged,
            landlock: rules,
            filter: self.filter().to_vec(),
            limits: own_limits(limits),
        }
    }

    /// The filter every process of a machine must be under; empty for none.
    fn filter(&self) -> &'static [u64] {
        if self.config.seccomp { seccomp::filter() } else { &[] }
    }

    /// Restrictions that a clone applies to itself.
    pub fn restore(&self, entrance: Entrance) -> plan::CloneConfinement<'_> {
        let tasks = match entrance {
            Entrance::Tasks(count) => count,
            Entrance::None | Entrance::Directory => 0,
        };
        let (filter, landlock) = (self.filter(), self.landlock.as_ref());
        let core = self.config.unprivileged.then_some(CORE_LIMIT);
        plan::CloneConfinement { filter, landlock, tasks, core, keyring: self.keyrings }
    }

    /// Whether an image's processes may come back behind these walls. Filters need no check: the
    /// machine's own is always installed.
    pub fn check(&self, manifest: &Manifest) -> Result<()> {
        if !self.config.unprivileged {
            return Ok(());
        }
        for process in &manifest.processes {
            let threads = process.live().into_iter().flat_map(|live| &live.threads);
            if let Some(thread) = threads.into_iter().find(|thread| is_privileged(thread)) {
                let (pid, tid) = (process.pid, thread.tid);
                let what = format!("process {pid}: thread {tid} has privileges no machine has");
                return Err(Error::Unfit(what));
            }
        }
        Ok(())
    }
}

/// Limits of a launched program's processes.
fn own_limits(limits: &ResourceLimits) -> Vec<(u32, u64)> {
    let size = limits.disk.map(|disk| (libc::RLIMIT_FSIZE, disk.bytes));
    let descriptors = limits.descriptors.map(|most| (libc::RLIMIT_NOFILE, most));
    size.into_iter().chain(descriptors).collect()
}

fn is_privileged(thread: &Thread) -> bool {
    let creds = &thread.creds;
    let sets = [creds.inheritable, creds.permitted, creds.effective, creds.bounding, creds.ambient];
    !thread.no_new_privs || sets.iter().any(|set| *set != 0)
}
