//! Kernel objects made inside a machine's namespaces, for processes that are being restored.

mod directories;
mod ptys;

use stasis_spawner::protocol::ObjectSpec;
use stasis_sys::process::{self, Forked};
use stasis_sys::{below, fds, files, libc};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;

pub fn make_all(specs: &[ObjectSpec]) -> io::Result<Vec<OwnedFd>> {
    let root: OwnedFd = File::open("/")?.into();
    let mut masters = ptys::open_masters(&root, specs)?;
    let mut made = Vec::new();
    for spec in specs {
        match spec {
            ObjectSpec::Open { path, flags, offset } => {
                made.push(open(&root, path, *flags, *offset)?);
            }
            ObjectSpec::Directory { path, flags, offset, next } => {
                made.push(directories::open(&root, path, *flags, *offset, next.as_deref())?);
            }
            ObjectSpec::PtyMaster { index, flags, node, slave_gone } => {
                let master = masters
                    .remove(index)
                    .ok_or_else(|| io::Error::other(format!("terminal {index} twice")))?;
                ptys::set_up(&root, &master, *index, *flags, *node, *slave_gone)?;
                made.push(master);
            }
            ObjectSpec::Inotify { flags } => {
                made.push(fds::inotify(flags & libc::IN_NONBLOCK | libc::IN_CLOEXEC)?);
            }
            ObjectSpec::EndedProcess => made.push(ended_process()?),
            ObjectSpec::HungUpPty { flags } => made.push(ptys::hung_up(&root, *flags)?),
        }
    }
    Ok(made)
}

/// Opens a file that an image names, as the machine's root and without its filter: so no file of
/// this process itself, and none that would block it.
fn open(root: &OwnedFd, path: &str, flags: i32, offset: Option<u64>) -> io::Result<OwnedFd> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("open {path}: {error}"));
    let look = libc::O_PATH | flags & (libc::O_DIRECTORY | libc::O_NOFOLLOW);
    let place = files::open_in_root(root.as_fd(), path, look).map_err(named)?;
    refuse(&place, flags).map_err(named)?;
    if flags & libc::O_PATH != 0 {
        return Ok(place);
    }
    // flags that act at open time must not act again
    let flags = flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_NOCTTY;
    let file = files::reopen(place.as_fd(), flags).map_err(named)?;
    if let Some(offset) = offset {
        fds::seek(&file, offset as i64, libc::SEEK_SET).map_err(named)?;
    }
    Ok(file)
}

fn refuse(place: &OwnedFd, flags: i32) -> io::Result<()> {
    let name = std::fs::read_link(below::own_name(place.as_fd()))?;
    if name.starts_with("/proc/1") {
        return Err(io::Error::other("the file belongs to the machine's init"));
    }
    let kind = File::from(place.try_clone()?).metadata()?.file_type();
    if kind.is_fifo() && flags & (libc::O_PATH | libc::O_NONBLOCK) == 0 {
        return Err(io::Error::other("it is a FIFO"));
    }
    Ok(())
}

fn ended_process() -> io::Result<OwnedFd> {
    match process::fork(0, libc::SIGCHLD)? {
        Forked::Child => process::exit_now(0),
        Forked::Parent { pid, pidfd } => process::wait(pid, libc::__WALL).map(|_| pidfd),
    }
}
