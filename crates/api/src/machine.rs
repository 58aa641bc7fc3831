//! A machine as clients see it.

use crate::{Address, Name, Network};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// When an instruction's answer is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// Immediately; the checkpoint follows within a second.
    #[default]
    Memory,
    /// Once the checkpoint is on this host's disk.
    Local,
}

/// Which instructions have a state of their own.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Checkpoints {
    /// Every instruction: the next one waits until the state of the last is captured.
    #[default]
    Exact,
    /// Instructions that follow each other immediately share the state of the last.
    Grouped,
}

/// Resource limits; an absent limit is the template's or the service's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub disk_mb: Option<u64>,
}

impl Limits {
    /// These limits, with those of `other` for the absent ones.
    pub fn or(self, other: Limits) -> Limits {
        Limits {
            memory_mb: self.memory_mb.or(other.memory_mb),
            cpus: self.cpus.or(other.cpus),
            pids: self.pids.or(other.pids),
            disk_mb: self.disk_mb.or(other.disk_mb),
        }
    }
}

/// A machine to create.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewMachine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "crate::object::required")]
    pub limits: Limits,
    /// The same as `limits.memory_mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::whole::optional")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The name of a template; the default template, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(default)]
    pub durability: Durability,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    /// Network access; the service's default, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// The checkpoints to keep; the service's rule, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::object::optional")]
    pub retention: Option<crate::Retention>,
}

/// Changes to a machine; absent fields stay as they are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Replaces all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(deserialize_with = "crate::object::optional")]
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoints: Option<Checkpoints>,
    /// Network access, effective when the machine next comes into memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    /// `null` removes the expiry.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Option<Timestamp>>,
    /// The checkpoints to keep; `null` restores the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(serialize_with = "nullable::serialize")]
    #[serde(deserialize_with = "crate::object::nullable")]
    #[schema(value_type = Option<crate::Retention>)]
    pub retention: Option<Option<crate::Retention>>,
}

/// Distinguishes an explicit null from an absent field.
pub(crate) mod nullable {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<T: Serialize, S: Serializer>(
        value: &Option<Option<T>>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().and_then(Option::as_ref).serialize(serializer)
    }

    pub fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Option<T>>, D::Error> {
        Option::<T>::deserialize(deserializer).map(Some)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// In memory, waiting.
    Ready,
    /// In memory, running an instruction.
    Running,
    /// Out of memory; the next instruction wakes it.
    Swapped,
}

/// The origin of a branch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Parent {
    pub machine: Name,
    /// The checkpoint it started from; absent if the parent had run nothing.
    pub seq: Option<u64>,
}

/// Use of the limited resources.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub memory_kib: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub pids: Option<u64>,
    pub disk_kib: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Machine)]
pub struct MachineInfo {
    pub name: Name,
    pub state: State,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    pub tags: BTreeMap<String, String>,
    pub template: String,
    pub limits: Limits,
    pub durability: Durability,
    #[serde(default)]
    pub checkpoints: Checkpoints,
    /// Network access, effective when the machine next comes into memory.
    pub network: Network,
    /// Whether it is in memory.
    pub running: bool,
    /// Whether instructions run or wait.
    pub has_pending_instruction: bool,
    pub has_pending_instructions: bool,
    /// The number of instructions submitted to it.
    pub instructions: u64,
    /// The last checkpoint on disk; absent before the first instruction.
    pub checkpoint: Option<Address>,
    /// Acknowledged instructions whose effects were lost with the memory, and why; absent once a
    /// later instruction has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    /// Why the machine cannot leave memory, if it cannot.
    pub pinned: Option<String>,
    pub parent: Option<Parent>,
    /// The checkpoints to keep, if they differ from the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<crate::Retention>,
}
