//! Any bytes, read as a cold pack. Run with: `cargo +nightly fuzz run cold_pack_reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stasis_image::fuzzing::cold_pack_reader(data));
