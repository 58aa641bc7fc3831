//! Runs `stasis-prepare`, installed beside the other programs, to convert code.
//!
//!   host ── code ──► stasis-prepare (no rights, little time and memory) ── PreparedCode ──►
//!
//! Parsing is left to a process because the text is hostile: it may overflow the stack, take all
//! memory or exponential time. The process ends then, and the instruction fails as if it was not
//! there.

use serde::de::DeserializeOwned;
use stasis_protocol::{PreparedCode, PreparedModule};
use std::io::{self, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

/// The name of the program.
pub const PREPARE: &str = "stasis-prepare";
/// The argument for a file that is imported.
pub const FILE: &str = "--file";
/// Maximum bytes of code to convert.
pub const LARGEST: usize = 1 << 20;
/// Bytes of an answer, in which a byte of code may be escaped, and places follow.
const LONGEST_ANSWER: u64 = 64 << 20;

pub fn prepare(programs: &Path, code: &str) -> Option<PreparedCode> {
    ask(programs, &[], code)?
}

/// The same for an imported file.
pub fn prepare_file(programs: &Path, text: &str) -> Option<PreparedModule> {
    ask(programs, &[FILE], text)
}

fn ask<T: DeserializeOwned>(programs: &Path, words: &[&str], code: &str) -> Option<T> {
    if code.len() > LARGEST {
        return None;
    }
    let answer = run(&programs.join(PREPARE), words, code).ok()?;
    serde_json::from_slice(&answer).ok()
}

fn run(program: &Path, words: &[&str], code: &str) -> io::Result<Vec<u8>> {
    let mut child = Command::new(program)
        .args(words)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    // it reads everything before it writes anything
    let sent = child.stdin.take().map_or(Ok(()), |mut input| input.write_all(code.as_bytes()));
    let mut answer = Vec::new();
    let read = match child.stdout.take() {
        Some(output) => output.take(LONGEST_ANSWER).read_to_end(&mut answer),
        None => Ok(0),
    };
    let _ = child.kill();
    let status = child.wait()?;
    sent.and(read)?;
    match status.success() {
        true => Ok(answer),
        false => Err(io::Error::other(format!("{status}"))),
    }
}
