//! Rewrites a pack: in another form, without unneeded pages, or with a repaired page.
//!
//! The slots and the root stay, so images still refer to it. Every page is verified meanwhile: a
//! pack with a damaged page is left unchanged, unless the caller knows of the damage.

use std::collections::HashMap;
use std::io::{Seek, SeekFrom, Write};

use super::bases::{BasePages, Bases, apply};
use super::cold::{self, ColdFooter, FRAME_PAGES, lists_checksum};
use super::ends::{Footer, PAGE_SIZE, PackKind, dead_len, header_page};
use super::reader::{PackReader, failed};
use super::{PackForm, Slots};
use crate::{PackError, PackRoot, PageHash, ReadAt};

/// Memory pages compress fast and about as well as they ever will.
const LEVEL: i32 = 3;

/// The source of a rewritten pack.
#[derive(Debug)]
pub struct Rewrite<'a, R: ReadAt> {
    pub pack: &'a PackReader<R>,
    /// Slots to drop, besides those that were dropped before.
    pub drop: &'a Slots,
    /// Contents for slots whose pages are damaged.
    pub mend: &'a HashMap<u64, Vec<u8>>,
    /// Slots whose pages are damaged and stay so.
    pub lost: &'a Slots,
}

impl<R: ReadAt> Rewrite<'_, R> {
    /// Writes the pack to an empty file, with every page whole; to be durable, it has yet to be
    /// synced.
    pub fn write(&self, form: PackForm, out: impl Write + Seek) -> Result<(), PackError> {
        match form {
            PackForm::Plain => self.plain(&self.dead(), &self.index(), out),
            PackForm::Cold | PackForm::Delta => self.cold(None, out),
        }
    }

    /// Writes the pack with pages as differences to these bases, likewise.
    pub fn write_delta(
        &self,
        bases: &Bases,
        from: &dyn BasePages,
        out: impl Write,
    ) -> Result<(), PackError> {
        self.cold(Some((bases, from)).filter(|_| !bases.is_empty()), out)
    }

    fn dead(&self) -> Slots {
        let mut dead = self.pack.dead().clone();
        dead.unite(&self.drop.common(&Slots::new().others(self.pack.pages())));
        dead
    }

    fn index(&self) -> Vec<u8> {
        let mut index = Vec::with_capacity(self.pack.pages() as usize * 32);
        self.pack.hashes().for_each(|hash| index.extend_from_slice(&hash.0));
        index
    }

    fn plain(
        &self,
        dead: &Slots,
        index: &[u8],
        mut out: impl Write + Seek,
    ) -> Result<(), PackError> {
        let pages = self.pack.pages();
        let kind = if dead.is_empty() { PackKind::Whole } else { PackKind::Partial };
        out.write_all(&header_page(self.pack.arch(), kind)).map_err(failed("write the header"))?;
        let mut buf = Vec::new();
        let mut next = 0;
        for range in dead.others(pages).ranges(FRAME_PAGES) {
            // skipped pages become a hole
            skip(&mut out, range.start - next)?;
            buf.resize((range.end - range.start) as usize * PAGE_SIZE, 0);
            self.pages(range.start, &mut buf)?;
            out.write_all(&buf).map_err(failed("write pages"))?;
            next = range.end;
        }
        skip(&mut out, pages - next)?;
        out.write_all(index).map_err(failed("write the index"))?;
        if kind == PackKind::Partial {
            let list = dead.to_bytes(dead_len(pages) as usize);
            let checksum = blake3::hash(&list);
            out.write_all(&list).map_err(failed("write the dead slots"))?;
            out.write_all(checksum.as_bytes()).map_err(failed("write the dead slots"))?;
        }
        let footer = Footer { pages, root: PackRoot::of(index) };
        out.write_all(&footer.encode()).map_err(failed("write the footer"))?;
        out.flush().map_err(failed("write the end"))
    }

    fn cold(
        &self,
        delta: Option<(&Bases, &dyn BasePages)>,
        mut out: impl Write,
    ) -> Result<(), PackError> {
        let (dead, index, pages) = (self.dead(), self.index(), self.pack.pages());
        let base_packs = delta.map_or(0, |(bases, _)| bases.roots().len());
        let base_packs = u16::try_from(base_packs).map_err(|_| PackError::Bases)?;
        let header = cold::header(self.pack.arch(), base_packs);
        out.write_all(&header).map_err(failed("write the header"))?;
        let mut packer = zstd::bulk::Compressor::new(LEVEL).map_err(failed("compress pages"))?;
        let mut table = Vec::new();
        let live = dead.others(pages);
        for slot in (0..pages).step_by(FRAME_PAGES as usize) {
            let end = pages.min(slot + FRAME_PAGES);
            let mut buf = vec![0; (end - slot) as usize * PAGE_SIZE];
            self.live_pages(slot, &live, &mut buf)?;
            if let Some((bases, from)) = delta {
                differ(bases, from, slot, &live, &mut buf)?;
            }
            let frame = packer.compress(&buf).map_err(failed("compress pages"))?;
            out.write_all(&frame).map_err(failed("write pages"))?;
            table.extend_from_slice(&(frame.len() as u32).to_le_bytes());
            table.extend_from_slice(blake3::hash(&frame).as_bytes());
        }
        let mut list = dead.to_bytes(dead_len(pages) as usize);
        delta.iter().for_each(|(bases, _)| list.extend_from_slice(&bases.to_bytes()));
        let lists = lists_checksum(&table, &list);
        for (bytes, what) in [(&*table, "write the table"), (&*index, "write the index")] {
            out.write_all(bytes).map_err(failed(what))?;
        }
        out.write_all(&list).map_err(failed("write the dead slots"))?;
        let footer = ColdFooter { pages, root: PackRoot::of(&index), lists };
        out.write_all(&footer.encode()).map_err(failed("write the footer"))?;
        out.flush().map_err(failed("write the end"))
    }

    /// The pages of one frame; dead ones stay as they are in `buf`.
    fn live_pages(&self, first: u64, live: &Slots, buf: &mut [u8]) -> Result<(), PackError> {
        let end = first + (buf.len() / PAGE_SIZE) as u64;
        let mut at = first;
        while let Some(start) = live.first_in(at..end) {
            at = (start..end).find(|slot| !live.contains(*slot)).unwrap_or(end);
            let place = |slot: u64| (slot - first) as usize * PAGE_SIZE;
            self.pages(start, &mut buf[place(start)..place(at)])?;
        }
        Ok(())
    }

    /// Live pages from `slot` on, verified, the mended ones from elsewhere.
    fn pages(&self, slot: u64, buf: &mut [u8]) -> Result<(), PackError> {
        if self.mend.is_empty() && self.lost.is_empty() {
            return self.pack.read(slot, buf);
        }
        for (slot, page) in (slot..).zip(buf.chunks_exact_mut(PAGE_SIZE)) {
            match self.mend.get(&slot) {
                Some(content) if self.pack.hash(slot) == Some(PageHash::of(content)) => {
                    page.copy_from_slice(content);
                }
                Some(_) => return Err(PackError::Page { slot }),
                // the rest of it, or zeros: its hash shows either way
                None if self.lost.contains(slot) => {
                    page.fill(0);
                    let _ = self.pack.read_unverified(slot, page);
                }
                None => self.pack.read(slot, page)?,
            }
        }
        Ok(())
    }
}

/// Converts live pages from `first` on to differences to their bases.
fn differ(
    bases: &Bases,
    from: &dyn BasePages,
    first: u64,
    live: &Slots,
    buf: &mut [u8],
) -> Result<(), PackError> {
    let pages = (first..).zip(buf.chunks_exact_mut(PAGE_SIZE));
    for (slot, page) in pages.filter(|(slot, _)| live.contains(*slot)) {
        if let Some(base) = bases.get(slot) {
            apply(from, base, page)?;
        }
    }
    Ok(())
}

fn skip(out: &mut impl Seek, pages: u64) -> Result<(), PackError> {
    if pages == 0 {
        return Ok(());
    }
    let len = pages as i64 * PAGE_SIZE as i64;
    out.seek(SeekFrom::Current(len)).map(drop).map_err(failed("skip dead pages"))
}
