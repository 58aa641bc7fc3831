//! Walls: namespaces with an overlay root, and an init inside them.
//!
//! The order follows from each step's requirements: user and pid namespaces in one clone3 (pids of
//! a pid namespace can be chosen only by its owner), then ids, then the overlay, mounted by the
//! host's root with its directories shown under those ids, and everything else by the init itself,
//! which waits for its mounts meanwhile.

use crate::network;
use stasis_spawner::protocol::{Entrance, RootSpec, WallsSpec};
use stasis_sys::mount::MountValue;
use stasis_sys::process::{self, Forked};
use stasis_sys::{files, libc, mount, probe, socket};
use std::fs::File;
use std::io::{self, Write};
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

/// Devices of machines and their inits, created once.
pub struct Devices {
    /// A `/dev` for machines.
    tree: OwnedFd,
    /// The TUN device, for inits alone: in no tree, so that no program of a machine can name it.
    tun: OwnedFd,
}

impl Devices {
    pub fn make() -> io::Result<Devices> {
        Ok(Devices { tree: device_tree()?, tun: network::node()? })
    }
}

/// A detached, shared `/dev`: machines get a copy of the mount, not of the nodes.
fn device_tree() -> io::Result<OwnedFd> {
    let tree = mount::detached("tmpfs", &[("mode", "755"), ("size", "64k")], 0)?;
    let base = format!("/proc/self/fd/{}", tree.as_raw_fd());
    let mask = files::umask(0);
    for (name, major, minor) in DEVICES {
        files::make_node(format!("{base}/{name}"), libc::S_IFCHR | 0o666, major, minor)?;
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
    mount::make_read_only(tree.as_fd())?;
    Ok(tree)
}

fn overlay(root: &RootSpec) -> io::Result<OwnedFd> {
    let own = [
        ("upperdir", MountValue::Text(&root.upper)),
        ("workdir", MountValue::Text(&root.work)),
        VOLATILE,
    ];
    if probe::has_lowerdir_append() {
        let layers = root.lower.iter().map(|path| ("lowerdir+", MountValue::Text(path)));
        let options: Vec<_> = layers.chain(own).collect();
        return mount::detached_with("overlay", &options, OVERLAY_ATTRIBUTES);
    }
    // all in one value, which may have 255 bytes: by descriptor, names are short, and hold none
    // of the characters that would have to be escaped
    let open = |path: &String| File::open(path);
    let layers = root.lower.iter().map(open).collect::<io::Result<Vec<_>>>()?;
    let named = layers.iter().map(|layer| format!("/proc/self/fd/{}", layer.as_raw_fd()));
    let list = named.collect::<Vec<_>>().join(":");
    let lower = ("lowerdir", MountValue::Text(&list));
    let options: Vec<_> = [lower].into_iter().chain(own).collect();
    mount::detached_with("overlay", &options, OVERLAY_ATTRIBUTES)
}

/// The upper directory is lost with the host anyway: a machine's files are durable in its images.
/// Without this, the end of each machine would sync the whole file system below it.
const VOLATILE: (&str, MountValue) = ("volatile", MountValue::None);

const OVERLAY_ATTRIBUTES: u32 = mount::ATTR_NOSUID | mount::ATTR_NODEV;

/// The same from directories shown under the ids of a user namespace.
fn mapped_overlay(root: &RootSpec, userns: &OwnedFd, first: (u32, u32)) -> io::Result<OwnedFd> {
    let mapped = |path: &str| -> io::Result<OwnedFd> {
        let tree = mount::clone_tree(path, false)?;
        mount::map_ids(tree.as_fd(), userns.as_fd())?;
        Ok(tree)
    };
    let lower = root.lower.iter().map(|path| mapped(path)).collect::<io::Result<Vec<_>>>()?;
    // overlay needs both of these in one mount
    let (own, upper_name) = root.upper.rsplit_once('/').unwrap_or((".", &root.upper));
    let work_name = root.work.strip_prefix(own).unwrap_or(&root.work);
    let own = mapped(own)?;
    let open =
        |name: &str| files::open_in_root(own.as_fd(), name, libc::O_RDONLY | libc::O_DIRECTORY);
    let (upper, work) = (open(upper_name)?, open(work_name)?);
    let mut options: Vec<(&str, MountValue)> =
        lower.iter().map(|dir| ("lowerdir+", MountValue::Dir(dir.as_fd()))).collect();
    options.push(("upperdir", MountValue::Dir(upper.as_fd())));
    options.push(("workdir", MountValue::Dir(work.as_fd())));
    options.push(VOLATILE);
    as_owner(first, || mount::detached_with("overlay", &options, OVERLAY_ATTRIBUTES))
}

/// Overlay accesses its upper directory with the credentials of the process that mounted it, which
/// must be valid there: we take on the machine's root for files and keep our capabilities.
fn as_owner<T>((uid, gid): (u32, u32), work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    const NO_SETUID_FIXUP: u64 = 4;
    process::prctl(libc::PR_SET_SECUREBITS, NO_SETUID_FIXUP, 0, 0, 0)?;
    process::set_fs_ids(uid, gid);
    let done = work();
    process::set_fs_ids(0, 0);
    process::prctl(libc::PR_SET_SECUREBITS, 0, 0, 0, 0)?;
    done
}

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

/// Builds a sandbox and starts its init; returns its pid and pidfd.
pub fn build(
    spec: &WallsSpec,
    devices: &Devices,
    control: OwnedFd,
    entrances: &[OwnedFd],
) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET)?;
    match fork(spec, entrances).map_err(named("clone the namespaces"))? {
        Forked::Child => {
            drop(ours);
            let started = join(spec, entrances).and_then(|()| receive_mounts(&theirs));
            crate::init::run(started, spec, control)
        }
        Forked::Parent { pid, pidfd } => {
            drop(theirs);
            write_map(pid, "uid_map", &spec.uid_map).map_err(named("map user ids"))?;
            write_map(pid, "gid_map", &spec.gid_map).map_err(named("map group ids"))?;
            let root = root(spec, pid).map_err(named("mount the overlay"))?;
            let device_path = format!("/proc/self/fd/{}", devices.tree.as_raw_fd());
            let dev =
                mount::clone_tree(&device_path, false).map_err(named("copy the device tree"))?;
            // if it has exited, it has reported the reason to the engine
            let _ =
                socket::send(ours.as_fd(), &[1], &[root.as_fd(), dev.as_fd(), devices.tun.as_fd()]);
            Ok((pid, pidfd))
        }
    }
}

