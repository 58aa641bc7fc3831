//! Opens a pack with uncompressed pages.

use super::Slots;
use super::bases::Bases;
use super::ends::{
    FOOTER_LEN, Footer, HASH_LEN, PAGE_SIZE, PackKind, check_header, dead_len, file_len,
    page_offset,
};
use super::reader::{PackParts, bytes_at, failed};
use crate::{PackError, ReadAt};

pub(super) fn open(source: &impl ReadAt, len: u64) -> Result<PackParts, PackError> {
    if len < PAGE_SIZE as u64 {
        return Err(PackError::Torn { why: "it is shorter than a header", len });
    }
    let mut header = [0; PAGE_SIZE];
    source.read_exact_at(&mut header, 0).map_err(failed("read the header"))?;
    let (arch, kind) = check_header(&header)?;
    let Footer { pages, root } = read_footer(source, len, kind)?;
    let index_at = page_offset(pages);
    let index = bytes_at(source, index_at, pages * HASH_LEN as u64, "read the index")?;
    let dead = match kind {
        PackKind::Whole => Slots::new(),
        PackKind::Partial => read_dead(source, pages)?,
    };
    Ok(PackParts { arch, root, index, dead, bases: Bases::default(), frames: None })
}

fn read_footer(source: &impl ReadAt, len: u64, kind: PackKind) -> Result<Footer, PackError> {
    if len < file_len(0, kind) {
        return Err(PackError::Torn { why: "it is shorter than a header and a footer", len });
    }
    let mut record = [0; FOOTER_LEN];
    source
        .read_exact_at(&mut record, len - FOOTER_LEN as u64)
        .map_err(failed("read the footer"))?;
    Footer::decode(&record, len, kind)
}

/// The list of dead slots, which its checksum follows.
fn read_dead(source: &impl ReadAt, pages: u64) -> Result<Slots, PackError> {
    let at = page_offset(pages) + pages * HASH_LEN as u64;
    let len = dead_len(pages) + HASH_LEN as u64;
    let record = bytes_at(source, at, len, "read the dead slots")?;
    let (list, checksum) = record.split_at(dead_len(pages) as usize);
    if blake3::hash(list).as_bytes() != checksum {
        return Err(PackError::ListChecksum);
    }
    Slots::from_bytes(list, pages).ok_or(PackError::DeadSlots)
}
