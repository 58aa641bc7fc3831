//! The files of packs, and their readers.
//!
//! A pack has one file, in one of its forms. While one form takes the place of another there are
//! two, and both are whole. A reader finds base pages through here; it does not keep this alive.

use super::known::KnownPacks;
use super::{Pack, is_at, missing, names};
use crate::error::{Error, ErrorContext, Result};
use parking_lot::{Mutex, MutexGuard};
use stasis_image::{BasePage, BasePages, PackError, PackForm, PackReader, PackRoot};
use std::fs::File;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

pub struct PackFiles {
    dir: PathBuf,
    known: Mutex<KnownPacks>,
    own: Weak<PackFiles>,
}

impl PackFiles {
    pub fn new(dir: PathBuf) -> Arc<PackFiles> {
        Arc::new_cyclic(|own| PackFiles { dir, known: Mutex::default(), own: own.clone() })
    }

    pub fn known(&self) -> MutexGuard<'_, KnownPacks> {
        self.known.lock()
    }

    pub fn path(&self, root: PackRoot, form: PackForm) -> PathBuf {
        self.dir.join(names::of_pack(root, form))
    }

    pub fn pack(&self, root: PackRoot) -> Result<Arc<Pack>> {
        if let Some(pack) = self.known().pack(root) {
            return Ok(pack.clone());
        }
        loop {
            let pack = self.open(root)?;
            let mut known = self.known();
            // it may have been collected or replaced while it was being opened
            if is_at(pack.source(), &self.path(root, pack.form())) {
                return Ok(known.remember(Arc::new(pack)));
            }
        }
    }

    /// The same, or one without a name, which only an image that is being saved refers to.
    pub fn readable(&self, root: PackRoot) -> Result<Arc<Pack>> {
        let unnamed = self.known().unnamed(root);
        unnamed.map_or_else(|| self.pack(root), Ok)
    }

    /// A separate reader, of the file that has the name now.
    pub fn open(&self, root: PackRoot) -> Result<Pack> {
        // the most independent first; while one replaces another, one of them exists
        use PackForm::{Cold, Delta, Plain};
        for path in [Plain, Cold, Delta, Plain, Cold].map(|form| self.path(root, form)) {
            match File::open(&path) {
                Ok(file) => return self.read(file, root, &path),
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                Err(error) => return Err(error).doing(|| format!("open {}", path.display())),
            }
        }
        let path = self.path(root, Plain);
        Err(missing()).doing(|| format!("open {}", path.display()))
    }

    /// Reads a pack's file, wherever it is.
    pub fn read(&self, file: File, root: PackRoot, path: &Path) -> Result<Pack> {
        let len = file.metadata().doing(|| format!("look at {}", path.display()))?.len();
        let pack = PackReader::open(file, len, Some(root));
        let pack = pack.map_err(|source| Error::Pack { root: root.to_string(), source })?;
        let own: Weak<dyn BasePages> = self.own.clone();
        Ok(pack.with_bases(own))
    }
}

impl BasePages for PackFiles {
    fn read_base(&self, base: BasePage, page: &mut [u8]) -> std::result::Result<(), PackError> {
        let what = "open a base";
        let pack = self.pack(base.root).map_err(|error| match error {
            Error::Pack { source, .. } => source,
            Error::Io { source, .. } => PackError::Io { what, source },
            other => PackError::Io { what, source: std::io::Error::other(other) },
        })?;
        pack.read_whole(base.slot, page)
    }
}
