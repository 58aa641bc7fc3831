//! User and group ids of machines: a range of the host's ids each, used by nothing else.
//!
//! An engine takes blocks of ranges, each by a lock on a file that all engines of the host share;
//! the kernel releases the lock when the engine ends, for whatever reason. Within a block ranges
//! are assigned in memory. An error reports that no block is left.

use parking_lot::{Mutex, MutexGuard};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Ids inside a machine: 0 to 65535.
pub const COUNT: u32 = 1 << 16;
/// Above the ranges that hosts usually give to users and container engines.
const FIRST: u32 = 0x1000_0000;
const BLOCKS: u32 = 96;
const RANGES_PER_BLOCK: u32 = 256;

/// Ids of a machine and ids of the host, one from the other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ids {
    first: u32,
    count: u32,
}

impl Ids {
    /// Ids inside are the host's.
    pub const HOST: Ids = Ids { first: 0, count: u32::MAX };

    pub fn is_host(&self) -> bool {
        *self == Ids::HOST
    }

    /// The machine's number of one of the host's ids; `None` for a stranger.
    pub fn inside(&self, host: u32) -> Option<u32> {
        host.checked_sub(self.first).filter(|id| *id < self.count)
    }

    pub fn outside(&self, inside: u32) -> Option<u32> {
        (inside < self.count).then(|| self.first + inside)
    }

    /// (inside, outside, count), the kernel's order of a map.
    pub fn map(&self) -> (u32, u32, u32) {
        (0, self.first, self.count)
    }
}

/// All ranges of one engine.
pub struct IdRanges {
    shared: Arc<Shared>,
}

struct Shared {
    dir: PathBuf,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Held for as long as the engine lives.
    locks: Vec<(u32, File)>,
    free: Vec<u32>,
}

/// A range in use; free again when dropped.
pub struct IdRange {
    ids: Ids,
    number: u32,
    shared: Option<Arc<Shared>>,
}

impl IdRange {
    /// No range: ids are the host's.
    pub fn host() -> IdRange {
        IdRange { ids: Ids::HOST, number: 0, shared: None }
    }

    pub fn ids(&self) -> Ids {
        self.ids
    }
}

impl Drop for IdRange {
    fn drop(&mut self) {
        if let Some(shared) = &self.shared {
            shared.state().free.push(self.number);
        }
    }
}

impl IdRanges {
    /// `dir` must be the same for all engines of the host.
    pub fn new(dir: &Path) -> IdRanges {
        let shared = Shared { dir: dir.to_owned(), state: Mutex::default() };
        IdRanges { shared: Arc::new(shared) }
    }

    pub fn take(&self) -> io::Result<IdRange> {
        let mut state = self.shared.state();
        if state.free.is_empty() {
            let block = lock_block(&self.shared.dir, &state)?;
            state.free = ranges_of(block.0).rev().collect();
            state.locks.push(block);
        }
        let number = state.free.pop().ok_or_else(|| io::Error::other("an empty block"))?;
        let ids = Ids { first: FIRST + number * COUNT, count: COUNT };
        Ok(IdRange { ids, number, shared: Some(self.shared.clone()) })
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }
}

fn ranges_of(block: u32) -> impl DoubleEndedIterator<Item = u32> {
    block * RANGES_PER_BLOCK..(block + 1) * RANGES_PER_BLOCK
}

/// A free block, and the lock that makes it ours.
fn lock_block(dir: &Path, state: &State) -> io::Result<(u32, File)> {
    std::fs::create_dir_all(dir)?;
    // a lock of our own would be given to us again
    let own = |block: &u32| state.locks.iter().any(|(number, _)| number == block);
    for block in (0..BLOCKS).filter(|block| !own(block)) {
        let path = dir.join(block.to_string());
        let file = File::options().create(true).append(true).open(path)?;
        match file.try_lock() {
            Ok(()) => return Ok((block, file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
    }
    Err(io::Error::other(format!("all ranges of user ids in {} are taken", dir.display())))
}

const _: () =
    assert!((FIRST as u64 + BLOCKS as u64 * RANGES_PER_BLOCK as u64 * COUNT as u64) < 1 << 31);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_translated_both_ways_and_strangers_are_none() {
        let ids = Ids { first: 1 << 20, count: COUNT };
        assert_eq!(ids.inside((1 << 20) + 1000), Some(1000));
        assert_eq!(ids.outside(1000), Some((1 << 20) + 1000));
        assert_eq!(
            (ids.inside(0), ids.inside((1 << 20) + COUNT), ids.outside(COUNT)),
            (None, None, None)
        );
        assert_eq!(Ids::HOST.inside(1000), Some(1000));
    }

    #[test]
    fn machines_and_engines_never_share_a_range() {
        let dir = tempfile::tempdir().unwrap();
        let engines = [IdRanges::new(dir.path()), IdRanges::new(dir.path())];
        let mut all: Vec<IdRange> = Vec::new();
        for engine in &engines {
            all.extend((0..RANGES_PER_BLOCK + 3).map(|_| engine.take().unwrap()));
        }
        let mut firsts: Vec<u32> = all.iter().map(|range| range.ids.first).collect();
        firsts.sort_unstable();
        firsts.dedup();
        assert_eq!(firsts.len(), all.len());
    }

    #[test]
    fn a_range_that_is_free_again_is_given_again() {
        let dir = tempfile::tempdir().unwrap();
        let engine = IdRanges::new(dir.path());
        let first = engine.take().unwrap().ids();
        assert_eq!(engine.take().unwrap().ids(), first);
    }
}
