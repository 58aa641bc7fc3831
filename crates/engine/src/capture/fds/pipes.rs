//! Pipes and FIFOs with their contents.

use super::{Objects, OpenDescriptor};
use crate::error::{ErrorContext, Result};
use stasis_image::model::*;
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// The most a pipe of a machine may hold for its contents to be carried.
const MAX_CONTENT: usize = 16 << 20;

/// `path` is the name of a FIFO. A removed FIFO is an ordinary pipe.
pub fn read(
    objects: &mut Objects,
    descriptor: &OpenDescriptor,
    path: Option<String>,
) -> Result<ObjectKind> {
    let inode = (descriptor.meta.dev(), descriptor.meta.ino());
    let pipe = match objects.pipes.get(&inode) {
        Some(pipe) => *pipe,
        None => {
            let kind = read_buffer(descriptor, path)?;
            let pipe = objects.add(Object { flags: 0, owner: None, kind });
            objects.pipes.insert(inode, pipe);
            pipe
        }
    };
    let end = match descriptor.info.flags as i32 & libc::O_ACCMODE {
        libc::O_RDONLY => PipeEnd::Read,
        libc::O_WRONLY => PipeEnd::Write,
        _ => PipeEnd::Both,
    };
    Ok(ObjectKind::Pipe { pipe, end })
}

/// Copies the contents without removing them. Opening the pipe anew through `/proc` works for
/// either end, and all tasks that could notice are stopped.
fn read_buffer(descriptor: &OpenDescriptor, path: Option<String>) -> Result<ObjectKind> {
    let doing = || format!("look into the pipe at {}", descriptor.path());
    let source = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(descriptor.path())
        .doing(doing)?;
    let capacity = fds::fcntl(source.as_fd(), libc::F_GETPIPE_SZ, 0).doing(doing)? as u32;
    if capacity as usize > MAX_CONTENT {
        return Err(descriptor.refuse(format!("a pipe of {capacity} bytes")));
    }
    let content = copy(&source, capacity).doing(doing)?;
    Ok(ObjectKind::PipeBuffer { path, capacity, content })
}

/// One read of the copy gives one packet, or all of a stream.
fn copy(source: &File, capacity: u32) -> io::Result<PipeContent> {
    let (from, to) = fds::pipe(libc::O_CLOEXEC | libc::O_NONBLOCK)?;
    fds::fcntl(to.as_fd(), libc::F_SETPIPE_SZ, capacity.into())?;
    match fds::tee(source.as_fd(), to.as_fd(), capacity as usize) {
        Err(error) if error.raw_os_error() == Some(libc::EAGAIN) => {
            return Ok(PipeContent::default());
        }
        other => other?,
    };
    let mut content = PipeContent::default();
    let mut buffer = vec![0; capacity as usize];
    let mut from = File::from(from);
    loop {
        // not until its end: a child that is being started may hold the other side for a moment
        let len = match from.read(&mut buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            other => other?,
        };
        content.bytes.extend_from_slice(&buffer[..len]);
        content.packets.push(len as u32);
    }
    if content.packets.len() == 1 {
        content.packets.clear();
    }
    Ok(content)
}
