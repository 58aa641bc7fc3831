//! Types of events.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// What else it is about: a path, a template, a parent, a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    pub at: Timestamp,
    /// Later ones are higher; numbers may be left out.
    pub id: u64,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// An instruction's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How an instruction ended.
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
    #[serde(rename = "service.started")]
    ServiceStarted,
    #[serde(rename = "events.missed")]
    EventsMissed,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}

/// 1 to 64 of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which means "make
/// one".
pub type Name = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Status {
    Queued,
    Running,
    Done,
    Interrupted,
    Cancelled,
    Lost,
    /// A word of a newer service.
    #[serde(other)]
    Newer,
}
