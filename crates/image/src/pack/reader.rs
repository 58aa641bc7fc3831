//! Reading a pack, page by page.

use std::io;

use super::ends::{FOOTER_LEN, Footer, HASH_LEN, PAGE_SIZE, check_header, file_len, page_offset};
use crate::{Arch, PackError, PackRoot, PageHash, ReadAt};

/// How many pages are verified at a time: 1 MiB is past where larger reads are faster.
const VERIFY_PAGES: u64 = 256;

/// A pack whose header, footer and index have been verified. Pages are verified as they are read.
#[derive(Debug)]
pub struct PackReader<R: ReadAt> {
    source: R,
    arch: Arch,
    footer: Footer,
    index: Vec<u8>,
}

impl<R: ReadAt> PackReader<R> {
    /// Opens a pack of `len` bytes. With an expected root, a pack that is intact but another one
    /// is refused too.
    pub fn open(source: R, len: u64, expected: Option<PackRoot>) -> Result<Self, PackError> {
        if len < PAGE_SIZE as u64 {
            return Err(PackError::Torn { why: "it is shorter than a header", len });
        }
        let mut header = [0; PAGE_SIZE];
        source.read_exact_at(&mut header, 0).map_err(failed("read the header"))?;
        let arch = check_header(&header)?;
        let footer = read_footer(&source, len)?;
        if let Some(expected) = expected.filter(|expected| *expected != footer.root) {
            return Err(PackError::Root { found: footer.root, expected });
        }
        let index = read_index(&source, &footer)?;
        Ok(Self { source, arch, footer, index })
    }

    pub fn arch(&self) -> Arch {
        self.arch
    }

    pub fn pages(&self) -> u64 {
        self.footer.pages
    }

    pub fn root(&self) -> PackRoot {
        self.footer.root
    }

    /// The hash of the page in this slot, if there is one.
    pub fn hash(&self, slot: u64) -> Option<PageHash> {
        let start = usize::try_from(slot).ok()?.checked_mul(HASH_LEN)?;
        self.index.get(start..)?.first_chunk().copied().map(PageHash)
    }

    /// The hashes of all pages, in the order of their slots.
    pub fn hashes(&self) -> impl ExactSizeIterator<Item = PageHash> + '_ {
        self.index.as_chunks().0.iter().copied().map(PageHash)
    }

    /// Fills `buf` with the pages from `slot` on and verifies each. After an error, the contents
    /// of `buf` must not be used.
    pub fn read(&self, slot: u64, buf: &mut [u8]) -> Result<(), PackError> {
        self.read_unverified(slot, buf)?;
        for (slot, page) in (slot..).zip(buf.chunks_exact(PAGE_SIZE)) {
            if self.hash(slot) != Some(PageHash::of(page)) {
                return Err(PackError::Page { slot });
            }
        }
        Ok(())
    }

    /// Like [`PackReader::read`], trusting the disk.
    pub fn read_unverified(&self, slot: u64, buf: &mut [u8]) -> Result<(), PackError> {
        if !buf.len().is_multiple_of(PAGE_SIZE) {
            return Err(PackError::Unaligned { len: buf.len() });
        }
        let (count, pages) = ((buf.len() / PAGE_SIZE) as u64, self.pages());
        if slot.checked_add(count).is_none_or(|end| end > pages) {
            return Err(PackError::Range { slot, count, pages });
        }
        self.source.read_exact_at(buf, page_offset(slot)).map_err(failed("read pages"))
    }

    /// Reads and verifies every page; the first that is damaged is the error.
    pub fn verify_all(&self) -> Result<(), PackError> {
        let mut buf = vec![0; VERIFY_PAGES.min(self.pages()) as usize * PAGE_SIZE];
        let mut slot = 0;
        while slot < self.pages() {
            let count = VERIFY_PAGES.min(self.pages() - slot);
            self.read(slot, &mut buf[..count as usize * PAGE_SIZE])?;
            slot += count;
        }
        Ok(())
    }
}

fn read_footer(source: &impl ReadAt, len: u64) -> Result<Footer, PackError> {
    if len < file_len(0) {
        return Err(PackError::Torn { why: "it is shorter than a header and a footer", len });
    }
    let mut record = [0; FOOTER_LEN];
    source
        .read_exact_at(&mut record, len - FOOTER_LEN as u64)
        .map_err(failed("read the footer"))?;
    Footer::decode(&record, len)
}

/// The footer has been checked against the file's length, so what is allocated here is in the file.
fn read_index(source: &impl ReadAt, footer: &Footer) -> Result<Vec<u8>, PackError> {
    let mut index = vec![0; footer.pages as usize * HASH_LEN];
    source
        .read_exact_at(&mut index, page_offset(footer.pages))
        .map_err(failed("read the index"))?;
    if PackRoot::of(&index) != footer.root {
        return Err(PackError::IndexChecksum);
    }
    Ok(index)
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> PackError {
    move |source| PackError::Io { what, source }
}
