//! Shared memory and files without a name, read while the tree is stopped.

use super::{map_file, parse};
use crate::capture::fds::Objects;
use crate::capture::fds::names::Inode;
use crate::capture::refuse;
use crate::capture::still::PausedMemory;
use crate::error::{ErrorContext, Result};
use crate::freeze::{Frozen, FrozenProcess};
use crate::proc::Mapping;
use crate::tree::Tree;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_store::Sink;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

/// Contents of files without a name, by device and inode.
#[derive(Default)]
pub struct SharedSegments {
    pub list: Vec<Segment>,
    pub index: HashMap<(u64, u64), u32>,
}

/// A fork does not copy shared memory, nor the file behind private mappings of a file without a
/// name, so they are read while the tree is stopped.
pub fn shared_segments(
    frozen: &Frozen,
    stills: &[PausedMemory],
    tree: &Tree,
    objects: &mut Objects,
    sink: &mut Sink,
) -> Result<SharedSegments> {
    let mut segments = std::mem::take(&mut objects.segments);
    let closer = tree.memo().look_closer;
    for process in frozen.processes.iter().filter(|process| process.live.is_some()) {
        for map in nameless_mappings(process, stills, closer)? {
            let path = map_file(process.pid, &map);
            let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
            let key = segment_key(&meta);
            let mut named = || -> Result<bool> {
                let names = objects.names(tree)?;
                Ok(names.current(&map.path, Inode::of(&meta), meta.nlink()).is_some())
            };
            if segments.index.contains_key(&key) || named()? {
                continue;
            }
            if map.path == AIO {
                return Err(refuse(process, "an asynchronous I/O context (io_setup)"));
            }
            let file = File::open(&path).doing(|| format!("open {path}"))?;
            let segment = read_segment(&file, SegmentKind::Anonymous, sink)?;
            segments.add(key, segment);
        }
    }
    Ok(segments)
}

/// Mappings of files without a name.
fn nameless_mappings(
    process: &FrozenProcess,
    stills: &[PausedMemory],
    closer: bool,
) -> Result<Vec<Mapping>> {
    let still = stills.iter().find(|still| still.own_pid() == process.own_pid);
    if let Some(copied) = still.and_then(PausedMemory::copied) {
        return Ok(copied.nameless_mappings());
    }
    // reading a long list of mappings takes longer than the rest of the pause, so it is done only
    // where there is shared memory with something in it
    let resident = process.status.number("RssShmem").unwrap_or(0) > 0;
    if !closer && !resident {
        return Ok(Vec::new());
    }
    let mut maps = parse(process.pid, "maps")?;
    maps.retain(|map| map.path.ends_with(DELETED));
    Ok(maps)
}

pub const DELETED: &str = " (deleted)";
/// Mappings made by io_setup(2).
const AIO: &str = "/[aio] (deleted)";

/// The identity of a nameless file. Not the numbers in `maps`: there an overlay's files have other
/// numbers than for stat.
pub fn segment_key(meta: &std::fs::Metadata) -> (u64, u64) {
    (meta.dev(), meta.ino())
}

impl SharedSegments {
    pub fn add(&mut self, key: (u64, u64), segment: Segment) -> u32 {
        let index = self.list.len() as u32;
        self.list.push(segment);
        self.index.insert(key, index);
        index
    }
}

pub fn read_segment(file: &File, kind: SegmentKind, sink: &mut Sink) -> Result<Segment> {
    let size = file.metadata().doing(|| "look at shared memory".into())?.len();
    let runs = read_content(file, size, sink)?;
    Ok(Segment { kind, size, runs })
}

/// Pages of a file that are not all zero.
fn read_content(file: &File, size: u64, sink: &mut Sink) -> Result<Vec<PageRun>> {
    let mut runs = Vec::new();
    let mut from = 0;
    let doing = || "read a file of the machine".to_owned();
    while let Some((start, end)) =
        stasis_sys::files::next_data(file.as_fd(), from).doing(doing)?.filter(|d| d.0 < size)
    {
        let end = end.min(size);
        let start = start - start % PAGE_SIZE as u64;
        let mut at = start.max(from);
        while at < end {
            let mut chunk =
                vec![0u8; ((end - at).min(256 << 10) as usize).next_multiple_of(PAGE_SIZE)];
            let wanted = (size - at).min(chunk.len() as u64) as usize;
            file.read_exact_at(&mut chunk[..wanted], at).doing(doing)?;
            sink.keep(at / PAGE_SIZE as u64, &chunk, |_| None, &mut runs)?;
            at += chunk.len() as u64;
        }
        from = at;
    }
    Ok(runs)
}
