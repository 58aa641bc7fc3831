//! Walls: namespaces with an overlay root, and an init inside them.
//!
//! Made in this order because each step needs what the one before still allows: the overlay by
//! the host's root, then user and pid namespaces in one clone3 (pids of a pid namespace can be
//! chosen only by whoever owns it), then ids, and everything else by the init itself.

use stasis_spawner::protocol::{RootSpec, WallsSpec};
use stasis_sys::process::{self, Forked};
use stasis_sys::{fds, files, libc, mount, probe};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// Character devices every machine has: name, major, minor.
const DEVICES: [(&str, u32, u32); 6] = [
    ("null", 1, 3),
    ("zero", 1, 5),
    ("full", 1, 7),
    ("random", 1, 8),
    ("urandom", 1, 9),
    ("tty", 5, 0),
];

/// A detached, shared `/dev`: machines get a copy of the mount, not of the nodes.
pub fn device_tree() -> io::Result<OwnedFd> {
    let tree = mount::detached("tmpfs", &[("mode", "755"), ("size", "64k")], 0)?;
    let base = format!("/proc/self/fd/{}", tree.as_raw_fd());
    let mask = files::umask(0);
    for (name, major, minor) in DEVICES {
        files::make_node(&format!("{base}/{name}"), libc::S_IFCHR | 0o666, major, minor)?;
    }
    for name in ["pts", "shm"] {
        std::fs::create_dir(format!("{base}/{name}"))?;
    }
    for (link, target) in [
        ("ptmx", "pts/ptmx"),
        ("fd", "/proc/self/fd"),
        ("stdin", "/proc/self/fd/0"),
        ("stdout", "/proc/self/fd/1"),
        ("stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, format!("{base}/{link}"))?;
    }
    files::umask(mask);
    Ok(tree)
}

fn overlay(root: &RootSpec) -> io::Result<OwnedFd> {
    let attributes = mount::ATTR_NOSUID | mount::ATTR_NODEV;
    let own = [("upperdir", root.upper.as_str()), ("workdir", &root.work)];
    if probe::has_lowerdir_append() {
        let layers = root.lower.iter().map(|path| ("lowerdir+", path.as_str()));
        let options: Vec<_> = layers.chain(own).collect();
        return mount::detached("overlay", &options, attributes);
    }
    // all in one value, which may have 255 bytes: by descriptor, names are short, and hold none
    // of the characters that would have to be escaped
    let open = |path: &String| std::fs::File::open(path);
    let layers = root.lower.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let named = layers.iter().map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd()));
    let list = named.collect::<Vec<_>>().join(":");
    mount::detached("overlay", &[("lowerdir", list.as_str()), own[0], own[1]], attributes)
}

/// Builds walls and starts the init that lives in them; its pid and pidfd.
pub fn build(spec: &WallsSpec, devices: &OwnedFd, socket: OwnedFd) -> io::Result<(i32, OwnedFd)> {
    let what = |what: &str| {
        let what = what.to_owned();
        move |error: io::Error| io::Error::new(error.kind(), format!("{what}: {error}"))
    };
    let root = overlay(&spec.root).map_err(what("mount the overlay"))?;
    let device_path = format!("/proc/self/fd/{}", devices.as_raw_fd());
    let dev = mount::clone_tree(&device_path, false).map_err(what("copy the device tree"))?;
    let (go_read, go_write) = fds::pipe(libc::O_CLOEXEC)?;
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match process::fork(flags as u64, libc::SIGCHLD).map_err(what("clone the namespaces"))? {
        Forked::Child => {
            drop(go_write);
            let mut byte = [0];
            let started = std::fs::File::from(go_read).read_exact(&mut byte);
            let mounts = crate::init::Mounts { root, dev };
            crate::init::run(started, spec, mounts, socket)
        }
        Forked::Parent { pid, pidfd } => {
            write_map(pid, "uid_map", &spec.uid_map).map_err(what("map user ids"))?;
            write_map(pid, "gid_map", &spec.gid_map).map_err(what("map group ids"))?;
            std::fs::File::from(go_write).write_all(&[1])?;
            drop((root, dev, socket.as_fd()));
            Ok((pid, pidfd))
        }
    }
}

fn write_map(pid: i32, name: &str, map: &[(u32, u32, u32)]) -> io::Result<()> {
    let lines: Vec<String> =
        map.iter().map(|(inside, outside, count)| format!("{inside} {outside} {count}")).collect();
    std::fs::write(format!("/proc/{pid}/{name}"), lines.join("\n") + "\n")
}
