//! What the engine does not carry yet. The list can only shrink: a gap that is none any more fails
//! its test until its line is deleted.

use crate::common::{Failure, Result};
use crate::stage::Stage;

/// (program, events, words of the engine's refusal or of the program's complaint). Events: one by
/// name, `*` for all with a capture, `restore` for all that restore.
#[rustfmt::skip]
pub const KNOWN_GAPS: &[(&str, &str, &str)] = &[
    // files come back with other inode numbers, and sqlite will not write to a file that moved
    ("python_sqlite_transaction", "restore", "attempt to write a readonly database"),
];

/// The reason why a pair is not expected to work.
pub fn of(program: &str, event: &str) -> Option<&'static str> {
    let applies = |gap: &&(&str, &str, &str)| {
        let covers = match gap.1 {
            "*" => event != "plain",
            "restore" => !["plain", "capture"].contains(&event),
            other => other == event,
        };
        gap.0 == program && covers
    };
    KNOWN_GAPS.iter().find(applies).map(|gap| gap.2)
}

/// A gap is closed, or refused with its reason while the source runs on.
pub fn must_be_clean(stage: &mut Stage, result: Result<()>, reason: &str) -> Result<()> {
    match result {
        Ok(()) => {
            Err(Failure::Program(format!("works now: delete its line in KNOWN_GAPS ({reason})")))
        }
        Err(Failure::Engine { doing, error }) if error.to_string().contains(reason) => {
            let source = stage.source.as_mut();
            source.map_or(Ok(()), |source| source.check()).map_err(|failure| {
                Failure::Program(format!("{doing}: {error}; and then the source {failure}"))
            })
        }
        Err(other) if other.to_string().contains(reason) => Ok(()),
        Err(other) => Err(other),
    }
}
