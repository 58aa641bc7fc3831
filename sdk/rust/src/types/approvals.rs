//! Types of approvals.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An answer to a call that waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ApprovalAnswer {
    /// `allow` or `deny`.
    pub answer: ApprovalChoice,
    /// A sentence for the code, at most 1000 characters: the error of a denied call contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ApprovalChoice {
    Allow,
    Deny,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ApprovalList {
    /// Calls that a person was asked about, the newest first.
    pub approvals: Vec<ToolCall>,
}

/// 1 to 64 characters of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which
/// means "create one".
pub type Name = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum PolicyVerdict {
    Allow,
    Ask,
    Deny,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// A call of a tool by an instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_at: Option<Timestamp>,
    /// The account that answered, and the id of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The arguments as JSON text; of a long one, the beginning.
    pub arguments: String,
    pub called_at: Timestamp,
    /// Why there was no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// When a call without an answer is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
    pub id: u64,
    pub machine: Name,
    /// The comment of that person for the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Why: the rule, or the lack of one.
    pub reason: String,
    /// The number of the instruction.
    pub seq: u64,
    pub server: String,
    pub state: ToolCallState,
    pub tool: String,
    /// The answer of the machine's policies.
    pub verdict: PolicyVerdict,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCallList {
    /// The newest first.
    pub calls: Vec<ToolCall>,
}

/// How far a call of a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolCallState {
    Waiting,
    Approved,
    Running,
    Completed,
    Failed,
    Denied,
    Expired,
    Cancelled,
    Unknown,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}
