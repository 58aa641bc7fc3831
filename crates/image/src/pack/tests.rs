//! Each fault of a pack, and its refusal.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use super::ends::header_page;
use super::*;
use crate::fuzzing::sample_pack;
use crate::{Arch, PackError, PackRoot, PageHash};

fn open(bytes: &[u8]) -> Result<PackReader<&[u8]>, PackError> {
    PackReader::open(bytes, bytes.len() as u64, None)
}

/// The refusal of a pack of two pages whose header was spoiled, with its checksum made right.
fn header_refusal(at: usize, value: u8) -> PackError {
    let mut bytes = sample_pack(&[1, 2]);
    bytes[at] = value;
    seal(&mut bytes[..PAGE_SIZE], HEADER_CHECKSUM_AT);
    open(&bytes).unwrap_err()
}

/// The refusal of a pack whose footer was replaced by a valid one with this content.
fn footer_refusal(pages: u64) -> PackError {
    let mut bytes = sample_pack(&[1, 2]);
    let footer_at = bytes.len() - FOOTER_LEN;
    let footer = Footer { pages, root: PackRoot::of(b"") };
    bytes[footer_at..].copy_from_slice(&footer.encode());
    open(&bytes).unwrap_err()
}

#[test]
fn pages_are_where_they_were_put() {
    let mut writer = PackWriter::new(Vec::new(), Arch::X86_64).unwrap();
    let three: Vec<u8> = [[3; PAGE_SIZE], [4; PAGE_SIZE], [5; PAGE_SIZE]].concat();
    let hashes: Vec<_> = three.chunks(PAGE_SIZE).map(PageHash::of).collect();
    assert_eq!(writer.append(&[9; PAGE_SIZE]).unwrap(), 0);
    assert_eq!(writer.append(&three).unwrap(), 1);
    assert_eq!(writer.append_hashed(&three, &hashes).unwrap(), 4);
    assert_eq!(writer.append(&[]).unwrap(), 7);
    assert_eq!(writer.pages(), 7);
    let (bytes, summary) = writer.finish().unwrap();

    let reader = PackReader::open(&bytes[..], bytes.len() as u64, Some(summary.root)).unwrap();
    assert_eq!((reader.pages(), reader.root()), (summary.pages, summary.root));
    assert_eq!(reader.arch(), Arch::X86_64);
    reader.verify_all().unwrap();
    let mut buf = vec![0; 3 * PAGE_SIZE];
    for slot in [1, 4] {
        reader.read(slot, &mut buf).unwrap();
        assert_eq!(buf, three);
        assert_eq!(reader.hashes().skip(slot as usize).take(3).collect::<Vec<_>>(), hashes);
        assert_eq!(&bytes[page_offset(slot) as usize..][..3 * PAGE_SIZE], three);
    }
}

#[test]
fn a_pack_may_be_a_file_and_may_be_empty() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&sample_pack(&[])).unwrap();
    let len = file.metadata().unwrap().len();
    let reader = PackReader::open(&file, len, Some(PackRoot::of(b""))).unwrap();
    assert_eq!(reader.pages(), 0);
    reader.verify_all().unwrap();
}

#[test]
fn verify_all_crosses_its_chunks() {
    let fill: Vec<u8> = (0..600_u32).map(|n| n as u8).collect();
    let mut bytes = sample_pack(&fill);
    open(&bytes).unwrap().verify_all().unwrap();
    bytes[page_offset(599) as usize] ^= 1;
    let error = open(&bytes).unwrap().verify_all().unwrap_err();
    assert!(matches!(error, PackError::Page { slot: 599 }));
}

