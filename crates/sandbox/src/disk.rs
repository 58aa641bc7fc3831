//! The size of a machine's files: its private layer, measured by walking it.
//!
//! A file with several names counts once. Files that vanish during the walk are not counted; the
//! machine may be running.

use stasis_sys::trees::{self, WalkEntry};
use stasis_sys::{fds, libc};
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::ops::{Add, Sub};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const BLOCK: u64 = 512;
/// Maximum restarts of a walk in which directories are moved.
const TRIES: usize = 3;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes allocated on disk.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

impl Add for DiskUsage {
    type Output = DiskUsage;

    fn add(self, other: DiskUsage) -> DiskUsage {
        let sum = |a: u64, b: u64| a.saturating_add(b);
        DiskUsage { bytes: sum(self.bytes, other.bytes), files: sum(self.files, other.files) }
    }
}

impl Sub for DiskUsage {
    type Output = DiskUsage;

    fn sub(self, other: DiskUsage) -> DiskUsage {
        let less = |a: u64, b: u64| a.saturating_sub(b);
        DiskUsage { bytes: less(self.bytes, other.bytes), files: less(self.files, other.files) }
    }
}

/// The size of one file.
pub fn of_stat(stat: &libc::stat64) -> DiskUsage {
    DiskUsage { bytes: (stat.st_blocks.max(0) as u64).saturating_mul(BLOCK), files: 1 }
}

/// Measures everything below `dir`, and stops (as too much) past `most_files`. `seen` is called
/// with each path, and the directory if it is one. Fails if directories are moved during every
/// attempt.
pub fn usage(
    dir: &Path,
    most_files: u64,
    mut seen: impl FnMut(&[u8], Option<BorrowedFd>),
) -> io::Result<DiskUsage> {
    let mut tries = 1;
    loop {
        let mut usage = DiskUsage::default();
        let mut linked = HashSet::new();
        let top = File::open(dir)?.into();
        let walked = trees::walk(top, most_files, |at: WalkEntry| -> io::Result<Option<OwnedFd>> {
            let Ok(stat) = fds::stat_at(at.dir, at.name) else { return Ok(None) };
            let is_dir = stat.st_mode & libc::S_IFMT == libc::S_IFDIR;
            let inner = is_dir.then(|| trees::enter(at.dir, at.name).ok()).flatten();
            seen(at.path, inner.as_ref().map(|dir| dir.as_fd()));
            if is_dir || stat.st_nlink < 2 || linked.insert(stat.st_ino) {
                usage = usage + of_stat(&stat);
            }
            Ok(inner)
        });
        match walked {
            Ok(()) => return Ok(usage),
            Err(error) if trees::is_too_many(&error) => {
                return Ok(DiskUsage { files: most_files.saturating_add(1), ..usage });
            }
            Err(error) if tries == TRIES => return Err(error),
            Err(_) => tries += 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_count_once_and_a_walk_has_an_end() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("a")).unwrap();
        std::fs::write(dir.path().join("a/b"), vec![1; 100_000]).unwrap();
        std::fs::hard_link(dir.path().join("a/b"), dir.path().join("c")).unwrap();
        let mut paths = Vec::new();
        let all = usage(dir.path(), u64::MAX, |path, inner| {
            paths.push((String::from_utf8_lossy(path).into_owned(), inner.is_some()));
        });
        let all = all.unwrap();
        assert_eq!(all.files, 2);
        assert!((100_000..300_000).contains(&all.bytes), "{all:?}");
        assert_eq!(usage(dir.path(), 0, |_, _| {}).unwrap().files, 1);
        let found: Vec<_> = paths.iter().map(|(path, is_dir)| (path.as_str(), *is_dir)).collect();
        assert_eq!(found, [("a", true), ("a/b", false), ("c", false)]);
    }

    #[test]
    fn what_lies_beyond_the_longest_path_counts() {
        let dir = tempfile::tempdir().unwrap();
        let mut at: OwnedFd = File::open(dir.path()).unwrap().into();
        let name = "n".repeat(250);
        for _ in 0..40 {
            stasis_sys::below::make_dir(at.as_fd(), &name, 0o755).unwrap();
            at = trees::enter(at.as_fd(), name.as_ref()).unwrap();
        }
        let slot = format!("{}/file", stasis_sys::below::own_name(at.as_fd()));
        std::fs::write(slot, vec![1; 1 << 20]).unwrap();
        let all = usage(dir.path(), u64::MAX, |_, _| {}).unwrap();
        assert!(all.bytes >= 1 << 20 && all.files == 41, "{all:?}");
        trees::remove(dir.path()).unwrap();
    }
}
