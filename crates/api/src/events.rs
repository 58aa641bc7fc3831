//! Events: everything that changes, as it is told.

use crate::{Name, Status};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
pub enum EventKind {
    #[serde(rename = "machine.created")]
    MachineCreated,
    #[serde(rename = "machine.updated")]
    MachineUpdated,
    #[serde(rename = "machine.removed")]
    MachineRemoved,
    /// It came into memory.
    #[serde(rename = "machine.woken")]
    MachineWoken,
    /// It left memory.
    #[serde(rename = "machine.swapped")]
    MachineSwapped,
    /// It cannot be saved for now.
    #[serde(rename = "machine.pinned")]
    MachinePinned,
    /// Its memory was lost; it is at its last checkpoint.
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
    /// The service was started; what happened right before its end may not have been told.
    #[serde(rename = "service.started")]
    ServiceStarted,
    /// Events between the one that was asked for and the next are no longer known.
    #[serde(rename = "events.missed")]
    EventsMissed,
}

impl EventKind {
    /// Its name, as it is told.
    pub fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }
}

/// Something that changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Later ones are higher; numbers may be left out.
    pub id: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// An instruction's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How an instruction ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// What else it is about: a path, a template, a parent, a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
pub struct EventFilter {
    /// Only of this machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// Only of machines with this tag, written `key=value`.
    #[serde(default)]
    pub tag: Option<String>,
    /// Only kinds that begin so, such as `machine.`
    #[serde(default)]
    pub kind: Option<String>,
    /// Those after this one, as far as they are known; from now on, if absent. The same as the
    /// header `last-event-id`.
    #[serde(default)]
    pub after: Option<u64>,
}
