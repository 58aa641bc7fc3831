//! Tools of upstream servers, called by an instruction.
//!
//!   agent ── Tool: list of server a ──► host        one request at a time, while the instruction
//!         ◄─ Tool: tools, and their etag ──         waits
//!         ── Tool: call a.b(arguments) ──►
//!         ◄─ Tool: result, or why there is none ──  after the policy or a person allowed it
//!
//! While a call waits for a person the machine may leave memory. The agent then first gets a
//! `Wake`, which it answers, and the answer afterwards.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The requested item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolRequest {
    /// The names of the servers.
    Servers,
    /// The tools of a server, unless they are still those with this etag.
    List {
        server: String,
        #[serde(default)]
        etag: Option<String>,
    },
    Call {
        server: String,
        tool: String,
        #[serde(default)]
        arguments: Map<String, Value>,
    },
    /// May an operation of a category take place? The machine's policies and their hooks decide,
    /// and may change its input.
    Effect { category: String, input: Value },
    /// The output of an operation, or why it failed.
    Effected {
        call: u64,
        #[serde(default)]
        output: Option<Value>,
        #[serde(default)]
        error: Option<String>,
    },
    /// A request that was too large to be read; names the part that was too large.
    #[serde(skip)]
    Cut(String),
}

/// The answer to a `ToolRequest`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum ToolAnswer {
    Servers {
        servers: Vec<String>,
    },
    Tools {
        etag: String,
        tools: Vec<DescribedTool>,
        /// Tools that are missing, in words.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        left_out: Option<String>,
    },
    /// The list is the one the agent has.
    Unchanged,
    Result {
        /// Blocks as MCP has them.
        content: Vec<Value>,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        structured: Option<Value>,
        /// The tool failed; the content says how.
        is_error: bool,
    },
    /// The operation may take place, with this input. Unless it is the last answer, its output
    /// follows (`ToolRequest::Effected`).
    Execute {
        call: u64,
        input: Value,
        last: bool,
    },
    /// The output of an operation as code gets it.
    Output {
        output: Value,
    },
    /// There is no result.
    Failed {
        /// A stable name for programs, such as `tool.denied`.
        code: String,
        message: String,
    },
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DescribedTool {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    pub input_schema: Map<String, Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Map<String, Value>>,
}
