//! The host's cgroups: from the mounted hierarchies, and the permission to create groups there.

use super::files::Version;
use std::path::{Path, PathBuf};

/// Our directory in a hierarchy.
const BASE: &str = "stasis";
const CONTROLLERS: [&str; 4] = ["memory", "pids", "cpu", "cpuacct"];

/// The parent directories of groups, by controller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hierarchies {
    pub version: Version,
    /// (controller, our directory). In version 2 all have the same.
    pub dirs: Vec<(&'static str, PathBuf)>,
}

impl Hierarchies {
    /// Our directories, each once.
    pub fn bases(&self) -> Vec<PathBuf> {
        let mut all: Vec<PathBuf> = self.dirs.iter().map(|(_, dir)| dir.clone()).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The usable controllers, and messages about missing ones.
pub fn find() -> (Option<Hierarchies>, Vec<String>) {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let unified = unified(&mounts).filter(|dir| offers(dir).contains(&"memory".to_owned()));
    let candidates = match unified {
        Some(dir) => Hierarchies {
            version: Version::V2,
            dirs: ["memory", "pids", "cpu"].map(|name| (name, dir.join(BASE))).to_vec(),
        },
        None => Hierarchies { version: Version::V1, dirs: version_1(&mounts) },
    };
    prepare(candidates)
}

/// Creates our directories; controllers whose directory cannot be created are missing.
fn prepare(candidates: Hierarchies) -> (Option<Hierarchies>, Vec<String>) {
    let mut missing = Vec::new();
    let mut dirs = Vec::new();
    for name in CONTROLLERS {
        // version 2 counts processor time without a controller
        let optional = candidates.version == Version::V2 && name == "cpuacct";
        match candidates.dirs.iter().find(|(own, _)| *own == name) {
            Some((_, dir)) => match ready(candidates.version, name, dir) {
                Ok(()) => dirs.push((name, dir.clone())),
                Err(error) => missing.push(format!("cgroup {name}: {}: {error}", dir.display())),
            },
            None if optional => {}
            None => {
                missing.push(format!("cgroup {name}: this host has no such controller mounted"))
            }
        }
    }
    let version = candidates.version;
    ((!dirs.is_empty()).then_some(Hierarchies { version, dirs }), missing)
}

fn ready(version: Version, controller: &str, dir: &Path) -> std::io::Result<()> {
    if version == Version::V2 {
        // a controller must be handed down at every level
        let root = dir.parent().unwrap_or(dir);
        std::fs::write(root.join("cgroup.subtree_control"), format!("+{controller}"))?;
        std::fs::create_dir_all(dir)?;
        return std::fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
    }
    std::fs::create_dir_all(dir)
}

fn offers(dir: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(dir.join("cgroup.controllers")).unwrap_or_default();
    text.split_whitespace().map(str::to_owned).collect()
}

/// (directory, type, options) of each line.
fn lines(mounts: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((words.next()?, words.next()?, words.next()?))
    })
}

fn unified(mounts: &str) -> Option<PathBuf> {
    lines(mounts).find(|(_, kind, _)| *kind == "cgroup2").map(|(dir, _, _)| dir.into())
}

fn version_1(mounts: &str) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for name in CONTROLLERS {
        let mut all = lines(mounts).filter(|(_, kind, _)| *kind == "cgroup");
        let dir = all.find(|(_, _, options)| options.split(',').any(|option| option == name));
        found.extend(dir.map(|(dir, _, _)| (name, Path::new(dir).join(BASE))));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controllers_are_found_where_they_are_mounted_alone_or_together() {
        let mounts = "cgroup2 /c/unified cgroup2 rw 0 0\n\
            cgroup /c/memory cgroup rw,nosuid,memory 0 0\n\
            cgroup /c/both cgroup rw,cpu,cpuacct 0 0\n\
            cgroup /c/systemd cgroup rw,name=systemd 0 0\n";
        let both: PathBuf = "/c/both/stasis".into();
        let expected =
            [("memory", "/c/memory/stasis".into()), ("cpu", both.clone()), ("cpuacct", both)];
        assert_eq!(version_1(mounts), expected);
        assert_eq!(unified(mounts), Some("/c/unified".into()));
    }

    #[test]
    fn what_is_not_mounted_is_told() {
        let (found, missing) = prepare(Hierarchies { version: Version::V1, dirs: Vec::new() });
        assert_eq!(found, None);
        assert_eq!(missing.len(), CONTROLLERS.len());
        assert!(missing[0].contains("memory"));
    }
}
