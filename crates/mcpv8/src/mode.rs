//! The four modes of mcp-v8: the state kept between runs.

use serde::{Deserialize, Serialize};

/// The state kept between runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum V8Mode {
    /// None: every run has a new machine.
    #[serde(rename = "stateless")]
    Stateless,
    /// The whole machine: globals, timers, files, processes.
    #[default]
    #[serde(rename = "heap")]
    Heap,
    /// The files below /work: every run has a new machine, with the files of the last one.
    #[serde(rename = "fs")]
    Files,
    /// The whole machine, and the files below /work under their own id.
    #[serde(rename = "heap+fs")]
    HeapAndFiles,
}

impl V8Mode {
    pub const ALL: [V8Mode; 4] =
        [V8Mode::Stateless, V8Mode::Heap, V8Mode::Files, V8Mode::HeapAndFiles];

    pub fn of(heap: bool, files: bool) -> V8Mode {
        match (heap, files) {
            (false, false) => V8Mode::Stateless,
            (true, false) => V8Mode::Heap,
            (false, true) => V8Mode::Files,
            (true, true) => V8Mode::HeapAndFiles,
        }
    }

    pub fn keeps_heap(self) -> bool {
        matches!(self, V8Mode::Heap | V8Mode::HeapAndFiles)
    }

    pub fn keeps_files(self) -> bool {
        matches!(self, V8Mode::Files | V8Mode::HeapAndFiles)
    }

    /// Whether runs have sessions, and answer with an execution's id.
    pub fn has_sessions(self) -> bool {
        self != V8Mode::Stateless
    }

    /// Its name in mcp-v8.
    pub fn name(self) -> &'static str {
        match self {
            V8Mode::Stateless => "stateless",
            V8Mode::Heap => "heap",
            V8Mode::Files => "fs",
            V8Mode::HeapAndFiles => "heap+fs",
        }
    }

    pub fn named(name: &str) -> Option<V8Mode> {
        V8Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_axes() {
        for mode in V8Mode::ALL {
            assert_eq!(V8Mode::named(mode.name()), Some(mode));
            assert_eq!(V8Mode::of(mode.keeps_heap(), mode.keeps_files()), mode);
            let stored = serde_json::to_string(&mode).expect("JSON");
            assert_eq!(stored, format!("\"{}\"", mode.name()));
        }
        assert_eq!(V8Mode::named("both"), None);
    }
}
