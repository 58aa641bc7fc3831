//! Work that all machines share: a few at once of each kind, fairly between accounts.

use stasis_engine::FairQueue;

/// Processes that parse, in memory that no machine pays for.
const PARSERS: usize = 2;
/// Imports from a network.
const FETCHES: usize = 4;
/// Calls of tools.
const CALLS: usize = 32;
/// Questions to policies and hooks, which may wait for a server or a script.
const QUESTIONS: usize = 64;

pub(crate) struct SharedTurns {
    /// Machines entering memory.
    pub restores: FairQueue,
    pub parsers: FairQueue,
    pub fetches: FairQueue,
    pub calls: FairQueue,
    pub questions: FairQueue,
}

impl SharedTurns {
    pub fn new() -> SharedTurns {
        SharedTurns {
            restores: FairQueue::for_restores(),
            parsers: FairQueue::new(PARSERS),
            fetches: FairQueue::new(FETCHES),
            calls: FairQueue::new(CALLS),
            questions: FairQueue::new(QUESTIONS),
        }
    }
}
