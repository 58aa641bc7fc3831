//! The files of one group, in both versions.

use super::{CgroupUsage, Entrances, find::Hierarchies};
use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    V1,
    V2,
}

/// Processor time is given out in parts of this.
const PERIOD_US: u64 = 100_000;

/// A group's directory for each existing controller.
pub struct CgroupDirs {
    version: Version,
    dirs: Vec<(&'static str, PathBuf)>,
}

impl CgroupDirs {
    /// Creates the directories of a new group.
    pub fn make(found: &Hierarchies, name: &str) -> io::Result<CgroupDirs> {
        let dirs: Vec<_> = found.dirs.iter().map(|(own, dir)| (*own, dir.join(name))).collect();
        let files = CgroupDirs { version: found.version, dirs };
        for dir in files.dirs() {
            match std::fs::create_dir(&dir) {
                // an engine that had our number was killed and left it
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => other.map_err(|error| named("make", &dir, &error))?,
            }
        }
        Ok(files)
    }

    /// Each directory once: controllers may share one.
    pub fn dirs(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.dirs.iter().map(|(_, dir)| dir.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    pub fn entrances(&self) -> io::Result<Entrances> {
        let open = |path: &Path, flags: i32, write: bool| -> io::Result<OwnedFd> {
            let mut options = File::options();
            options.read(!write).write(write).custom_flags(flags);
            Ok(options.open(path).map_err(|error| named("open", path, &error))?.into())
        };
        let dirs = self.dirs();
        Ok(match (self.version, dirs.first()) {
            (Version::V2, Some(dir)) => {
                Entrances::Directory(open(dir, stasis_sys::libc::O_DIRECTORY, false)?)
            }
            (_, None) => Entrances::None,
            // one thread that moves itself does not wait for the kernel's quiet moment, which
            // moving a whole process through cgroup.procs does
            (Version::V1, Some(_)) => {
                let tasks = dirs.iter().map(|dir| open(&dir.join("tasks"), 0, true));
                Entrances::Tasks(tasks.collect::<io::Result<_>>()?)
            }
        })
    }

    /// Numbers of all tasks in the group.
    pub fn tasks(&self) -> io::Result<Option<Vec<i32>>> {
        self.members(match self.version {
            Version::V1 => "tasks",
            Version::V2 => "cgroup.threads",
        })
    }

    /// Numbers of all processes in the group.
    pub fn processes(&self) -> io::Result<Option<Vec<i32>>> {
        self.members("cgroup.procs")
    }

    fn members(&self, file: &str) -> io::Result<Option<Vec<i32>>> {
        let Some((_, dir)) = self.dirs.first() else { return Ok(None) };
        let path = dir.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| named("read", &path, &error))?;
        Ok(Some(text.lines().filter_map(|line| line.parse().ok()).collect()))
    }

    fn path(&self, controller: &str, file: &str) -> Option<PathBuf> {
        let (_, dir) = self.dirs.iter().find(|(own, _)| *own == controller)?;
        Some(dir.join(file))
    }

    fn write(&self, controller: &str, file: &str, value: &str) -> io::Result<()> {
        let Some(path) = self.path(controller, file) else { return Ok(()) };
        std::fs::write(&path, value).map_err(|error| named("write", &path, &error))
    }

    fn number(&self, controller: &str, file: &str) -> Option<u64> {
        std::fs::read_to_string(self.path(controller, file)?).ok()?.trim().parse().ok()
    }

    /// A number from a file of lines with a name each.
    fn entry(&self, controller: &str, file: &str, name: &str) -> Option<u64> {
        let text = std::fs::read_to_string(self.path(controller, file)?).ok()?;
        entry(&text, name)
    }

    pub fn limit_pids(&self, pids: Option<u64>) -> io::Result<()> {
        self.write("pids", "pids.max", &or_max(pids))
    }

    pub fn limit_cpu(&self, millis: Option<u64>) -> io::Result<()> {
        let quota = millis.map(|millis| (millis * PERIOD_US / 1000).max(1000));
        match self.version {
            Version::V2 => self.write("cpu", "cpu.max", &format!("{} {PERIOD_US}", or_max(quota))),
            Version::V1 => {
                let quota = quota.map_or("-1".into(), |quota| quota.to_string());
                self.write("cpu", "cpu.cfs_quota_us", &quota)
            }
        }
    }

    /// Memory, and no swap beside it.
    pub fn limit_memory(&self, bytes: Option<u64>) -> io::Result<()> {
        if self.version == Version::V2 {
            let _ = self.write("memory", "memory.swap.max", "0");
            return self.write("memory", "memory.max", &or_max(bytes));
        }
        let text = bytes.map_or("-1".into(), |bytes| bytes.to_string());
        // both together is never below memory alone, on the way up or down
        let _ = self.write("memory", "memory.memsw.limit_in_bytes", "-1");
        self.write("memory", "memory.limit_in_bytes", &text)?;
        let _ = self.write("memory", "memory.memsw.limit_in_bytes", &text);
        Ok(())
    }

    pub fn usage(&self) -> CgroupUsage {
        let pids = self.number("pids", "pids.current");
        match self.version {
            Version::V2 => CgroupUsage {
                memory: self.number("memory", "memory.current"),
                memory_peak: self.number("memory", "memory.peak"),
                oom_kills: self.entry("memory", "memory.events", "oom_kill"),
                cpu_ns: self.entry("cpu", "cpu.stat", "usage_usec").map(|us| us * 1000),
                pids,
            },
            Version::V1 => CgroupUsage {
                memory: self.number("memory", "memory.usage_in_bytes"),
                memory_peak: self.number("memory", "memory.max_usage_in_bytes"),
                oom_kills: self.entry("memory", "memory.oom_control", "oom_kill"),
                cpu_ns: self.number("cpuacct", "cpuacct.usage"),
                pids,
            },
        }
    }
}

fn or_max(value: Option<u64>) -> String {
    value.map_or("max".into(), |value| value.to_string())
}

fn entry(text: &str, name: &str) -> Option<u64> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(' '));
    pairs.find(|(own, _)| *own == name)?.1.trim().parse().ok()
}

fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version 2 group in a plain directory: the written and read values.
    fn group(version: Version) -> (tempfile::TempDir, CgroupDirs) {
        let dir = tempfile::tempdir().unwrap();
        let names = ["memory", "pids", "cpu", "cpuacct"];
        let dirs = names.map(|name| (name, dir.path().to_owned())).to_vec();
        (dir, CgroupDirs { version, dirs })
    }

    #[test]
    fn limits_are_written_as_each_version_wants_them() {
        let (dir, files) = group(Version::V2);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        files.limit_pids(Some(7)).unwrap();
        files.limit_cpu(Some(1500)).unwrap();
        files.limit_memory(Some(4096)).unwrap();
        assert_eq!((read("pids.max"), read("cpu.max")), ("7".into(), "150000 100000".into()));
        assert_eq!((read("memory.max"), read("memory.swap.max")), ("4096".into(), "0".into()));
        files.limit_cpu(None).unwrap();
        assert_eq!(read("cpu.max"), "max 100000");

        let (dir, files) = group(Version::V1);
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        files.limit_cpu(Some(500)).unwrap();
        files.limit_memory(None).unwrap();
        assert_eq!(
            (read("cpu.cfs_quota_us"), read("memory.limit_in_bytes")),
            ("50000".into(), "-1".into())
        );
    }

    #[test]
    fn usage_is_read_from_both_versions() {
        let (dir, files) = group(Version::V2);
        let put =
            |dir: &Path, name: &str, text: &str| std::fs::write(dir.join(name), text).unwrap();
        put(dir.path(), "memory.current", "12\n");
        put(dir.path(), "memory.events", "low 0\noom 2\noom_kill 3\n");
        put(dir.path(), "cpu.stat", "usage_usec 5\nuser_usec 1\n");
        let usage = files.usage();
        assert_eq!((usage.memory, usage.oom_kills, usage.cpu_ns), (Some(12), Some(3), Some(5000)));
        assert_eq!((usage.pids, usage.memory_peak), (None, None));

        let (dir, files) = group(Version::V1);
        put(dir.path(), "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n");
        put(dir.path(), "cpuacct.usage", "99\n");
        let usage = files.usage();
        assert_eq!((usage.oom_kills, usage.cpu_ns), (Some(4), Some(99)));
    }
}
