//! Types of machines.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub type Address = String;

/// When an instruction's answer is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Durability {
    Memory,
    Local,
    /// A word of a newer service.
    #[serde(other)]
    Unknown,
}

/// Which machines to list. A machine has to meet all that is said.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// What `next` of the page before said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// At most this many; 1000 unless told.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<State>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Interrupted {
    /// Whether something ran.
    pub interrupted: bool,
}

/// What a machine may use; absent means the template's or the service's default.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disk_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Machine {
    /// The last checkpoint on disk; absent before the first instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpoint: Option<Address>,
    pub created_at: Timestamp,
    pub durability: Durability,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    /// Whether instructions run or wait.
    pub has_pending_instruction: bool,
    pub has_pending_instructions: bool,
    /// How many instructions it was given.
    pub instructions: u64,
    pub limits: Limits,
    pub name: Name,
    pub network: Network,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<Parent>,
    /// Why it cannot leave memory, if so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    /// Whether it is in memory.
    pub running: bool,
    pub state: State,
    pub tags: BTreeMap<String, String>,
    pub template: String,
}

/// A page of machines, newest first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MachineList {
    pub machines: Vec<Machine>,
    /// What to give as `cursor` for the next page; null at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A machine that was made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Made {
    pub machine: Machine,
    pub machine_name: Name,
}

/// 1 to 64 of `A-Z a-z 0-9 _ -`, the first a letter or digit; never `new`, which means "make
/// one".
pub type Name = String;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Network {
    None,
    Open,
    /// A word of a newer service.
    #[serde(other)]
    Unknown,
}

/// What to make.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct NewMachine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// The same as `limits.memory_mb`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Name>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<Network>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
    /// A template's name; the default one otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
}

/// Where a branch came from.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Parent {
    pub machine: Name,
    /// The checkpoint it started from; absent for a machine that had run nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Removed {
    pub removed: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum State {
    Ready,
    Running,
    Swapped,
    /// A word of a newer service.
    #[serde(other)]
    Unknown,
}

/// What to change on a machine; what is absent stays.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Update {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub durability: Option<Durability>,
    /// `null` takes an expiry away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<Limits>,
    /// Replaces all tags.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tags: Option<BTreeMap<String, String>>,
}