#[test]
fn damage_is_reported_by_slot() {
    let mut bytes = sample_pack(&[7; 20]);
    bytes[page_offset(17) as usize + 100] ^= 1;
    let reader = open(&bytes).unwrap();
    let mut page = [0; PAGE_SIZE];
    reader.read(16, &mut page).unwrap();
    let error = reader.read(17, &mut page).unwrap_err();
    assert_eq!(error.code(), "pack.page");
    assert_eq!(error.to_string(), "page 17 of the pack does not match its checksum");
    reader.read_unverified(17, &mut page).unwrap();
    assert!(matches!(reader.verify_all(), Err(PackError::Page { slot: 17 })));
}

#[test]
fn reads_stay_inside() {
    let bytes = sample_pack(&[1, 2, 3]);
    let reader = open(&bytes).unwrap();
    let mut two = vec![0; 2 * PAGE_SIZE];
    for slot in [2, 3, u64::MAX - 1, u64::MAX] {
        assert_eq!(reader.read(slot, &mut two).unwrap_err().code(), "pack.range");
    }
    assert_eq!(reader.read(0, &mut two[1..]).unwrap_err().code(), "pack.unaligned");
    assert_eq!(reader.hash(2), Some(PageHash::of(&[3; PAGE_SIZE])));
    assert_eq!((reader.hash(3), reader.hash(u64::MAX)), (None, None));
}

#[test]
fn header_fields_are_refused_by_name() {
    assert_eq!(header_refusal(0, b'X').code(), "pack.magic");
    assert_eq!(header_refusal(8, 2).to_string(), "pack format 2, this program reads 1");
    assert_eq!(header_refusal(10, 2).code(), "pack.flags");
    assert_eq!(header_refusal(13, 0).code(), "pack.page_size");
    assert_eq!(header_refusal(16, 183).code(), "pack.arch");
    assert_eq!(header_refusal(18, 1).code(), "pack.reserved");
    assert_eq!(header_refusal(HEADER_CHECKSUM_AT - 1, 1).code(), "pack.reserved");
}

#[test]
fn an_unfinished_pack_is_torn() {
    let mut bytes = header_page(Arch::X86_64, PackKind::Whole).to_vec();
    assert_eq!(open(&bytes).unwrap_err().code(), "pack.torn");
    bytes.extend_from_slice(&[0; 3 * PAGE_SIZE]);
    let error = open(&bytes).unwrap_err();
    assert_eq!(
        error.to_string(),
        "the pack is torn: it does not end with a footer (the file has 16384 bytes)"
    );
}

#[test]
fn the_footer_is_held_against_the_file() {
    for pages in [0, 1, 3] {
        assert_eq!(footer_refusal(pages).code(), "pack.torn");
    }
    assert_eq!(footer_refusal(MAX_PAGES + 1).code(), "pack.limit");
    assert_eq!(footer_refusal(u64::MAX).code(), "pack.limit");
    assert_eq!(footer_refusal(2).code(), "pack.checksum");
}

#[test]
fn another_pack_is_refused() {
    let bytes = sample_pack(&[1]);
    let expected = Some(PackRoot::of(b"another"));
    let error = PackReader::open(&bytes[..], bytes.len() as u64, expected).unwrap_err();
    assert_eq!(error.code(), "pack.root");
}

#[test]
fn the_writer_takes_whole_pages_with_their_hashes() {
    let mut writer = PackWriter::new(Vec::new(), Arch::X86_64).unwrap();
    assert_eq!(writer.append(&[0; 100]).unwrap_err().code(), "pack.unaligned");
    let error = writer.append_hashed(&[0; PAGE_SIZE], &[]).unwrap_err();
    assert_eq!(error.code(), "pack.hash_count");
    let (bytes, summary) = writer.finish().unwrap();
    assert_eq!(summary.pages, 0, "what was refused left no trace");
    open(&bytes).unwrap();
}

/// A disk with room for this many bytes more.
#[derive(Debug)]
struct FullDisk(usize);

