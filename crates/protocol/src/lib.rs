//! Messages between the host and the agent inside a machine.
//!
//!   host ── Order ──► agent        one JSON object per line, both ways, over one stream socket
//!        ◄─ Report ──
//!
//! An agent is frozen into its image and may be older than the host that wakes it, so messages
//! only grow: a new field has a default, a new kind is sent only to agents whose `Ready` said they
//! know it. Everything a report says comes from inside a machine and is hostile.

#![forbid(unsafe_code)]

mod parse;

pub use parse::{LONGEST, Strange};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The generation this host speaks. Agents say theirs in `Report::Ready` and `Report::Awake`.
pub const GENERATION: u32 = 1;

/// A MIME bundle: text as it is, binary kinds (png, jpeg) in base64, JSON kinds as values.
pub type Bundle = BTreeMap<String, serde_json::Value>;

/// What the host asks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Order {
    /// The machine is back, or new: what changed around it.
    Wake(Wake),
    /// Run one instruction.
    Exec(Exec),
    /// Describe the variables of the session.
    Vars,
    /// Names that could stand at the cursor, which counts characters (not bytes) of the code.
    Complete { code: String, cursor: usize },
    /// Collect garbage and keep what is alive out of later collections: before a template is taken.
    Freeze,
    /// Write these variables, pickled (protocol 5), to a file of the machine.
    Save { names: Vec<String>, path: String },
    /// Read variables from such a file into the session.
    Load { path: String },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    pub reason: Reason,
    /// The machine's name, told to the program as `STASIS_MACHINE`.
    pub machine: String,
    /// Fresh entropy, in hex, for generators that must differ from any other machine's.
    pub entropy: String,
    /// Also reseed generators used for simulation (`random`, numpy).
    pub reseed: bool,
    /// Environment variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A new machine, from a template.
    New,
    /// A new machine, from another one's checkpoint.
    Branch,
    /// The same machine, swapped in.
    Wake,
    /// The same machine, back at an earlier checkpoint.
    Rollback,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exec {
    pub seq: u64,
    pub code: String,
    /// Values and bundles beyond this many bytes are cut, and say so.
    pub max_bytes: u64,
    /// What is cut is sent whole beforehand, as `Report::Part`s, if it has at most so many bytes.
    #[serde(default)]
    pub max_whole: u64,
}

/// What the agent says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// Started, warm-up not yet done.
    Ready {
        generation: u32,
        language: String,
        version: String,
    },
    /// Answer to `Wake`; `changed` says in words what was made fresh.
    Awake {
        generation: u32,
        changed: Vec<String>,
    },
    /// Something to show, while an instruction runs.
    Display {
        seq: u64,
        data: Bundle,
        /// What was left out of `data`, in words.
        #[serde(default)]
        cut: Option<String>,
    },
    /// A piece of something that is cut elsewhere; pieces of one thing follow each other.
    Part {
        seq: u64,
        /// `value` or `display`.
        name: String,
        /// Its MIME type.
        kind: String,
        text: String,
        /// Whether this is the last piece.
        last: bool,
    },
    /// An instruction has ended, whichever way.
    Done(Done),
    Vars {
        vars: Vec<Variable>,
    },
    Complete {
        start: usize,
        names: Vec<String>,
    },
    Frozen,
    /// Answer to `Save` and `Load`: what was carried, and what could not be and why.
    Carried {
        names: Vec<String>,
        failed: BTreeMap<String, String>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub seq: u64,
    /// repr of the last expression; absent when there is none or it is None.
    #[serde(default)]
    pub value: Option<String>,
    /// The last expression's value in every form it offers.
    #[serde(default)]
    pub data: Option<Bundle>,
    #[serde(default)]
    pub error: Option<Failure>,
    pub runtime_ms: f64,
    /// Variables that were bound, unbound or changed in place, as far as the agent saw.
    #[serde(default)]
    pub touched: Vec<String>,
    /// What was left out of `value` or `data`, in words.
    #[serde(default)]
    pub cut: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Failure {
    /// The exception's class, such as `ZeroDivisionError`.
    pub name: String,
    pub message: String,
    /// As Python prints it, without the agent's own frames.
    pub traceback: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    pub kind: String,
    /// Shape or length, where there is one.
    #[serde(default)]
    pub shape: Option<String>,
    #[serde(default)]
    pub bytes: Option<u64>,
    pub repr: String,
    /// Hash of the pickled value, where it can be pickled cheaply; for comparisons.
    #[serde(default)]
    pub digest: Option<String>,
}
