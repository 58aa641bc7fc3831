//! The cold form of a pack: the same pages and the same root, compressed.
//!
//! ```text
//!   0             header 64   magic "STASIS\x1aZ" 8 | format 2 | flags 2, zero | page_size 4
//!                             | arch 2 | frame_pages 2 | base packs 2 | reserved 10, zero
//!                             | checksum 32
//!   64            frames      zstd; frame k holds the pages from slot k · frame_pages on
//!                 table       36 each: length 4 | checksum of the frame's bytes 32
//!                 index       32 each: the BLAKE3 hash of page i, as in the plain form
//!                 dead slots  a bit each, padded to 32 bytes; their pages are zeros in the frames
//!                 (format 2)  bases: which pages are differences, and to what ([`super::bases`])
//!   the last 112  footer      magic "STASIS\x1aF" 8 | n 8 | root 32
//!                             | checksum of table, dead slots and bases 32 | checksum 32
//! ```
//!
//! Opening verifies everything but frames. A frame is verified before it is decompressed, into a
//! buffer of its exact size, and each page after that: hostile frames must pass a checksum first
//! and cost a bounded amount if they do. A damaged frame loses its pages, and is reported by its
//! slots.

use parking_lot::Mutex;

use super::Slots;
use super::bases::{BASE_LEN, Bases};
use super::ends::{HASH_LEN, PAGE_SIZE, check_pages, dead_len, is_sealed, seal};
use super::reader::{PackParts, bytes_at, failed};
use crate::fields::{Fields, all_zero};
use crate::{Arch, PackError, PackRoot, ReadAt};

/// The cold format of packs whose pages are all stored whole.
pub const COLD_FORMAT: u16 = 1;
/// The cold format of packs with differences, the newest that this program reads.
pub const DELTA_FORMAT: u16 = 2;
/// Pages of a frame: 128 KiB compress nearly as well as more, and one page costs no more than that.
pub const FRAME_PAGES: u64 = 32;
/// The most a reader accepts.
const MAX_FRAME_PAGES: u16 = 256;

const HEADER_MAGIC: [u8; 8] = *b"STASIS\x1aZ";
const FOOTER_MAGIC: [u8; 8] = *b"STASIS\x1aF";
pub(crate) const COLD_HEADER_LEN: usize = 64;
const HEADER_CHECKSUM_AT: usize = COLD_HEADER_LEN - HASH_LEN;
pub(crate) const COLD_FOOTER_LEN: usize = 112;
const FOOTER_CHECKSUM_AT: usize = COLD_FOOTER_LEN - HASH_LEN;
pub(crate) const ENTRY_LEN: usize = 4 + HASH_LEN;

const _: () = assert!(8 + 2 + 2 + 4 + 2 + 2 + 2 + 10 == HEADER_CHECKSUM_AT);
const _: () = assert!(8 + 8 + HASH_LEN + HASH_LEN == FOOTER_CHECKSUM_AT);

/// Whether a file begins as a pack of this form does.
pub(super) fn is_cold(source: &impl ReadAt, len: u64) -> Result<bool, PackError> {
    let mut magic = [0; 8];
    if len < magic.len() as u64 {
        return Ok(false);
    }
    source.read_exact_at(&mut magic, 0).map_err(failed("read the header"))?;
    Ok(magic == HEADER_MAGIC)
}

