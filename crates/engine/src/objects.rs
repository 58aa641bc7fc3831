//! Making what descriptors point at, before the processes that hold them exist.

mod locks;
mod pipes;
mod terminals;

use crate::error::{Error, ErrorContext, Result};
use crate::sockets;
use crate::spawner::Init;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_spawner::protocol::{InitRequest, ObjectSpec};
use stasis_store::Store;
use stasis_store::layers::write_runs;
use stasis_sys::{fds, libc, socket};
use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// Descriptors in the order they are sent, and where each object and segment is among them.
#[derive(Default)]
pub struct CreatedObjects {
    pub fds: Vec<OwnedFd>,
    pub objects: Vec<Option<usize>>,
    pub segments: Vec<usize>,
}

impl CreatedObjects {
    fn push(&mut self, fd: OwnedFd) -> usize {
        self.fds.push(fd);
        self.fds.len() - 1
    }

    /// How many go in one message each.
    pub fn batches(&self) -> Vec<usize> {
        self.fds.chunks(socket::MAX_FDS).map(<[OwnedFd]>::len).collect()
    }
}

/// Creates all objects and segments of an image. `externals` are the outside descriptors, by slot.
pub fn make(
    store: &Store,
    manifest: &Manifest,
    init: &Init,
    externals: &[OwnedFd],
) -> Result<CreatedObjects> {
    let mut made = CreatedObjects { fds: Vec::new(), objects: Vec::new(), segments: Vec::new() };
    crate::sysv::make(store, manifest, init)?;
    for segment in &manifest.segments {
        let fd = make_segment(store, manifest, segment)?;
        let index = made.push(fd);
        made.segments.push(index);
    }
    let mut inside = InsideObjects::default();
    let pipes = pipes::make_all(manifest, init)?;
    for (index, object) in manifest.objects.iter().enumerate() {
        let fd = match &object.kind {
            ObjectKind::PipeBuffer { .. }
            | ObjectKind::Terminal(_)
            | ObjectKind::SysvMemory(_)
            | ObjectKind::SysvSemaphores(_)
            | ObjectKind::SysvQueue(_)
            | ObjectKind::Pidfd { pid: 1.. } => {
                made.objects.push(None);
                continue;
            }
            ObjectKind::Socket(_) => {
                made.objects.push(None);
                continue;
            }
            ObjectKind::External { slot } => external(externals, *slot)?,
            ObjectKind::Pipe { pipe, end } => {
                let missing = || unsupported("a pipe's end without a pipe");
                pipes::open_end(pipes.get(pipe).ok_or_else(missing)?, *end)?
            }
            kind => match local(kind, object.flags, &made)? {
                Some(fd) => fd,
                None => {
                    inside.add(manifest, index, kind, object.flags)?;
                    made.objects.push(None);
                    continue;
                }
            },
        };
        set_flags(&fd, object)?;
        let place = made.push(fd);
        made.objects.push(Some(place));
    }
    inside.make(init, &mut made)?;
    for (index, fd) in sockets::make(manifest, init)? {
        set_flags(&fd, &manifest.objects[index])?;
        let place = made.push(fd);
        made.objects[index] = Some(place);
    }
    terminals::bring_back(manifest, &made)?;
    locks::take(manifest, &made)?;
    Ok(made)
}

fn unsupported(what: impl Into<String>) -> Error {
    Error::Unfit(what.into())
}

fn external(externals: &[OwnedFd], slot: u32) -> Result<OwnedFd> {
    let fd = externals
        .get(slot as usize)
        .ok_or_else(|| unsupported(format!("outside descriptor {slot} was not supplied")))?;
    fd.try_clone().doing(|| "copy an outside descriptor".into())
}

/// Objects of no namespace, which the engine makes itself; `None` for the others.
fn local(kind: &ObjectKind, flags: u32, made: &CreatedObjects) -> Result<Option<OwnedFd>> {
    let doing = || "make a kernel object".to_owned();
    Ok(Some(match kind {
        ObjectKind::Eventfd { count, semaphore } => {
            let flags = if *semaphore { libc::EFD_SEMAPHORE } else { 0 } | libc::EFD_CLOEXEC;
            let fd = fds::eventfd(0, flags).doing(doing)?;
            if *count > 0 {
                let file = File::from(fd);
                (&file).write_all(&count.to_ne_bytes()).doing(doing)?;
                file.into()
            } else {
                fd
            }
        }
        ObjectKind::Epoll { .. } => fds::epoll().doing(doing)?,
        ObjectKind::Signalfd { mask } => fds::signalfd(*mask, libc::SFD_CLOEXEC).doing(doing)?,
        ObjectKind::Timerfd(timer) => fds::timerfd(timer.clock, libc::TFD_CLOEXEC).doing(doing)?,
        ObjectKind::Memfd { segment, offset, .. } | ObjectKind::Deleted { segment, offset, .. } => {
            let fd = &made.fds[made.segments[*segment as usize]];
            reopen(fd, flags, *offset)?
        }
        _ => return Ok(None),
    }))
}

