//! The output of a running instruction, for its followers.

use crate::imports::FetchResult;
use crate::large;
use crate::tools::FoundToolAnswer;
use stasis_api::{Chunk, Data, Shown};

/// Output of the running instruction.
#[derive(Debug, Default)]
pub struct OutputFeed {
    pub seq: u64,
    pub chunks: Vec<Chunk>,
    pub shown: Vec<Shown>,
    /// Number of chunks already in the records.
    pub saved: usize,
    /// Whether the code may request a line of input, and whether it waits for one.
    pub may_ask: bool,
    pub asks: bool,
    /// The given line, or the end of input, not yet delivered to the code.
    pub input: Option<Option<String>>,
    /// Fetched modules and files, not yet delivered to the code.
    pub fetched: Option<FetchResult>,
    /// The answer to a request about tools, on its way to the code.
    pub tool: Option<FoundToolAnswer>,
    /// A call whose answer by a person is on record.
    pub answered: Option<u64>,
    shown_bytes: usize,
    room: large::DisplayBytes,
}

/// Maximum size of one instruction's displays.
const MAX_SHOWN: usize = 16 << 20;
/// Overhead of each display besides its contents.
const EACH: usize = 200;

impl OutputFeed {
    pub fn new(seq: u64) -> OutputFeed {
        OutputFeed { seq, ..OutputFeed::default() }
    }

    /// Adds a display; one that exceeds the bound is replaced by a note.
    pub fn show(&mut self, account: &str, data: Data) {
        let bytes: usize = data.values().map(|value| value.to_string().len() + EACH).sum();
        let after = self.chunks.len() as u64;
        let fits = self.shown_bytes + bytes <= MAX_SHOWN && self.shown.len() < 1000;
        if fits && self.room.grow(account, bytes) {
            self.shown_bytes += bytes;
            self.shown.push(Shown { after, data });
        } else if self.shown.len() <= 1000 {
            let word = format!("[stasis: {bytes} bytes of a display were cut]");
            let data = Data::from([("text/plain".to_owned(), word.into())]);
            self.shown.push(Shown { after, data });
        }
    }
}
