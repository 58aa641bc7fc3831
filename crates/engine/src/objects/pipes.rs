//! Pipes and FIFOs, filled again before any process holds an end.
//!
//! A FIFO is opened by name inside the machine, so that a later open of the name reaches the same
//! pipe; everything else is alike. Fails if the name no longer exists or is not a FIFO.

use crate::error::{Error, ErrorContext, Result};
use crate::spawner::Init;
use stasis_image::model::*;
use stasis_spawner::protocol::{InitRequest, ObjectSpec};
use stasis_sys::{fds, libc};
use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};

/// Both ends of a pipe; those of a FIFO are the same.
pub struct PipeEnds {
    read: OwnedFd,
    write: OwnedFd,
}

/// Every pipe of an image, by the index of its contents.
pub fn make_all(manifest: &Manifest, init: &Init) -> Result<HashMap<u32, PipeEnds>> {
    let mut pipes = HashMap::new();
    for (index, object) in (0..).zip(&manifest.objects) {
        let ObjectKind::PipeBuffer { path, capacity, content } = &object.kind else { continue };
        let ends = match path {
            None => make_pipe().doing(|| "make a pipe".into())?,
            Some(path) => open_fifo(init, path)?,
        };
        fill(&ends, *capacity, content).doing(|| "fill a pipe".into())?;
        pipes.insert(index, ends);
    }
    Ok(pipes)
}

fn make_pipe() -> io::Result<PipeEnds> {
    let (read, write) = fds::pipe(libc::O_CLOEXEC | libc::O_NONBLOCK)?;
    Ok(PipeEnds { read, write })
}

fn open_fifo(init: &Init, path: &str) -> Result<PipeEnds> {
    let doing = || format!("open the FIFO {path}");
    // for both, so that neither end waits for the other
    let flags = libc::O_RDWR | libc::O_NONBLOCK | libc::O_NOFOLLOW;
    let spec = ObjectSpec::Open { path: path.to_owned(), flags, offset: None };
    let write = init.ask(&InitRequest::Objects(vec![spec]), &[])?.pop().ok_or(Error::Gone)?;
    let read = write.try_clone().doing(doing)?;
    let file = File::from(write);
    if !file.metadata().doing(doing)?.file_type().is_fifo() {
        return Err(Error::Unfit(format!("{path} is no FIFO")));
    }
    Ok(PipeEnds { read, write: file.into() })
}

fn fill(ends: &PipeEnds, capacity: u32, content: &PipeContent) -> io::Result<()> {
    fds::fcntl(ends.write.as_fd(), libc::F_SETPIPE_SZ, capacity.into())?;
    let file = File::from(ends.write.try_clone()?);
    if content.packets.is_empty() {
        return (&file).write_all(&content.bytes);
    }
    let packets = (libc::O_NONBLOCK | libc::O_DIRECT) as u64;
    fds::fcntl(file.as_fd(), libc::F_SETFL, packets)?;
    let mut rest = &content.bytes[..];
    for len in &content.packets {
        let (packet, after) = rest
            .split_at_checked(*len as usize)
            .ok_or_else(|| io::Error::other("its packets are longer than its contents"))?;
        (&file).write_all(packet)?;
        rest = after;
    }
    fds::fcntl(file.as_fd(), libc::F_SETFL, libc::O_NONBLOCK as u64).map(drop)
}

/// Each end is opened anew: two ends of one kind are two open files.
pub fn open_end(ends: &PipeEnds, end: PipeEnd) -> Result<OwnedFd> {
    let (fd, read, write) = match end {
        PipeEnd::Read => (&ends.read, true, false),
        PipeEnd::Write => (&ends.write, false, true),
        PipeEnd::Both => (&ends.read, true, true),
    };
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    let file = File::options()
        .read(read)
        .write(write)
        .custom_flags(libc::O_NONBLOCK)
        .open(&path)
        .doing(|| "open a pipe's end".into())?;
    Ok(file.into())
}
