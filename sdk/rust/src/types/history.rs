//! Types of history.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::{Machine, Name};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BranchRequest {
    /// How many; as many as there are names, or one, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub count: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<Name>,
    /// Seed the program's own random generators anew.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reseed: Option<bool>,
    /// The state after this instruction; the state now, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// Added to those of the machine.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tags: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Branches {
    pub machines: Vec<Machine>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Complete {
    pub code: String,
    /// Counted in characters; the end, if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<u64>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Completions {
    pub names: Vec<String>,
    /// Where the names begin, counted in characters.
    pub start: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    pub checkpoints: Vec<Point>,
}

/// A state that can be gone back to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Point {
    pub at: Timestamp,
    /// What it added to the store.
    pub bytes: u64,
    /// The code of that instruction.
    pub code: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The instruction it is the state after.
    pub seq: u64,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Rollback {
    /// The state after this instruction; null for the beginning.
    pub seq: Option<u64>,
}

/// A variable of a session.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Var {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub kind: String,
    pub name: String,
    pub repr: String,
    /// Shape or length, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct VarList {
    pub vars: Vec<Var>,
}
