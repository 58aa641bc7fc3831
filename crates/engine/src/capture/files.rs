//! The files the tree changed: its overlay's upper directory, read while it stands still.

use super::mappings::read_content;
use super::sink::Sink;
use crate::error::{Doing, Error, Result};
use crate::layers::KEPT_OVERLAY_NOTES;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

pub fn read_upper(tree: &Tree, sink: &mut Sink) -> Result<FileTree> {
    let mut reader = Reader { sink, links: HashMap::new(), tree: FileTree::default() };
    reader.directory(Path::new(&tree.walls.files.upper), "")?;
    let upper = reader.tree;
    let Some(base) = &tree.base else { return Ok(upper) };
    let mut below = base.manifest.files.clone();
    for entry in &mut below.entries {
        if let FileKind::Regular { runs, .. } = &mut entry.kind {
            sink.refer(base, runs);
        }
    }
    Ok(crate::layers::merge(below, upper))
}

struct Reader<'a, 'b> {
    sink: &'a mut Sink<'b>,
    /// Files with several names: first name by inode.
    links: HashMap<u64, String>,
    tree: FileTree,
}

impl Reader<'_, '_> {
    fn directory(&mut self, dir: &Path, prefix: &str) -> Result<()> {
        let doing = || format!("list {}", dir.display());
        let mut names = std::fs::read_dir(dir)
            .doing(doing)?
            .map(|entry| entry.map(|entry| entry.file_name()))
            .collect::<std::io::Result<Vec<_>>>()
            .doing(doing)?;
        names.sort_unstable();
        for name in names {
            let path = dir.join(&name);
            let text = name.to_str().ok_or_else(|| {
                Error::refused(1, format!("/{prefix} has a file {name:?}, which is not UTF-8"))
            })?;
            let relative = match prefix {
                "" => text.to_owned(),
                prefix => format!("{prefix}/{text}"),
            };
            self.entry(&path, relative)?;
        }
        Ok(())
    }

    fn entry(&mut self, path: &Path, relative: String) -> Result<()> {
        let doing = || format!("look at {}", path.display());
        let meta = std::fs::symlink_metadata(path).doing(doing)?;
        let kind = self.kind(path, &meta)?;
        if meta.nlink() > 1 && meta.is_file() {
            self.links.entry(meta.ino()).or_insert_with(|| relative.clone());
        }
        let is_dir = matches!(kind, FileKind::Directory);
        self.tree.entries.push(FileEntry {
            path: relative.clone(),
            mode: meta.mode() & 0o7777,
            uid: meta.uid(),
            gid: meta.gid(),
            mtime_s: meta.mtime(),
            mtime_ns: meta.mtime_nsec(),
            xattrs: xattrs(path)?,
            kind,
        });
        if is_dir { self.directory(path, &relative) } else { Ok(()) }
    }

    fn kind(&mut self, path: &Path, meta: &Metadata) -> Result<FileKind> {
        let kind = meta.file_type();
        let doing = || format!("read {}", path.display());
        if kind.is_dir() {
            return Ok(FileKind::Directory);
        }
        if let Some(target) = self.links.get(&meta.ino()).filter(|_| meta.nlink() > 1) {
            return Ok(FileKind::Hardlink { target: target.clone() });
        }
        if kind.is_symlink() {
            let target = std::fs::read_link(path).doing(doing)?;
            return Ok(FileKind::Symlink { target: target.to_string_lossy().into_owned() });
        }
        if kind.is_file() {
            let file = File::open(path).doing(doing)?;
            let runs = read_content(&file, meta.len(), self.sink)?;
            return Ok(FileKind::Regular { size: meta.len(), runs });
        }
        if kind.is_fifo() {
            return Ok(FileKind::Fifo);
        }
        if kind.is_socket() {
            return Ok(FileKind::Socket);
        }
        debug_assert!(kind.is_char_device() && libc::major(meta.rdev()) == 0);
        Ok(FileKind::Whiteout)
    }
}

fn xattrs(path: &Path) -> Result<Vec<(String, Vec<u8>)>> {
    let name = path.to_string_lossy();
    let doing = || format!("read attributes of {name}");
    let names = sysfiles::xattr_names(&name).doing(doing)?;
    names
        .into_iter()
        .filter(|own| {
            !own.starts_with("trusted.overlay.") || KEPT_OVERLAY_NOTES.contains(&own.as_str())
        })
        .map(|own| {
            let value = sysfiles::xattr(&name, &own).doing(doing)?;
            Ok((own, value))
        })
        .collect()
}