/// A second open file of the same memory, with its own offset and mode.
fn reopen(fd: &OwnedFd, flags: u32, offset: u64) -> Result<OwnedFd> {
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::OpenOptionsExt;
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let access = flags as i32 & libc::O_ACCMODE;
    let file = File::options()
        .read(access != libc::O_WRONLY)
        .write(access != libc::O_RDONLY)
        .custom_flags(flags as i32 & (libc::O_APPEND | libc::O_NONBLOCK))
        .open(&path)
        .doing(|| "open shared memory again".into())?;
    fds::seek(&file, offset as i64, libc::SEEK_SET).doing(|| "seek".into())?;
    Ok(file.into())
}

fn make_segment(store: &Store, manifest: &Manifest, segment: &Segment) -> Result<OwnedFd> {
    let doing = || "make shared memory".to_owned();
    if let SegmentKind::Sysv { .. } = segment.kind {
        // attached by id; this only keeps its place in the list
        return fds::memfd("stasis", libc::MFD_CLOEXEC).doing(doing);
    }
    let (name, seals) = match &segment.kind {
        SegmentKind::Anonymous | SegmentKind::Sysv { .. } => ("stasis", 0),
        SegmentKind::Memfd { name, seals } => (name.as_str(), *seals),
    };
    let fd = fds::memfd(name, libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING).doing(doing)?;
    let file = File::from(fd);
    file.set_len(segment.size).doing(doing)?;
    write_runs(store, manifest, &segment.runs, |page, bytes| {
        let at = page * PAGE_SIZE as u64;
        let len = segment.size.saturating_sub(at).min(bytes.len() as u64) as usize;
        file.write_all_at(&bytes[..len], at).doing(doing)
    })?;
    if seals != 0 {
        fds::fcntl(file.as_fd(), libc::F_ADD_SEALS, seals.into()).doing(doing)?;
    }
    Ok(file.into())
}

/// O_NONBLOCK, O_APPEND and the like, as the program had set them. Not O_ASYNC: its signals tell
/// the number of the descriptor it was set through, so a process sets it (`plan::holdings`).
fn set_flags(fd: &OwnedFd, object: &Object) -> Result<()> {
    if matches!(object.kind, ObjectKind::External { .. }) {
        return Ok(());
    }
    const SETTABLE: i32 = libc::O_NONBLOCK | libc::O_APPEND | libc::O_NOATIME | libc::O_DIRECT;
    let flags = object.flags as i32 & SETTABLE;
    fds::fcntl(fd.as_fd(), libc::F_SETFL, flags as u64)
        .map(drop)
        .doing(|| "set a descriptor's flags".into())
}

/// Objects that only a process inside the namespaces can make.
#[derive(Default)]
struct InsideObjects {
    indexes: Vec<usize>,
    specs: Vec<ObjectSpec>,
}

impl InsideObjects {
    fn add(
        &mut self,
        manifest: &Manifest,
        index: usize,
        kind: &ObjectKind,
        flags: u32,
    ) -> Result<()> {
        let spec = match kind {
            ObjectKind::File { path, offset, .. } => {
                ObjectSpec::Open { path: path.clone(), flags: flags as i32, offset: Some(*offset) }
            }
            ObjectKind::Directory { path, position, .. } => ObjectSpec::Directory {
                path: path.clone(),
                flags: flags as i32,
                offset: position.offset,
                next: position.next.clone(),
            },
            ObjectKind::Device { path } | ObjectKind::Place { path } => {
                ObjectSpec::Open { path: path.clone(), flags: flags as i32, offset: None }
            }
            ObjectKind::Inotify { .. } => ObjectSpec::Inotify { flags: flags as i32 },
            ObjectKind::Pidfd { .. } => ObjectSpec::EndedProcess,
            ObjectKind::Pty(pty) => terminals::spec(manifest, pty, flags as i32)?,
            other => return Err(unsupported(format!("{other:?} is not carried yet"))),
        };
        self.indexes.push(index);
        self.specs.push(spec);
        Ok(())
    }

    fn make(self, init: &Init, made: &mut CreatedObjects) -> Result<()> {
        if self.specs.is_empty() {
            return Ok(());
        }
        let fds = init.ask(&InitRequest::Objects(self.specs), &[])?;
        if fds.len() != self.indexes.len() {
            return Err(Error::Gone);
        }
        for (index, fd) in self.indexes.into_iter().zip(fds) {
            let place = made.push(fd);
            made.objects[index] = Some(place);
        }
        Ok(())
    }
}
