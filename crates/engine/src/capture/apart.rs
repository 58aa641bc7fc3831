//! Sharing between processes: a process shares the machine's namespaces and root, and nothing else.
//!
//! A process that went into namespaces of its own, changed its root, or shares memory or
//! descriptors in a way that threads and processes normally do not would come back as something
//! else. It is refused, by name.

use super::refuse;
use crate::error::{Error, Result};
use crate::freeze::{Frozen, FrozenLive, FrozenProcess};
use crate::proc;
use crate::tree::Tree;
use stasis_sys::process::{Kcmp, kcmp};
use std::cmp::Ordering;

/// The properties that must equal the init's, by their name below `ns`, and by the init's name for
/// them.
const NAMESPACES: [(&str, &str); 9] = [
    ("mnt", "mnt"),
    ("net", "net"),
    ("ipc", "ipc"),
    ("uts", "uts"),
    ("user", "user"),
    ("cgroup", "cgroup"),
    ("pid", "pid"),
    ("pid_for_children", "pid"),
    // the init makes a time namespace for all processes but itself
    ("time", "time_for_children"),
];

pub fn check(frozen: &Frozen, tree: &Tree) -> Result<()> {
    let machine = if tree.walls.sealed { Vec::new() } else { machine(tree)? };
    for process in &frozen.processes {
        let Some(live) = &process.live else { continue };
        namespaces(process, live, &machine)?;
        if proc::read_link(process.pid, "root")? != "/" {
            return Err(refuse(process, "it has a root directory of its own (chroot)"));
        }
        threads_share(process, live)?;
    }
    processes_do_not_share(frozen)
}

/// The machine's namespaces, where a process could be in others. Its init never leaves them, so
/// they are read once.
fn machine(tree: &Tree) -> Result<Vec<String>> {
    let mut memo = tree.memo();
    if memo.namespaces.is_empty() {
        let init = tree.walls.init.pid;
        let links = NAMESPACES.iter().map(|(_, name)| proc::read_link(init, &format!("ns/{name}")));
        memo.namespaces = links.collect::<Result<_>>()?;
    }
    Ok(memo.namespaces.clone())
}

fn namespaces(process: &FrozenProcess, live: &FrozenLive, machine: &[String]) -> Result<()> {
    for thread in &live.threads {
        for ((name, _), expected) in NAMESPACES.iter().zip(machine) {
            let found = proc::read_link(process.pid, &format!("task/{}/ns/{name}", thread.tid))?;
            if found != *expected {
                let what = format!("thread {} is in a {name} namespace of its own", thread.own_tid);
                return Err(refuse(process, what));
            }
        }
    }
    Ok(())
}

/// Threads of a process have one set of descriptors and one working directory.
fn threads_share(process: &FrozenProcess, live: &FrozenLive) -> Result<()> {
    for thread in &live.threads[1..] {
        for (kind, what) in [(Kcmp::Files, "descriptors"), (Kcmp::Fs, "a working directory")] {
            if kcmp(process.pid, thread.tid, kind, 0, 0).is_ok_and(|order| order != 0) {
                let what = format!("thread {} has {what} of its own", thread.own_tid);
                return Err(refuse(process, what));
            }
        }
    }
    Ok(())
}

/// Processes made by clone with CLONE_VM, CLONE_FILES or CLONE_FS.
fn processes_do_not_share(frozen: &Frozen) -> Result<()> {
    let live = frozen.processes.iter().filter(|process| process.live.is_some());
    let mut order: Vec<&FrozenProcess> = live.collect();
    for (kind, what) in [
        (Kcmp::Vm, "its memory"),
        (Kcmp::Files, "its descriptors"),
        (Kcmp::Fs, "its working directory"),
    ] {
        // the kernel gives an order, so equals end up side by side
        let compare = |a: i32, b: i32| match kcmp(a, b, kind, 0, 0) {
            Ok(0) => Ordering::Equal,
            Ok(1) => Ordering::Less,
            _ => Ordering::Greater,
        };
        order.sort_by(|a, b| compare(a.pid, b.pid));
        for pair in order.windows(2) {
            if compare(pair[0].pid, pair[1].pid).is_eq() {
                let (first, second) = (pair[0].own_pid, pair[1].own_pid);
                let what = format!("it shares {what} with process {second}");
                return Err(Error::refused(first, what));
            }
        }
    }
    Ok(())
}
