//! Pages of a process that stands still, read and hashed ahead of the thread that writes them.
//!
//!   worker 0: pieces 0, 2, 4 ... ─┐
//!   worker 1: pieces 1, 3, 5 ... ─┴─► the writer takes piece 0, 1, 2, 3 ... and gives buffers back
//!
//! Hashing takes longer than anything else about a large capture. Every worker is at most two
//! pieces ahead, so memory is bounded. If a piece cannot be read, or the writer fails, the workers
//! end with the next piece.

use super::still::PausedMemory;
use crate::error::{Error, ErrorContext, Result};
use stasis_image::model::{Backing, Vma};
use stasis_image::{PAGE_SIZE, PageHash, hash_pages};
use std::sync::mpsc::{self, Receiver, SyncSender};

/// Bytes of one piece.
const PIECE: u64 = 512 << 10;
/// Below this many bytes, threads cost more than they save.
const WORTH_THREADS: u64 = 8 << 20;
/// Pieces a worker has ready for the writer.
const AHEAD: usize = 2;
const MOST_WORKERS: usize = 4;
static ZEROS: [u8; PAGE_SIZE] = [0; PAGE_SIZE];

/// Addresses to read, within one mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PieceRange {
    pub start: u64,
    pub end: u64,
    /// A page of zeros is the same as none.
    pub drops_zeros: bool,
}

/// The contents of a range.
pub struct Piece {
    pub start: u64,
    pub bytes: Vec<u8>,
    /// Of each page; `None` for pages that need not be kept.
    pub hashes: Vec<Option<PageHash>>,
}

impl PieceRange {
    /// A range of a mapping, cut into pieces.
    pub fn cut(start: u64, end: u64, vma: &Vma, into: &mut Vec<PieceRange>) {
        let drops_zeros = matches!(vma.backing, Backing::Anonymous);
        let mut at = start;
        while at < end {
            let next = end.min(at + PIECE);
            into.push(PieceRange { start: at, end: next, drops_zeros });
            at = next;
        }
    }

    fn read(&self, still: &PausedMemory, mut bytes: Vec<u8>) -> Result<Piece> {
        bytes.resize((self.end - self.start) as usize, 0);
        still.read(self.start, &mut bytes)?;
        let pages = bytes.as_chunks::<PAGE_SIZE>().0;
        let is_kept: Vec<bool> =
            pages.iter().map(|page| !self.drops_zeros || page != &ZEROS).collect();
        let kept = pages.iter().zip(&is_kept).filter(|(_, is_kept)| **is_kept);
        let kept: Vec<_> = kept.map(|(page, _)| page).collect();
        let mut hashed = hash_pages(&kept).into_iter();
        let hashes = is_kept.iter().map(|kept| if *kept { hashed.next() } else { None }).collect();
        Ok(Piece { start: self.start, bytes, hashes })
    }
}

/// Gives all pieces to `write`, in order.
pub fn read_all(
    still: &PausedMemory,
    ranges: &[PieceRange],
    mut write: impl FnMut(&Piece) -> Result<()>,
) -> Result<()> {
    let size: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if size < WORTH_THREADS {
        let mut bytes = Vec::new();
        for range in ranges {
            let piece = range.read(still, bytes)?;
            write(&piece)?;
            bytes = piece.bytes;
        }
        return Ok(());
    }
    let workers = std::thread::available_parallelism().map_or(1, usize::from).min(MOST_WORKERS);
    std::thread::scope(|scope| {
        let mut lines = Vec::new();
        for worker in 0..workers {
            let (tell, pieces) = mpsc::sync_channel(AHEAD);
            let (give, buffers) = mpsc::channel();
            let own = ranges.iter().skip(worker).step_by(workers);
            let thread = std::thread::Builder::new().name("stasis-hash".into());
            let run = move || work(still, own, &tell, &buffers);
            thread.spawn_scoped(scope, run).doing(|| "start a thread".into())?;
            lines.push((pieces, give));
        }
        for index in 0..ranges.len() {
            let (pieces, give) = &lines[index % workers];
            let piece = pieces.recv().unwrap_or(Err(Error::Gone))?;
            write(&piece)?;
            // a worker that is done needs none
            let _ = give.send(piece.bytes);
        }
        Ok(())
    })
}

fn work<'a>(
    still: &PausedMemory,
    ranges: impl Iterator<Item = &'a PieceRange>,
    tell: &SyncSender<Result<Piece>>,
    buffers: &Receiver<Vec<u8>>,
) {
    for range in ranges {
        let piece = range.read(still, buffers.try_recv().unwrap_or_default());
        let failed = piece.is_err();
        // the writer is gone when it failed
        if tell.send(piece).is_err() || failed {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_image::model::VmaTraits;

    #[test]
    fn a_range_is_cut_into_pieces_that_meet() {
        let vma = Vma {
            start: 0,
            end: 4 * PIECE,
            prot: 3,
            backing: Backing::Anonymous,
            traits: VmaTraits::default(),
            name: None,
        };
        let mut pieces = Vec::new();
        PieceRange::cut(PIECE / 2, 2 * PIECE + PIECE / 2 + 4096, &vma, &mut pieces);
        let bounds: Vec<_> = pieces.iter().map(|one| (one.start, one.end)).collect();
        let half = PIECE / 2;
        let last = 2 * PIECE + half;
        assert_eq!(bounds, [(half, PIECE + half), (PIECE + half, last), (last, last + 4096)]);
        assert!(pieces.iter().all(|one| one.drops_zeros));
    }
}
