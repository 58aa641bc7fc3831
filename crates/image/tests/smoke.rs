//! The fuzz targets' entry points over mutated files, without a fuzzer: the same inputs each time.

use std::time::{Duration, Instant};

use stasis_image::Form;
use stasis_image::fuzzing::{
    self, Random, Sample, mutate, sample_image, sample_pack, sample_rewritten,
};

const IMAGE_ROUNDS: usize = 60_000;
const PACK_ROUNDS: usize = 40_000;
/// A slow machine does fewer rounds instead of holding up everyone.
const BUDGET: Duration = Duration::from_secs(3);

fn run(seeds: &[Vec<u8>], rounds: usize, target: fn(&[u8])) {
    let mut random = Random::new(0x5747_4153_4953);
    let start = Instant::now();
    seeds.iter().for_each(|seed| target(seed));
    for _ in 0..rounds {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        mutate(&mut bytes, &mut random);
        target(&bytes);
        if start.elapsed() > BUDGET {
            break;
        }
    }
}

#[test]
fn image_reader() {
    let full = Sample {
        numbers: (0..20).map(|n| 1 << n).collect(),
        text: "stasis".into(),
        pairs: Some(vec![(7, true), (u32::MAX, false)]),
        map: [(1, vec![2, 3]), (300, vec![])].into(),
        outcome: Some(Err("no".into())),
        ..Sample::default()
    };
    let seeds = [sample_image(&full), sample_image(&Sample::default()), vec![0; 600]];
    run(&seeds, IMAGE_ROUNDS, fuzzing::image_reader);
}

#[test]
fn pack_reader() {
    let partial = sample_rewritten(&[1, 2, 3], Form::Plain, &[1]);
    let (one, three) = (sample_pack(&[1]), sample_pack(&[1, 2, 3]));
    let seeds = [sample_pack(&[]), one, three, partial, vec![0; 9000]];
    run(&seeds, PACK_ROUNDS, fuzzing::pack_reader);
}

#[test]
fn cold_pack_reader() {
    let many: Vec<u8> = (0..70).collect();
    let cold = |fill: &[u8], dead: &[u64]| sample_rewritten(fill, Form::Cold, dead);
    let seeds = [cold(&[], &[]), cold(&[1], &[]), cold(&many, &[]), cold(&many, &[3, 40, 69])];
    run(&seeds, PACK_ROUNDS, fuzzing::cold_pack_reader);
}

#[test]
fn heads_of_bundles() {
    let head = |images: usize, packs: usize| {
        let images = (0..images).map(|n| (stasis_image::ImageId::of(&[n as u8]), 5)).collect();
        let packs = (0..packs).map(|n| (stasis_image::PackRoot::of(&[n as u8]), 9)).collect();
        let files = vec![([7; 32], 3); 2];
        let head = stasis_image::BundleHead { about: b"{\"a\":1}".to_vec(), images, packs, files };
        head.encode().expect("a sample is small")
    };
    run(&[head(0, 0), head(3, 2)], IMAGE_ROUNDS, fuzzing::bundle_reader);
}
