//! The host of the measurements.

use serde::Serialize;
use std::fs;
use std::path::Path;

#[derive(Debug, Serialize)]
pub struct HostInfo {
    pub kernel: String,
    pub cpu: String,
    pub cpus: usize,
    pub memory_mib: u64,
    pub transparent_hugepages: String,
    /// The file system of the images.
    pub file_system: String,
    /// Load of other work, just before the first measurement.
    pub load_before: f64,
    pub build: &'static str,
}

impl HostInfo {
    /// Whether other work took a fair part of the processors.
    pub fn was_busy(&self) -> bool {
        self.load_before > self.cpus as f64 / 2.0
    }

    pub fn look(dir: &Path) -> HostInfo {
        let cpuinfo = read("/proc/cpuinfo");
        let meminfo = read("/proc/meminfo");
        HostInfo {
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            cpu: field(&cpuinfo, "model name").to_owned(),
            cpus: std::thread::available_parallelism().map_or(1, |count| count.get()),
            memory_mib: field(&meminfo, "MemTotal")
                .split_whitespace()
                .next()
                .and_then(|kib| kib.parse::<u64>().ok())
                .map_or(0, |kib| kib / 1024),
            transparent_hugepages: chosen(&read("/sys/kernel/mm/transparent_hugepage/enabled")),
            file_system: file_system(dir),
            load_before: load().unwrap_or(0.0),
            build: if cfg!(debug_assertions) { "debug" } else { "release" },
        }
    }
}

fn load() -> Option<f64> {
    read("/proc/loadavg").split(' ').next()?.parse().ok()
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// The value of the first line `key : value`.
fn field<'a>(text: &'a str, key: &str) -> &'a str {
    let line = text.lines().find_map(|line| line.strip_prefix(key));
    line.map_or("", |rest| rest.trim_start_matches([' ', '\t', ':']))
}

/// The word in brackets.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or("unknown", |(word, _)| word).to_owned()
}

/// The type of a directory's mount.
fn file_system(dir: &Path) -> String {
    let mounts = read("/proc/self/mounts");
    let under = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        let (at, kind) = (words.next()?, words.next()?);
        dir.starts_with(at).then_some((at.len(), kind))
    });
    // of mounts at the same place the last one is on top
    under.max_by_key(|(len, _)| *len).map_or("unknown", |(_, kind)| kind).to_owned()
}
