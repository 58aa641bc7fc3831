//! Files, directories and devices by name, and memory files.

use super::{Descriptor, Objects, pipes};
use crate::capture::mappings::read_segment;
use crate::capture::sink::Sink;
use crate::error::{Doing, Result};
use stasis_image::model::*;
use stasis_sys::libc;
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};

/// Character devices that keep no state: (major, minor).
const HARMLESS: [(u32, u32); 6] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9), (5, 0)];

pub fn read(objects: &mut Objects, descriptor: &Descriptor, sink: &mut Sink) -> Result<ObjectKind> {
    let kind = descriptor.meta.file_type();
    if descriptor.info.flags as i32 & libc::O_PATH != 0 {
        return Err(descriptor.refuse("an O_PATH descriptor is not supported"));
    }
    let path = descriptor.link.clone();
    if kind.is_file() && descriptor.meta.nlink() == 0 {
        return nameless(objects, descriptor, sink);
    }
    if !path.starts_with('/') {
        return Err(descriptor.refuse(format!("{path} is not supported")));
    }
    if kind.is_file() {
        let locks = locks(descriptor)?;
        return Ok(ObjectKind::File { path, offset: descriptor.info.offset, locks });
    }
    if kind.is_dir() {
        return Ok(ObjectKind::Directory { path, offset: descriptor.info.offset });
    }
    if kind.is_fifo() {
        let named = descriptor.meta.nlink() > 0;
        return pipes::read(objects, descriptor, named.then_some(path));
    }
    let device = descriptor.meta.rdev();
    let number = (libc::major(device), libc::minor(device));
    if kind.is_char_device() && HARMLESS.contains(&number) {
        return Ok(ObjectKind::Device { path });
    }
    Err(descriptor.refuse(format!("device {path} ({}:{}) is not supported", number.0, number.1)))
}

/// A memory file, or a file that was deleted while open.
fn nameless(
    objects: &mut Objects,
    descriptor: &Descriptor,
    sink: &mut Sink,
) -> Result<ObjectKind> {
    let offset = descriptor.info.offset;
    let file = File::open(descriptor.path()).doing(|| format!("open {}", descriptor.path()))?;
    let name = descriptor.link.strip_suffix(" (deleted)").unwrap_or(&descriptor.link);
    let memfd = name.strip_prefix("/memfd:");
    let device = descriptor.meta.dev();
    let key = (
        format!("{:02x}:{:02x}", libc::major(device), libc::minor(device)),
        descriptor.meta.ino(),
    );
    let segment = match objects.segments.index.get(&key) {
        Some(segment) => *segment,
        None => {
            let kind = match memfd {
                Some(name) => SegmentKind::Memfd { name: name.to_owned(), seals: seals(&file) },
                None => SegmentKind::Anonymous,
            };
            let segment = read_segment(&file, kind, sink)?;
            objects.segments.add(key, segment)
        }
    };
    Ok(match memfd {
        Some(_) => ObjectKind::Memfd { segment, offset },
        None => {
            let mode = descriptor.meta.mode();
            ObjectKind::Deleted { path: name.to_owned(), mode, segment, offset }
        }
    })
}

fn seals(file: &File) -> u32 {
    use std::os::fd::AsFd;
    stasis_sys::fds::fcntl(file.as_fd(), libc::F_GET_SEALS, 0).unwrap_or(0) as u32
}

/// "1: POSIX  ADVISORY  WRITE 5 00:2a:1 0 EOF"
fn locks(descriptor: &Descriptor) -> Result<Vec<FileLock>> {
    if descriptor.info.all("lock").next().is_some() {
        return Err(descriptor.refuse("file locks are not carried yet"));
    }
    Ok(Vec::new())
}
