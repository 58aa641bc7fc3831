//! Pages that were read lately. They were verified when they came from the disk: a machine that is
//! branched, undone or woken again and again needs mostly the same ones, and to verify them takes
//! longer than anything else that is done with them.
//!
//! Two generations: pages not used while the young one filled up are dropped with the old one.

use parking_lot::{Mutex, MutexGuard};
use stasis_image::PackRoot;
use std::collections::HashMap;
use std::sync::Arc;

/// Bytes in a generation.
const FULL: usize = 16 << 20;

/// Pack, first slot, number of bytes.
type Key = (PackRoot, u64, usize);

#[derive(Default)]
pub struct Recent(Mutex<Generations>);

#[derive(Default)]
struct Generations {
    young: HashMap<Key, Arc<[u8]>>,
    old: HashMap<Key, Arc<[u8]>>,
    /// Bytes in the young one.
    size: usize,
}

impl Recent {
    fn generations(&self) -> MutexGuard<'_, Generations> {
        self.0.lock()
    }

    pub fn get(&self, key: &Key) -> Option<Arc<[u8]>> {
        let mut generations = self.generations();
        if let Some(pages) = generations.young.get(key) {
            return Some(pages.clone());
        }
        let pages = generations.old.remove(key)?;
        generations.add(*key, pages.clone());
        Some(pages)
    }

    /// Keeps verified pages.
    pub fn add(&self, key: Key, pages: &[u8]) {
        self.generations().add(key, pages.into());
    }

    pub fn clear(&self) {
        let all = std::mem::take(&mut *self.generations());
        drop(all);
    }
}

impl Generations {
    fn add(&mut self, key: Key, pages: Arc<[u8]>) {
        if self.size + pages.len() > FULL {
            self.old = std::mem::take(&mut self.young);
            self.size = 0;
        }
        self.size += pages.len();
        self.young.insert(key, pages);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Key {
        (PackRoot([1; 32]), number, 1)
    }

    #[test]
    fn what_is_used_stays_and_the_rest_goes() {
        let recent = Recent::default();
        let half = vec![7; FULL / 2];
        for number in 0..3 {
            recent.add(key(number), &half);
        }
        // the first two are old by now; one of them is used, which makes it young again
        assert!(recent.get(&key(0)).is_some_and(|pages| *pages == half[..]));
        recent.add(key(3), &half);
        assert!(recent.get(&key(0)).is_some() && recent.get(&key(1)).is_none());
        assert!(recent.generations().size <= FULL);
        recent.clear();
        assert!(recent.get(&key(0)).is_none() && recent.get(&key(3)).is_none());
    }
}
