//! Fuzzing without a fuzzer: seeds, then mutations of them, the same ones each time.

use crate::Target;
use stasis_image::fuzzing::{Random, mutate};
use std::path::PathBuf;
use std::time::{Duration, Instant};

const SEED: u64 = 0x5747_4153_4953;

/// Runs a target for that long; how many inputs that were. An input it fails on is kept in a file.
pub fn run(target: &Target, time: Duration) -> u64 {
    let (seeds, start) = ((target.seeds)(), Instant::now());
    let mut random = Random::new(SEED);
    let mut count = 0;
    let mut read = |bytes: &[u8]| {
        let guard = Guard { name: target.name, bytes };
        (target.run)(bytes);
        drop(guard);
        count += 1;
    };
    seeds.iter().for_each(|seed| read(seed));
    while start.elapsed() < time {
        let mut bytes = seeds[random.below(seeds.len())].clone();
        mutate(&mut bytes, &mut random);
        if random.below(2) == 0 && !target.words.is_empty() {
            let word = target.words[random.below(target.words.len())].as_bytes();
            let at = random.below(bytes.len() + 1);
            bytes.splice(at..at, word.iter().copied());
        }
        read(&bytes);
    }
    count
}

/// The main function of a target: runs for as many seconds as its first argument says, or sixty.
pub fn run_for_a_while(target: &Target) {
    let asked = std::env::args().nth(1).and_then(|text| text.parse().ok());
    let count = run(target, Duration::from_secs(asked.unwrap_or(60)));
    println!("{}: {count} inputs", target.name);
    let _ = std::fs::remove_dir_all(crate::import_dir());
}

/// Saves the current input if it makes its target panic.
struct Guard<'a> {
    name: &'a str,
    bytes: &'a [u8],
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let path = failed_input(self.name);
            let kept = std::fs::write(&path, self.bytes);
            eprintln!("{} failed on the input in {} ({kept:?})", self.name, path.display());
        }
    }
}

/// The path of a failing input.
pub fn failed_input(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("stasis-fuzz-{name}-{}", std::process::id()))
}
