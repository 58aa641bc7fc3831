//! Files of a machine that have no name any more and take space for as long as a process has them
//! open or mapped.
//!
//! Processes are looked at while they run: one that ends meanwhile is passed over, and so is a
//! file that is closed. A file that several have counts once.

use crate::proc;
use stasis_sandbox::disk::{self, DiskUsage};
use stasis_sys::process::{self, Kcmp};
use stasis_sys::{fds, libc};
use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;

/// Where such files are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// Among descriptors.
    Open,
    /// And among mappings.
    Everywhere,
}

/// What they take, of all processes below a machine's init.
pub fn usage(init: i32, places: Where) -> DiskUsage {
    let Ok(root) = std::fs::metadata(format!("/proc/{init}/root")) else {
        return DiskUsage::default();
    };
    let mut found =
        Found { device: root.dev(), inodes: HashSet::new(), usage: DiskUsage::default() };
    for pid in proc::descendants(init).unwrap_or_default() {
        for tid in proc::threads(pid).unwrap_or_default() {
            // most threads have the descriptors of their process
            let shares = || process::kcmp(pid, tid, Kcmp::Files, 0, 0).ok() == Some(0);
            if tid == pid || !shares() {
                found.open(&format!("/proc/{pid}/task/{tid}/fd"));
            }
        }
        if places == Where::Everywhere {
            found.mapped(pid);
        }
    }
    found.usage
}

struct Found {
    /// Of the machine's root.
    device: u64,
    inodes: HashSet<u64>,
    usage: DiskUsage,
}

impl Found {
    fn open(&mut self, dir: &str) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            self.look(&entry.path().to_string_lossy());
        }
    }

    fn mapped(&mut self, pid: i32) {
        let Ok(text) = proc::read_text(pid, "maps") else { return };
        let nameless = text.lines().filter(|line| line.ends_with(" (deleted)"));
        for range in nameless.filter_map(|line| line.split(' ').next()) {
            // the kernel calls the link by the same numbers without zeros in front
            let plain = |hex: &str| u64::from_str_radix(hex, 16).ok();
            let Some((start, end)) = range.split_once('-') else { continue };
            if let (Some(start), Some(end)) = (plain(start), plain(end)) {
                self.look(&format!("/proc/{pid}/map_files/{start:x}-{end:x}"));
            }
        }
    }

    fn look(&mut self, link: &str) {
        let Ok(stat) = fds::stat_of(link) else { return };
        let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        if is_file
            && stat.st_nlink == 0
            && stat.st_dev == self.device
            && self.inodes.insert(stat.st_ino)
        {
            self.usage = self.usage + disk::of_stat(&stat);
        }
    }
}
