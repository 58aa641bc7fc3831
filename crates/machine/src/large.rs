//! Memory budget for the reports of all machines: a few long reports at a time, and a byte limit
//! for displays per account and in total. A machine over the budget waits, or its report is cut
//! with a note; it never makes this process grow.

use parking_lot::{Mutex, MutexGuard};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Long reports read at once.
const REPORTS: usize = 2;
/// Maximum bytes of running instructions' displays, of one account and of all.
const SHOWN_OF_ACCOUNT: usize = 32 << 20;
const SHOWN: usize = 96 << 20;

static READ: AtomicUsize = AtomicUsize::new(0);

/// Space for one long report.
pub struct ReportPermit(());

pub fn take() -> Option<ReportPermit> {
    let more = |count: usize| (count < REPORTS).then_some(count + 1);
    READ.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| ReportPermit(()))
}

impl Drop for ReportPermit {
    fn drop(&mut self) {
        READ.fetch_sub(1, Ordering::Relaxed);
    }
}

static KEPT: Mutex<Option<HashMap<String, usize>>> = Mutex::new(None);

fn kept() -> MutexGuard<'static, Option<HashMap<String, usize>>> {
    KEPT.lock()
}

/// Bytes of displays that are kept while an instruction runs.
#[derive(Debug, Default)]
pub struct DisplayBytes {
    account: String,
    bytes: usize,
}

impl DisplayBytes {
    /// Whether this many more bytes fit.
    pub fn grow(&mut self, account: &str, bytes: usize) -> bool {
        let mut kept = kept();
        let kept = kept.get_or_insert_default();
        let all: usize = kept.values().sum();
        let own = kept.get(account).copied().unwrap_or(0);
        if own + bytes > SHOWN_OF_ACCOUNT || all + bytes > SHOWN {
            return false;
        }
        kept.insert(account.to_owned(), own + bytes);
        if self.account.is_empty() {
            account.clone_into(&mut self.account);
        }
        self.bytes += bytes;
        true
    }
}

impl Drop for DisplayBytes {
    fn drop(&mut self) {
        let mut kept = kept();
        let Some(own) = kept.as_mut().and_then(|kept| kept.get_mut(&self.account)) else { return };
        *own = own.saturating_sub(self.bytes);
        if *own == 0 {
            kept.as_mut().map(|kept| kept.remove(&self.account));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_leaves_room_for_others() {
        let mut greedy = DisplayBytes::default();
        assert!(greedy.grow("greedy", SHOWN_OF_ACCOUNT));
        assert!(!greedy.grow("greedy", 1));
        let mut other = DisplayBytes::default();
        assert!(other.grow("other", 1));
        drop(greedy);
        assert!(DisplayBytes::default().grow("greedy", 1));
    }
}
