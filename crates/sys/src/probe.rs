//! Kernel features that Stasis uses, detected by trying them.
//!
//! Version numbers decide nothing: distributions backport features, and leave others out. A probe
//! changes nothing and needs no more rights than its feature; if it cannot tell, the feature counts
//! as absent. For tests, `STASIS_WITHOUT` names features (separated by commas) that count as
//! absent.

use crate::{check, mount};
use std::fs;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The importance of a feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// Nothing works without it.
    Required,
    /// There is another way, which costs something.
    Helpful,
}

/// One feature of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Feature {
    pub name: &'static str,
    pub present: bool,
    pub need: Need,
    /// The first kernel that has it, where a version decides.
    pub since: &'static str,
    /// The consequence of its absence.
    pub lack: &'static str,
    /// How to get it.
    pub fix: &'static str,
    /// Details, beyond yes or no.
    pub found: String,
}

struct Probe {
    name: &'static str,
    need: Need,
    since: &'static str,
    lack: &'static str,
    fix: &'static str,
    ask: fn() -> Answer,
}

/// Whether it exists, and details.
type Answer = (bool, String);

const NEWER: &str = "use a newer kernel";

const PROBES: &[Probe] = &[
    Probe {
        name: "clone3_set_tid",
        need: Need::Required,
        since: "5.5",
        lack: "restored processes cannot get their numbers back",
        fix: NEWER,
        ask: || plain(has_set_tid()),
    },
    Probe {
        name: "pidfd_getfd",
        need: Need::Required,
        since: "5.6",
        lack: "descriptors of a process cannot be inspected",
        fix: NEWER,
        ask: || plain(knows(libc::SYS_pidfd_getfd, [u64::MAX, 0, 0, 0])),
    },
    Probe {
        name: "openat2",
        need: Need::Required,
        since: "5.6",
        lack: "files of a machine cannot be opened without the risk of leaving its root",
        fix: NEWER,
        ask: || plain(knows(libc::SYS_openat2, [u64::MAX, 0, 0, 0])),
    },
    Probe {
        name: "close_range",
        need: Need::Required,
        since: "5.9",
        lack: "a restored process cannot close the engine's descriptors",
        fix: NEWER,
        ask: || plain(knows(libc::SYS_close_range, [1, 0, 0, 0])),
    },
    Probe {
        name: "time_namespaces",
        need: Need::Required,
        since: "5.6",
        lack: "the monotonic clock of a restored machine would jump",
        fix: "use a kernel with CONFIG_TIME_NS",
        ask: || plain(fs::exists("/proc/self/ns/time").unwrap_or(false)),
    },
    Probe {
        name: "memfd",
        need: Need::Required,
        since: "3.17",
        lack: "a restore has no memory files for its program and pages",
        fix: NEWER,
        ask: || plain(crate::fds::memfd("probe", libc::MFD_CLOEXEC).is_ok()),
    },
    Probe {
        name: "mount_api",
        need: Need::Required,
        since: "5.2",
        lack: "a machine's root cannot be mounted without being visible on the host",
        fix: "use a newer kernel, and run as root",
        ask: || plain(mount::knows("tmpfs")),
    },
    Probe {
        name: "overlayfs",
        need: Need::Required,
        since: "3.18",
        lack: "machines cannot share a root file system",
        fix: "load the module: modprobe overlay",
        ask: || plain(mount::knows("overlay")),
    },
    Probe {
        name: "lowerdir_append",
        need: Need::Helpful,
        since: "6.8",
        lack: "layers are named in one option, at most a dozen of them",
        fix: NEWER,
        ask: || plain(mount::takes("overlay", "lowerdir+", mount::MountValue::Text("/"))),
    },
    Probe {
        name: "overlay_by_descriptor",
        need: Need::Required,
        since: "6.13",
        lack: "a machine's files cannot be shown under its own ids",
        fix: NEWER,
        ask: || plain(takes_descriptor()),
    },
    Probe {
        name: "checkpoint_restore",
        need: Need::Required,
        since: "3.18",
        lack: "a restored process cannot be told where its heap, stack and arguments lie, and \
               seccomp filters cannot be read",
        fix: "use a kernel with CONFIG_CHECKPOINT_RESTORE, as those of all large distributions",
        ask: || plain(has_checkpoint_restore()),
    },
    Probe {
        name: "kcmp",
        need: Need::Required,
        since: "3.5",
        lack: "the engine cannot detect descriptors that share an open file",
        fix: "use a kernel with CONFIG_KCMP",
        ask: || plain(has_kcmp()),
    },
    Probe {
        name: "pagemap_scan",
        need: Need::Helpful,
        since: "6.7",
        lack: "captures read the whole page map and compare contents: longer, and no shorter when \
               little was written",
        fix: NEWER,
        ask: || plain(has_scan()),
    },
    Probe {
        name: "userfaultfd_wp_async",
        need: Need::Helpful,
        since: "6.7",
        lack: "writes are not tracked: every capture compares all pages with its parent's",
        fix: NEWER,
        ask: || plain(has_uffd(crate::uffd::FEATURE_WP_ASYNC)),
    },
    Probe {
        name: "userfaultfd",
        need: Need::Helpful,
        since: "4.11",
        lack: "large machines wake only after all of their memory is read",
        fix: "use a kernel with CONFIG_USERFAULTFD, and run as root",
        ask: || plain(has_uffd(crate::uffd::FEATURE_EVENT_FORK)),
    },
    Probe {
        name: "timer_restore_ids",
        need: Need::Helpful,
        since: "6.15",
        lack: "programs with POSIX timers of high numbers cannot be restored",
        fix: NEWER,
        ask: || plain(has_timer_ids()),
    },
    Probe {
        name: "landlock",
        need: Need::Helpful,
        since: "5.13",
        lack: "Landlock does not protect a machine's files; the mount namespace still does",
        fix: "add landlock to the lsm= list of the kernel's command line",
        ask: landlock,
    },
    Probe {
        name: "cgroup2",
        need: Need::Helpful,
        since: "4.5",
        lack: "limits are set in the hierarchies of version 1, one by one",
        fix: "boot with systemd.unified_cgroup_hierarchy=1",
        ask: cgroup,
    },
    Probe {
        name: "user_namespaces",
        need: Need::Required,
        since: "3.8",
        lack: "machines cannot have user ids of their own",
        fix: "sysctl user.max_user_namespaces=65536",
        ask: user_namespaces,
    },
    Probe {
        name: "unprivileged_user_namespaces",
        need: Need::Helpful,
        since: "3.8",
        lack: "the engine has to be run as root",
        fix: "sysctl kernel.unprivileged_userns_clone=1 (Debian), \
              kernel.apparmor_restrict_unprivileged_userns=0 (Ubuntu)",
        ask: unprivileged_namespaces,
    },
    Probe {
        name: "ptrace",
        need: Need::Required,
        since: "3.4",
        lack: "nothing can be captured",
        fix: "sysctl kernel.yama.ptrace_scope=1; level 3 can be left only by a reboot",
        ask: ptrace_allowed,
    },
];

