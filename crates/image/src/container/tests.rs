//! Each fault of an image, and its refusal.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use super::*;
use crate::fuzzing::{Sample, sample_image};
use crate::{ImageError, ImageId};

const PAYLOAD: &[u8] = b"payload";

/// Five well-formed entries of [`PAYLOAD`] each, to be spoiled by a test.
fn entries() -> Vec<SectionEntry> {
    let header = (FIXED_LEN + SectionKind::ALL.len() * ENTRY_LEN) as u64;
    (0..)
        .zip(SectionKind::ALL)
        .map(|(i, kind)| SectionEntry::new(kind, header + i * PAYLOAD.len() as u64, PAYLOAD))
        .collect()
}

/// A file with this table and as many payloads, its checksums right.
fn file(entries: &[SectionEntry]) -> Vec<u8> {
    let mut bytes = encode_header(Arch::X86_64, entries);
    entries.iter().for_each(|_| bytes.extend_from_slice(PAYLOAD));
    bytes
}

/// The refusal of a file that was spoiled after it was made, with the header checksum made right.
fn refusal(spoil: impl FnOnce(&mut Vec<u8>)) -> ImageError {
    let mut bytes = file(&entries());
    spoil(&mut bytes);
    let header_len = (FIXED_LEN + SectionKind::ALL.len() * ENTRY_LEN).min(bytes.len());
    let checksum = header_checksum(&bytes[..header_len]);
    bytes[CHECKSUM_AT..FIXED_LEN].copy_from_slice(&checksum);
    ImageReader::open(&bytes).unwrap_err()
}

fn table_refusal(spoil: impl FnOnce(&mut Vec<SectionEntry>)) -> ImageError {
    let mut entries = entries();
    spoil(&mut entries);
    ImageReader::open(&file(&entries)).unwrap_err()
}

#[test]
fn the_order_of_writing_does_not_matter() {
    let mut forward = ImageWriter::new(Arch::X86_64);
    let mut backward = ImageWriter::new(Arch::X86_64);
    for kind in SectionKind::ALL {
        forward.section(kind, &u32::from(kind)).unwrap();
    }
    for kind in SectionKind::ALL.into_iter().rev() {
        backward.section(kind, &u32::from(kind)).unwrap();
    }
    let sealed = forward.finish().unwrap();
    assert_eq!(sealed, backward.finish().unwrap());
    assert_eq!(sealed.id, ImageId::of(&sealed.bytes));

    let reader = ImageReader::open(&sealed.bytes).unwrap();
    assert_eq!(reader.id(), sealed.id);
    assert_eq!(reader.arch(), Arch::X86_64);
    for kind in SectionKind::ALL {
        assert_eq!(reader.section::<u32>(kind).unwrap(), u32::from(kind));
    }
}

#[test]
fn the_writer_wants_each_kind_once() {
    let mut writer = ImageWriter::new(Arch::X86_64);
    writer.section(SectionKind::Meta, "a").unwrap();
    let twice = writer.section(SectionKind::Meta, "b").unwrap_err();
    assert_eq!(twice.to_string(), "section `meta` appears twice");
    let missing = writer.finish().unwrap_err();
    assert_eq!(missing.to_string(), "section `processes` is missing");
}

#[test]
fn another_format_is_explained_from_the_prefix_alone() {
    let mut bytes = sample_image(&Sample::default());
    bytes[8] = 3;
    for len in [10, FIXED_LEN, bytes.len()] {
        assert_eq!(peek_format(&bytes[..len]).unwrap(), 3);
        let error = ImageReader::open(&bytes[..len]).unwrap_err();
        assert_eq!(error.code(), "image.version");
        assert_eq!(error.to_string(), "image format 3, this program reads 1");
    }
}

#[test]
fn a_foreign_file_is_distinguished_from_a_torn_image() {
    assert_eq!(ImageReader::open(b"").unwrap_err().code(), "image.torn");
    assert_eq!(ImageReader::open(b"STASIS").unwrap_err().code(), "image.torn");
    assert_eq!(ImageReader::open(b"ELF").unwrap_err().code(), "image.magic");
}

