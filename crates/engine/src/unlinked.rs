//! Files of a machine that have no name any more and take space for as long as a process has them
//! open or mapped.
//!
//! Processes are read while they run. A process may hand its files to a child and end before its
//! turn, so the list is read again until it has no new entries. A file that several processes have
//! counts once. A machine with more descriptors or mappings than can be counted in a moment is not
//! counted at all.
//!
//! A descriptor in flight, sent through a unix socket and not received yet, is in no process. The
//! kernel reports how many each socket holds, but not which: those files cannot be counted, only
//! detected.

use crate::proc;
use stasis_sandbox::Cgroup;
use stasis_sandbox::disk::{self, DiskUsage};
use stasis_sys::process::{self, Kcmp};
use stasis_sys::{fds, libc};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

/// Descriptors of all processes of a machine together that are counted: some 100 ms.
const MOST_DESCRIPTORS: usize = 1 << 15;
/// The same for mappings, which are read less often.
const MOST_MAPPINGS: usize = 1 << 20;
/// How often the list of processes is read again.
const ROUNDS: usize = 16;

/// Where such files are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnlinkedScope {
    /// Among descriptors.
    Open,
    /// And among mappings.
    Everywhere,
}

/// Files without a name, of all processes of a machine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnlinkedFiles {
    pub usage: DiskUsage,
    /// There are descriptors in flight, whose files `usage` may lack.
    pub in_flight: bool,
}

/// Measures them in all processes below a machine's init; `None` if there are too many places.
pub fn usage(init: i32, group: Option<&Cgroup>, places: UnlinkedScope) -> Option<UnlinkedFiles> {
    let Ok(root) = std::fs::metadata(format!("/proc/{init}/root")) else {
        return Some(UnlinkedFiles::default());
    };
    let mut found = Found {
        device: root.dev(),
        inodes: HashSet::new(),
        files: UnlinkedFiles::default(),
        descriptors: MOST_DESCRIPTORS,
        mappings: MOST_MAPPINGS,
    };
    let mut seen = HashSet::from([init]);
    for _ in 0..ROUNDS {
        let mut fresh = processes(init, group);
        fresh.retain(|pid| seen.insert(*pid));
        if fresh.is_empty() {
            break;
        }
        // the youngest first: a process that hands files on is the last of its line
        for pid in fresh.into_iter().rev() {
            found.of_process(pid, places)?;
        }
    }
    Some(found.files)
}

/// All processes of a machine. Its group tells them in one read; without one they are found from
/// their parents.
fn processes(init: i32, group: Option<&Cgroup>) -> Vec<i32> {
    let told = group.and_then(|group| group.processes().ok().flatten());
    told.unwrap_or_else(|| proc::descendants(init).unwrap_or_default())
}

struct Found {
    /// The device of the machine's root.
    device: u64,
    inodes: HashSet<u64>,
    files: UnlinkedFiles,
    /// How many are still counted.
    descriptors: usize,
    mappings: usize,
}

impl Found {
    /// `None` when it has more than are counted.
    fn of_process(&mut self, pid: i32, places: UnlinkedScope) -> Option<()> {
        for tid in proc::threads(pid).unwrap_or_default() {
            // most threads have the descriptors of their process
            let shares = || process::kcmp(pid, tid, Kcmp::Files, 0, 0).ok() == Some(0);
            if tid == pid || !shares() {
                self.open(&format!("/proc/{pid}/task/{tid}"))?;
            }
        }
        match places {
            UnlinkedScope::Open => Some(()),
            UnlinkedScope::Everywhere => self.mapped(pid),
        }
    }

    fn open(&mut self, task: &str) -> Option<()> {
        for entry in std::fs::read_dir(format!("{task}/fd")).into_iter().flatten().flatten() {
            self.descriptors = self.descriptors.checked_sub(1)?;
            let is_socket = self.look(&entry.path().to_string_lossy()) == Some(libc::S_IFSOCK);
            if is_socket && !self.files.in_flight {
                let info = format!("{task}/fdinfo/{}", entry.file_name().to_string_lossy());
                self.files.in_flight = holds_descriptors(&info);
            }
        }
        Some(())
    }

    fn mapped(&mut self, pid: i32) -> Option<()> {
        let text = proc::read_text(pid, "maps").unwrap_or_default();
        for line in text.lines() {
            self.mappings = self.mappings.checked_sub(1)?;
            let Some(range) = line.strip_suffix(" (deleted)").and_then(|_| line.split(' ').next())
            else {
                continue;
            };
            // the kernel calls the link by the same numbers without zeros in front
            let plain = |hex: &str| u64::from_str_radix(hex, 16).ok();
            let Some((start, end)) = range.split_once('-') else { continue };
            if let (Some(start), Some(end)) = (plain(start), plain(end)) {
                self.look(&format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
            }
        }
        Some(())
    }

    /// Counts the target of a link, if it is such a file; returns its kind.
    fn look(&mut self, link: &str) -> Option<u32> {
        let stat = fds::stat_of(link).ok()?;
        let kind = stat.st_mode & libc::S_IFMT;
        if kind == libc::S_IFREG
            && stat.st_nlink == 0
            && stat.st_dev == self.device
            && self.inodes.insert(stat.st_ino)
        {
            self.files.usage = self.files.usage + disk::of_stat(&stat);
        }
        Some(kind)
    }
}

/// Whether a socket has descriptors in its queue.
fn holds_descriptors(info: &str) -> bool {
    let Ok(text) = std::fs::read_to_string(info) else { return false };
    let count = text.lines().find_map(|line| line.strip_prefix("scm_fds:"));
    count.is_some_and(|count| count.trim() != "0")
}