fn takes_descriptor() -> bool {
    let root = fs::File::open("/");
    root.is_ok_and(|root| {
        mount::takes("overlay", "lowerdir+", mount::MountValue::Dir(root.as_fd()))
    })
}

/// All features Stasis needs of a kernel, in a fixed order.
pub fn features() -> Vec<Feature> {
    PROBES.iter().map(look).collect()
}

fn look(probe: &Probe) -> Feature {
    let (present, found) = (probe.ask)();
    let Probe { name, need, since, lack, fix, .. } = *probe;
    Feature { name, present: present && !is_taken_away(name), need, since, lack, fix, found }
}

/// Whether `PAGEMAP_SCAN` can be used.
pub fn has_pagemap_scan() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| has_scan() && !is_taken_away("pagemap_scan"))
}

/// Whether overlayfs takes its layers one by one.
pub fn has_lowerdir_append() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    let takes = || mount::takes("overlay", "lowerdir+", mount::MountValue::Text("/"));
    *FOUND.get_or_init(|| takes() && !is_taken_away("lowerdir_append"))
}

/// Whether the kernel makes interfaces whose packets a process carries.
pub fn has_tun() -> bool {
    let listed = std::fs::read_to_string("/proc/misc").unwrap_or_default();
    let is_tun = |line: &str| line.split_whitespace().nth(1) == Some("tun");
    // a module is loaded when its device is opened
    let there = || listed.lines().any(is_tun) || std::fs::exists("/dev/net/tun").unwrap_or(false);
    there() && !is_taken_away("tun")
}

fn is_taken_away(name: &str) -> bool {
    let without = std::env::var("STASIS_WITHOUT").unwrap_or_default();
    without.split(',').any(|word| word == name)
}

fn plain(present: bool) -> Answer {
    (present, String::new())
}

fn call(number: i64, args: [u64; 4]) -> Result<i64, i32> {
    let [a, b, c, d] = args;
    // SAFETY: the probes below pass numbers and null pointers that make the call fail before it
    // does anything, or point at values that outlive it.
    check(unsafe { libc::syscall(number, a, b, c, d, 0, 0) })
        .map_err(|error| error.raw_os_error().unwrap_or(0))
}

