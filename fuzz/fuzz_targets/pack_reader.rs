//! Any bytes, read as a pack. Run with: `cargo +nightly fuzz run pack_reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stasis_image::fuzzing::pack_reader(data));
