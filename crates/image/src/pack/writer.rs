//! Writing a pack, front to back.

use std::io::{self, Write};

use super::ends::{Footer, HASH_LEN, PAGE_SIZE, PackKind, check_pages, header_page};
use crate::{Arch, PackError, PackRoot, PageHash};

/// Writes pages as they come and keeps 32 bytes for each until [`PackWriter::finish`].
///
/// Every append is one write, so a caller with single pages should use a `BufWriter` below. After
/// an error the file has no footer and never gets one: its data is torn.
#[derive(Debug)]
pub struct PackWriter<W: Write> {
    out: W,
    index: Vec<u8>,
    poisoned: bool,
}

/// The contents of a finished pack.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackSummary {
    pub pages: u64,
    pub root: PackRoot,
}

impl<W: Write> PackWriter<W> {
    /// Begins a pack at the writer's current position, which should be the start of a file.
    pub fn new(mut out: W, arch: Arch) -> Result<Self, PackError> {
        out.write_all(&header_page(arch, PackKind::Whole)).map_err(failed("write the header"))?;
        Ok(Self { out, index: Vec::new(), poisoned: false })
    }

    /// Where the pack is written to. Writing to it makes the pack unreadable.
    pub fn out(&mut self) -> &mut W {
        &mut self.out
    }

    /// The number of pages so far, which is also the next page's slot.
    pub fn pages(&self) -> u64 {
        (self.index.len() / HASH_LEN) as u64
    }

    /// Appends one or more whole pages; the answer is the slot of the first.
    pub fn append(&mut self, pages: &[u8]) -> Result<u64, PackError> {
        self.admit(pages)?;
        let first = self.write_pages(pages)?;
        for page in pages.chunks_exact(PAGE_SIZE) {
            self.index.extend_from_slice(&PageHash::of(page).0);
        }
        Ok(first)
    }

    /// Like [`PackWriter::append`], for a caller that has the hash of each page already. Wrong
    /// hashes make pages that cannot be read back.
    pub fn append_hashed(&mut self, pages: &[u8], hashes: &[PageHash]) -> Result<u64, PackError> {
        self.admit(pages)?;
        let count = pages.len() / PAGE_SIZE;
        if count != hashes.len() {
            return Err(PackError::HashCount { pages: count, hashes: hashes.len() });
        }
        debug_assert!(
            pages.chunks_exact(PAGE_SIZE).map(PageHash::of).eq(hashes.iter().copied()),
            "the hashes are those of the pages"
        );
        let first = self.write_pages(pages)?;
        hashes.iter().for_each(|hash| self.index.extend_from_slice(&hash.0));
        Ok(first)
    }

    /// Writes index and footer, and gives the writer back: to be durable, it has yet to be synced.
    pub fn finish(mut self) -> Result<(W, PackSummary), PackError> {
        if self.poisoned {
            return Err(PackError::Poisoned);
        }
        let footer = Footer { pages: self.pages(), root: PackRoot::of(&self.index) };
        self.out.write_all(&self.index).map_err(failed("write the index"))?;
        self.out.write_all(&footer.encode()).map_err(failed("write the footer"))?;
        self.out.flush().map_err(failed("write the end"))?;
        Ok((self.out, PackSummary { pages: footer.pages, root: footer.root }))
    }

    fn admit(&self, pages: &[u8]) -> Result<(), PackError> {
        if self.poisoned {
            return Err(PackError::Poisoned);
        }
        if !pages.len().is_multiple_of(PAGE_SIZE) {
            return Err(PackError::Unaligned { len: pages.len() });
        }
        check_pages(self.pages() + (pages.len() / PAGE_SIZE) as u64)
    }

    fn write_pages(&mut self, pages: &[u8]) -> Result<u64, PackError> {
        if let Err(error) = self.out.write_all(pages) {
            // Part of it may have been written, so that later pages would be in wrong slots.
            self.poisoned = true;
            return Err(failed("write pages")(error));
        }
        Ok(self.pages())
    }
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> PackError {
    move |source| PackError::Io { what, source }
}
