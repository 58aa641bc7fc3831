//! Entry points for the fuzz targets and the smoke test: any bytes in, no panic, and an oracle
//! that whatever was accepted is consistent.
//!
//! Checksums would stop nearly every mutation at the door. So each input is tried twice: as it is,
//! and with its checksums made right, as someone with write access to the store would do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::container::{CHECKSUM_AT, ENTRY_LEN, Entry, FIXED_LEN, FORMAT, MAGIC, header_checksum};
use crate::pack::{FOOTER_LEN, Footer, HASH_LEN, HEADER_CHECKSUM_AT, file_len, page_offset, seal};
use crate::{
    Arch, ImageReader, ImageWriter, PAGE_SIZE, PackError, PackReader, PackRoot, PackWriter,
    PageHash, SectionKind,
};

/// Stands in for a section: every shape that takes its length from the input.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    pub numbers: Vec<u64>,
    pub text: String,
    pub pairs: Option<Vec<(u32, bool)>>,
    pub map: BTreeMap<u64, Vec<u8>>,
    pub hash: Option<PageHash>,
    pub outcome: Option<Result<i64, String>>,
}

/// An image with the same value in every section.
pub fn sample_image(value: &Sample) -> Vec<u8> {
    let mut writer = ImageWriter::new(Arch::X86_64);
    for kind in SectionKind::ALL {
        writer.section(kind, value).expect("a sample is small");
    }
    writer.finish().expect("every kind was given").bytes
}

/// A pack of pages that are each filled with one byte.
pub fn sample_pack(fill: &[u8]) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), Arch::X86_64).expect("a Vec takes every write");
    for byte in fill {
        writer.append(&[*byte; PAGE_SIZE]).expect("a Vec takes every write");
    }
    writer.finish().expect("a Vec takes every write").0
}

/// Reads `data` as an image, as it is and resealed.
pub fn image_reader(data: &[u8]) {
    check_image(data);
    let mut resealed = data.to_vec();
    if reseal_image(&mut resealed).is_some() {
        check_image(&resealed);
    }
}

/// Reads `data` as a pack, as it is and resealed.
pub fn pack_reader(data: &[u8]) {
    check_pack(data);
    let mut resealed = data.to_vec();
    if reseal_pack(&mut resealed).is_some() {
        check_pack(&resealed);
    }
}

fn check_image(data: &[u8]) {
    let Ok(reader) = ImageReader::open(data) else { return };
    let payloads: usize = SectionKind::ALL.iter().map(|kind| reader.payload(*kind).len()).sum();
    let header = FIXED_LEN + SectionKind::ALL.len() * ENTRY_LEN;
    assert_eq!(header + payloads, data.len(), "every byte belongs to something");
    for kind in SectionKind::ALL {
        if let Ok(value) = reader.section::<Sample>(kind) {
            let again = sample_image(&value);
            let again = ImageReader::open(&again).expect("what was written can be read");
            assert_eq!(again.section::<Sample>(kind).expect("and decoded"), value);
        }
    }
}

fn check_pack(data: &[u8]) {
    let Ok(reader) = PackReader::open(data, data.len() as u64, None) else { return };
    let pages = reader.pages();
    assert_eq!(file_len(pages), data.len() as u64, "every byte belongs to something");
    assert_eq!(reader.hashes().len() as u64, pages);
    assert_eq!(reader.hash(pages), None);
    let other = PackRoot::of(&reader.root().0);
    assert!(PackReader::open(data, data.len() as u64, Some(other)).is_err());

    let mut page = [0; PAGE_SIZE];
    assert!(matches!(reader.read(pages, &mut page), Err(PackError::Range { .. })));
    let damaged = (0..pages).find(|slot| reader.read(*slot, &mut page).is_err());
    match (reader.verify_all(), damaged) {
        (Ok(()), None) => {}
        (Err(PackError::Page { slot }), Some(damaged)) => assert_eq!(slot, damaged),
        (all, each) => panic!("verify_all says {all:?}, page by page it is {each:?}"),
    }
}

/// Makes the checksums of an image right, wherever its table leads.
fn reseal_image(data: &mut [u8]) -> Option<()> {
    data.get_mut(..8)?.copy_from_slice(&MAGIC);
    data.get_mut(8..10)?.copy_from_slice(&FORMAT.to_le_bytes());
    let count = u32::from_le_bytes(*data.get(20..)?.first_chunk()?) as usize;
    let header_len = ENTRY_LEN.checked_mul(count)?.checked_add(FIXED_LEN)?;
    data.get(..header_len)?;
    for at in (FIXED_LEN..header_len).step_by(ENTRY_LEN) {
        let entry = Entry::decode(&data[at..at + ENTRY_LEN]);
        let end = entry.offset.saturating_add(entry.length);
        if let Some(payload) = data.get(entry.offset as usize..end as usize) {
            let checksum = *blake3::hash(payload).as_bytes();
            data[at + ENTRY_LEN - HASH_LEN..at + ENTRY_LEN].copy_from_slice(&checksum);
        }
    }
    let checksum = header_checksum(&data[..header_len]);
    data[CHECKSUM_AT..FIXED_LEN].copy_from_slice(&checksum);
    Some(())
}

/// Makes the checksums of header, index and footer right, but not those of the pages.
fn reseal_pack(data: &mut [u8]) -> Option<()> {
    seal(data.get_mut(..PAGE_SIZE)?, HEADER_CHECKSUM_AT);
    let footer_at = data.len().checked_sub(FOOTER_LEN)?;
    let pages = footer_at.checked_sub(PAGE_SIZE)? / (PAGE_SIZE + HASH_LEN);
    let root = PackRoot::of(data.get(page_offset(pages as u64) as usize..footer_at)?);
    let footer = Footer { pages: pages as u64, root };
    data[footer_at..].copy_from_slice(&footer.encode());
    Some(())
}
