//! `stasis-prepare`: reads code from standard input and writes the converted code as JSON; see
//! `stasis_agent::typescript`. It can access only its own memory.

#![forbid(unsafe_code)]

use stasis_agent::{FILE, LARGEST, typescript};
use stasis_sys::{landlock, libc, process};
use std::io::{self, Read, Write};

/// Seconds of a processor, bytes of memory, and bytes of the parser's stack, which recurses.
const SECONDS: u64 = 2;
const MEMORY: u64 = 1 << 30;
const STACK: usize = 256 << 20;
/// The user and group that own no file.
const NOBODY: u32 = 65534;

fn main() -> io::Result<()> {
    restrict()?;
    let mut code = String::new();
    io::stdin().take(LARGEST as u64 + 1).read_to_string(&mut code)?;
    let thread = std::thread::Builder::new().stack_size(STACK);
    let is_file = std::env::args().any(|word| word == FILE);
    let prepared = thread.spawn(move || match is_file {
        true => serde_json::to_vec(&typescript::prepare_file(&code)),
        false => serde_json::to_vec(&typescript::prepare(&code)),
    })?;
    let prepared = prepared.join().map_err(|_| io::Error::other("the parser panicked"))??;
    let mut output = io::stdout().lock();
    output.write_all(&prepared)?;
    output.flush()
}

fn restrict() -> io::Result<()> {
    process::lower_limit(libc::RLIMIT_CPU, SECONDS)?;
    process::lower_limit(libc::RLIMIT_AS, MEMORY)?;
    process::lower_limit(libc::RLIMIT_CORE, 0)?;
    process::no_new_privileges()?;
    let handled_files = landlock::all_files(landlock::version());
    if handled_files != 0 {
        landlock::restrict(&landlock::Ruleset { handled_files, scoped: 0, below: Vec::new() })?;
    }
    process::drop_bounding_set()?;
    process::set_groups(&[])?;
    process::set_ids(NOBODY, NOBODY)?;
    process::drop_capabilities()
}
