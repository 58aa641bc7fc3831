//! Waiting on a word shared with another process.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Waits until `word` differs from `old`, or the time is over. True when it differs.
pub fn wait_while(word: &AtomicU32, old: u32, limit: Duration) -> bool {
    let deadline = std::time::Instant::now() + limit;
    while word.load(Ordering::Acquire) == old {
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        if left.is_zero() {
            return false;
        }
        let timeout =
            libc::timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
        // SAFETY: the word lives in a mapping the caller keeps; a wrong value returns at once.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT,
                old,
                &raw const timeout,
                0,
                0,
            )
        };
    }
    true
}
