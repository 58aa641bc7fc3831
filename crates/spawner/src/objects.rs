//! Kernel objects made inside a machine's namespaces, for processes that are being restored.

mod directories;
mod ptys;

use stasis_spawner::protocol::ObjectSpec;
use stasis_sys::process::{self, Forked};
use stasis_sys::{fds, files, libc};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

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

fn open(root: &OwnedFd, path: &str, flags: i32, offset: Option<u64>) -> io::Result<OwnedFd> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("open {path}: {error}"));
    // flags that act at open time must not act again
    let flags = if flags & libc::O_PATH != 0 {
        flags & (libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW)
    } else {
        flags & !(libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC) | libc::O_NOCTTY
    };
    let file = files::open_in_root(root.as_fd(), path, flags).map_err(named)?;
    if let Some(offset) = offset {
        fds::seek(&file, offset as i64, libc::SEEK_SET).map_err(named)?;
    }
    Ok(file)
}

fn ended_process() -> io::Result<OwnedFd> {
    match process::fork(0, libc::SIGCHLD)? {
        Forked::Child => process::exit_now(0),
        Forked::Parent { pid, pidfd } => process::wait(pid, libc::__WALL).map(|_| pidfd),
    }
}
