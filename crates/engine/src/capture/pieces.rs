//! Pages of a process that stands still, read and hashed ahead of the thread that writes them.
//!
//!   worker 0: pieces 0, 2, 4 ... ─┐
//!   worker 1: pieces 1, 3, 5 ... ─┴─► the writer takes piece 0, 1, 2, 3 ... and gives buffers back
//!
//! Hashing takes longer than anything else about a large capture. Every worker is at most two
//! pieces ahead, so memory is bounded. If a piece cannot be read, or the writer fails, the workers
//! end with the next piece. A small capture has a hundred pieces of a page or two: one thread takes
//! them where they lie and hashes all their pages together, because pages are hashed in groups.

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
pub struct Piece<'a> {
    pub start: u64,
    pub bytes: &'a [u8],
    /// Of each page; `None` for pages that need not be kept.
    pub hashes: &'a [Option<PageHash>],
}

/// A piece on its way from a worker to the writer.
struct ReadPiece {
    start: u64,
    bytes: Vec<u8>,
    hashes: Vec<Option<PageHash>>,
}

/// The hashes of those pages that are kept.
fn hash_kept<'a>(
    pages: impl Iterator<Item = (&'a [u8; PAGE_SIZE], bool)>,
) -> Vec<Option<PageHash>> {
    let (mut is_kept, mut kept) = (Vec::new(), Vec::new());
    for (page, drops_zeros) in pages {
        let keep = !drops_zeros || page != &ZEROS;
        is_kept.push(keep);
        if keep {
            kept.push(page);
        }
    }
    let mut hashed = hash_pages(&kept).into_iter();
    is_kept.iter().map(|kept| if *kept { hashed.next() } else { None }).collect()
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

    fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    fn read(&self, still: &PausedMemory, mut bytes: Vec<u8>) -> Result<ReadPiece> {
        bytes.resize(self.len(), 0);
        still.read(self.start, &mut bytes)?;
        let pages = bytes.as_chunks::<PAGE_SIZE>().0;
        let hashes = hash_kept(pages.iter().map(|page| (page, self.drops_zeros)));
        Ok(ReadPiece { start: self.start, bytes, hashes })
    }
}

/// Gives all pieces to `write`, in order.
pub fn read_all(
    still: &PausedMemory,
    ranges: &[PieceRange],
    mut write: impl FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let size: u64 = ranges.iter().map(|range| range.end - range.start).sum();
    if size < WORTH_THREADS {
        return read_few(still, ranges, write);
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
            let ReadPiece { start, bytes, hashes } = pieces.recv().unwrap_or(Err(Error::Gone))?;
            write(Piece { start, bytes: &bytes, hashes: &hashes })?;
            // a worker that is done needs none
            let _ = give.send(bytes);
        }
        Ok(())
    })
}

/// The same in this thread, with all pages hashed at once.
fn read_few(
    still: &PausedMemory,
    ranges: &[PieceRange],
    mut write: impl FnMut(Piece) -> Result<()>,
) -> Result<()> {
    let apart = ranges.iter().map(|range| still.copied_bytes(range.start, range.len()));
    let read = match apart.clone().all(|bytes| bytes.is_some()) {
        true => Vec::new(),
        false => read_together(still, ranges)?,
    };
    let pieces: Vec<&[u8]> = match read.is_empty() {
        true => apart.flatten().collect(),
        false => cut_up(&read, ranges),
    };
    let pages = ranges.iter().zip(&pieces).flat_map(|(range, bytes)| {
        bytes.as_chunks::<PAGE_SIZE>().0.iter().map(|page| (page, range.drops_zeros))
    });
    let hashes = hash_kept(pages);
    let mut left = &hashes[..];
    for (range, bytes) in ranges.iter().zip(pieces) {
        let (own, rest) = left.split_at(bytes.len() / PAGE_SIZE);
        left = rest;
        write(Piece { start: range.start, bytes, hashes: own })?;
    }
    Ok(())
}

/// The contents of ranges, one after another.
fn read_together(still: &PausedMemory, ranges: &[PieceRange]) -> Result<Vec<u8>> {
    let mut bytes = vec![0; ranges.iter().map(PieceRange::len).sum()];
    let mut left = &mut bytes[..];
    for range in ranges {
        let (own, rest) = left.split_at_mut(range.len());
        still.read(range.start, own)?;
        left = rest;
    }
    Ok(bytes)
}

fn cut_up<'a>(mut bytes: &'a [u8], ranges: &[PieceRange]) -> Vec<&'a [u8]> {
    let cut = |range: &PieceRange| {
        let (own, rest) = bytes.split_at(range.len());
        bytes = rest;
        own
    };
    ranges.iter().map(cut).collect()
}

fn work<'a>(
    still: &PausedMemory,
    ranges: impl Iterator<Item = &'a PieceRange>,
    tell: &SyncSender<Result<ReadPiece>>,
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
