//! Events: changes of machines, instructions, files and templates.

use crate::{Name, RefusedAccess, Status};
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
    /// The machine came into memory.
    #[serde(rename = "machine.woken")]
    MachineWoken,
    /// The machine left memory.
    #[serde(rename = "machine.swapped")]
    MachineSwapped,
    /// The machine cannot be saved at present.
    #[serde(rename = "machine.pinned")]
    MachinePinned,
    /// The machine's memory was lost; it is back at its last checkpoint.
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
    /// A connection, a name or an import of the machine was refused.
    #[serde(rename = "network.refused")]
    NetworkRefused,
    /// A call of a tool waits for a person.
    #[serde(rename = "approval.requested")]
    ApprovalRequested,
    /// A person allowed or denied a call.
    #[serde(rename = "approval.answered")]
    ApprovalAnswered,
    #[serde(rename = "policy.changed")]
    PolicyChanged,
    #[serde(rename = "policy.removed")]
    PolicyRemoved,
    /// The service started. Events right before it last stopped may not have been sent.
    #[serde(rename = "service.started")]
    ServiceStarted,
    /// Events between the requested one and the next are no longer available.
    #[serde(rename = "events.missed")]
    EventsMissed,
}

impl EventKind {
    /// The name of this kind in events.
    pub fn word(self) -> String {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::String(word)) => word,
            _ => String::new(),
        }
    }
}

/// A change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Event {
    /// Numbers grow; some may be missing.
    pub id: u64,
    #[schema(value_type = String, format = DateTime)]
    pub at: Timestamp,
    pub kind: EventKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Name>,
    /// The number of the instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// How the instruction ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Details: a path, a template, a parent, or a reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub about: Option<String>,
    /// The refused access.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refused: Option<RefusedAccess>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct EventFilter {
    /// Only events of this machine.
    #[serde(default)]
    pub machine: Option<String>,
    /// Only events of machines with this tag, written `key=value`.
    #[serde(default)]
    pub tag: Option<String>,
    /// Only kinds with this prefix, such as `machine.`
    #[serde(default)]
    pub kind: Option<String>,
    /// Only events after this number, as far as they are available; new events only, if absent.
    /// The same as the header `last-event-id`.
    #[serde(default)]
    pub after: Option<u64>,
}
