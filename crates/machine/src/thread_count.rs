//! The number of threads that use a host.
//!
//! A data directory is free for another process, or another host of this one, when the last of
//! them has ended. A thread counts from before its start until all that it owned is dropped.

use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::time::Instant;

#[derive(Default)]
pub(crate) struct ThreadCount {
    count: Mutex<usize>,
    changed: Condvar,
}

/// A thread that counts while this lives.
pub(crate) struct CountedThread(Arc<ThreadCount>);

impl ThreadCount {
    pub fn enter(self: &Arc<Self>) -> CountedThread {
        *self.count.lock() += 1;
        CountedThread(self.clone())
    }

    /// Work for a thread, which counts from now until all that the work owned is dropped.
    pub fn counted<T, W: FnOnce() -> T>(
        self: &Arc<Self>,
        work: W,
    ) -> impl FnOnce() -> T + use<T, W> {
        let counted = self.enter();
        move || {
            let result = work();
            drop(counted);
            result
        }
    }

    /// Waits until no thread is left; false if the time is over before.
    pub fn wait(&self, until: Instant) -> bool {
        let mut count = self.count.lock();
        while *count > 0 {
            if self.changed.wait_until(&mut count, until).timed_out() {
                return *count == 0;
            }
        }
        true
    }
}

impl Drop for CountedThread {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_wait_ends_with_the_last_thread_or_with_its_time() {
        let threads = Arc::new(ThreadCount::default());
        assert!(threads.wait(Instant::now()), "there is none");
        let counted = threads.enter();
        assert!(!threads.wait(Instant::now() + Duration::from_millis(5)), "one runs");
        let thread = std::thread::spawn(move || drop(counted));
        assert!(threads.wait(Instant::now() + Duration::from_secs(60)), "it has ended");
        thread.join().expect("no panic");
    }
}
