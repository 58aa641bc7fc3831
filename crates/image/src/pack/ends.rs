//! The two ends of a pack: the header page and the footer, to bytes and back.

use crate::fields::{Fields, all_zero};
use crate::{Arch, PackError, PackRoot};

/// The pack format this program writes, and the only one it reads.
pub const FORMAT: u16 = 1;
/// The size of a page, and of the unit in which a pack is addressed.
pub const PAGE_SIZE: usize = 4096;
/// The most pages in a pack: 256 GiB of memory, with 2 GiB of index.
pub const MAX_PAGES: u64 = 1 << 26;

pub(crate) const HASH_LEN: usize = 32;
pub(crate) const FOOTER_LEN: usize = 80;
pub(crate) const HEADER_CHECKSUM_AT: usize = PAGE_SIZE - HASH_LEN;

pub(super) const HEADER_MAGIC: [u8; 8] = *b"STASIS\x1aP";
const FOOTER_MAGIC: [u8; 8] = *b"STASIS\x1aE";
const HEADER_FIELDS_LEN: usize = 18;
const FOOTER_CHECKSUM_AT: usize = FOOTER_LEN - HASH_LEN;

const _: () = assert!(8 + 2 + 2 + 4 + 2 == HEADER_FIELDS_LEN);
const _: () = assert!(8 + 8 + HASH_LEN == FOOTER_CHECKSUM_AT);
// Pages and hashes are multiples of 32 bytes and the footer is not, hence no pack is a whole
// number of pages long. The module's word on torn files rests on this.
const _: () = assert!(PAGE_SIZE.is_multiple_of(HASH_LEN) && !FOOTER_LEN.is_multiple_of(HASH_LEN));

/// Where page `slot` begins in the file.
pub const fn page_offset(slot: u64) -> u64 {
    (slot + 1) * PAGE_SIZE as u64
}

/// How long a pack with this many pages is. `pages` must be within [`MAX_PAGES`].
pub(crate) const fn file_len(pages: u64, kind: PackKind) -> u64 {
    let list = match kind {
        PackKind::Whole => 0,
        PackKind::Partial => dead_len(pages) + HASH_LEN as u64,
    };
    page_offset(pages) + pages * HASH_LEN as u64 + list + FOOTER_LEN as u64
}

/// How long the list of dead slots is: a bit each, in whole hashes, so that the word above on
/// lengths holds for partial packs too.
pub(super) const fn dead_len(pages: u64) -> u64 {
    pages.div_ceil(8).next_multiple_of(HASH_LEN as u64)
}

/// Whether a pack has all its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PackKind {
    Whole,
    /// Some pages were dropped: they are holes, listed separately.
    Partial,
}

/// The only flag there is.
pub(super) const PARTIAL: u16 = 1;

pub(crate) fn header_page(arch: Arch, kind: PackKind) -> [u8; PAGE_SIZE] {
    let flags = if kind == PackKind::Partial { PARTIAL } else { 0 };
    let mut page = [0; PAGE_SIZE];
    page[..8].copy_from_slice(&HEADER_MAGIC);
    page[8..10].copy_from_slice(&FORMAT.to_le_bytes());
    page[10..12].copy_from_slice(&flags.to_le_bytes());
    page[12..16].copy_from_slice(&(PAGE_SIZE as u32).to_le_bytes());
    page[16..18].copy_from_slice(&(arch as u16).to_le_bytes());
    seal(&mut page, HEADER_CHECKSUM_AT);
    page
}

/// Magic and format first, so that another format is explained; then the checksum, then the rest.
pub(super) fn check_header(page: &[u8; PAGE_SIZE]) -> Result<(Arch, PackKind), PackError> {
    let mut fields = Fields::of(page);
    if fields.bytes() != HEADER_MAGIC {
        return Err(PackError::Magic);
    }
    let format = fields.u16();
    if format != FORMAT {
        return Err(PackError::Version { found: format, reads: FORMAT });
    }
    if !is_sealed(page, HEADER_CHECKSUM_AT) {
        return Err(PackError::HeaderChecksum);
    }
    let (flags, page_size, arch) = (fields.u16(), fields.u32(), fields.u16());
    let kind = match flags {
        0 => PackKind::Whole,
        PARTIAL => PackKind::Partial,
        found => return Err(PackError::Flags { found }),
    };
    if page_size != PAGE_SIZE as u32 {
        return Err(PackError::PageSize { found: page_size, reads: PAGE_SIZE as u32 });
    }
    if !all_zero(&page[HEADER_FIELDS_LEN..HEADER_CHECKSUM_AT]) {
        return Err(PackError::Reserved);
    }
    let arch = Arch::try_from(arch).map_err(|found| PackError::Arch { found })?;
    Ok((arch, kind))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    pub(crate) pages: u64,
    pub(crate) root: PackRoot,
}

impl Footer {
    pub(crate) fn encode(&self) -> [u8; FOOTER_LEN] {
        let mut record = [0; FOOTER_LEN];
        record[..8].copy_from_slice(&FOOTER_MAGIC);
        record[8..16].copy_from_slice(&self.pages.to_le_bytes());
        record[16..FOOTER_CHECKSUM_AT].copy_from_slice(&self.root.0);
        seal(&mut record, FOOTER_CHECKSUM_AT);
        record
    }

    /// Reads the footer of a file of `len` bytes, which must have exactly the declared length.
    pub(super) fn decode(
        record: &[u8; FOOTER_LEN],
        len: u64,
        kind: PackKind,
    ) -> Result<Self, PackError> {
        let mut fields = Fields::of(record);
        if fields.bytes() != FOOTER_MAGIC {
            return Err(PackError::Torn { why: "it does not end with a footer", len });
        }
        if !is_sealed(record, FOOTER_CHECKSUM_AT) {
            return Err(PackError::Torn { why: "its footer does not match its checksum", len });
        }
        let footer = Self { pages: fields.u64(), root: PackRoot(fields.bytes()) };
        check_pages(footer.pages)?;
        if file_len(footer.pages, kind) != len {
            return Err(PackError::Torn { why: "its footer is for a file of another length", len });
        }
        Ok(footer)
    }
}

pub(super) fn check_pages(pages: u64) -> Result<(), PackError> {
    if pages > MAX_PAGES {
        let what = "the number of pages";
        return Err(PackError::Limit { what, found: pages, max: MAX_PAGES });
    }
    Ok(())
}

/// Writes the checksum of everything before `at` at `at`, where the record ends.
pub(crate) fn seal(record: &mut [u8], at: usize) {
    let (body, checksum) = record.split_at_mut(at);
    checksum.copy_from_slice(blake3::hash(body).as_bytes());
}

pub(super) fn is_sealed(record: &[u8], at: usize) -> bool {
    let (body, checksum) = record.split_at(at);
    blake3::hash(body).as_bytes() == checksum
}