impl Write for FullDisk {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let taken = buf.len().min(self.0);
        self.0 -= taken;
        if taken == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(taken) }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_failed_write_is_final() {
    assert_eq!(PackWriter::new(FullDisk(100), Arch::X86_64).unwrap_err().code(), "pack.io");
    let mut writer = PackWriter::new(FullDisk(2 * PAGE_SIZE + 10), Arch::X86_64).unwrap();
    writer.append(&[1; PAGE_SIZE]).unwrap();
    assert_eq!(writer.append(&[2; PAGE_SIZE]).unwrap_err().code(), "pack.io");
    assert_eq!(writer.append(&[3; PAGE_SIZE]).unwrap_err().code(), "pack.poisoned");
    assert_eq!(writer.finish().map(|_| ()).unwrap_err().code(), "pack.poisoned");
}

/// Pages with something in them that compresses, but is not all the same.
fn varied(pages: u64) -> Vec<u8> {
    let mut writer = PackWriter::new(Vec::new(), Arch::X86_64).unwrap();
    for slot in 0..pages {
        let page: Vec<u8> = (0..PAGE_SIZE as u64).map(|at| ((at * slot) >> 7) as u8).collect();
        writer.append(&page).unwrap();
    }
    writer.finish().unwrap().0
}

fn rewritten(pack: &PackReader<&[u8]>, form: PackForm, dead: &Slots) -> Result<Vec<u8>, PackError> {
    let mut out = io::Cursor::new(Vec::new());
    Rewrite { pack, drop: dead, mend: &HashMap::new(), lost: &Slots::new() }
        .write(form, &mut out)?;
    Ok(out.into_inner())
}

#[test]
fn both_forms_hold_the_same() {
    let bytes = varied(100);
    let plain = open(&bytes).unwrap();
    let cold = rewritten(&plain, PackForm::Cold, &Slots::new()).unwrap();
    assert!(cold.len() < bytes.len() / 2, "{} bytes", cold.len());
    let cold = PackReader::open(&cold[..], cold.len() as u64, Some(plain.root())).unwrap();
    assert_eq!((cold.form(), cold.pages(), cold.arch()), (PackForm::Cold, 100, Arch::X86_64));
    assert!(cold.hashes().eq(plain.hashes()));
    for (slot, count) in [(0, 100), (31, 2), (99, 1), (5, 60), (0, 0), (100, 0)] {
        let (mut a, mut b) = (vec![1; count * PAGE_SIZE], vec![2; count * PAGE_SIZE]);
        plain.read(slot, &mut a).unwrap();
        cold.read(slot, &mut b).unwrap();
        assert!(a == b, "{count} pages from {slot} on");
    }
    assert_eq!(cold.read(70, &mut vec![0; 31 * PAGE_SIZE]).unwrap_err().code(), "pack.range");
    assert!(rewritten(&cold, PackForm::Plain, &Slots::new()).unwrap() == bytes, "and back");
}

#[test]
fn dropped_pages_are_distinguished_from_damaged_ones() {
    let bytes = varied(80);
    let mut dead = Slots::new();
    dead.insert(0..33);
    dead.insert(79..1000);
    for form in [PackForm::Plain, PackForm::Cold] {
        let partial = rewritten(&open(&bytes).unwrap(), form, &dead).unwrap();
        let partial = open(&partial).unwrap();
        assert_eq!((partial.pages(), partial.dead().len()), (80, 34));
        partial.verify_all().unwrap();
        let mut page = [0; PAGE_SIZE];
        partial.read(33, &mut page).unwrap();
        let error = partial.read(32, &mut page).unwrap_err();
        assert_eq!((error.code(), partial.hash(32).is_some()), ("pack.dropped", true));
    }
}

