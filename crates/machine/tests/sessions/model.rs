//! The model: instructions in order, and which of them have a state.

use super::host::{PRIME, Sight};
use std::collections::{BTreeMap, BTreeSet};

/// Whether the state after an instruction is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    Yes,
    /// Retention dropped it.
    No,
    /// The instruction may share the state of a later one.
    Perhaps,
}

#[derive(Debug, Default)]
pub struct Model {
    /// Instructions that the state consists of.
    pub ran: Vec<u64>,
    /// Instructions that can be redone, oldest first.
    pub undone: Vec<u64>,
    /// Instructions with a state of their own.
    pub exact: BTreeSet<u64>,
    pub freed: BTreeSet<u64>,
    pub labels: BTreeMap<u64, String>,
    /// Where branches started that are still there.
    pub branched: BTreeSet<u64>,
}

impl Model {
    /// Instructions ran. Undone ones can no longer be redone.
    pub fn extend(&mut self, seqs: &[u64]) {
        self.ran.extend(seqs);
        self.undone.clear();
        self.forget();
    }

    /// Only the first instructions are left; the others can be redone.
    pub fn back(&mut self, to: usize) {
        let mut removed = self.ran.split_off(to);
        removed.append(&mut self.undone);
        self.undone = removed;
    }

    pub fn forward(&mut self, n: usize) {
        self.ran.extend(self.undone.drain(..n));
    }

    /// Only the first instructions are left, for good.
    pub fn lose(&mut self, to: usize) {
        self.ran.truncate(to);
        self.undone.clear();
        self.forget();
    }

    /// The report on instructions that are neither in the state nor to be redone.
    fn forget(&mut self) {
        let (ran, undone) = (&self.ran, &self.undone);
        let there = |seq: &u64| ran.contains(seq) || undone.contains(seq);
        self.exact.retain(there);
        self.freed.retain(there);
        self.labels.retain(|seq, _| there(seq));
    }

    pub fn kept(&self, seq: u64) -> Kept {
        match (self.freed.contains(&seq), self.exact.contains(&seq)) {
            (true, _) => Kept::No,
            (false, true) => Kept::Yes,
            (false, false) => Kept::Perhaps,
        }
    }

    /// Retention: the last so many of these states stay, those with labels, and those that branches
    /// started from.
    pub fn retain(&mut self, states: &[u64], last: usize) -> Vec<u64> {
        let from = states.len().saturating_sub(last.max(1));
        let stays = |(at, seq): (usize, &u64)| {
            at >= from || self.labels.contains_key(seq) || self.branched.contains(seq)
        };
        let (stay, go): (Vec<_>, Vec<_>) = states.iter().enumerate().partition(|one| stays(*one));
        // whatever shared a state that went has none any more
        self.freed.extend(go.into_iter().map(|(_, seq)| *seq));
        stay.into_iter().map(|(_, seq)| *seq).collect()
    }

    /// Whether a machine is as it should be; `settled` when all of it is saved.
    pub fn check(&self, sight: &Sight, settled: bool) {
        assert_eq!(sight.ran, self.ran, "the log");
        assert_eq!(sight.held, number(&self.ran), "what the machine holds");
        for (seq, label) in &sight.states {
            assert!(self.ran.contains(seq), "a state of {seq}, which did not run");
            assert_ne!(self.kept(*seq), Kept::No, "state {seq} was dropped");
            assert_eq!(label.as_ref(), self.labels.get(seq), "the label of {seq}");
        }
        if !settled {
            return;
        }
        for seq in &self.ran {
            let there = sight.states.contains_key(seq);
            assert!(there || self.kept(*seq) != Kept::Yes, "{seq} has no state");
        }
        if let Some(last) = self.ran.last() {
            assert!(sight.states.contains_key(last), "the last, {last}, is not saved");
        }
    }
}

/// Effects of instructions.
pub fn number(seqs: &[u64]) -> Option<String> {
    let mix = |ran: u64, seq: &u64| (ran * 31 + seq + 1) % PRIME;
    (!seqs.is_empty()).then(|| seqs.iter().fold(0, mix).to_string())
}
