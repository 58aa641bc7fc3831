//! Messages between the host and the agent inside a machine.
//!
//!   host ── Order ──► agent        one JSON object per line, both ways, over one stream socket
//!        ◄─ Report ──
//!
//! An agent is frozen into its image and may be older than the host that wakes it, so messages are
//! only extended: a new field has a default, and a new kind is sent only to agents whose `Ready`
//! lists it. Reports come from inside a machine and are hostile.

#![forbid(unsafe_code)]

mod fetch;
mod parse;
mod tool;

pub use fetch::{
    BlobRef, FetchAnswer, FetchRequest, FetchedPackage, PIECE, PreparedModule, TextForm,
};
pub use parse::{LONGEST, ReportError};
pub use tool::{DescribedTool, ToolAnswer, ToolRequest};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The generation this host speaks. Agents say theirs in `Report::Ready` and `Report::Awake`.
pub const GENERATION: u32 = 1;

/// A MIME bundle: text as it is, binary kinds (png, jpeg) in base64, JSON kinds as values.
pub type Bundle = BTreeMap<String, serde_json::Value>;

/// Orders of the host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Order {
    /// The machine is back, or new: the changes around it.
    Wake(Wake),
    /// Run one instruction.
    Exec(ExecOrder),
    /// Describe the variables of the session.
    Vars,
    /// Completions at the cursor, which counts characters (not bytes) of the code.
    Complete { code: String, cursor: usize },
    /// Collect garbage and exclude live objects from later collections: before a template is
    /// captured.
    Freeze,
    /// Write these variables, pickled (protocol 5), to a file of the machine.
    Save { names: Vec<String>, path: String },
    /// Read variables from such a file into the session.
    Load { path: String },
    /// The line that an instruction requested with `Report::Input`; none at the end of input. Has
    /// no answer.
    Input { seq: u64, line: Option<String> },
    /// The answer to a `Report::Fetch`. Has no answer itself.
    Fetched { seq: u64, id: u64, answer: FetchAnswer },
    /// The answer to a `Report::Tool`. Has no answer itself.
    Tool { seq: u64, id: u64, answer: ToolAnswer },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Wake {
    pub reason: Reason,
    /// The machine's name, which the program sees as `STASIS_MACHINE`.
    pub machine: String,
    /// Fresh entropy, in hex, for generators that must differ from any other machine's.
    pub entropy: String,
    /// Also reseed generators used for simulation (`random`, numpy).
    pub reseed: bool,
    /// Environment variables to set.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Environment variables to set unless they are set to something else than in the template.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub defaults: BTreeMap<String, String>,
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
pub struct ExecOrder {
    pub seq: u64,
    pub code: String,
    /// Values and bundles beyond this many bytes are cut, and say so.
    pub max_bytes: u64,
    /// Cut data is sent whole beforehand, as `Report::Part`s, if it has at most this many bytes.
    #[serde(default)]
    pub max_whole: u64,
    /// Whether the instruction may ask for input with `Report::Input`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub input: bool,
    /// Whether the instruction may have the host fetch something with `Report::Fetch`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub fetch: bool,
    /// Whether the instruction may use tools with `Report::Tool`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub tools: bool,
    /// The host's conversion of the code, for an agent that could not parse it (`Done::unparsed`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared: Option<PreparedCode>,
}

/// The host's conversion of code that an agent could not parse.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum PreparedCode {
    /// Run instead: the same lines, and columns that moved only as `places` list.
    Code { code: String, places: Vec<Place> },
    /// It is wrong in this place, whose line and column count from 1.
    Refused { message: String, line: u32, column: u32 },
}

/// From this column of a line on (`made`, in the converted code), up to the next place of the line,
/// columns correspond to those from `own` on in the user's text. If `still`, all of them are `own`.
/// They count UTF-16 units from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    pub line: u32,
    pub made: u32,
    pub own: u32,
    pub still: bool,
}

/// Reports of the agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Report {
    /// Started, warm-up not yet done.
    Ready {
        generation: u32,
        language: String,
        version: String,
        /// The kinds of orders it knows; empty for agents that do not report them, which know those
        /// of the first generation.
        #[serde(default)]
        orders: Vec<String>,
    },
    /// Answer to `Wake`; `changed` describes what was renewed.
    Awake {
        generation: u32,
        changed: Vec<String>,
    },
    /// A display, while an instruction runs.
    Display {
        seq: u64,
        data: Bundle,
        /// A description of the parts omitted from `data`.
        #[serde(default)]
        cut: Option<String>,
    },
    /// The instruction waits for a line of input, which `Order::Input` brings.
    Input {
        seq: u64,
        prompt: String,
    },
    /// The instruction waits for something that `Order::Fetched` brings.
    Fetch {
        seq: u64,
        /// Counts the agent's requests; the answer repeats it.
        id: u64,
        what: FetchRequest,
    },
    /// The instruction waits for tools or the result of one, which `Order::Tool` brings.
    Tool {
        seq: u64,
        /// Counts the requests of the agent; the answer repeats it.
        id: u64,
        what: ToolRequest,
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
    /// Answer to `Save` and `Load`: the transferred variables, and why others failed.
    Carried {
        names: Vec<String>,
        failed: BTreeMap<String, String>,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Done {
    pub seq: u64,
    /// The last expression as the language shows it; absent when it has no value.
    #[serde(default)]
    pub value: Option<String>,
    /// The last expression's value in every form it offers.
    #[serde(default)]
    pub data: Option<Bundle>,
    #[serde(default)]
    pub error: Option<ExceptionInfo>,
    /// How it ended; absent from agents that do not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub how: Option<InstructionEnd>,
    pub runtime_ms: f64,
    /// Variables that were bound, unbound or changed in place, as far as the agent saw.
    #[serde(default)]
    pub touched: Vec<String>,
    /// A description of the parts omitted from `value` or `data`.
    #[serde(default)]
    pub cut: Option<String>,
    /// The code could not be parsed, so that none of it ran.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unparsed: bool,
}

/// The end of an instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum InstructionEnd {
    Completed,
    Failed,
    /// By the exception of an interrupt, from any sender.
    Interrupted,
    /// A word of a newer agent.
    #[serde(other)]
    Unknown,
}

impl Order {
    /// The kind of this order, as an agent names it in `Ready`.
    pub fn kind(&self) -> &'static str {
        match self {
            Order::Wake(_) => "wake",
            Order::Exec(_) => "exec",
            Order::Vars => "vars",
            Order::Complete { .. } => "complete",
            Order::Freeze => "freeze",
            Order::Save { .. } => "save",
            Order::Load { .. } => "load",
            Order::Input { .. } => "input",
            Order::Fetched { .. } => "fetched",
            Order::Tool { .. } => "tool",
        }
    }

    /// The kinds known to agents that do not report them.
    pub const FIRST: [&str; 7] = ["wake", "exec", "vars", "complete", "freeze", "save", "load"];
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExceptionInfo {
    /// Its kind, such as `ZeroDivisionError`.
    pub name: String,
    pub message: String,
    /// As the language prints it, without the agent's own frames.
    pub traceback: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Variable {
    pub name: String,
    pub kind: String,
    /// Shape or length, if any.
    #[serde(default)]
    pub shape: Option<String>,
    #[serde(default)]
    pub bytes: Option<u64>,
    pub repr: String,
    /// Hash of the pickled value, where it can be pickled cheaply; for comparisons.
    #[serde(default)]
    pub digest: Option<String>,
}
