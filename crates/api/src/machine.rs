//! A machine as clients see it.

use crate::{Address, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// When an instruction's answer is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Durability {
    /// At once; its checkpoint follows within a second.
    #[default]
    Memory,
    /// When its checkpoint is on this host's disk.
    Local,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Network {
    /// Loopback only.
    #[default]
    None,
    /// The world outside of the host, over TCP and UDP; never the host itself.
    Open,
}

/// What a machine may use; absent means the template's or the service's default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
}

impl Limits {
    /// These, and where they say nothing, the others.
    pub fn or(self, other: Limits) -> Limits {
        Limits {
            memory_mb: self.memory_mb.or(other.memory_mb),
            cpus: self.cpus.or(other.cpus),
            pids: self.pids.or(other.pids),
            disk_mb: self.disk_mb.or(other.disk_mb),
        }
    }
}

/// What to make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct NewMachine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    #[serde(default)]
    pub limits: Limits,
    /// The same as `limits.memory_mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// A template's name; the default one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    #[serde(default)]
    pub durability: Durability,
    #[serde(default)]
    pub network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Timestamp>,
    /// Which checkpoints are kept; the service's rule, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<crate::Retention>,
}

/// What to change on a machine; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// Replaces all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// `null` takes an expiry away.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<Option<Timestamp>>,
    /// Which checkpoints are kept; `null` goes back to the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "nullable")]
    #[schema(value_type = Option<crate::Retention>)]
    pub retention: Option<Option<crate::Retention>>,
}

/// Tells an explicit null from a field that is not there.
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

/// Where a branch came from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Parent {
    pub machine: Name,
    /// The checkpoint it started from; absent for a machine that had run nothing.
    pub seq: Option<u64>,
}

/// Use of what is limited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Usage {
    pub memory_kib: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub pids: Option<u64>,
    pub disk_kib: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Machine {
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
    pub network: Network,
    /// Whether it is in memory.
    pub running: bool,
    /// Whether instructions run or wait.
    pub has_pending_instruction: bool,
    pub has_pending_instructions: bool,
    /// How many instructions it was given.
    pub instructions: u64,
    /// The last checkpoint on disk; absent before the first instruction.
    pub checkpoint: Option<Address>,
    /// Why it cannot leave memory, if so.
    pub pinned: Option<String>,
    pub parent: Option<Parent>,
    /// Which checkpoints are kept, if not those of the service's rule.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<crate::Retention>,
}
