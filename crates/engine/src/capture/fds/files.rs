//! Files, directories and devices by name, and files without a name.
//!
//! A file that lost its name is carried with its contents, as a memory file is. A file of `/proc`
//! that belongs to one process, and a device that keeps state, are refused.

use super::names::Inode;
use super::{Objects, OpenDescriptor, pipes, ptys};
use crate::capture::held::WritableFile;
use crate::capture::mappings::{read_segment, segment_key};
use crate::error::{ErrorContext, Result};
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_store::Sink;
use stasis_sys::{fds, files as sysfiles, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};

/// Character devices that keep no state: (major, minor).
const HARMLESS: [(u32, u32); 5] = [(1, 3), (1, 5), (1, 7), (1, 8), (1, 9)];

const HUGETLBFS: i64 = 0x958458f6;

pub fn read(
    objects: &mut Objects,
    descriptor: &OpenDescriptor,
    tree: &Tree,
    sink: &mut Sink,
) -> Result<ObjectKind> {
    let kind = descriptor.meta.file_type();
    let names = objects.names(tree)?;
    let links = descriptor.meta.nlink();
    let name = names.current(&descriptor.link, Inode::of(&descriptor.meta), links);
    if descriptor.info.flags as i32 & libc::O_PATH != 0 {
        return place(descriptor, name);
    }
    if kind.is_dir() {
        return directory(descriptor, name);
    }
    if kind.is_fifo() {
        return pipes::read(objects, descriptor, name);
    }
    if kind.is_char_device() && ptys::is_terminal(descriptor.meta.rdev()) {
        return ptys::read(objects, descriptor, tree);
    }
    let Some(path) = name else {
        return if kind.is_file() {
            nameless(objects, descriptor, sink)
        } else {
            Err(descriptor.refuse(format!("{} has no name", descriptor.link)))
        };
    };
    if kind.is_file() {
        check_name(objects, descriptor, tree, &path)?;
        if descriptor.info.flags as i32 & libc::O_ACCMODE != libc::O_RDONLY {
            let number = descriptor.meta.ino();
            objects.written.push(WritableFile { path: path.clone(), number });
        }
        return Ok(ObjectKind::File { path, offset: descriptor.info.offset, locks: Vec::new() });
    }
    let device = descriptor.meta.rdev();
    let number = (libc::major(device), libc::minor(device));
    if kind.is_char_device() && HARMLESS.contains(&number) {
        return Ok(ObjectKind::Device { path });
    }
    Err(descriptor.refuse(format!("device {path} ({}:{}) is not supported", number.0, number.1)))
}

/// A name must lead to the file again after a restore, when no process is there yet.
fn check_name(
    objects: &mut Objects,
    descriptor: &OpenDescriptor,
    tree: &Tree,
    path: &str,
) -> Result<()> {
    let of_process = path.strip_prefix("/proc/").is_some_and(|rest| {
        rest.starts_with(|c: char| c.is_ascii_digit()) || rest.starts_with("self/")
    });
    if of_process {
        return Err(descriptor.refuse(format!("{path} belongs to a process")));
    }
    if !objects.names(tree)?.leads_to(path, Inode::of(&descriptor.meta)) {
        return Err(descriptor.refuse(format!("{path} is not where it was opened")));
    }
    Ok(())
}

/// An O_PATH descriptor.
fn place(descriptor: &OpenDescriptor, name: Option<String>) -> Result<ObjectKind> {
    match name {
        Some(path) if path.starts_with('/') => Ok(ObjectKind::Place { path }),
        None if descriptor.meta.is_dir() => Ok(removed_directory()),
        _ => Err(descriptor.refuse(format!("O_PATH of {}, which has no name", descriptor.link))),
    }
}

/// A directory that is there but nowhere: nothing can be in it, so nothing else is kept.
pub fn removed_directory() -> ObjectKind {
    let position = DirPosition::default();
    ObjectKind::Directory { path: String::new(), position, locks: Vec::new() }
}

fn directory(descriptor: &OpenDescriptor, name: Option<String>) -> Result<ObjectKind> {
    let Some(path) = name else { return Ok(removed_directory()) };
    let position = match descriptor.info.offset {
        0 => DirPosition::default(),
        offset => half_read(descriptor, offset)
            .doing(|| format!("read the directory {path} from {offset}"))?,
    };
    Ok(ObjectKind::Directory { path, position, locks: Vec::new() })
}

/// Which name comes next, seen through an open file of our own.
fn half_read(descriptor: &OpenDescriptor, offset: u64) -> std::io::Result<DirPosition> {
    let dir = File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY | libc::O_NOATIME)
        .open(descriptor.path())?;
    fds::seek(&dir, offset as i64, libc::SEEK_SET)?;
    let next = sysfiles::next_entries(dir.as_fd())?.into_iter().next();
    Ok(DirPosition { offset, next: next.map(|entry| entry.name) })
}

/// A memory file, or a file that was deleted while open.
fn nameless(
    objects: &mut Objects,
    descriptor: &OpenDescriptor,
    sink: &mut Sink,
) -> Result<ObjectKind> {
    let offset = descriptor.info.offset;
    let doing = || format!("open {}", descriptor.path());
    // never waits, whichever file has the number by now
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(descriptor.path());
    let file = file.doing(doing)?;
    if Inode::of(&file.metadata().doing(doing)?) != Inode::of(&descriptor.meta) {
        return Err(descriptor.refuse("it became another file while it was looked at"));
    }
    let name = descriptor.link.strip_suffix(" (deleted)").unwrap_or(&descriptor.link);
    let memfd = name.strip_prefix("/memfd:");
    if fds::file_system(file.as_fd()).ok() == Some(HUGETLBFS) {
        return Err(descriptor.refuse("a memory file of huge pages is not supported"));
    }
    let key = segment_key(&descriptor.meta);
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
    let locks = Vec::new();
    Ok(match memfd {
        Some(_) => ObjectKind::Memfd { segment, offset, locks },
        None => {
            let mode = descriptor.meta.mode();
            ObjectKind::Deleted { path: name.to_owned(), mode, segment, offset, locks }
        }
    })
}

fn seals(file: &File) -> u32 {
    fds::fcntl(file.as_fd(), libc::F_GET_SEALS, 0).unwrap_or(0) as u32
}
