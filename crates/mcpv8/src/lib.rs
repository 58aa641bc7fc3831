//! mcp-v8's surface over machines: its executions are instructions of JavaScript machines, its
//! heaps are states (`machine@seq`) under keys of 64 hexadecimal digits, its sessions are sequences
//! of such states. Its file trees are lists of contents, stored beside the machines.
//!
//!   routes ─┐                      ┌─► a new machine, removed after the run      (stateless, fs)
//!           ├─► V8 ─► queue ─► run ┼─► the machine that is at the heap's state    (heap, heap+fs)
//!   tools  ─┘                      └─► a branch of the heap's state               (heap, heap+fs)
//!
//! With a file store, a tree is written to /work of the machine before the run and read back after
//! it.
//!
//! Both surfaces are here, HTTP (`routes`) and MCP (`tools`); `server` and `mcp` only connect them.
//!
//! A run is recorded before it is answered, with everything needed to follow it, so that a killed
//! service ends it after its next start (`recover.rs`). A failed run does not change the state it
//! started from: its machine rolls back, or is removed if it was new. The end of a run, its output,
//! its heap and the entry in its session's log are one transaction.

#![forbid(unsafe_code)]

mod artifacts;
mod documents;
mod error;
mod exec;
mod executions;
mod fetch_headers;
mod fs_routes;
mod fs_tools;
mod heaps;
mod label_use;
mod labels;
mod merge;
mod mode;
mod outside;
mod pages;
mod policy;
mod queue;
mod recover;
mod routes;
mod run;
mod run_file;
pub mod settings;
mod settle;
mod setup;
mod setup_routes;
mod skills;
mod template;
mod texts;
mod tools;
mod trees;
mod upstream;
mod verdict;
mod wasm;
mod watch;
mod work;

pub use artifacts::{ArtifactMeta, ArtifactPayload};
pub use error::{Error, Result};
pub use executions::{ExecutionInfo, ExecutionSummary, OpenExecution};
pub use heaps::{HeapTags, SessionEntry, fresh_session};
pub use labels::{FsLabel, FsPush, FsReset};
pub use merge::FsMerge;
pub use mode::V8Mode;
pub use pages::{OutputPage, PageRequest};
pub use routes::{V8Caller, V8Carrier, V8Event, is_own_path, routes};
pub use run::V8RunRequest;
pub use run_file::{RUN_FILE, RunFile};
pub use settings::V8Settings;
pub use setup::{V8Setup, V8Stub};
pub use skills::{
    MOST_BYTES as SKILL_BYTES, MOST_FILES as SKILL_FILES, MOST_SKILLS, SkillFile, V8Skill,
};
pub use texts::{RESOURCES, V8Resource, instructions, openapi, read_resource};
pub use tools::{V8Answer, V8Call, V8Result, V8Tool, finished, started, tools};
pub use wasm::{DEFAULT_MEMORY as DEFAULT_WASM_MEMORY, WasmModule};

use executions::RunningExecution;
use parking_lot::{Mutex, RwLock};
use queue::RunQueue;
use stasis_api::Name;
use stasis_machine::Host;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::Duration;

/// The template of the language of the machines that run code.
pub const TEMPLATE: &str = "javascript";

/// mcp-v8's surface over a host.
#[derive(Clone)]
pub struct V8 {
    pub(crate) host: Arc<Host>,
    pub(crate) shared: Arc<Shared>,
}

pub(crate) struct Shared {
    pub(crate) queue: Mutex<RunQueue>,
    /// Unfinished runs, by account and id.
    pub(crate) running: Mutex<HashMap<(String, String), Arc<RunningExecution>>>,
    /// Ends that could not be recorded, by account and id.
    pub(crate) unrecorded: Mutex<HashMap<(String, String), ExecutionInfo>>,
    /// Whether a thread watches runs that do not end.
    pub(crate) is_watched: AtomicBool,
    /// Maximum time for everything around a run's code.
    pub(crate) grace: Duration,
    /// Runs that ended in this process.
    pub(crate) ends: AtomicU64,
    /// The template with the program.
    pub(crate) template: template::ProgramTemplate,
    /// Held while setups are kept and removed.
    pub(crate) setups: Mutex<()>,
    /// Policies of setups that are in force, oldest first.
    pub(crate) policies: Mutex<VecDeque<Name>>,
    /// Held while a label is read and moved.
    pub(crate) labels: Mutex<()>,
    /// Held for reading from the time a tree's contents are stored until it is recorded, for
    /// writing while unreferenced contents are removed.
    pub(crate) trees: RwLock<()>,
    /// Bytes of file trees by account, as counted so far.
    pub(crate) tree_bytes: Mutex<HashMap<String, u64>>,
}

impl V8 {
    /// Follows the runs of an earlier process; new runs wait until those are known.
    pub fn new(host: Arc<Host>) -> V8 {
        V8::with_grace(host, watch::GRACE)
    }

    /// The same, with a maximum time for everything around a run's code.
    pub fn with_grace(host: Arc<Host>, grace: Duration) -> V8 {
        let shared = Shared {
            queue: Mutex::default(),
            running: Mutex::default(),
            unrecorded: Mutex::default(),
            is_watched: AtomicBool::new(false),
            grace,
            ends: AtomicU64::new(0),
            template: template::ProgramTemplate::default(),
            setups: Mutex::default(),
            policies: Mutex::default(),
            labels: Mutex::default(),
            trees: RwLock::default(),
            tree_bytes: Mutex::default(),
        };
        let v8 = V8 { host, shared: Arc::new(shared) };
        let own = v8.clone();
        stasis_machine::hand_over(move || own.recover());
        v8
    }
}
