//! How a build tells what it is doing. The caller draws it; nothing here can fail.

pub trait Progress {
    /// `done` of `total` of the step `name`; what is counted depends on the step.
    fn step(&self, name: &str, done: u64, total: Option<u64>);
    /// A line worth showing, such as what an installer says.
    fn say(&self, line: &str);
}

/// Discards progress.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoProgress;

impl Progress for NoProgress {
    fn step(&self, _: &str, _: u64, _: Option<u64>) {}
    fn say(&self, _: &str) {}
}
