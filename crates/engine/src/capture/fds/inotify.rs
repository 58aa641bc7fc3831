//! inotify: its watches, each with the name of the watched file.
//!
//! The kernel reports inodes, not names, so names are searched for: first those known from the last
//! image and the working directories, then the machine's changed files, then everything. Refused: a
//! watch on a file without a name, and unread events, which cannot be read without removing them.

use super::names::Inode;
use super::{Objects, OpenDescriptor};
use crate::error::{ErrorContext, Result};
use crate::tree::Tree;
use crate::tty::get_word;
use stasis_image::model::*;
use stasis_sys::libc;
use std::collections::HashSet;
use std::os::fd::AsFd;

/// The bits a program can request; the kernel adds bits of its own.
const ASKED: u32 = libc::IN_ALL_EVENTS | libc::IN_EXCL_UNLINK | libc::IN_ONESHOT;

/// One line of fdinfo.
struct Line {
    wd: i32,
    inode: Inode,
    mask: u32,
}

pub fn read(objects: &mut Objects, descriptor: &OpenDescriptor, tree: &Tree) -> Result<ObjectKind> {
    let waiting = descriptor
        .copy()
        .and_then(|fd| get_word(fd.as_fd(), libc::FIONREAD))
        .doing(|| format!("ask {} for events", descriptor.path()))?;
    if waiting > 0 {
        let what = format!("{waiting} bytes of inotify events have not been read yet");
        return Err(descriptor.refuse(what));
    }
    let lines = descriptor
        .info
        .all("inotify wd")
        .map(parse)
        .collect::<Option<Vec<Line>>>()
        .ok_or_else(|| descriptor.refuse("its inotify watches are unreadable"))?;
    let wanted: HashSet<Inode> = lines.iter().map(|line| line.inode).collect();
    let names = objects.names(tree)?.find(&wanted, hints(descriptor, tree).into_iter());
    let watch = |line: &Line| {
        let path = names.get(&line.inode).cloned().ok_or_else(|| {
            descriptor.refuse(format!("inotify watch {} is on a file without a name", line.wd))
        })?;
        Ok(InotifyWatch { wd: line.wd, path, mask: line.mask })
    };
    let mut watches = lines.iter().map(watch).collect::<Result<Vec<_>>>()?;
    watches.sort_unstable_by_key(|watch| watch.wd);
    Ok(ObjectKind::Inotify { watches })
}

/// "1 ino:2b8 sdev:800013 mask:3c0 ignored_mask:0 fhandle-bytes:8 ..."
fn parse(line: &str) -> Option<Line> {
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let field = |key: &str| line.split(' ').find_map(|word| hex(word.strip_prefix(key)?));
    let device = field("sdev:")?;
    Some(Line {
        wd: hex(line.split(' ').next()?)? as i32,
        inode: Inode {
            device: libc::makedev((device >> 20) as u32, (device & 0xf_ffff) as u32),
            number: field("ino:")?,
        },
        mask: field("mask:")? as u32 & ASKED,
    })
}

fn hints(descriptor: &OpenDescriptor, tree: &Tree) -> Vec<String> {
    let mut hints = Vec::new();
    if let Some(image) = tree.last_image() {
        for object in &image.manifest.objects {
            if let ObjectKind::Inotify { watches } = &object.kind {
                hints.extend(watches.iter().map(|watch| watch.path.clone()));
            }
        }
    }
    hints.extend(crate::proc::read_link(descriptor.process.pid, "cwd"));
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_hexadecimal_and_the_device_is_the_kernels_own() {
        let line = parse("1f ino:2b8 sdev:800013 mask:80003c0 ignored_mask:0 fhandle-bytes:8");
        let line = line.unwrap();
        assert_eq!((line.wd, line.mask), (0x1f, 0x3c0));
        let inode = Inode { device: libc::makedev(8, 0x13), number: 0x2b8 };
        assert_eq!(line.inode, inode);
    }
}
