//! Readers of untrusted bytes as fuzz targets: seeds, and a function that accepts any bytes, never
//! panics on them, and checks that accepted data is consistent.
//!
//!   cargo +nightly fuzz run NAME            libFuzzer, guided by coverage
//!   cargo run -p stasis-fuzz --bin NAME     the same function over mutated seeds, on any toolchain
//!   cargo test -p stasis-fuzz               each for seconds (`make test`; longer: `make soak`)

#![forbid(unsafe_code)]

pub mod plain;
mod policies;
mod rego;
mod reports;
mod seeds;

use stasis_engine::fuzzing::{Importer, importer, sample_bundles};
use stasis_image::fuzzing;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

/// A fuzz target.
#[derive(Clone, Copy)]
pub struct Target {
    pub name: &'static str,
    /// Valid inputs, to be mutated.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Pieces that are worth putting somewhere.
    pub words: &'static [&'static str],
    pub run: fn(&[u8]),
}

/// The program of a target.
#[macro_export]
macro_rules! fuzz {
    ($target:path) => {
        #[cfg(fuzzing)]
        libfuzzer_sys::fuzz_target!(|data: &[u8]| ($target().run)(data));

        #[cfg(not(fuzzing))]
        fn main() {
            $crate::plain::run_for_a_while(&$target());
        }
    };
}

const fn target(name: &'static str, seeds: fn() -> Vec<Vec<u8>>, run: fn(&[u8])) -> Target {
    Target { name, seeds, words: &[], run }
}

pub const fn image_reader() -> Target {
    target("image_reader", seeds::images, fuzzing::image_reader)
}

pub const fn pack_reader() -> Target {
    target("pack_reader", seeds::packs, fuzzing::pack_reader)
}

pub const fn cold_pack_reader() -> Target {
    target("cold_pack_reader", seeds::cold_packs, fuzzing::cold_pack_reader)
}

pub const fn bundle_reader() -> Target {
    target("bundle_reader", seeds::heads_of_bundles, fuzzing::bundle_reader)
}

pub const fn bundle_importer() -> Target {
    target(
        "bundle_importer",
        || sample_bundles().to_vec(),
        |data| {
            import(data);
        },
    )
}

/// Questions of machines and answers of resolvers.
pub const fn dns_reader() -> Target {
    use stasis_egress::fuzzing::dns;
    target("dns_reader", dns::seeds, dns::run)
}

/// A machine's first bytes on a connection.
pub const fn hello_reader() -> Target {
    use stasis_egress::fuzzing::hello;
    target("hello_reader", hello::seeds, hello::run)
}

/// Heads of a machine's requests.
pub const fn head_reader() -> Target {
    use stasis_egress::fuzzing::head;
    let words =
        &["\r\n", "Host: ", "other.example", "Transfer-Encoding: chunked\r\n", "@", " /", ":"];
    Target { words, ..target("head_reader", head::seeds, head::run) }
}

/// Rego in policies, and what machines make of its input.
pub const fn rego_reader() -> Target {
    target("rego_reader", rego::seeds, rego::read)
}

/// Policies: a parsed one can be written and parsed again.
pub const fn policy_reader() -> Target {
    target("policy_reader", policies::seeds, policies::read)
}

/// Reports of agents: the most hostile input.
pub const fn report_reader() -> Target {
    Target { words: reports::WORDS, ..target("report_reader", reports::seeds, reports::read) }
}

/// In memory: every part of every input is synced. Nothing is left in it between two inputs.
static IMPORTER: LazyLock<Importer> = LazyLock::new(|| importer(&import_dir()));

/// The directory of imports; its user removes it.
pub fn import_dir() -> PathBuf {
    let memory = Path::new("/dev/shm");
    let parent = if memory.is_dir() { memory.to_owned() } else { std::env::temp_dir() };
    parent.join(format!("stasis-fuzz-{}", std::process::id()))
}

/// Whether a file was imported.
pub fn import(data: &[u8]) -> bool {
    IMPORTER.read(data)
}
