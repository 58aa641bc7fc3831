//! A remote store of immutable objects, beneath the local one.
//!
//!   push:  packs the image needs ─► objects ─► the image, last
//!   fetch: the image, looked at ─► packs that are not here ─► every page verified ─► named
//!
//! The local store is a cache of the remote one: pushed data can be removed here and fetched again.
//! An object never changes. A pack does, when unneeded pages are dropped from it, so every version
//! of a pack is a separate object, named by its bytes. An image becomes an object only after all
//! its packs have. Fetched data is trusted no more than an imported file.
//!
//! Packs go out whole, also with pages of other machines: a remote store belongs to the host.

mod directory;

pub use directory::ObjectDirectory;

use crate::error::{Error, ErrorContext, Result};
use crate::{Image, Pack, Store};
use stasis_image::{
    ImageId, MAX_IMAGE_LEN, PackForm, PackReader, PackRoot, ParseDigestError, ReadAt, Slots,
};
use std::fmt;
use std::io::{self, Read, Seek};
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

/// Bytes requested at a time.
const PIECE: u64 = 4 << 20;

/// A store of immutable objects: a directory, or a service on the network.
pub trait ObjectStore: Send + Sync {
    /// Stores `len` bytes under a name. A reader finds the complete object or none. An existing
    /// object has the same bytes, and stays.
    fn put(&self, name: &ObjectName, from: &mut dyn Read, len: u64) -> ObjectResult<()>;

    /// The bytes in a range, all of them.
    fn get(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Vec<u8>>;

    /// The length of an object, if it exists.
    fn size(&self, name: &ObjectName) -> ObjectResult<Option<u64>>;

    /// All images, or all versions of a pack, with their lengths.
    fn list(&self, of: ObjectGroup) -> ObjectResult<Vec<(ObjectName, u64)>>;

    /// Removes an object. A missing one counts as removed.
    fn delete(&self, name: &ObjectName) -> ObjectResult<()>;
}

pub type ObjectResult<T> = std::result::Result<T, ObjectError>;

/// Errors of a remote store.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObjectError {
    #[error("the remote store has no object {0}")]
    Missing(ObjectName),
    #[error("object {name} ends before byte {end}")]
    Short { name: ObjectName, end: u64 },
    #[error("remote store: {doing}: {source}")]
    Io { doing: String, source: io::Error },
}

impl ObjectError {
    /// A stable name for programs.
    pub fn code(&self) -> &'static str {
        match self {
            ObjectError::Missing(_) => "remote.missing",
            ObjectError::Short { .. } => "remote.short",
            ObjectError::Io { .. } => "remote.io",
        }
    }
}

/// The kinds of objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectGroup {
    Image,
    Pack(PackRoot),
}

/// The name of an object; as text, a path without anything that could lead elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectName {
    /// `images/ID`
    Image(ImageId),
    /// `packs/ROOT/VERSION`, where the version is the digest of its bytes.
    Pack(PackRoot, PackVersion),
}

/// One version of a pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PackVersion([u8; 32]);

impl fmt::Display for ObjectGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectGroup::Image => write!(f, "images"),
            ObjectGroup::Pack(root) => write!(f, "packs/{root}"),
        }
    }
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ObjectName::Image(id) => write!(f, "{}/{id}", ObjectGroup::Image),
            ObjectName::Pack(root, version) => {
                // digests have one form as text
                write!(f, "{}/{}", ObjectGroup::Pack(*root), PackRoot(version.0))
            }
        }
    }
}

impl FromStr for ObjectName {
    type Err = ParseDigestError;

    fn from_str(text: &str) -> std::result::Result<ObjectName, ParseDigestError> {
        let mut parts = text.split('/');
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some("images"), Some(id), None, None) => Ok(ObjectName::Image(id.parse()?)),
            (Some("packs"), Some(root), Some(version), None) => {
                let version: PackRoot = version.parse()?;
                Ok(ObjectName::Pack(root.parse()?, PackVersion(version.0)))
            }
            _ => Err(ParseDigestError),
        }
    }
}

/// An object as something to read: at any place, or from the beginning to the end.
struct Remote<'a> {
    store: &'a dyn ObjectStore,
    name: ObjectName,
    len: u64,
    at: u64,
}

impl ReadAt for Remote<'_> {
    fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.saturating_add(buf.len() as u64);
        let bytes = self.store.get(&self.name, offset..end).map_err(io::Error::other)?;
        if bytes.len() != buf.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buf.copy_from_slice(&bytes);
        Ok(())
    }
}

