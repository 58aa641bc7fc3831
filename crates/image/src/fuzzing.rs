//! Entry points for the fuzz targets: any bytes in, no panic, and an oracle that accepted data is
//! consistent.
//!
//! Checksums would stop nearly every mutation at the door. So each input is tried twice: as it is,
//! and with its checksums made right, as someone with write access to the store would do.

mod bundle;
mod mutate;

pub use bundle::{bundle_reader, reseal_bundle};
pub use mutate::{Random, mutate};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::container::{
    CHECKSUM_AT, ENTRY_LEN, FIXED_LEN, FORMAT, MAGIC, SectionEntry, header_checksum,
};
use crate::pack::{
    COLD_FOOTER_LEN, COLD_HEADER_LEN, ColdFooter, ENTRY_LEN as FRAME_LEN, FOOTER_LEN, FRAME_PAGES,
    Footer, HASH_LEN, HEADER_CHECKSUM_AT, PackKind, bases_len, file_len, lists_checksum,
    page_offset, seal,
};
use crate::{
    Arch, BasePage, BasePages, Bases, ImageReader, ImageWriter, PAGE_SIZE, PackError, PackForm,
    PackReader, PackRoot, PackWriter, PageHash, Rewrite, SectionKind, Slots,
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

/// The same pack in another form, without the pages of `dead` slots.
pub fn sample_rewritten(fill: &[u8], form: PackForm, dead: &[u64]) -> Vec<u8> {
    let bytes = sample_pack(fill);
    let pack = PackReader::open(&bytes[..], bytes.len() as u64, None).expect("a sample is intact");
    let mut drop = Slots::new();
    dead.iter().for_each(|slot| drop.insert(*slot..slot + 1));
    let mut out = std::io::Cursor::new(Vec::new());
    let rewrite = Rewrite { pack: &pack, drop: &drop, mend: &HashMap::new(), lost: &Slots::new() };
    rewrite.write(form, &mut out).expect("a Vec takes every write");
    out.into_inner()
}

/// Bases for samples: a page in slot n of any pack is filled with n.
pub struct SampleBases;

impl BasePages for SampleBases {
    fn read_base(&self, base: BasePage, page: &mut [u8]) -> Result<(), PackError> {
        page.fill(base.slot as u8);
        Ok(())
    }
}

/// The same pack with every third page whole, and the others differences to sample bases.
pub fn sample_delta(fill: &[u8]) -> Vec<u8> {
    let bytes = sample_pack(fill);
    let pack = PackReader::open(&bytes[..], bytes.len() as u64, None).expect("a sample is intact");
    let base = |slot: u64| BasePage { root: PackRoot::of(&[slot as u8 & 1]), slot };
    let bases = Bases::of((0..pack.pages()).map(|slot| (slot % 3 > 0).then(|| base(slot))));
    let (mend, none) = (HashMap::new(), Slots::new());
    let rewrite = Rewrite { pack: &pack, drop: &none, mend: &mend, lost: &none };
    let mut out = Vec::new();
    rewrite.write_delta(&bases, &SampleBases, &mut out).expect("a Vec takes every write");
    out
}

/// Reads `data` as an image, as it is and resealed.
pub fn image_reader(data: &[u8]) {
    check_image(data);
    if let Ok(image) = crate::unpack_image(data) {
        check_image(&image);
    }
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

/// Reads `data` as a pack in its cold form, as it is and resealed.
pub fn cold_pack_reader(data: &[u8]) {
    check_pack(data);
    let mut resealed = data.to_vec();
    if reseal_cold(&mut resealed).is_some() {
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
    let bases: Arc<dyn BasePages> = Arc::new(SampleBases);
    let reader = reader.with_bases(Arc::downgrade(&bases));
    let pages = reader.pages();
    if reader.form() == PackForm::Plain {
        let kinds = [PackKind::Whole, PackKind::Partial].map(|kind| file_len(pages, kind));
        assert!(kinds.contains(&(data.len() as u64)), "every byte belongs to something");
    }
    assert_eq!(reader.dead().first_in(pages..u64::MAX), None, "no slot is dead that is not there");
    assert_eq!(reader.hashes().len() as u64, pages);
    assert_eq!(reader.hash(pages), None);
    let other = PackRoot::of(&reader.root().0);
    assert!(PackReader::open(data, data.len() as u64, Some(other)).is_err());

    let mut page = [0; PAGE_SIZE];
    assert!(matches!(reader.read(pages, &mut page), Err(PackError::Range { .. })));
    let mut live = (0..pages).filter(|slot| !reader.dead().contains(*slot));
    let damaged = live.find(|slot| reader.read(*slot, &mut page).is_err());
    match (reader.verify_all(), damaged) {
        (Ok(()), None) => check_rewritten(&reader),
        (Err(PackError::Page { slot }), Some(damaged)) => assert_eq!(slot, damaged),
        (Err(PackError::Frame { slot, count }), Some(damaged)) => {
            assert!(damaged < slot + count, "the first damaged frame is told");
        }
        (all, each) => panic!("verify_all says {all:?}, page by page it is {each:?}"),
    }
}

/// Intact data is the same in either form.
fn check_rewritten(reader: &PackReader<&[u8]>) {
    for form in [PackForm::Plain, PackForm::Cold] {
        let mut out = std::io::Cursor::new(Vec::new());
        let rewrite = Rewrite {
            pack: reader,
            drop: &Slots::new(),
            mend: &HashMap::new(),
            lost: &Slots::new(),
        };
        rewrite.write(form, &mut out).expect("an intact pack can be written");
        let again = out.into_inner();
        let again = PackReader::open(&again[..], again.len() as u64, Some(reader.root()));
        let again = again.expect("what was written can be read");
        assert_eq!((again.form(), again.pages()), (form, reader.pages()));
        assert!(again.dead().is_within(reader.dead()) && reader.dead().is_within(again.dead()));
        again.verify_all().expect("and is intact");
    }
}

/// Corrects the checksums of an image, wherever its table leads.
fn reseal_image(data: &mut [u8]) -> Option<()> {
    data.get_mut(..8)?.copy_from_slice(&MAGIC);
    data.get_mut(8..10)?.copy_from_slice(&FORMAT.to_le_bytes());
    let count = u32::from_le_bytes(*data.get(20..)?.first_chunk()?) as usize;
    let header_len = ENTRY_LEN.checked_mul(count)?.checked_add(FIXED_LEN)?;
    data.get(..header_len)?;
    for at in (FIXED_LEN..header_len).step_by(ENTRY_LEN) {
        let entry = SectionEntry::decode(&data[at..at + ENTRY_LEN]);
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

/// Corrects the checksums of header, index and footer, but not those of the pages.
fn reseal_pack(data: &mut [u8]) -> Option<()> {
    seal(data.get_mut(..PAGE_SIZE)?, HEADER_CHECKSUM_AT);
    let footer_at = data.len().checked_sub(FOOTER_LEN)?;
    let pages = footer_at.checked_sub(PAGE_SIZE)? / (PAGE_SIZE + HASH_LEN);
    let root = PackRoot::of(data.get(page_offset(pages as u64) as usize..footer_at)?);
    let footer = Footer { pages: pages as u64, root };
    data[footer_at..].copy_from_slice(&footer.encode());
    Some(())
}

/// Corrects the checksums of a cold pack and its frames, but not those of pages. Its frames have
/// this program's size.
fn reseal_cold(data: &mut [u8]) -> Option<()> {
    seal(data.get_mut(..COLD_HEADER_LEN)?, COLD_HEADER_LEN - HASH_LEN);
    let footer_at = data.len().checked_sub(COLD_FOOTER_LEN)?;
    let pages = u64::from_le_bytes(*data.get(footer_at + 8..)?.first_chunk()?);
    let pages = pages.min(4 * FRAME_PAGES) as usize;
    let (index_len, dead_len) = (pages * HASH_LEN, pages.div_ceil(8).next_multiple_of(HASH_LEN));
    let base_packs = u16::from_le_bytes(*data.get(20..)?.first_chunk()?);
    let bases_len = bases_len(pages as u64, base_packs.into()) as usize;
    let dead_at = footer_at.checked_sub(dead_len + bases_len)?;
    let index_at = dead_at.checked_sub(index_len)?;
    let table_len = pages.div_ceil(FRAME_PAGES as usize) * FRAME_LEN;
    let table_at = index_at.checked_sub(table_len)?;
    let mut start = COLD_HEADER_LEN;
    for entry in (table_at..index_at).step_by(FRAME_LEN) {
        let len = u32::from_le_bytes(*data[entry..].first_chunk()?) as usize;
        let end = start.checked_add(len)?;
        let checksum = *blake3::hash(data.get(start..end)?).as_bytes();
        data[entry + 4..entry + FRAME_LEN].copy_from_slice(&checksum);
        start = end;
    }
    let lists = lists_checksum(&data[table_at..index_at], &data[dead_at..footer_at]);
    let root = PackRoot::of(&data[index_at..dead_at]);
    let footer = ColdFooter { pages: pages as u64, root, lists };
    data[footer_at..].copy_from_slice(&footer.encode());
    Some(())
}
