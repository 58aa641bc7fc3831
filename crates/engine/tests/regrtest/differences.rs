//! Known differences, and the comparison.

use crate::{Failure, Outcome, Outcomes, Result};
use serde::Deserialize;
use std::path::Path;

/// A test that passes undisturbed and may fail disturbed.
#[derive(Deserialize)]
struct Difference {
    module: String,
    /// The end of its id.
    test: String,
    /// Why. The documentation has it too.
    reason: String,
}

#[derive(Deserialize)]
pub struct Differences {
    #[serde(default)]
    difference: Vec<Difference>,
}

impl Differences {
    pub fn read() -> Result<Differences> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/regrtest/differences.toml");
        let text = std::fs::read_to_string(file).map_err(Failure::setup)?;
        toml::from_str(&text).map_err(Failure::setup)
    }

    /// Every test that passed undisturbed passes disturbed, or is known not to.
    pub fn compare(
        &self,
        module: &str,
        undisturbed: &Outcomes,
        disturbed: &Outcomes,
    ) -> Result<()> {
        let mut wrong = self.stale(module, undisturbed);
        for (test, before) in undisturbed {
            let after = disturbed.get(test);
            let same = *before != Outcome::Ok || after == Some(before);
            if !same && !self.knows(module, test) {
                wrong.push(format!("{test}: {before:?} undisturbed, {after:?} disturbed"));
            }
        }
        if undisturbed.is_empty() {
            wrong.push("no test ran".into());
        }
        if wrong.is_empty() { Ok(()) } else { Err(Failure::Program(wrong.join("\n"))) }
    }

    fn knows(&self, module: &str, test: &str) -> bool {
        let known = |entry: &&Difference| entry.module == module && test.ends_with(&entry.test);
        self.difference.iter().any(|entry| known(&entry))
    }

    fn stale(&self, module: &str, undisturbed: &Outcomes) -> Vec<String> {
        let own = self.difference.iter().filter(|entry| entry.module == module);
        // one that fails may have met a busy host
        let runs = |end: &str| {
            let mut all = undisturbed.iter();
            all.any(|(test, outcome)| test.ends_with(end) && *outcome != Outcome::Skip)
        };
        own.filter(|entry| !runs(&entry.test) || entry.reason.is_empty())
            .map(|entry| format!("{}: delete its line in differences.toml", entry.test))
            .collect()
    }
}
