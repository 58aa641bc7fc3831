//! Any bytes, read as the beginning of a file with a machine. Run with:
//! `cargo +nightly fuzz run bundle_reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stasis_image::fuzzing::bundle_reader(data));