#[test]
fn holes_take_no_space() {
    use std::os::unix::fs::MetadataExt;
    let bytes = varied(1000);
    let mut dead = Slots::new();
    dead.insert(10..990);
    let file = tempfile::tempfile().unwrap();
    let pack = open(&bytes).unwrap();
    let rewrite = Rewrite { pack: &pack, drop: &dead, mend: &HashMap::new(), lost: &Slots::new() };
    rewrite.write(PackForm::Plain, &file).unwrap();
    let meta = file.metadata().unwrap();
    PackReader::open(&file, meta.len(), Some(pack.root())).unwrap().verify_all().unwrap();
    assert!(meta.len() > 1000 * PAGE_SIZE as u64 && meta.blocks() * 512 < 100 * PAGE_SIZE as u64);
}

#[test]
fn damage_is_not_copied_but_can_be_mended() {
    let (good, mut bytes) = (varied(40), varied(40));
    bytes[page_offset(35) as usize + 7] ^= 4;
    let pack = open(&bytes).unwrap();
    for form in [PackForm::Plain, PackForm::Cold] {
        let error = rewritten(&pack, form, &Slots::new()).unwrap_err();
        assert!(matches!(error, PackError::Page { slot: 35 }));
        let mend = |content: &[u8]| {
            let mut out = io::Cursor::new(Vec::new());
            let mend = HashMap::from([(35, content.to_vec())]);
            let rewrite =
                Rewrite { pack: &pack, drop: &Slots::new(), mend: &mend, lost: &Slots::new() };
            rewrite.write(form, &mut out).map(|()| out.into_inner())
        };
        assert!(mend(&[0; PAGE_SIZE]).is_err(), "not with other contents");
        let mended = mend(&good[page_offset(35) as usize..][..PAGE_SIZE]).unwrap();
        open(&mended).unwrap().verify_all().unwrap();
        let mut lost = Slots::new();
        lost.insert(35..36);
        let mut out = io::Cursor::new(Vec::new());
        let rewrite =
            Rewrite { pack: &pack, drop: &Slots::new(), mend: &HashMap::new(), lost: &lost };
        rewrite.write(form, &mut out).unwrap();
        let error = open(out.get_ref()).unwrap().verify_all().unwrap_err();
        assert!(matches!(error, PackError::Page { slot: 35 }), "lost, and known to be");
    }
}

#[test]
fn a_damaged_frame_is_reported_by_its_slots() {
    let bytes = varied(70);
    let mut cold = rewritten(&open(&bytes).unwrap(), PackForm::Cold, &Slots::new()).unwrap();
    let first_frame = COLD_HEADER_LEN + 3;
    cold[first_frame] ^= 1;
    let cold = open(&cold).unwrap();
    let error = cold.read(31, &mut [0; PAGE_SIZE]).unwrap_err();
    assert_eq!(error.code(), "pack.frame");
    assert!(matches!(error, PackError::Frame { slot: 0, count: FRAME_PAGES }));
    cold.read(32, &mut vec![0; 38 * PAGE_SIZE]).unwrap();
}

/// Pages of one other pack, some of which cannot be read.
struct Other(Vec<u8>);

impl BasePages for Other {
    fn read_base(&self, base: BasePage, page: &mut [u8]) -> Result<(), PackError> {
        let pack = open(&self.0)?;
        assert_eq!(pack.root(), base.root);
        pack.read_whole(base.slot, page)
    }
}

/// A pack like another one, with a byte changed in each page, and its form with differences.
fn delta_of(other: &[u8], from: &dyn BasePages) -> (Vec<u8>, Vec<u8>) {
    let base = open(other).unwrap();
    let mut writer = PackWriter::new(Vec::new(), Arch::X86_64).unwrap();
    for slot in 0..base.pages() {
        let mut page = [0; PAGE_SIZE];
        base.read(slot, &mut page).unwrap();
        page[slot as usize] ^= 0x55;
        writer.append(&page).unwrap();
    }
    let plain = writer.finish().unwrap().0;
    let place = |slot| (slot != 7).then(|| BasePage { root: base.root(), slot });
    let bases = Bases::of((0..base.pages()).map(place));
    let (pack, none, mend) = (open(&plain).unwrap(), Slots::new(), HashMap::new());
    let rewrite = Rewrite { pack: &pack, drop: &none, mend: &mend, lost: &none };
    let mut delta = Vec::new();
    rewrite.write_delta(&bases, from, &mut delta).unwrap();
    (plain, delta)
}

