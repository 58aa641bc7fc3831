//! Files with machines, mutated: the fuzz target's entry point, without a fuzzer.

use crate::store::fuzzing::{Importer, sample_bundles};
use stasis_image::fuzzing::{Random, mutate};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const ROUNDS: usize = 3_000;
/// A slow machine does fewer rounds instead of holding up everyone.
const BUDGET: Duration = Duration::from_secs(8);

#[test]
fn any_file_is_taken_in_whole_or_refused_and_leaves_nothing() {
    // in memory, where there is such a place: every file of every round is synced
    let dir = TempDir::new_in("/dev/shm").or_else(|_| TempDir::new()).expect("a directory");
    let importer = Importer::new(dir.path());
    let seeds = sample_bundles();
    seeds.iter().for_each(|seed| assert!(importer.read(seed), "the seeds are fine"));
    let mut random = Random::new(0x0062_756e_646c_6573);
    let start = Instant::now();
    let mut refused = 0;
    for _ in 0..ROUNDS {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        mutate(&mut bytes, &mut random);
        refused += usize::from(!importer.read(&bytes));
        if start.elapsed() > BUDGET {
            break;
        }
    }
    assert!(refused > 0, "mutations do something");
}
