//! Reading a pack, page by page, in any of its forms.

use std::io;
use std::sync::Weak;

use super::bases::{BasePages, BaseSource, Bases};
use super::cold::{self, Frames};
use super::ends::{HASH_LEN, PAGE_SIZE, page_offset};
use super::{PackForm, Slots, plain};
use crate::{Arch, PackError, PackRoot, PageHash, ReadAt, hash_pages};

/// How many pages are verified at a time: 1 MiB is past where larger reads are faster.
const VERIFY_PAGES: u64 = 256;

/// A pack whose header, footer and lists have been verified. Pages are verified as they are read.
#[derive(Debug)]
pub struct PackReader<R: ReadAt> {
    source: R,
    parts: PackParts,
    bases: BaseSource,
}

/// The parts of a pack besides its pages.
#[derive(Debug)]
pub(super) struct PackParts {
    pub(super) arch: Arch,
    pub(super) root: PackRoot,
    pub(super) index: Vec<u8>,
    /// Slots whose pages were dropped.
    pub(super) dead: Slots,
    /// Bases of the pages.
    pub(super) bases: Bases,
    /// `None` for uncompressed pages.
    pub(super) frames: Option<Frames>,
}

impl<R: ReadAt> PackReader<R> {
    /// Opens a pack of `len` bytes. With an expected root, an intact pack with another root is
    /// refused too.
    pub fn open(source: R, len: u64, expected: Option<PackRoot>) -> Result<Self, PackError> {
        let parts = match cold::is_cold(&source, len)? {
            true => cold::open(&source, len)?,
            false => plain::open(&source, len)?,
        };
        if let Some(expected) = expected.filter(|expected| *expected != parts.root) {
            return Err(PackError::Root { found: parts.root, expected });
        }
        if PackRoot::of(&parts.index) != parts.root {
            return Err(PackError::IndexChecksum);
        }
        Ok(Self { source, parts, bases: BaseSource::default() })
    }

    /// The reader with a place to read base pages from. Without one, pages that are stored whole
    /// can be read.
    pub fn with_bases(self, from: Weak<dyn BasePages>) -> Self {
        Self { bases: BaseSource::new(from), ..self }
    }

    pub fn arch(&self) -> Arch {
        self.parts.arch
    }

    pub fn form(&self) -> PackForm {
        match &self.parts.frames {
            None => PackForm::Plain,
            Some(_) if self.parts.bases.is_empty() => PackForm::Cold,
            Some(_) => PackForm::Delta,
        }
    }

    pub fn pages(&self) -> u64 {
        (self.parts.index.len() / HASH_LEN) as u64
    }

    pub fn root(&self) -> PackRoot {
        self.parts.root
    }

    /// Slots whose pages were dropped because nothing refers to them.
    pub fn dead(&self) -> &Slots {
        &self.parts.dead
    }

    /// Bases of the pages, in other packs.
    pub fn bases(&self) -> &Bases {
        &self.parts.bases
    }

    /// One page that is stored whole, verified. A difference is refused: it cannot be a base.
    pub fn read_whole(&self, slot: u64, page: &mut [u8]) -> Result<(), PackError> {
        match self.parts.bases.get(slot) {
            Some(base) => Err(PackError::Base { slot, root: base.root, source: None }),
            None if page.len() != PAGE_SIZE => Err(PackError::Unaligned { len: page.len() }),
            None => self.read(slot, page),
        }
    }

    /// Where the pages are read from.
    pub fn source(&self) -> &R {
        &self.source
    }

    /// The hash of the page in this slot, if it exists.
    pub fn hash(&self, slot: u64) -> Option<PageHash> {
        let start = usize::try_from(slot).ok()?.checked_mul(HASH_LEN)?;
        self.parts.index.get(start..)?.first_chunk().copied().map(PageHash)
    }

    /// The hashes of all pages, dropped ones too, in the order of their slots.
    pub fn hashes(&self) -> impl ExactSizeIterator<Item = PageHash> + '_ {
        self.parts.index.as_chunks().0.iter().copied().map(PageHash)
    }

    /// Fills `buf` with the pages from `slot` on and verifies each. After an error, the contents
    /// of `buf` must not be used.
    pub fn read(&self, slot: u64, buf: &mut [u8]) -> Result<(), PackError> {
        self.read_unverified(slot, buf)?;
        let pages: Vec<_> = buf.as_chunks::<PAGE_SIZE>().0.iter().collect();
        let damaged = |(slot, hash): &(u64, PageHash)| self.hash(*slot) != Some(*hash);
        match (slot..).zip(hash_pages(&pages)).find(damaged) {
            Some((slot, _)) => Err(PackError::Page { slot }),
            None => Ok(()),
        }
    }

    /// Like [`PackReader::read`], trusting the disk.
    pub fn read_unverified(&self, slot: u64, buf: &mut [u8]) -> Result<(), PackError> {
        if !buf.len().is_multiple_of(PAGE_SIZE) {
            return Err(PackError::Unaligned { len: buf.len() });
        }
        let (count, pages) = ((buf.len() / PAGE_SIZE) as u64, self.pages());
        let end = slot.checked_add(count).filter(|end| *end <= pages);
        let end = end.ok_or(PackError::Range { slot, count, pages })?;
        if let Some(slot) = self.parts.dead.first_in(slot..end) {
            return Err(PackError::Dropped { slot });
        }
        match &self.parts.frames {
            Some(frames) => {
                frames.read(&self.source, slot, buf)?;
                self.bases.complete(&self.parts.bases, slot, buf)
            }
            None => {
                let read = self.source.read_exact_at(buf, page_offset(slot));
                read.map_err(failed("read pages"))
            }
        }
    }

    /// Reads and verifies every page that was not dropped; the first that is damaged is the error.
    pub fn verify_all(&self) -> Result<(), PackError> {
        let live = self.parts.dead.others(self.pages());
        let mut buf = Vec::new();
        for range in live.ranges(VERIFY_PAGES) {
            buf.resize((range.end - range.start) as usize * PAGE_SIZE, 0);
            self.read(range.start, &mut buf)?;
        }
        Ok(())
    }
}

pub(super) fn failed(what: &'static str) -> impl FnOnce(io::Error) -> PackError {
    move |source| PackError::Io { what, source }
}

/// `len` bytes at an offset. The caller has compared `len` with the file, so that the allocation is
/// bounded by it.
pub(super) fn bytes_at(
    source: &impl ReadAt,
    offset: u64,
    len: u64,
    what: &'static str,
) -> Result<Vec<u8>, PackError> {
    let mut bytes = vec![0; len as usize];
    source.read_exact_at(&mut bytes, offset).map_err(failed(what))?;
    Ok(bytes)
}
