//! A machine's init: pid 1 of its namespaces, our code, never the program's parent by fork.
//!
//! It sets the namespaces up from inside, answers the engine, and adopts orphans. When the engine's
//! socket closes it ends, and the kernel ends everything else in the pid namespace.

use crate::{confine, network, objects, sockets};
use stasis_spawner::protocol::{
    self, InitReply, InitRequest, LaunchSpec, ProgramConfinement, WallsSpec,
};
use stasis_sys::process::{self, Forked};
use stasis_sys::socket::MAX_FDS;
use stasis_sys::{below, fds, files, libc, mount, namespace};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

pub struct InitMounts {
    pub root: OwnedFd,
    pub dev: OwnedFd,
    /// The device that makes interfaces.
    pub tun: OwnedFd,
}

/// The directory of the machine's shared memory files in its root, so that they belong to its
/// files.
const SHM: [&str; 2] = [".stasis", "shm"];

/// Numbers from here on are for the few descriptors that are ours.
const OWN: i32 = 500;

/// The init's whole life.
pub fn run(started: io::Result<InitMounts>, spec: &WallsSpec, socket: OwnedFd) -> ! {
    let (started, control) = match keep_only(started, &socket) {
        Ok(kept) => kept,
        Err(_) => process::exit_now(2),
    };
    // its number was closed with all others
    std::mem::forget(socket);
    let set_up = started.and_then(|mounts| enter_walls(spec, mounts));
    let tun = match set_up {
        Ok(tun) => tun,
        Err(error) => {
            let _ = protocol::send(control.as_fd(), &failed(&error), &[]);
            process::exit_now(3);
        }
    };
    let ready = InitReply::Done { fds: 0, more: false };
    if protocol::send(control.as_fd(), &ready, &[]).is_err() {
        process::exit_now(4);
    }
    process::exit_now(i32::from(serve(&control, &tun).is_err()))
}

/// Closes the spawner's descriptors: they would keep sockets open, and the spawner's own socket
/// builds machines.
fn keep_only(
    started: io::Result<InitMounts>,
    socket: &OwnedFd,
) -> io::Result<(io::Result<InitMounts>, OwnedFd)> {
    process::default_signals();
    process::set_name("stasis-init")?;
    let control = fds::duplicate_above(socket.as_fd(), OWN)?;
    let keep = |fd: OwnedFd| -> io::Result<OwnedFd> {
        let copy = fds::duplicate_above(fd.as_fd(), OWN)?;
        std::mem::forget(fd);
        Ok(copy)
    };
    let keep_all = |mounts: InitMounts| -> io::Result<InitMounts> {
        Ok(InitMounts { root: keep(mounts.root)?, dev: keep(mounts.dev)?, tun: keep(mounts.tun)? })
    };
    let started = started.and_then(keep_all);
    let nothing = File::open("/dev/null")?;
    fds::place(nothing.as_fd(), 0)?;
    std::mem::forget(nothing);
    fds::close_range(3, OWN as u32 - 1)?;
    let highest = started.as_ref().map_or(&control, |mounts| &mounts.tun).as_raw_fd();
    fds::close_range(highest.max(control.as_raw_fd()) as u32 + 1, u32::MAX)?;
    Ok((started, control))
}

/// Returns the device that makes interfaces, which is ours alone.
fn enter_walls(spec: &WallsSpec, mounts: InitMounts) -> io::Result<OwnedFd> {
    process::set_ids(0, 0)?;
    // with other ids comes another owner of our own files in /proc, unless we say so
    process::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0)?;
    process::setsid()?;
    mount::mount("none", "/", "", libc::MS_REC | libc::MS_PRIVATE, None)?;
    let InitMounts { root, dev, tun } = mounts;
    // any directory serves: the overlay covers it only in this namespace, and becomes its root
    mount::attach(root.as_fd(), "/tmp").map_err(named("attach the root"))?;
    mount_inside(&root, &dev, spec.mask_proc)?;
    std::env::set_current_dir("/tmp")?;
    if spec.mask_proc {
        confine::mask_proc().map_err(named("mask /proc"))?;
    }
    namespace::pivot_to_cwd().map_err(named("pivot to the root"))?;
    mount::unmount_detached(".").map_err(named("leave the old root"))?;
    std::env::set_current_dir("/")?;
    namespace::loopback_up().map_err(named("bring up loopback"))?;
    process::set_hostname(&spec.hostname)?;
    namespace::unshare(libc::CLONE_NEWCGROUP).map_err(named("unshare the cgroup namespace"))?;
    Ok(tun)
}

/// File systems below the new root. The machine or its image controls its files, and until the
/// pivot a link in it would lead to the host: every path is opened without following one.
fn mount_inside(root: &OwnedFd, dev: &OwnedFd, mask_proc: bool) -> io::Result<()> {
    let options: &[_] = if mask_proc { &[("hidepid", "invisible")] } else { &[] };
    let quiet = mount::ATTR_NOSUID | mount::ATTR_NOEXEC;
    let proc = mount::detached("proc", options, quiet | mount::ATTR_NODEV);
    place(proc, root, "proc")?;
    place(dev.try_clone(), root, "dev")?;
    let options = [("ptmxmode", "0666"), ("mode", "0620")];
    place(mount::detached("devpts", &options, quiet), dev, "pts")?;
    place(shared_memory(root), dev, "shm")
}

fn place(tree: io::Result<OwnedFd>, dir: &OwnedFd, name: &'static str) -> io::Result<()> {
    let attempt = || {
        let flags = libc::O_PATH | libc::O_DIRECTORY;
        let at = files::open_straight(dir.as_fd(), name, flags)?;
        mount::attach_to(tree?.as_fd(), at.as_fd())
    };
    let failed = |error: io::Error| {
        io::Error::new(error.kind(), format!("mount the machine's {name}: {error}"))
    };
    attempt().map_err(failed)
}

