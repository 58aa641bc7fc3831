//! Images, packs and heads of bundles that are as they should be.

use stasis_image::fuzzing::{Sample, sample_delta, sample_image, sample_pack, sample_rewritten};
use stasis_image::{BundleHead, ImageId, PackForm, PackRoot};

pub fn images() -> Vec<Vec<u8>> {
    let full = Sample {
        numbers: (0..20).map(|n| 1 << n).collect(),
        text: "stasis".into(),
        pairs: Some(vec![(7, true), (u32::MAX, false)]),
        map: [(1, vec![2, 3]), (300, vec![])].into(),
        outcome: Some(Err("no".into())),
        ..Sample::default()
    };
    let packed = stasis_image::pack_image(&sample_image(&full)).into_owned();
    vec![sample_image(&full), sample_image(&Sample::default()), packed, vec![0; 600]]
}

pub fn packs() -> Vec<Vec<u8>> {
    let partial = sample_rewritten(&[1, 2, 3], PackForm::Plain, &[1]);
    vec![sample_pack(&[]), sample_pack(&[1]), sample_pack(&[1, 2, 3]), partial, vec![0; 9000]]
}

pub fn cold_packs() -> Vec<Vec<u8>> {
    let many: Vec<u8> = (0..70).collect();
    let cold = |fill: &[u8], dead: &[u64]| sample_rewritten(fill, PackForm::Cold, dead);
    let whole = [cold(&[], &[]), cold(&[1], &[]), cold(&many, &[]), cold(&many, &[3, 40, 69])];
    whole.into_iter().chain([sample_delta(&[1, 2, 3]), sample_delta(&many)]).collect()
}

pub fn heads_of_bundles() -> Vec<Vec<u8>> {
    let head = |images: usize, packs: usize| {
        let images = (0..images).map(|n| (ImageId::of(&[n as u8]), 5)).collect();
        let packs = (0..packs).map(|n| (PackRoot::of(&[n as u8]), 9)).collect();
        let files = vec![([7; 32], 3); 2];
        let head = BundleHead { about: b"{\"a\":1}".to_vec(), images, packs, files };
        head.encode().expect("a sample is small")
    };
    vec![head(0, 0), head(3, 2)]
}
