//! Progress of a build. The caller displays it; nothing here can fail.

pub trait Progress {
    /// `done` of `total` of the step `name`; the unit depends on the step.
    fn step(&self, name: &str, done: u64, total: Option<u64>);
    /// A line worth showing, such as an installer's output.
    fn say(&self, line: &str);
}

/// Discards progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _: &str, _: u64, _: Option<u64>) {}
    fn say(&self, _: &str) {}
}