/// The directory that becomes `/dev/shm`.
fn shared_memory(root: &OwnedFd) -> io::Result<OwnedFd> {
    let mut dir = root.try_clone()?;
    for name in SHM {
        match below::make_dir(dir.as_fd(), name, 0o755) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        dir = files::open_straight(dir.as_fd(), name, libc::O_RDONLY | libc::O_DIRECTORY)?;
    }
    let dir = File::from(dir);
    dir.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o1777))?;
    mount::clone_dir(dir.as_fd())
}

fn named(what: &'static str) -> impl Fn(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}: {error}"))
}

fn failed(error: &io::Error) -> InitReply {
    InitReply::Failed { what: error.to_string(), errno: error.raw_os_error().unwrap_or(0) }
}

/// Answers the engine until it exits, and adopts orphans meanwhile.
fn serve(control: &OwnedFd, tun: &OwnedFd) -> io::Result<()> {
    let mut held = Vec::new();
    loop {
        let asked = fds::poll_readable(control.as_fd(), 200)?;
        while let Ok(Some(_)) = process::wait(-1, libc::WNOHANG | libc::__WALL) {}
        if !asked {
            continue;
        }
        let Some((request, fds)) = protocol::receive::<InitRequest>(control.as_fd())? else {
            return Ok(());
        };
        let made = match request {
            InitRequest::Launch { program, fds: numbers, confine } => {
                launch(&program, &numbers, &fds, &confine).map(|pidfd| vec![pidfd])
            }
            InitRequest::Time { monotonic, boottime } => {
                time_namespace(monotonic, boottime).map(|ns| vec![ns])
            }
            InitRequest::Hold => {
                held.extend(fds);
                Ok(Vec::new())
            }
            InitRequest::Release => {
                held.clear();
                Ok(Vec::new())
            }
            InitRequest::Objects(specs) => objects::make_all(&specs),
            InitRequest::LookAtSockets => sockets::look(&fds).map(|looks| vec![looks]),
            InitRequest::MakeSockets => sockets::make(fds),
            InitRequest::Network(link) => network::make(&link, tun, &fds).map(|tun| vec![tun]),
        };
        answer(control, made)?;
    }
}

fn answer(control: &OwnedFd, made: io::Result<Vec<OwnedFd>>) -> io::Result<()> {
    let made = match made {
        Ok(made) => made,
        Err(error) => return protocol::send(control.as_fd(), &failed(&error), &[]),
    };
    let all: Vec<BorrowedFd> = made.iter().map(AsFd::as_fd).collect();
    let mut batches = all.chunks(MAX_FDS).peekable();
    if batches.peek().is_none() {
        return protocol::send(control.as_fd(), &InitReply::Done { fds: 0, more: false }, &[]);
    }
    while let Some(batch) = batches.next() {
        let more = batches.peek().is_some();
        let reply = InitReply::Done { fds: batch.len() as u32, more };
        protocol::send(control.as_fd(), &reply, batch)?;
    }
    Ok(())
}

/// A time namespace whose clocks run `monotonic` and `boottime` nanoseconds ahead of the host's.
fn time_namespace(monotonic: i64, boottime: i64) -> io::Result<OwnedFd> {
    const CLONE_NEWTIME: i32 = 0x80;
    namespace::unshare(CLONE_NEWTIME).map_err(named("unshare the time namespace"))?;
    let line = |clock: &str, ns: i64| {
        format!("{clock} {} {}\n", ns.div_euclid(1_000_000_000), ns.rem_euclid(1_000_000_000))
    };
    let offsets = line("monotonic", monotonic) + &line("boottime", boottime);
    std::fs::write("/proc/self/timens_offsets", offsets).map_err(named("set clock offsets"))?;
    Ok(File::open("/proc/self/ns/time_for_children")?.into())
}

/// Forks the first program. It stops itself before exec so that the engine can attach.
fn launch(
    program: &LaunchSpec,
    numbers: &[i32],
    fds: &[OwnedFd],
    confine: &ProgramConfinement,
) -> io::Result<OwnedFd> {
    if numbers.len() != fds.len() {
        return Err(io::Error::other("descriptors and their numbers do not match"));
    }
    match process::fork(0, libc::SIGCHLD)? {
        Forked::Parent { pidfd, .. } => Ok(pidfd),
        Forked::Child => {
            let error = start(program, numbers, fds, confine);
            eprintln!("stasis: cannot start {}: {error}", program.path);
            process::exit_now(127)
        }
    }
}

fn start(
    program: &LaunchSpec,
    numbers: &[i32],
    fds: &[OwnedFd],
    confine: &ProgramConfinement,
) -> io::Error {
    let attempt = || -> io::Result<()> {
        process::setsid()?;
        let high = numbers.iter().copied().max().unwrap_or(0).max(3) + 1;
        let copies: Vec<OwnedFd> = fds
            .iter()
            .map(|fd| fds::duplicate_above(fd.as_fd(), high))
            .collect::<io::Result<_>>()?;
        for (copy, number) in copies.iter().zip(numbers) {
            fds::place(copy.as_fd(), *number)?;
        }
        fds::close_range(high as u32, u32::MAX)?;
        std::mem::forget(copies);
        std::env::set_current_dir(&program.cwd)?;
        process::unblock_signals();
        confine::apply(confine, &program.user)?;
        process::raise(libc::SIGSTOP)
    };
    match attempt() {
        Ok(()) => process::exec(&program.path, &program.argv, &program.env),
        Err(error) => error,
    }
}
