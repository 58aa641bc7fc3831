//! Checks of the host: each requirement, the consequence if it is missing, and the fix.
//!
//!   kernel (features, limits) ─┐
//!   place (disk, container)  ──┼─► Vec<Check> ─► table or JSON
//!   tools (programs)         ──┘
//!
//! The checks change nothing. A requirement that cannot be determined counts as missing.

mod kernel;
mod place;
mod tools;

use crate::config::Config;
use serde::Serialize;

/// How a check ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Grade {
    Good,
    /// It works without, at a price.
    Lacking,
    /// Nothing works without.
    Missing,
}

#[derive(Debug, Clone, Serialize)]
pub struct HealthCheck {
    pub name: &'static str,
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What its lack costs.
    pub costs: &'static str,
    /// How to fix it.
    pub fix: &'static str,
}

/// Something to check: what it is, and what to say when it is not there.
struct About {
    name: &'static str,
    /// Whether nothing works without it.
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
    checks.extend(place::checks(&config.data_dir()));
    checks.extend(tools::checks());
    checks
}
