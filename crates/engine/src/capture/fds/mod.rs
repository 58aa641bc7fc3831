//! Descriptors and their open files.
//!
//! Every descriptor of every process is read through `/proc`. Descriptors that share one open file
//! (dup, fork, SCM_RIGHTS) are found with kcmp and share one object, so that they share an offset
//! again. An unknown kind is refused with its number and name.

mod anon;
mod cwd;
mod epoll;
mod files;
mod inotify;
mod locks;
pub mod names;
mod owners;
mod pidfds;
mod pipes;
mod ptys;
mod sockets;

use super::held::WritableFile;
use super::mappings::SharedSegments;
use super::refuse;
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::proc::{self, FdInfo};
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_store::Sink;
use stasis_sys::libc;
use stasis_sys::process::{self as sysprocess, Kcmp};
use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

/// Objects found so far.
#[derive(Default)]
pub struct Objects {
    pub list: Vec<Object>,
    pub segments: SharedSegments,
    /// The first descriptor of each object: (pid, descriptor), by the open file.
    seen: HashMap<(u64, u64), Vec<Seen>>,
    /// Pipe contents by device and inode.
    pipes: HashMap<(u64, u64), u32>,
    names: Option<names::PathLookup>,
    /// Files that are open for writing.
    pub written: Vec<WritableFile>,
    terminals: ptys::Terminals,
    sockets: sockets::Sockets,
}

/// Pid, descriptor and object.
type Seen = (i32, i32, u32);

/// One descriptor as `/proc` shows it.
pub struct OpenDescriptor<'a> {
    pub process: &'a FrozenProcess,
    pidfd: &'a OwnedFd,
    pub number: i32,
    pub link: String,
    pub info: FdInfo,
    pub meta: std::fs::Metadata,
}

impl OpenDescriptor<'_> {
    pub fn path(&self) -> String {
        format!("/proc/{}/fd/{}", self.process.pid, self.number)
    }

    /// The very same open file, for questions that need one.
    pub fn copy(&self) -> std::io::Result<OwnedFd> {
        sysprocess::pidfd_getfd(self.pidfd.as_fd(), self.number)
    }

    pub fn refuse(&self, what: impl std::fmt::Display) -> Error {
        refuse(self.process, format!("fd {}: {what}", self.number))
    }
}

/// Fills in the descriptors of every live process.
pub fn read_all(
    frozen: &Frozen,
    tree: &Tree,
    sink: &mut Sink,
    processes: &mut [Process],
) -> Result<Objects> {
    let mut objects = Objects::default();
    for (process, out) in frozen.processes.iter().zip(&mut *processes) {
        let ProcessState::Live(live) = &mut out.state else { continue };
        let pidfd = sysprocess::pidfd_open(process.pid)
            .doing(|| format!("open process {}", process.pid))?;
        for number in proc::descriptors(process.pid)? {
            let descriptor = look(process, &pidfd, number)?;
            let close_on_exec = descriptor.info.flags & libc::O_CLOEXEC as u32 != 0;
            let known = objects.list.len() as u32;
            let object = objects.find_or_read(&descriptor, tree, sink)?;
            let found = &mut objects.list[object as usize];
            if !matches!(found.kind, ObjectKind::External { .. }) {
                locks::add(&descriptor, &mut found.kind)?;
                if object >= known {
                    found.owner = owners::read(&descriptor, frozen)?;
                }
            }
            live.fds.push(Fd { number, object, close_on_exec });
        }
        cwd::read(&mut objects, process, tree, live)?;
    }
    ptys::finish(&mut objects, frozen, tree)?;
    sockets::resolve(&mut objects, frozen, tree, processes)?;
    Ok(objects)
}

fn look<'a>(
    process: &'a FrozenProcess,
    pidfd: &'a OwnedFd,
    number: i32,
) -> Result<OpenDescriptor<'a>> {
    let path = format!("/proc/{}/fd/{number}", process.pid);
    let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
    let info = FdInfo::parse(&proc::read_text(process.pid, &format!("fdinfo/{number}"))?)
        .ok_or_else(|| refuse(process, format!("fd {number}: its fdinfo is unreadable")))?;
    let link = proc::read_link(process.pid, &format!("fd/{number}"))?;
    Ok(OpenDescriptor { process, pidfd, number, link, info, meta })
}

impl Objects {
    fn find_or_read(
        &mut self,
        descriptor: &OpenDescriptor,
        tree: &Tree,
        sink: &mut Sink,
    ) -> Result<u32> {
        let key = (descriptor.meta.dev(), descriptor.meta.ino());
        let pid = descriptor.process.pid;
        for (other_pid, other, object) in self.seen.get(&key).into_iter().flatten() {
            let (a, b) = (descriptor.number as u64, *other as u64);
            if sysprocess::kcmp(pid, *other_pid, Kcmp::File, a, b).ok() == Some(0) {
                return Ok(*object);
            }
        }
        let kind = self.read(descriptor, tree, sink)?;
        let flags = descriptor.info.flags & !(libc::O_CLOEXEC as u32);
        let object = self.add(Object { flags, owner: None, kind });
        self.seen.entry(key).or_default().push((pid, descriptor.number, object));
        Ok(object)
    }

    /// Names of the machine's files.
    pub fn names(&mut self, tree: &Tree) -> Result<&names::PathLookup> {
        if self.names.is_none() {
            self.names = Some(names::PathLookup::of(tree)?);
        }
        self.names.as_ref().ok_or(Error::Gone)
    }

    pub fn add(&mut self, object: Object) -> u32 {
        self.list.push(object);
        self.list.len() as u32 - 1
    }

    fn read(
        &mut self,
        descriptor: &OpenDescriptor,
        tree: &Tree,
        sink: &mut Sink,
    ) -> Result<ObjectKind> {
        let (device, inode) = (descriptor.meta.dev(), descriptor.meta.ino());
        let external = tree.externals.iter().find(|own| own.device == device && own.inode == inode);
        if let Some(external) = external {
            return Ok(ObjectKind::External { slot: external.slot });
        }
        if descriptor.link.starts_with("pipe:[") {
            return pipes::read(self, descriptor, None);
        }
        if let Some(kind) = descriptor.link.strip_prefix("anon_inode:") {
            return match kind.trim_matches(['[', ']']) {
                "inotify" => inotify::read(self, descriptor, tree),
                "pidfd" => pidfds::read(descriptor),
                kind => anon::read(descriptor, kind),
            };
        }
        if descriptor.link.starts_with("socket:[") {
            return sockets::note(self, descriptor);
        }
        files::read(self, descriptor, tree, sink)
    }
}