#[test]
fn differences_are_small_and_read_as_whole_pages() {
    let other = varied(100);
    let from: Arc<dyn BasePages> = Arc::new(Other(other.clone()));
    let (plain, delta) = delta_of(&other, &*from);
    let whole = open(&plain).unwrap();
    let cold = rewritten(&whole, PackForm::Cold, &Slots::new()).unwrap();
    assert!(delta.len() < cold.len() / 2, "{} and {} bytes", delta.len(), cold.len());
    let alone = PackReader::open(&delta[..], delta.len() as u64, Some(whole.root())).unwrap();
    assert_eq!((alone.form(), alone.bases().iter().count()), (PackForm::Delta, 99));
    alone.read(7, &mut [0; PAGE_SIZE]).unwrap();
    assert_eq!(alone.read(8, &mut [0; PAGE_SIZE]).unwrap_err().code(), "pack.base");
    let read = open(&delta).unwrap().with_bases(Arc::downgrade(&from));
    let (mut a, mut b) = (vec![1; 100 * PAGE_SIZE], vec![2; 100 * PAGE_SIZE]);
    whole.read(0, &mut a).unwrap();
    read.read(0, &mut b).unwrap();
    assert!(a == b);
    assert!(rewritten(&read, PackForm::Plain, &Slots::new()).unwrap() == plain, "and back");
    assert_eq!(rewritten(&read, PackForm::Delta, &Slots::new()).unwrap(), cold, "all whole");
}

#[test]
fn a_difference_is_no_base() {
    let other = varied(20);
    let from: Arc<dyn BasePages> = Arc::new(Other(other.clone()));
    let (_, delta) = delta_of(&other, &*from);
    let read = open(&delta).unwrap().with_bases(Arc::downgrade(&from));
    read.read_whole(7, &mut [0; PAGE_SIZE]).unwrap();
    assert_eq!(read.read_whole(8, &mut [0; PAGE_SIZE]).unwrap_err().code(), "pack.base");
}

#[test]
fn damage_in_a_base_is_reported_by_its_dependent_slots() {
    let mut other = varied(40);
    let sound: Arc<dyn BasePages> = Arc::new(Other(other.clone()));
    let (_, delta) = delta_of(&other, &*sound);
    other[page_offset(9) as usize + 3] ^= 1;
    let damaged: Arc<dyn BasePages> = Arc::new(Other(other));
    let read = open(&delta).unwrap().with_bases(Arc::downgrade(&damaged));
    for slot in 0..40 {
        let done = read.read(slot, &mut [0; PAGE_SIZE]);
        assert_eq!(done.is_err(), slot == 9, "{slot}: {done:?}");
    }
    assert!(matches!(read.verify_all().unwrap_err(), PackError::Base { slot: 9, .. }));
    // another page in its place is detected, too
    let mut swapped = delta.clone();
    let bases_at = swapped.len() - COLD_FOOTER_LEN - 8 * 40;
    swapped[bases_at + 8 * 5 + 4] ^= 1;
    assert_eq!(open(&swapped).unwrap_err().code(), "pack.checksum");
}

#[test]
fn formats_from_later_programs_are_refused() {
    let cold = rewritten(&open(&varied(3)).unwrap(), PackForm::Cold, &Slots::new()).unwrap();
    assert_eq!(cold[8..10], COLD_FORMAT.to_le_bytes(), "whole pages have the older format");
    for format in [0, DELTA_FORMAT + 1, u16::MAX] {
        let mut other = cold.clone();
        other[8..10].copy_from_slice(&format.to_le_bytes());
        assert_eq!(open(&other).unwrap_err().code(), "pack.version");
    }
}