impl Read for Remote<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = (self.len - self.at).min(PIECE).min(buf.len() as u64) as usize;
        self.read_exact_at(&mut buf[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}

/// A version of a pack that has all these pages.
fn version_with<'a>(
    store: &'a dyn ObjectStore,
    root: PackRoot,
    slots: &Slots,
) -> Result<Option<Remote<'a>>> {
    for (name, len) in store.list(ObjectGroup::Pack(root))? {
        let remote = || Remote { store, name, len, at: 0 };
        // a damaged version may have a sound one beside it
        let Ok(pack) = PackReader::open(remote(), len, Some(root)) else { continue };
        if !lacks(&pack, slots) {
            return Ok(Some(remote()));
        }
    }
    Ok(None)
}

/// Whether a pack has not all of these pages.
pub(crate) fn lacks<R: ReadAt>(pack: &PackReader<R>, slots: &Slots) -> bool {
    !slots.common(pack.dead()).is_empty() || slots.first_in(pack.pages()..u64::MAX).is_some()
}

impl Store {
    /// Copies an image to a remote store, with the packs that it needs and that are not there. It
    /// can be fetched from there once this returns.
    pub fn push(&self, image: &Image, remote: &dyn ObjectStore) -> Result<()> {
        for (root, slots) in self.needs(std::slice::from_ref(image)) {
            if version_with(remote, root, &slots)?.is_none() {
                let pack = self.pack(root)?;
                match pack.form() {
                    // alone, a pack with differences would be of no use
                    PackForm::Delta => self.push_whole(&pack, remote)?,
                    _ => self.push_pack(&pack, remote)?,
                }
            }
        }
        let bytes = self.export_image(image.id)?;
        Ok(remote.put(&ObjectName::Image(image.id), &mut &*bytes, bytes.len() as u64)?)
    }

    /// Copies a pack with every page whole.
    fn push_whole(&self, pack: &Pack, remote: &dyn ObjectStore) -> Result<()> {
        let mut whole = self.export_pack(pack.root(), &pack.dead().others(pack.pages()))?;
        let doing = || format!("read pack {}", pack.root());
        let mut hash = blake3::Hasher::new();
        hash.update_reader(&whole.file).doing(doing)?;
        whole.file.rewind().doing(doing)?;
        let name = ObjectName::Pack(pack.root(), PackVersion(*hash.finalize().as_bytes()));
        Ok(remote.put(&name, &mut whole.file, whole.len)?)
    }

    fn push_pack(&self, pack: &Pack, remote: &dyn ObjectStore) -> Result<()> {
        let doing = || format!("read pack {}", pack.root());
        let len = pack.source().metadata().doing(doing)?.len();
        let whole = || FromFile { pack, len, at: 0 };
        let mut hash = blake3::Hasher::new();
        hash.update_reader(whole()).doing(doing)?;
        let name = ObjectName::Pack(pack.root(), PackVersion(*hash.finalize().as_bytes()));
        Ok(remote.put(&name, &mut whole(), len)?)
    }

    /// An image from here or, if it is not here, from a remote store, with all that it needs.
    pub fn fetch(&self, id: ImageId, remote: &dyn ObjectStore) -> Result<Image> {
        match self.hold(id) {
            Err(error) if error.is_missing() => {}
            held => return held,
        }
        let name = ObjectName::Image(id);
        let len = remote.size(&name)?.ok_or(ObjectError::Missing(name))?;
        if len > MAX_IMAGE_LEN {
            return Err(Error::TooLarge(format!("image {id} has {len} bytes")));
        }
        let bytes = remote.get(&name, 0..len)?;
        let manifest = Arc::new(self.look(id, &bytes)?);
        let aside = self.set_aside(&bytes)?;
        let needs = self.needs(&[Image { id, manifest }]);
        // held until the image is
        let mut packs: Vec<Arc<Pack>> = Vec::new();
        for (root, slots) in needs {
            let here = self.pack(root).ok().filter(|pack| !lacks(pack, &slots));
            packs.push(match here {
                Some(pack) => pack,
                None => self.fetch_pack(root, &slots, remote)?,
            });
        }
        self.import_image(id, &aside)
    }

    fn fetch_pack(
        &self,
        root: PackRoot,
        slots: &Slots,
        remote: &dyn ObjectStore,
    ) -> Result<Arc<Pack>> {
        let missing = || Error::Unfit(format!("no version of pack {root} has all pages it needs"));
        let mut found = version_with(remote, root, slots)?.ok_or_else(missing)?;
        self.import_pack(root, found.len, &mut found)
    }
}

/// The file of a pack from beginning to end, independent of other readers.
struct FromFile<'a> {
    pack: &'a Pack,
    len: u64,
    at: u64,
}

impl Read for FromFile<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let count = (self.len - self.at).min(buf.len() as u64) as usize;
        self.pack.source().read_exact_at(&mut buf[..count], self.at)?;
        self.at += count as u64;
        Ok(count)
    }
}
