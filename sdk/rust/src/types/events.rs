//! Types of events.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Name, PolicyVerdict};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Details: a path, a template, a parent, or a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    pub at: Timestamp,
    /// Numbers grow; some may be missing.
    pub id: u64,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The refused access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedAccess>,
    /// The number of the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How the instruction ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    #[serde(rename = "machine.created")]
    MachineCreated,
    #[serde(rename = "machine.updated")]
    MachineUpdated,
    #[serde(rename = "machine.removed")]
    MachineRemoved,
    #[serde(rename = "machine.woken")]
    MachineWoken,
    #[serde(rename = "machine.swapped")]
    MachineSwapped,
    #[serde(rename = "machine.pinned")]
    MachinePinned,
    #[serde(rename = "machine.fell_back")]
    MachineFellBack,
    #[serde(rename = "machine.rolled_back")]
    MachineRolledBack,
    #[serde(rename = "machine.redone")]
    MachineRedone,
    #[serde(rename = "instruction.queued")]
    InstructionQueued,
    #[serde(rename = "instruction.started")]
    InstructionStarted,
    #[serde(rename = "instruction.finished")]
    InstructionFinished,
    #[serde(rename = "checkpoint.made")]
    CheckpointMade,
    #[serde(rename = "file.put")]
    FilePut,
    #[serde(rename = "file.removed")]
    FileRemoved,
    #[serde(rename = "template.built")]
    TemplateBuilt,
    #[serde(rename = "template.removed")]
    TemplateRemoved,
    #[serde(rename = "network.refused")]
    NetworkRefused,
    #[serde(rename = "approval.requested")]
    ApprovalRequested,
    #[serde(rename = "approval.answered")]
    ApprovalAnswered,
    #[serde(rename = "policy.changed")]
    PolicyChanged,
    #[serde(rename = "policy.removed")]
    PolicyRemoved,
    #[serde(rename = "service.started")]
    ServiceStarted,
    #[serde(rename = "events.missed")]
    EventsMissed,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// A refused connection, name, import, file or command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RefusedAccess {
    /// The requested access, such as `tcp api.example.com:443 (203.0.113.7)`.
    pub access: String,
    /// The policy that decided; absent, if the service's own rules did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    pub reason: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
    /// Further refusals of the machine that were not reported because there were too many.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreported: Option<u64>,
    pub verdict: PolicyVerdict,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    Queued,
    Running,
    Done,
    Failed,
    Interrupted,
    Cancelled,
    Lost,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}