#[test]
fn header_fields_are_refused_by_name() {
    assert_eq!(refusal(|b| b[10] = 1).code(), "image.flags");
    assert_eq!(refusal(|b| b[12] += 1).code(), "image.header");
    assert_eq!(refusal(|b| b[16] = 183).code(), "image.arch");
    assert_eq!(refusal(|b| b[18] = 1).code(), "image.reserved");
    assert_eq!(refusal(|b| b[63] = 1).code(), "image.reserved");
    assert_eq!(refusal(|b| b[20] = 4).code(), "image.header");
    assert_eq!(refusal(|b| b[23] = 0xff).code(), "image.limit");
}

#[test]
fn sections_are_refused_by_name() {
    let error = table_refusal(|t| (t[2].kind, t[2].version) = (9, 1));
    assert_eq!(error.code(), "image.section_unknown");
    assert_eq!(error.to_string(), "section kind 9 (version 1) is not known to this program");
    let error = table_refusal(|t| t[3].version = 7);
    assert_eq!(error.code(), "image.section_version");
    assert_eq!(error.to_string(), "section `memory` has version 7, this program reads 1");
    let twice = table_refusal(|t| (t[1].kind, t[1].version) = (t[0].kind, t[0].version));
    assert_eq!(twice.code(), "image.section_duplicate");
    assert_eq!(table_refusal(|t| t[4].checksum[0] ^= 1).code(), "image.checksum");
}

#[test]
fn a_missing_kind_is_refused() {
    let mut entries = entries();
    entries.pop();
    entries.iter_mut().for_each(|entry| entry.offset -= ENTRY_LEN as u64);
    let error = ImageReader::open(&file(&entries)).unwrap_err();
    assert_eq!(error.to_string(), "section `files` is missing");
}

#[test]
fn sections_lie_side_by_side_to_the_end() {
    assert!(matches!(table_refusal(|t| t[1].offset -= 1), ImageError::SectionOverlap { .. }));
    assert!(matches!(table_refusal(|t| t[0].offset = 0), ImageError::SectionOverlap { .. }));
    assert!(matches!(table_refusal(|t| t[1].offset += 1), ImageError::SectionGap { .. }));
    assert!(matches!(table_refusal(|t| t[4].offset = u64::MAX), ImageError::SectionGap { .. }));
    assert_eq!(table_refusal(|t| t[4].length += 1).code(), "image.torn");
    assert_eq!(refusal(|b| b.push(0)).code(), "image.trailing");
}

#[test]
fn a_length_past_the_limit_is_refused_as_such() {
    for length in [MAX_SECTION_LEN + 1, u64::MAX] {
        let error = table_refusal(|t| t[4].length = length);
        assert_eq!(error.code(), "image.limit");
    }
}

#[test]
fn leftovers_are_refused() {
    let bytes = file(&entries());
    let reader = ImageReader::open(&bytes).unwrap();
    let error = reader.section::<u8>(SectionKind::Meta).unwrap_err();
    assert_eq!(error.code(), "image.leftover");
    assert_eq!(error.to_string(), "section `meta` has 6 bytes left after decoding");
}

/// A count of 2^60 with a few bytes behind it must neither allocate for it nor run for it.
#[test]
fn a_hostile_count_is_refused_at_once() {
    let mut writer = ImageWriter::new(Arch::X86_64);
    for kind in SectionKind::ALL {
        writer.section(kind, &(1_u64 << 60, [1_u8; 16])).unwrap();
    }
    let bytes = writer.finish().unwrap().bytes;
    let reader = ImageReader::open(&bytes).unwrap();
    let start = Instant::now();
    assert!(reader.section::<Vec<u64>>(SectionKind::Meta).is_err());
    assert!(reader.section::<Vec<[u8; 32]>>(SectionKind::Meta).is_err());
    assert!(reader.section::<Vec<Sample>>(SectionKind::Meta).is_err());
    assert!(reader.section::<String>(SectionKind::Meta).is_err());
    assert!(reader.section::<Vec<u8>>(SectionKind::Meta).is_err());
    assert!(reader.section::<HashMap<u64, String>>(SectionKind::Meta).is_err());
    assert!(start.elapsed() < Duration::from_secs(1));
}
