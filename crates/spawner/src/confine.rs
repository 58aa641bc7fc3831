//! Removes privileges from a program before it starts, and masks parts of `/proc`.
//!
//! Everything here fails closed: a step that does not succeed ends the start.

use stasis_spawner::CORE_LIMIT;
use stasis_spawner::protocol::{LandlockRules, ProgramConfinement, User};
use stasis_sys::landlock::{self, Ruleset};
use stasis_sys::{libc, mount, process, seccomp};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

/// Takes away what `confine` says, from the calling process. Ids and groups first, for they need
/// the capabilities that go next; the filter last, for it would refuse the rest.
pub fn apply(confine: &ProgramConfinement, user: &User) -> io::Result<()> {
    for (resource, limit) in &confine.limits {
        process::lower_limit(*resource, *limit).map_err(named("set a limit"))?;
    }
    if confine.unprivileged {
        process::fix_limit(libc::RLIMIT_CORE, CORE_LIMIT).map_err(named(NO_CORES))?;
        process::set_groups(&user.groups).map_err(named("set groups"))?;
        process::drop_bounding_set().map_err(named("narrow the bounding set"))?;
        process::set_ids(user.uid, user.gid).map_err(named("set ids"))?;
        process::drop_capabilities().map_err(named("drop capabilities"))?;
    }
    if confine.unprivileged || confine.landlock.is_some() || !confine.filter.is_empty() {
        process::no_new_privileges()?;
    }
    if let Some(rules) = &confine.landlock {
        landlock::restrict(&ruleset(rules)).map_err(named("apply Landlock"))?;
    }
    if !confine.filter.is_empty() {
        seccomp::install(&confine.filter).map_err(named("install the filter"))?;
    }
    Ok(())
}

const NO_CORES: &str = "limit core files to 1 byte (the service's hard limit must allow that much)";

fn ruleset(rules: &LandlockRules) -> Ruleset {
    Ruleset { handled_files: rules.handled_files, scoped: rules.scoped, below: rules.below.clone() }
}

/// Files of `/proc` about the host that every user may read, or that root may change.
const COVERED_FILES: [&str; 13] = [
    "cmdline",
    "config.gz",
    "interrupts",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "modules",
    "sched_debug",
    "softirqs",
    "sysrq-trigger",
    "timer_list",
];
const COVERED_DIRS: [&str; 7] = ["acpi", "asound", "bus", "driver", "fs", "irq", "scsi"];

/// inotify limits of a machine.
const INOTIFY_INSTANCES: &str = "8";
const INOTIFY_WATCHES: &str = "8192";

/// Covers files with `/dev/null` and directories with an empty one, makes settings read-only, and
/// takes the machine's user namespace the right to have any below it. The new root is the current
/// directory and has its `/dev`.
pub fn mask_proc() -> io::Result<()> {
    std::fs::write("proc/sys/user/max_user_namespaces", "0")?;
    // the kernel counts these against the host's root as well, who has 128 by default
    std::fs::write("proc/sys/user/max_inotify_instances", INOTIFY_INSTANCES)?;
    std::fs::write("proc/sys/user/max_inotify_watches", INOTIFY_WATCHES)?;
    for name in COVERED_FILES.map(|name| format!("proc/{name}")) {
        if is_open_to_us(&name) {
            mount::mount("dev/null", &name, "", libc::MS_BIND, None)?;
        }
    }
    let empty = mount::detached("tmpfs", &[("size", "4k"), ("mode", "555")], READ_ONLY)?;
    let path = {
        use std::os::fd::AsRawFd;
        format!("/proc/self/fd/{}", empty.as_raw_fd())
    };
    for name in COVERED_DIRS.map(|name| format!("proc/{name}")) {
        if Path::new(&name).is_dir() {
            mount::attach(mount::clone_tree(&path, false)?.as_fd(), &name)?;
        }
    }
    let settings = mount::clone_tree("proc/sys", false)?;
    mount::make_read_only(settings.as_fd())?;
    mount::attach(settings.as_fd(), "proc/sys")
}

/// Files of the host's root alone need no mask: no process inside has more rights than its init.
fn is_open_to_us(path: &str) -> bool {
    File::open(path).is_ok() || File::options().write(true).open(path).is_ok()
}

const READ_ONLY: u32 =
    mount::ATTR_RDONLY | mount::ATTR_NOSUID | mount::ATTR_NODEV | mount::ATTR_NOEXEC;

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}
