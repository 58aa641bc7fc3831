//! What this host offers of what Stasis uses: each thing, what its lack costs, what mends it.
//!
//!   kernel (features, limits) ─┐
//!   place (disk, container)  ──┼─► Vec<Check> ─► table or JSON
//!   tools (programs)         ──┘
//!
//! Looking changes nothing. What cannot be found out counts as absent.

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
pub struct Check {
    pub name: &'static str,
    pub grade: Grade,
    /// What was found.
    pub found: String,
    /// What its lack costs.
    pub costs: &'static str,
    /// What mends it.
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
    fn check(&self, present: bool, found: impl Into<String>) -> Check {
        let grade = match (present, self.required) {
            (true, _) => Grade::Good,
            (false, false) => Grade::Lacking,
            (false, true) => Grade::Missing,
        };
        let About { name, costs, fix, .. } = *self;
        Check { name, grade, found: found.into(), costs, fix }
    }
}

pub fn examine(config: &Config) -> Vec<Check> {
    let mut checks = kernel::checks();
    checks.extend(place::checks(&config.data_dir()));
    checks.extend(tools::checks());
    checks
}
