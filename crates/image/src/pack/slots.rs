//! A set of slots of one pack, a bit each.

use std::ops::Range;

use super::ends::MAX_PAGES;

/// Slots of a pack. Grows as slots are put in, to 8 MiB for the largest pack.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Slots {
    words: Vec<u64>,
}

const BITS: u64 = u64::BITS as u64;

impl Slots {
    pub const fn new() -> Self {
        Self { words: Vec::new() }
    }

    pub fn contains(&self, slot: u64) -> bool {
        let word = self.words.get((slot / BITS) as usize);
        word.is_some_and(|word| word >> (slot % BITS) & 1 == 1)
    }

    /// Adds slots; those past [`MAX_PAGES`], which no pack has, are ignored.
    pub fn insert(&mut self, slots: Range<u64>) {
        let end = slots.end.min(MAX_PAGES);
        let mut at = slots.start;
        if at < end && self.words.len() < end.div_ceil(BITS) as usize {
            self.words.resize(end.div_ceil(BITS) as usize, 0);
        }
        while at < end {
            let stop = end.min((at / BITS + 1) * BITS);
            let ones = u64::MAX >> (BITS - (stop - at));
            self.words[(at / BITS) as usize] |= ones << (at % BITS);
            at = stop;
        }
    }

    pub fn len(&self) -> u64 {
        self.words.iter().map(|word| u64::from(word.count_ones())).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.words.iter().all(|word| *word == 0)
    }

    /// Adds every slot of `other`.
    pub fn unite(&mut self, other: &Slots) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(own, more)| *own |= more);
    }

    /// The slots that are in both.
    pub fn common(&self, other: &Slots) -> Slots {
        let words = self.words.iter().zip(&other.words).map(|(a, b)| a & b);
        Slots { words: words.collect() }
    }

    pub fn is_within(&self, other: &Slots) -> bool {
        self.common(other).len() == self.len()
    }

    /// The slots below `pages` that are not in the set.
    pub fn others(&self, pages: u64) -> Slots {
        let mut others = Slots::new();
        others.insert(0..pages);
        others.words.iter_mut().zip(&self.words).for_each(|(word, own)| *word &= !own);
        others
    }

    /// The first slot of a range that is in the set.
    pub fn first_in(&self, mut range: Range<u64>) -> Option<u64> {
        let end = range.end.min(self.words.len() as u64 * BITS);
        while range.start < end {
            let word = self.words[(range.start / BITS) as usize] >> (range.start % BITS);
            if word != 0 {
                let slot = range.start + u64::from(word.trailing_zeros());
                return (slot < end).then_some(slot);
            }
            range.start = (range.start / BITS + 1) * BITS;
        }
        None
    }

    /// Slots that follow one another, at most `most` at a time.
    pub fn ranges(&self, most: u64) -> impl Iterator<Item = Range<u64>> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = self.first_in(at..MAX_PAGES)?;
            let mut end = start + 1;
            while end - start < most && self.contains(end) {
                end += 1;
            }
            at = end;
            Some(start..end)
        })
    }

    /// A bit for each of `pages` slots, lowest first, in `len` bytes.
    pub(super) fn to_bytes(&self, len: usize) -> Vec<u8> {
        let mut bytes: Vec<u8> = self.words.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.resize(len, 0);
        bytes
    }

    /// `None` if it contains a slot from `pages` on.
    pub(super) fn from_bytes(bytes: &[u8], pages: u64) -> Option<Slots> {
        let (words, rest) = bytes.as_chunks();
        let words = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let slots = Slots { words };
        let past = slots.first_in(pages..MAX_PAGES + BITS);
        (rest.is_empty() && past.is_none()).then_some(slots)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn of(runs: &[(u64, u64)]) -> (Slots, BTreeSet<u64>) {
        let (mut slots, mut model) = (Slots::new(), BTreeSet::new());
        for (start, len) in runs {
            slots.insert(*start..start + len);
            model.extend(*start..start + len);
        }
        (slots, model)
    }

    fn runs() -> impl Strategy<Value = Vec<(u64, u64)>> {
        prop::collection::vec((0..700_u64, 0..150_u64), 0..6)
    }

    proptest! {
        #[test]
        fn it_is_a_set(a in runs(), b in runs(), pages in 0..900_u64, most in 1..80_u64) {
            let ((a, in_a), (b, in_b)) = (of(&a), of(&b));
            prop_assert_eq!(a.len(), in_a.len() as u64);
            prop_assert_eq!(a.is_empty(), in_a.is_empty());
            prop_assert!((0..1000).all(|slot| a.contains(slot) == in_a.contains(&slot)));
            let listed: Vec<u64> = a.ranges(most).flatten().collect();
            prop_assert!(listed.iter().eq(&in_a));
            prop_assert!(a.ranges(most).all(|range| range.end - range.start <= most));
            let common: Vec<u64> = a.common(&b).ranges(9).flatten().collect();
            prop_assert!(common.iter().eq(in_a.intersection(&in_b)));
            prop_assert_eq!(a.is_within(&b), in_a.is_subset(&in_b));
            let others: Vec<u64> = a.others(pages).ranges(9).flatten().collect();
            prop_assert!(others.into_iter().eq((0..pages).filter(|slot| !in_a.contains(slot))));
            prop_assert_eq!(a.first_in(pages..2000), in_a.range(pages..).next().copied());
            let mut both = a.clone();
            both.unite(&b);
            prop_assert_eq!(both.len(), in_a.union(&in_b).count() as u64);
        }

        #[test]
        fn bytes_round_trip(a in runs(), pages in 0..900_u64) {
            let (slots, model) = of(&a);
            let bytes = slots.to_bytes(128);
            let fits = model.range(pages..).next().is_none();
            let read = Slots::from_bytes(&bytes, pages);
            prop_assert_eq!(read.is_some(), fits);
            if let Some(read) = read {
                prop_assert!(read.is_within(&slots) && slots.is_within(&read));
            }
        }
    }

    #[test]
    fn slots_no_pack_has_are_left_out() {
        let mut slots = Slots::new();
        slots.insert(MAX_PAGES - 1..u64::MAX);
        slots.insert(u64::MAX - 5..u64::MAX);
        assert_eq!(slots.len(), 1);
    }
}
