//! Any bytes, read as an image. Run with: `cargo +nightly fuzz run image_reader`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| stasis_image::fuzzing::image_reader(data));