/// Whether a call exists, given arguments it must refuse.
fn knows(number: i64, args: [u64; 4]) -> bool {
    !matches!(call(number, args), Err(libc::ENOSYS | libc::EPERM))
}

/// Older kernels refuse the longer arguments; newer ones refuse the count.
fn has_set_tid() -> bool {
    let args = crate::process::CloneArgs { set_tid: 1, set_tid_size: 1000, ..Default::default() };
    let size = 80;
    call(libc::SYS_clone3, [&raw const args as u64, size, 0, 0]) == Err(libc::EINVAL)
}

fn has_checkpoint_restore() -> bool {
    const PR_SET_MM_MAP_SIZE: u64 = 15;
    let mut size = 0u32;
    let args = [libc::PR_SET_MM as u64, PR_SET_MM_MAP_SIZE, &raw mut size as u64, 0];
    call(libc::SYS_prctl, args).is_ok()
}

fn has_kcmp() -> bool {
    let own = std::process::id() as i32;
    matches!(crate::process::kcmp(own, own, crate::process::Kcmp::Vm, 0, 0), Ok(0))
}

fn has_scan() -> bool {
    crate::pagemap::can_scan()
}

fn has_uffd(feature: u64) -> bool {
    let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
    let Ok(fd) = call(libc::SYS_userfaultfd, [flags, 0, 0, 0]) else { return false };
    // SAFETY: a new descriptor, which is ours.
    let _fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    let mut api = [crate::uffd::API, feature, 0];
    let args = [fd as u64, crate::uffd::IOCTL_API, api.as_mut_ptr() as u64, 0];
    call(libc::SYS_ioctl, args).is_ok()
}

fn has_timer_ids() -> bool {
    const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
    const GET: u64 = 2;
    call(libc::SYS_prctl, [PR_TIMER_CREATE_RESTORE_IDS, GET, 0, 0]).is_ok()
}

fn landlock() -> Answer {
    const VERSION: u64 = 1;
    match call(libc::SYS_landlock_create_ruleset, [0, 0, VERSION, 0]) {
        Ok(abi) => (true, format!("ABI {abi}")),
        Err(_) => plain(false),
    }
}

fn cgroup() -> Answer {
    let controllers = fs::read_to_string("/sys/fs/cgroup/cgroup.controllers");
    match controllers {
        Ok(list) => (list.contains("memory"), format!("version 2: {}", list.trim())),
        Err(_) if fs::exists("/sys/fs/cgroup/memory").unwrap_or(false) => {
            (false, "version 1".into())
        }
        Err(_) => (false, "not mounted".into()),
    }
}

fn setting(name: &str) -> Option<i64> {
    let text = fs::read_to_string(format!("/proc/sys/{name}")).ok()?;
    text.trim().parse().ok()
}

fn user_namespaces() -> Answer {
    let most = setting("user/max_user_namespaces").unwrap_or(0);
    (most > 0 && fs::exists("/proc/self/ns/user").unwrap_or(false), format!("at most {most}"))
}

fn unprivileged_namespaces() -> Answer {
    let refused = [
        ("kernel/unprivileged_userns_clone", 0),
        ("kernel/apparmor_restrict_unprivileged_userns", 1),
    ];
    let by = refused.iter().find(|(name, value)| setting(name) == Some(*value));
    match by {
        Some((name, value)) => (false, format!("{} is {value}", name.replace('/', "."))),
        None => plain(user_namespaces().0),
    }
}

fn ptrace_allowed() -> Answer {
    match setting("kernel/yama/ptrace_scope") {
        Some(level) => (level < 3, format!("ptrace_scope {level}")),
        None => plain(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_feature_says_what_its_lack_costs_and_what_to_do() {
        let all = features();
        let names: HashSet<&str> = all.iter().map(|feature| feature.name).collect();
        assert_eq!(names.len(), all.len(), "a name twice");
        for feature in &all {
            let words = [feature.name, feature.since, feature.lack, feature.fix];
            assert!(words.iter().all(|word| !word.is_empty()), "{}", feature.name);
        }
    }

    /// Features that any kernel for these tests must have, or nothing of the engine could be
    /// tested.
    #[test]
    fn what_is_required_is_found() {
        let lacking: Vec<_> = features()
            .into_iter()
            .filter(|feature| feature.need == Need::Required && !feature.present)
            .map(|feature| feature.name)
            .collect();
        assert_eq!(lacking, [""; 0]);
    }
}