fn fork(spec: &WallsSpec, entrances: &[OwnedFd]) -> io::Result<Forked> {
    let flags = libc::CLONE_NEWUSER
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match (spec.entrance, entrances) {
        (Entrance::Directory, [dir]) => {
            process::fork_into(flags as u64, libc::SIGCHLD, dir.as_fd())
        }
        _ => process::fork(flags as u64, libc::SIGCHLD),
    }
}

/// Enters the machine's cgroup, before anything is allocated. An engine may run with a real-time
/// policy, with which a machine could occupy the processors. Namespaces do not separate keyrings:
/// each machine gets its own.
fn join(spec: &WallsSpec, entrances: &[OwnedFd]) -> io::Result<()> {
    process::be_ordinary().map_err(named("drop real-time scheduling"))?;
    if process::has_keyrings() {
        process::own_keyring().map_err(named("create a session keyring"))?;
    }
    if let Entrance::Tasks(_) = spec.entrance {
        for tasks in entrances {
            File::from(tasks.try_clone()?).write_all(b"0").map_err(named("join the cgroup"))?;
        }
    }
    Ok(())
}

fn root(spec: &WallsSpec, pid: i32) -> io::Result<OwnedFd> {
    if !spec.map_files {
        return overlay(&spec.root);
    }
    let userns = File::open(format!("/proc/{pid}/ns/user"))?.into();
    let first = |map: &[(u32, u32, u32)]| map.first().map_or(0, |(_, outside, _)| *outside);
    mapped_overlay(&spec.root, &userns, (first(&spec.uid_map), first(&spec.gid_map)))
}

fn receive_mounts(from: &OwnedFd) -> io::Result<crate::init::InitMounts> {
    let received = socket::receive(from.as_fd(), &mut [0])?;
    let [root, dev, tun] = <[OwnedFd; 3]>::try_from(received.fds)
        .map_err(|_| io::Error::other("the spawner did not complete the sandbox"))?;
    Ok(crate::init::InitMounts { root, dev, tun })
}

fn write_map(pid: i32, name: &str, map: &[(u32, u32, u32)]) -> io::Result<()> {
    let lines: Vec<String> =
        map.iter().map(|(inside, outside, count)| format!("{inside} {outside} {count}")).collect();
    std::fs::write(format!("/proc/{pid}/{name}"), lines.join("\n") + "\n")
}
