//! How many machines are on their way into memory.
//!
//! Whoever waits comes first: while many machines are being brought in, with somebody waiting for
//! each, checkpoints of those that have answered give way for a moment (`queue`).

use std::sync::atomic::{AtomicUsize, Ordering};

/// From this many on it is a crowd: one wake more or less must not hold up checkpoints.
const CROWD: usize = 4;

#[derive(Default)]
pub struct Traffic(AtomicUsize);

/// A machine on its way, until this is dropped.
pub struct Arrival<'a>(&'a Traffic);

impl Traffic {
    pub fn arrive(&self) -> Arrival<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Arrival(self)
    }

    pub fn is_crowded(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= CROWD
    }
}

impl Drop for Arrival<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_while_it_is_on_its_way() {
        let traffic = Traffic::default();
        let mut all: Vec<Arrival> = (0..CROWD).map(|_| traffic.arrive()).collect();
        assert!(traffic.is_crowded());
        all.pop();
        assert!(!traffic.is_crowded());
    }
}
