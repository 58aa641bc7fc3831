//! Round trips, and the promise that no damage passes: every flipped bit and every cut of a small
//! image or pack is refused.

use proptest::prelude::*;
use stasis_image::fuzzing::{self, Sample, sample_image, sample_pack, sample_rewritten};
use stasis_image::{
    ImageReader, PAGE_SIZE, PackError, PackForm, PackReader, PackRoot, SectionKind,
};

fn sample() -> Sample {
    Sample {
        numbers: vec![1, u64::MAX],
        text: "stasis".into(),
        pairs: Some(vec![(7, true)]),
        map: [(1, vec![2, 3])].into(),
        ..Sample::default()
    }
}

fn verify_pack(bytes: &[u8], root: Option<PackRoot>) -> Result<(), PackError> {
    PackReader::open(bytes, bytes.len() as u64, root)?.verify_all()
}

#[test]
fn every_flipped_bit_of_an_image_is_detected() {
    let mut bytes = sample_image(&sample());
    ImageReader::open(&bytes).unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(ImageReader::open(&bytes).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_cut_of_an_image_is_torn() {
    let bytes = sample_image(&sample());
    for len in 0..bytes.len() {
        assert_eq!(ImageReader::open(&bytes[..len]).unwrap_err().code(), "image.torn", "at {len}");
    }
}

#[test]
fn every_flipped_bit_of_a_pack_is_detected() {
    let mut bytes = sample_pack(&[1]);
    verify_pack(&bytes, None).unwrap();
    for bit in 0..bytes.len() * 8 {
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert!(verify_pack(&bytes, None).is_err(), "bit {bit}");
        bytes[bit / 8] ^= 1 << (bit % 8);
    }
}

#[test]
fn every_flipped_bit_of_a_cold_or_partial_pack_is_detected() {
    let fill: Vec<u8> = (0..40).collect();
    let cold = sample_rewritten(&fill, PackForm::Cold, &[2, 39]);
    let partial = sample_rewritten(&[1, 2], PackForm::Plain, &[1]);
    // a hole's contents do not matter
    let hole = 2 * PAGE_SIZE..3 * PAGE_SIZE;
    for (mut bytes, apart) in [(cold, 0..0), (partial, hole)] {
        verify_pack(&bytes, None).unwrap();
        for bit in (0..bytes.len() * 8).filter(|bit| !apart.contains(&(bit / 8))) {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(verify_pack(&bytes, None).is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}

#[test]
fn every_cut_of_a_pack_is_torn() {
    let (cold, partial) = (PackForm::Cold, PackForm::Plain);
    let rewritten = |form, dead: &[u64]| sample_rewritten(&[1, 2], form, dead);
    for bytes in [sample_pack(&[1, 2]), rewritten(cold, &[]), rewritten(partial, &[0])] {
        for len in 0..bytes.len() {
            let error = verify_pack(&bytes[..len], None).unwrap_err();
            assert_eq!(error.code(), "pack.torn", "at {len}");
        }
    }
}

/// A page may hold what looks like the end of a pack. Cut right behind it, the file still has
/// another length than a pack of that many pages, whatever the page claims.
#[test]
fn a_page_cannot_pose_as_the_end() {
    for claimed in 0..4 {
        let small = sample_pack(&vec![0; claimed]);
        let tail = &small[small.len() - 80..];
        let mut bytes = sample_pack(&[])[..PAGE_SIZE].to_vec();
        bytes.resize(4 * PAGE_SIZE - tail.len(), 0);
        bytes.extend_from_slice(tail);
        assert_eq!(verify_pack(&bytes, None).unwrap_err().code(), "pack.torn");
    }
}

fn samples() -> impl Strategy<Value = Sample> {
    let outcome = prop_oneof![any::<i64>().prop_map(Ok), ".*".prop_map(Err)];
    (
        any::<Vec<u64>>(),
        ".*",
        any::<Option<Vec<(u32, bool)>>>(),
        any::<std::collections::BTreeMap<u64, Vec<u8>>>(),
        prop::option::of(outcome),
    )
        .prop_map(|(numbers, text, pairs, map, outcome)| Sample {
            numbers,
            text,
            pairs,
            map,
            hash: None,
            outcome,
        })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn images_round_trip(value in samples()) {
        let bytes = sample_image(&value);
        let reader = ImageReader::open(&bytes).unwrap();
        for kind in SectionKind::ALL {
            prop_assert_eq!(&reader.section::<Sample>(kind).unwrap(), &value);
        }
    }

    #[test]
    fn packs_round_trip(fill in prop::collection::vec(any::<u8>(), 0..20)) {
        let bytes = sample_pack(&fill);
        let reader = PackReader::open(&bytes[..], bytes.len() as u64, None).unwrap();
        prop_assert_eq!(reader.pages(), fill.len() as u64);
        let mut pages = vec![0; fill.len() * PAGE_SIZE];
        reader.read(0, &mut pages).unwrap();
        for (page, byte) in pages.chunks(PAGE_SIZE).zip(&fill) {
            prop_assert!(page.iter().all(|b| b == byte));
        }
    }

    #[test]
    fn a_damaged_page_is_found_when_the_rest_is_intact(
        fill in prop::collection::vec(any::<u8>(), 1..8),
        at in any::<prop::sample::Index>(),
        flip in 1..=255_u8,
    ) {
        let mut bytes = sample_pack(&fill);
        let at = at.index(fill.len() * PAGE_SIZE);
        bytes[PAGE_SIZE + at] ^= flip;
        match verify_pack(&bytes, None) {
            Err(PackError::Page { slot }) => prop_assert_eq!(slot, (at / PAGE_SIZE) as u64),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..10_000)) {
        fuzzing::image_reader(&bytes);
        fuzzing::pack_reader(&bytes);
        fuzzing::cold_pack_reader(&bytes);
    }
}
