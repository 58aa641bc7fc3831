//! Arguments that several commands share, read and checked.

use crate::failure::{CliFailure, Result};
use stasis_api::{Checkpoints, Durability, Limits};
use std::collections::BTreeMap;
use std::io::Read;

/// Maximum length of code from standard input or a file.
const LONGEST: u64 = 16 << 20;

/// Reads `key=value`.
pub fn pair(text: &str) -> std::result::Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err("write it as key=value".to_owned()),
    }
}

pub fn map(pairs: Vec<(String, String)>) -> BTreeMap<String, String> {
    pairs.into_iter().collect()
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum Level {
    /// Answer at once; the checkpoint follows within a second
    Memory,
    /// Answer when the checkpoint is on disk
    Local,
}

impl From<Level> for Durability {
    fn from(level: Level) -> Durability {
        match level {
            Level::Memory => Durability::Memory,
            Level::Local => Durability::Local,
        }
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
pub enum States {
    /// Every instruction has a state of its own
    Exact,
    /// Instructions that follow each other at once share one: more of them in a second
    Grouped,
}

impl From<States> for Checkpoints {
    fn from(states: States) -> Checkpoints {
        match states {
            States::Exact => Checkpoints::Exact,
            States::Grouped => Checkpoints::Grouped,
        }
    }
}

#[derive(clap::Args, Debug, Clone, Default)]
pub struct LimitArgs {
    /// Memory limit in MiB
    #[arg(long, value_name = "MIB")]
    memory_mb: Option<u64>,
    /// Processor limit, such as 1.5
    #[arg(long, value_name = "N")]
    cpus: Option<f64>,
    /// Limit of processes and threads
    #[arg(long, value_name = "N")]
    pids: Option<u64>,
    /// Disk limit in MiB
    #[arg(long, value_name = "MIB")]
    disk_mb: Option<u64>,
}

impl LimitArgs {
    pub fn limits(&self) -> Limits {
        let LimitArgs { memory_mb, cpus, pids, disk_mb } = *self;
        Limits { memory_mb, cpus, pids, disk_mb }
    }
}

/// The code: given, from standard input for `-`, or from a file.
pub fn code(given: Option<String>, file: Option<&str>) -> Result<String> {
    match (given, file) {
        (Some(code), _) => Ok(code),
        (None, None | Some("-")) => read(std::io::stdin(), "standard input"),
        (None, Some(path)) => {
            let file = std::fs::File::open(path).map_err(|error| unread(path, &error))?;
            read(file, path)
        }
    }
}

fn read(from: impl Read, name: &str) -> Result<String> {
    let mut text = String::new();
    from.take(LONGEST + 1).read_to_string(&mut text).map_err(|error| unread(name, &error))?;
    if text.len() as u64 > LONGEST {
        return Err(CliFailure::usage(format!("{name} is longer than {LONGEST} bytes")));
    }
    Ok(text)
}

fn unread(name: &str, error: &std::io::Error) -> CliFailure {
    CliFailure::usage(format!("read {name}: {error}"))
}
