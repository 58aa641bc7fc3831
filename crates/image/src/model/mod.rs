//! The parts of a captured process tree, as plain data.
//!
//!   Manifest ─┬─ Meta       when, where, on which CPU, which packs hold its pages
//!             ├─ Process*   pid, threads, mappings, signals, timers, descriptors
//!             ├─ Object*    what descriptors point at (a pipe end, a file, a socket...)
//!             ├─ Segment*   shared memory, with its contents
//!             ├─ Run*       where each private page of each process lies in the packs
//!             └─ FileTree   the files the tree changed
//!
//! A restore trusts nothing here: every number came from a process that may have lied, so the
//! engine checks ranges and references before it uses them.

mod file;
mod ipc;
mod memory;
mod object;
mod process;
mod socket;

pub use file::*;
pub use ipc::*;
pub use memory::*;
pub use object::*;
pub use process::*;
pub use socket::*;

use serde::{Deserialize, Serialize};

/// The contents of an image, apart from pages, which are in packs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    pub meta: Meta,
    pub processes: Vec<Process>,
    pub objects: Vec<Object>,
    pub segments: Vec<Segment>,
    pub memory: Vec<ProcessPages>,
    pub files: FileTree,
}

impl Manifest {
    /// The locations of a process's private pages.
    pub fn runs_of(&self, pid: i32) -> &[PageRun] {
        let memory = self.memory.iter().find(|memory| memory.pid == pid);
        memory.map_or(&[], |memory| &memory.runs)
    }
}

/// The host and time of a capture, and the requirements of a restore.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Meta {
    /// The image this one was captured on top of, for lineage only: a manifest is complete
    /// by itself and never needs its parent's to be read.
    pub parent: Option<crate::ImageId>,
    /// The first of its line, from which most memory is inherited: a template, for machines.
    pub origin: Option<crate::ImageId>,
    /// The name of the tree's root file system.
    pub root: String,
    pub created_unix_ms: u64,
    pub kernel: String,
    pub cpu: CpuNeeds,
    pub clocks: Clocks,
    pub hostname: String,
    /// Packs that hold pages of this image, by their content root.
    pub packs: Vec<PackRef>,
    /// Mapped files, recorded so that a changed library is refused and not executed.
    pub mapped_files: Vec<MappedFile>,
    /// Seccomp filters that processes are under, each once.
    pub filters: Vec<SeccompFilter>,
}

/// A pack as an image refers to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PackRef {
    pub root: crate::PackRoot,
    pub pages: u64,
}

/// CPU state components and instruction sets the processes may have committed to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuNeeds {
    pub vendor: String,
    /// XCR0 of the capturing host: restored register state needs these components.
    pub xfeatures: u64,
    /// Feature flags by their `/proc/cpuinfo` names, sorted.
    pub flags: Vec<String>,
}

/// The tree's clocks at the instant of the capture, in its own time namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    pub monotonic_ns: i64,
    pub boottime_ns: i64,
    pub realtime_ns: i64,
}
