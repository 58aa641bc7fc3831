//! Calls of tools from code, and the approvals that some of them wait for.

use crate::{Name, PolicyVerdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// How far a call of a tool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ToolCallState {
    /// A person has to allow or deny it.
    Waiting,
    /// A person allowed it; it has not been sent to the server yet.
    Approved,
    /// It was sent to the server.
    Running,
    /// The server answered.
    Completed,
    /// The tool or its server failed.
    Failed,
    /// A policy or a person denied it.
    Denied,
    /// It was not answered in time.
    Expired,
    /// Its instruction ended first.
    Cancelled,
    /// It was sent, and the service ended before the answer: it may have taken effect. It is not
    /// sent again.
    Unknown,
}

impl ToolCallState {
    pub fn word(self) -> &'static str {
        match self {
            ToolCallState::Waiting => "waiting",
            ToolCallState::Approved => "approved",
            ToolCallState::Running => "running",
            ToolCallState::Completed => "completed",
            ToolCallState::Failed => "failed",
            ToolCallState::Denied => "denied",
            ToolCallState::Expired => "expired",
            ToolCallState::Cancelled => "cancelled",
            ToolCallState::Unknown => "unknown",
        }
    }
}

/// A call of a tool by an instruction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = ToolCall)]
pub struct ToolCallInfo {
    pub id: u64,
    pub machine: Name,
    /// The number of the instruction.
    pub seq: u64,
    pub server: String,
    pub tool: String,
    /// The arguments as JSON text; of a long one, the beginning.
    pub arguments: String,
    pub state: ToolCallState,
    /// The answer of the machine's policies.
    pub verdict: PolicyVerdict,
    /// Why: the rule, or the lack of one.
    pub reason: String,
    #[schema(value_type = String, format = DateTime)]
    pub called_at: Timestamp,
    /// When a call without an answer is denied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub answered_at: Option<Timestamp>,
    /// The account that answered, and the id of its token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answered_by: Option<String>,
    /// The comment of that person for the code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub finished_at: Option<Timestamp>,
    /// Why there was no result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ToolCallList {
    /// The newest first.
    pub calls: Vec<ToolCallInfo>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ApprovalList {
    /// Calls that a person was asked about, the newest first.
    pub approvals: Vec<ToolCallInfo>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct ApprovalQuery {
    /// Also those that are answered or over; only those that wait, if absent.
    #[serde(default)]
    pub all: Option<bool>,
    /// Only calls of this machine.
    #[serde(default)]
    pub machine: Option<String>,
}

/// An answer to a call that waits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalAnswer {
    /// `allow` or `deny`.
    pub answer: ApprovalChoice,
    /// A sentence for the code, at most 1000 characters: the error of a denied call contains it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub note: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalChoice {
    Allow,
    #[default]
    Deny,
}
