//! Mapped files that the machine cannot change, and that the last image describes already.
//!
//! A program maps hundreds of libraries. Checking each of them again takes longer than saving the
//! program's changes. The root below the machine's own files is never written to: a file that is
//! mapped under its name in the last image, on the root's file system, and that is not among the
//! machine's own files, is unchanged.

use super::copied::Copied;
use stasis_image::model::{FileTree, MappedFile};
use stasis_store::Image;
use std::collections::{HashMap, HashSet};

#[derive(Default)]
pub struct Lasting<'a> {
    known: HashMap<&'a str, &'a MappedFile>,
    /// The machine's own files, then and now, by their paths below the root.
    own: HashSet<&'a [u8]>,
}

impl<'a> Lasting<'a> {
    pub fn of(parent: Option<&'a Image>, files: &'a FileTree) -> Lasting<'a> {
        let Some(parent) = parent else { return Lasting::default() };
        let known = parent.manifest.meta.mapped_files.iter();
        let trees = [files, &parent.manifest.files];
        let own = trees.into_iter().flat_map(|tree| &tree.entries);
        Lasting {
            known: known.map(|file| (file.path.as_str(), file)).collect(),
            own: own.map(|entry| entry.path.as_slice()).collect(),
        }
    }

    /// The file mapped at an address under that name, if it is known without checking.
    pub fn find(&self, copied: &Copied, path: &str, start: u64) -> Option<&'a MappedFile> {
        let known = self.known.get(path).filter(|_| !self.own.contains(&path.as_bytes()[1..]))?;
        let root = copied.device_of(&copied.exe.0)?;
        (copied.device_at(start) == Some(root)).then_some(known)
    }
}
