//! Threads that find answers for the code of one machine.
//!
//! Code need not wait for its answer: its instruction may end first, and the next one may ask again
//! while the thread still waits for a server. So each machine has only so many such threads.

use crate::threads;
use std::sync::Arc;

const MOST: usize = 16;

/// Counts the threads of one machine: each holds a reference.
#[derive(Default)]
pub(crate) struct HelperThreads(Arc<()>);

impl HelperThreads {
    /// Starts a thread, unless earlier ones have not ended; fails with why. Only a machine's driver
    /// calls this, so the count does not grow meanwhile.
    pub fn spawn(
        &self,
        name: &'static str,
        find: impl FnOnce() + Send + 'static,
    ) -> Result<(), String> {
        let held = self.0.clone();
        // one reference is the machine's, one is this thread's
        if Arc::strong_count(&held) > MOST + 1 {
            return Err(format!("{MOST} earlier requests of this machine are still under way"));
        }
        let run = move || {
            let _held = held;
            find();
        };
        threads::spawn(name, run).map_err(|error| format!("no thread can be started: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_machine_has_only_so_many() {
        let helpers = HelperThreads::default();
        let (end, ends) = mpsc::channel::<()>();
        let ends = Arc::new(parking_lot::Mutex::new(ends));
        let wait = || {
            let ends = ends.clone();
            move || {
                let _ = ends.lock().recv();
            }
        };
        for _ in 0..MOST {
            helpers.spawn("test", wait()).expect("a thread");
        }
        let said = helpers.spawn("test", wait()).expect_err("one too many");
        assert!(said.contains("still under way"), "{said}");
        // one ends, also if it panics
        drop(end);
        while Arc::strong_count(&helpers.0) > 1 {
            std::thread::yield_now();
        }
        helpers.spawn("test", || panic!("on purpose")).expect("a thread");
        while Arc::strong_count(&helpers.0) > 1 {
            std::thread::yield_now();
        }
    }
}
