//! Checks of the data directory: disk space, file system, container.

use super::{About, HealthCheck};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Approximate need of the default template and a few machines.
const ENOUGH_MIB: u64 = 4096;

pub fn checks(data_dir: &Path) -> Vec<HealthCheck> {
    let near = existing(data_dir);
    vec![space(&near), file_system(&near), container()]
}

/// The directory, or its nearest existing parent.
fn existing(path: &Path) -> PathBuf {
    let found = path.ancestors().find(|path| path.is_dir());
    found.unwrap_or(Path::new("/")).to_owned()
}

fn space(near: &Path) -> HealthCheck {
    let about = About {
        name: "disk space",
        required: true,
        costs: "the default template does not fit",
        fix: "free 4 GiB, or choose another --data-dir",
    };
    match available_mib(near) {
        Some(free) => {
            about.check(free >= ENOUGH_MIB, format!("{free} MiB free for {}", near.display()))
        }
        None => about.check(false, format!("cannot tell for {}", near.display())),
    }
}

/// From `df`: the standard library has no call for it.
fn available_mib(path: &Path) -> Option<u64> {
    let output = Command::new("df").args(["-Pk", "--"]).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let kib: u64 = text.lines().nth(1)?.split_whitespace().nth(3)?.parse().ok()?;
    Some(kib / 1024)
}

fn file_system(near: &Path) -> HealthCheck {
    let about = About {
        name: "file system",
        required: true,
        costs: "it cannot hold the overlay layers of machines",
        fix: "choose a --data-dir on ext4, xfs or btrfs",
    };
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let kind = kind_of(&mounts, near).unwrap_or_default();
    // upper layers of overlayfs need a file system that keeps whiteouts and attributes
    let unfit = ["overlay", "nfs", "nfs4", "vfat", "fuse", "9p", ""].contains(&kind.as_str());
    about.check(!unfit, kind)
}

/// The file system of a path, by the longest mount point above it.
fn kind_of(mountinfo: &str, path: &Path) -> Option<String> {
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let mounts = mountinfo.lines().filter_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let point = left.split(' ').nth(4)?;
        real.starts_with(point).then(|| (point.len(), right.split(' ').next().unwrap_or_default()))
    });
    // of two mounts on one point the later one is on top
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind.to_owned())
}

fn container() -> HealthCheck {
    let about = About {
        name: "container",
        required: false,
        costs: "the container may forbid mounts and namespaces",
        fix: "run on the host, or start the container with --privileged",
    };
    let signs = ["/.dockerenv", "/run/.containerenv", "/run/systemd/container"];
    match signs.iter().find(|path| fs::exists(path).unwrap_or(false)) {
        Some(sign) => about.check(false, format!("inside one: {sign}")),
        None => about.check(true, "not inside one"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_mount_point_counts() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n\
                      2 1 0:5 / /proc rw - proc proc rw\n\
                      3 1 0:6 / / rw - overlay overlay rw\nbroken\n";
        assert_eq!(kind_of(mounts, Path::new("/proc/sys")).as_deref(), Some("proc"));
        assert_eq!(kind_of(mounts, Path::new("/nowhere")).as_deref(), Some("overlay"));
        assert_eq!(kind_of("", Path::new("/")), None);
    }
}
