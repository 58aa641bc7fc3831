//! Checks of the host: each requirement, the consequence if it is missing, and the fix.
//!
//!   kernel (features, limits) ─┐
//!   place (disk, container)  ──┼─► Vec<Check> ─► table or JSON
//!   tools (programs)         ──┘
//!
//! The checks change nothing. A requirement that cannot be determined counts as missing.

mod data_dir;
mod kernel;
mod tools;

use crate::config::Config;
use serde::Serialize;

/// The result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    Good,
    /// Works without it, at a cost.
    Lacking,
    /// Required.
    Missing,
}

#[derive(Debug, Clone, Serialize)]
pub struct HealthCheck {
    pub name: &'static str,
    pub grade: Grade,
    /// The observation.
    pub found: String,
    /// The consequence of its absence.
    pub costs: &'static str,
    /// How to fix it.
    pub fix: &'static str,
}

/// A requirement, and the message if it is missing.
struct About {
    name: &'static str,
    /// Whether it is required.
    required: bool,
    costs: &'static str,
    fix: &'static str,
}

impl About {
    fn check(&self, present: bool, found: impl Into<String>) -> HealthCheck {
        let grade = match (present, self.required) {
            (true, _) => Grade::Good,
            (false, false) => Grade::Lacking,
            (false, true) => Grade::Missing,
        };
        let About { name, costs, fix, .. } = *self;
        HealthCheck { name, grade, found: found.into(), costs, fix }
    }
}

pub fn examine(config: &Config) -> Vec<HealthCheck> {
    let mut checks = kernel::checks();
    checks.extend(data_dir::checks(&config.data_dir()));
    checks.extend(tools::checks());
    checks
}
