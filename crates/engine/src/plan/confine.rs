//! Walls that a clone puts up around itself: cgroup, Landlock, the bounding set, seccomp.
//!
//!   first      into the machine's cgroup, before anything is allocated
//!   inside     Landlock and the bounding set, which threads and children inherit
//!   at last    filters, when nothing but loading the registers is left to do (`thread`)

use super::builder::Builder;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_sys::landlock::{self, Ruleset};
use stasis_sys::libc;
use stasis_sys::process::KEYCTL_JOIN_SESSION_KEYRING;

pub const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// Parameters of a clone's sandbox.
#[derive(Debug, Clone, Copy, Default)]
pub struct CloneConfinement<'a> {
    /// The filter below all others of every process; empty for none.
    pub filter: &'a [u64],
    pub landlock: Option<&'a Ruleset>,
    /// Files of the cgroup to write to; they came with the order.
    pub tasks: u32,
    /// The limit of core files, whatever the image says.
    pub core: Option<u64>,
    /// Whether there are keyrings, of which it needs one of its own.
    pub keyring: bool,
}

impl<'a> CloneConfinement<'a> {
    /// All filters of a process, oldest first. An image from before the list changed has the old
    /// one, and gets today's as well.
    pub fn filters<'b>(&self, manifest: &'b Manifest, live: &LiveProcess) -> Vec<&'b [u64]>
    where
        'a: 'b,
    {
        let known = &manifest.meta.filters;
        let own: Vec<&[u64]> =
            live.filters.iter().map(|index| known[*index as usize].0.as_slice()).collect();
        let missing = !self.filter.is_empty() && own.first() != Some(&self.filter);
        missing.then_some(self.filter).into_iter().chain(own).collect()
    }
}

/// Capabilities that at least one thread of an image may still get.
pub fn bounding(manifest: &Manifest) -> u64 {
    let threads = manifest.processes.iter().filter_map(Process::live).flat_map(|l| &l.threads);
    threads.fold(0, |all, thread| all | thread.creds.bounding)
}

impl Builder<'_> {
    /// A real-time policy that came down from the engine goes first: a machine has none.
    pub(super) fn join_cgroup(&mut self) {
        let priority = self.program.words(&[0]);
        let args = [0, libc::SCHED_OTHER as u64, priority];
        self.program.any("be ordinary", libc::SYS_sched_setscheduler, &args);
        if let Some(core) = self.prepared.confine.core {
            let limit = self.program.words(&[core, core]);
            let args = [0, libc::RLIMIT_CORE.into(), limit, 0];
            self.program.must("limit core files", libc::SYS_prlimit64, &args);
        }
        let zero = self.program.data(b"0");
        for index in 0..self.prepared.confine.tasks {
            let fd = layout::CLONE_ENTRANCE_FD as u64 + u64::from(index);
            self.program.must("join the cgroup", libc::SYS_write, &[fd, zero, 1]);
        }
    }

    pub(super) fn confine(&mut self) {
        // with other ids comes another owner of our own files in /proc, unless we say so
        let args = [libc::PR_SET_DUMPABLE as u64, 1, 0, 0, 0];
        self.program.must("own our files in /proc", libc::SYS_prctl, &args);
        if self.prepared.confine.keyring {
            let args = [KEYCTL_JOIN_SESSION_KEYRING, 0];
            self.program.must("create a session keyring", libc::SYS_keyctl, &args);
        }
        if let Some(rules) = self.prepared.confine.landlock {
            self.landlock(rules);
        }
        let bounding = self.bounding;
        for bit in (0..41).filter(|bit| ALL_CAPABILITIES & !bounding & (1 << bit) != 0) {
            let args = [libc::PR_CAPBSET_DROP as u64, bit, 0, 0, 0];
            self.program.must("narrow the bounding set", libc::SYS_prctl, &args);
        }
    }

    /// The low numbers are free: the ruleset becomes number 0, each directory 1.
    fn landlock(&mut self, rules: &Ruleset) {
        let p = &mut self.program;
        let attributes = p.words(&rules.attributes());
        let args = [attributes, landlock::ATTR_SIZE, 0];
        p.must("make a ruleset", libc::SYS_landlock_create_ruleset, &args);
        for (path, access) in &rules.below {
            let path = p.text(path);
            let here = libc::AT_FDCWD as i64 as u64;
            let flags = (libc::O_PATH | libc::O_CLOEXEC) as u64;
            p.must("open a directory", libc::SYS_openat, &[here, path, flags, 0]);
            let rule = p.data(&landlock::path_beneath(*access, 1));
            let args = [0, landlock::RULE_PATH_BENEATH, rule, 0];
            p.must("add a rule", libc::SYS_landlock_add_rule, &args);
            p.must("close it", libc::SYS_close, &[1]);
        }
        p.must("apply Landlock", libc::SYS_landlock_restrict_self, &[0, 0]);
        p.must("close it", libc::SYS_close, &[0]);
    }
}