pub(super) fn header(arch: Arch, base_packs: u16) -> [u8; COLD_HEADER_LEN] {
    let format = if base_packs == 0 { COLD_FORMAT } else { DELTA_FORMAT };
    let mut record = [0; COLD_HEADER_LEN];
    record[..8].copy_from_slice(&HEADER_MAGIC);
    record[8..10].copy_from_slice(&format.to_le_bytes());
    record[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    record[16..18].copy_from_slice(&(arch as u16).to_le_bytes());
    record[18..20].copy_from_slice(&(FRAME_PAGES as u16).to_le_bytes());
    record[20..22].copy_from_slice(&base_packs.to_le_bytes());
    seal(&mut record, HEADER_CHECKSUM_AT);
    record
}

/// Architecture, pages of a frame, and packs that have bases.
fn check_header(record: &[u8; COLD_HEADER_LEN]) -> Result<(Arch, u64, usize), PackError> {
    let mut fields = Fields::of(&record[8..]);
    let format = fields.u16();
    if format != COLD_FORMAT && format != DELTA_FORMAT {
        return Err(PackError::Version { found: format, reads: DELTA_FORMAT });
    }
    if !is_sealed(record, HEADER_CHECKSUM_AT) {
        return Err(PackError::HeaderChecksum);
    }
    let (flags, page_size, arch, frame) = (fields.u16(), fields.u32(), fields.u16(), fields.u16());
    if flags != 0 {
        return Err(PackError::Flags { found: flags });
    }
    if page_size != PAGE_SIZE as u32 {
        return Err(PackError::PageSize { found: page_size, reads: PAGE_SIZE as u32 });
    }
    if frame == 0 || frame > MAX_FRAME_PAGES {
        let what = "the number of pages in a frame";
        return Err(PackError::Limit { what, found: frame.into(), max: MAX_FRAME_PAGES.into() });
    }
    let base_packs = fields.u16();
    if !all_zero(&fields.bytes::<10>()) || (format == DELTA_FORMAT) != (base_packs > 0) {
        return Err(PackError::Reserved);
    }
    let arch = Arch::try_from(arch).map_err(|found| PackError::Arch { found })?;
    Ok((arch, frame.into(), base_packs.into()))
}

pub(crate) struct ColdFooter {
    pub(crate) pages: u64,
    pub(crate) root: PackRoot,
    /// Of table, dead slots and bases.
    pub(crate) lists: [u8; HASH_LEN],
}

impl ColdFooter {
    pub(crate) fn encode(&self) -> [u8; COLD_FOOTER_LEN] {
        let mut record = [0; COLD_FOOTER_LEN];
        record[..8].copy_from_slice(&FOOTER_MAGIC);
        record[8..16].copy_from_slice(&self.pages.to_le_bytes());
        record[16..48].copy_from_slice(&self.root.0);
        record[48..FOOTER_CHECKSUM_AT].copy_from_slice(&self.lists);
        seal(&mut record, FOOTER_CHECKSUM_AT);
        record
    }

    fn decode(record: &[u8; COLD_FOOTER_LEN], len: u64) -> Result<Self, PackError> {
        let mut fields = Fields::of(record);
        if fields.bytes() != FOOTER_MAGIC {
            return Err(PackError::Torn { why: "it does not end with a footer", len });
        }
        if !is_sealed(record, FOOTER_CHECKSUM_AT) {
            return Err(PackError::Torn { why: "its footer does not match its checksum", len });
        }
        let (pages, root) = (fields.u64(), PackRoot(fields.bytes()));
        check_pages(pages)?;
        Ok(Self { pages, root, lists: fields.bytes() })
    }
}

/// The checksum of the lists that the root does not cover: those before the index, and those after.
pub(crate) fn lists_checksum(table: &[u8], after: &[u8]) -> [u8; HASH_LEN] {
    *blake3::Hasher::new().update(table).update(after).finalize().as_bytes()
}

/// How long the list of bases is.
pub(crate) fn bases_len(pages: u64, base_packs: usize) -> u64 {
    match base_packs {
        0 => 0,
        roots => roots as u64 * HASH_LEN as u64 + pages * BASE_LEN as u64,
    }
}

pub(super) fn open(source: &impl ReadAt, len: u64) -> Result<PackParts, PackError> {
    let torn = |why| PackError::Torn { why, len };
    if len < (COLD_HEADER_LEN + COLD_FOOTER_LEN) as u64 {
        return Err(torn("it is shorter than a header and a footer"));
    }
    let mut record = [0; COLD_HEADER_LEN];
    source.read_exact_at(&mut record, 0).map_err(failed("read the header"))?;
    let (arch, frame_pages, base_packs) = check_header(&record)?;
    let mut record = [0; COLD_FOOTER_LEN];
    let footer_at = len - COLD_FOOTER_LEN as u64;
    source.read_exact_at(&mut record, footer_at).map_err(failed("read the footer"))?;
    let footer = ColdFooter::decode(&record, len)?;

    let pages = footer.pages;
    let (table_len, index_len) =
        (pages.div_ceil(frame_pages) * ENTRY_LEN as u64, pages * HASH_LEN as u64);
    let after_len = dead_len(pages) + bases_len(pages, base_packs);
    let lists_len = table_len + index_len + after_len;
    let frames_end = footer_at.checked_sub(lists_len).filter(|end| *end >= COLD_HEADER_LEN as u64);
    let frames_end = frames_end.ok_or(torn("its footer is for a longer file"))?;
    let table = bytes_at(source, frames_end, table_len, "read the table")?;
    let index = bytes_at(source, frames_end + table_len, index_len, "read the index")?;
    let dead_at = frames_end + table_len + index_len;
    let after = bytes_at(source, dead_at, after_len, "read the dead slots")?;
    if lists_checksum(&table, &after) != footer.lists {
        return Err(PackError::ListChecksum);
    }
    let (dead, bases) = after.split_at(dead_len(pages) as usize);
    let frames = Frames::new(&table, frame_pages, pages);
    if frames.end() != frames_end {
        return Err(torn("its table is for a file of another length"));
    }
    let dead = Slots::from_bytes(dead, pages).ok_or(PackError::DeadSlots)?;
    let bases = Bases::from_bytes(bases, base_packs).ok_or(PackError::Bases)?;
    if bases.roots().contains(&footer.root) {
        return Err(PackError::Bases);
    }
    Ok(PackParts { arch, root: footer.root, index, dead, bases, frames: Some(frames) })
}

/// The positions of the frames, and the last frame read: pages are often requested one by one.
#[derive(Debug)]
pub(super) struct Frames {
    frame_pages: u64,
    pages: u64,
    /// Where frame k begins; one more for the end.
    starts: Vec<u64>,
    checksums: Vec<[u8; HASH_LEN]>,
    last: Mutex<Option<(u64, Vec<u8>)>>,
}

impl Frames {
    fn new(table: &[u8], frame_pages: u64, pages: u64) -> Frames {
        let (mut starts, mut checksums) = (vec![COLD_HEADER_LEN as u64], Vec::new());
        let mut at = COLD_HEADER_LEN as u64;
        for entry in table.chunks_exact(ENTRY_LEN) {
            let mut fields = Fields::of(entry);
            // the table is limited, so the sum of 32-bit lengths cannot overflow
            at += u64::from(fields.u32());
            starts.push(at);
            checksums.push(fields.bytes());
        }
        Frames { frame_pages, pages, starts, checksums, last: Mutex::default() }
    }

    fn end(&self) -> u64 {
        self.starts.last().copied().unwrap_or(COLD_HEADER_LEN as u64)
    }

    /// Fills `buf` from `slot` on. The caller has checked the range.
    pub(super) fn read(
        &self,
        source: &impl ReadAt,
        slot: u64,
        buf: &mut [u8],
    ) -> Result<(), PackError> {
        let mut done = 0;
        while done < buf.len() {
            let slot = slot + (done / PAGE_SIZE) as u64;
            let (frame, within) = (slot / self.frame_pages, slot % self.frame_pages);
            let bytes = match self.take_last(frame) {
                Some(bytes) => bytes,
                None => self.unpack(source, frame)?,
            };
            let from = within as usize * PAGE_SIZE;
            let count = (bytes.len() - from).min(buf.len() - done);
            buf[done..done + count].copy_from_slice(&bytes[from..from + count]);
            done += count;
            *self.last.lock() = Some((frame, bytes));
        }
        Ok(())
    }

    fn take_last(&self, frame: u64) -> Option<Vec<u8>> {
        let mut last = self.last.lock();
        last.take_if(|(own, _)| *own == frame).map(|(_, bytes)| bytes)
    }

    fn unpack(&self, source: &impl ReadAt, frame: u64) -> Result<Vec<u8>, PackError> {
        let slot = frame * self.frame_pages;
        let count = self.frame_pages.min(self.pages - slot);
        let len = count as usize * PAGE_SIZE;
        let (start, end) = (self.starts[frame as usize], self.starts[frame as usize + 1]);
        let damaged = PackError::Frame { slot, count };
        if end - start > zstd::zstd_safe::compress_bound(len) as u64 {
            return Err(damaged);
        }
        let packed = bytes_at(source, start, end - start, "read a frame")?;
        if *blake3::hash(&packed).as_bytes() != self.checksums[frame as usize] {
            return Err(damaged);
        }
        let mut bytes = vec![0; len];
        match zstd::bulk::decompress_to_buffer(&packed, &mut bytes) {
            Ok(unpacked) if unpacked == len => Ok(bytes),
            _ => Err(damaged),
        }
    }
}
