//! What a machine's files take up: its private layer, measured by walking it.
//!
//! A file with several names counts once. What vanishes during the walk is not counted; the
//! machine may be running.

use std::collections::HashSet;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DiskUsage {
    /// Bytes allocated on disk.
    pub bytes: u64,
    /// Files and directories.
    pub files: u64,
}

/// Measures everything below `dir`, and gives up (as too much) past `most_files`.
pub fn usage(dir: &Path, most_files: u64) -> DiskUsage {
    const BLOCK: u64 = 512;
    let mut usage = DiskUsage::default();
    let mut linked = HashSet::new();
    let mut left = vec![dir.to_owned()];
    while let Some(dir) = left.pop() {
        let Ok(entries) = std::fs::read_dir(&dir) else { continue };
        for entry in entries.flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            if meta.nlink() > 1 && !meta.is_dir() && !linked.insert(meta.ino()) {
                continue;
            }
            usage.files += 1;
            usage.bytes += meta.blocks() * BLOCK;
            if meta.is_dir() {
                left.push(entry.path());
            }
            if usage.files > most_files {
                return usage;
            }
        }
    }
    usage
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
        let all = usage(dir.path(), u64::MAX);
        assert_eq!(all.files, 2);
        assert!((100_000..300_000).contains(&all.bytes), "{all:?}");
        assert_eq!(usage(dir.path(), 0).files, 1);
    }
}
