//! Any bytes, read as a report of an agent. Run with: `cargo +nightly fuzz run report_reader`.
#![no_main]

use stasis_protocol::Report;

libfuzzer_sys::fuzz_target!(|line: &[u8]| {
    let _ = Report::cut(line, "too much");
    let _ = Report::parse(line);
});
