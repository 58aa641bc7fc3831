//! Taking turns at captures.
//!
//! A capture waits for the threads it stops, which need a processor for that. More captures at
//! once than there are processors to serve them stop each other's trees for longer and finish no
//! sooner, so the rest wait until it is their turn. Nobody is stopped while waiting.

use std::sync::{Condvar, Mutex, MutexGuard};

pub struct Turns {
    free: Mutex<usize>,
    all: usize,
    freed: Condvar,
}

/// One turn, until it is dropped.
pub struct Turn<'a>(&'a Turns);

impl Turns {
    /// As many at once as this host can serve: while one writes to disk another computes.
    pub fn for_this_host() -> Turns {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(2 * processors)
    }

    fn new(all: usize) -> Turns {
        Turns { free: Mutex::new(all), all, freed: Condvar::new() }
    }

    /// Whether a tree may be standing still: what can wait should not take its processors.
    pub fn any_taken(&self) -> bool {
        *self.free() < self.all
    }

    pub fn take(&self) -> Turn<'_> {
        let mut free = self.free();
        while *free == 0 {
            free = self.freed.wait(free).unwrap_or_else(|poison| poison.into_inner());
        }
        *free -= 1;
        Turn(self)
    }

    fn free(&self) -> MutexGuard<'_, usize> {
        self.free.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        *self.0.free() += 1;
        self.0.freed.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn no_more_at_once_than_there_are_turns() {
        let turns = Turns::new(2);
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for _ in 0..200 {
                        let _turn = turns.take();
                        most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                        std::thread::yield_now();
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(most.into_inner(), 2);
        assert!(!turns.any_taken());
    }
}
