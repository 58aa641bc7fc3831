//! The output of a running instruction, for its followers.

use crate::imports::FetchResult;
use crate::large;
use stasis_api::{Chunk, Data, Shown};

/// Output of the instruction that runs now.
#[derive(Debug, Default)]
pub struct OutputFeed {
    pub seq: u64,
    pub chunks: Vec<Chunk>,
    pub shown: Vec<Shown>,
    /// How many chunks are in the records already.
    pub saved: usize,
    /// Whether the code may ask for a line of input, and whether it waits for one.
    pub may_ask: bool,
    pub asks: bool,
    /// The line that was given, or the end of input, on its way to the code.
    pub input: Option<Option<String>>,
    /// Fetched modules and files on their way to the code.
    pub fetched: Option<FetchResult>,
    shown_bytes: usize,
    room: large::DisplayBytes,
}

/// Everything shown by one instruction, at most.
const MAX_SHOWN: usize = 16 << 20;
/// What each display takes besides its contents.
const EACH: usize = 200;

impl OutputFeed {
    pub fn new(seq: u64) -> OutputFeed {
        OutputFeed { seq, ..OutputFeed::default() }
    }

    /// Adds something shown; what exceeds the bound is replaced by a word about it.
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
