//! Any bytes, taken in as a whole file with a machine. Run with:
//! `cargo +nightly fuzz run bundle_importer -- -max_len=65536`.
#![no_main]

use libfuzzer_sys::{fuzz_mutator, fuzz_target, fuzzer_mutate};
use stasis_engine::fuzzing::{Importer, sample_bundles};
use std::sync::LazyLock;

/// In memory: every part of every input is synced. Nothing is left in it between two inputs.
static IMPORTER: LazyLock<Importer> = LazyLock::new(|| {
    let dir = std::path::Path::new("/dev/shm/stasis-fuzz").join(std::process::id().to_string());
    Importer::new(&dir)
});

static SEEDS: LazyLock<[Vec<u8>; 2]> = LazyLock::new(sample_bundles);

fuzz_target!(|data: &[u8]| {
    IMPORTER.read(data);
});

// what has not even a head becomes a whole file first, so that a run needs no corpus
fuzz_mutator!(|data: &mut [u8], size: usize, max_size: usize, seed: u32| {
    let sample = &SEEDS[seed as usize % SEEDS.len()];
    if size > 56 || sample.len() > max_size {
        return fuzzer_mutate(data, size, max_size);
    }
    data[..sample.len()].copy_from_slice(sample);
    fuzzer_mutate(data, sample.len(), max_size)
});
