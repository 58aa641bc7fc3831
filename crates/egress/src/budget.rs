//! The socket budget of all machines: descriptors are the host's, and one machine must not use them
//! all.

use stasis_sys::{libc, process};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

static TAKEN: AtomicU64 = AtomicU64::new(0);

/// The share of this process's descriptors that sockets of machines may use.
const PART: u64 = 2;

fn most() -> u64 {
    static MOST: OnceLock<u64> = OnceLock::new();
    *MOST.get_or_init(|| {
        let limit = process::rlimit_of(0, libc::RLIMIT_NOFILE).map_or(1024, |(soft, _)| soft);
        limit / PART
    })
}

/// Room for one socket, until it is dropped.
#[derive(Debug)]
pub struct SocketPermit(());

impl SocketPermit {
    pub fn take() -> Option<SocketPermit> {
        let more = |taken| (taken < most()).then_some(taken + 1);
        TAKEN
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| SocketPermit(()))
    }
}

impl Drop for SocketPermit {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_comes_back() {
        let all: Vec<SocketPermit> = std::iter::from_fn(SocketPermit::take).collect();
        assert_eq!(all.len() as u64, most());
        assert!(SocketPermit::take().is_none());
        drop(all);
        assert!(SocketPermit::take().is_some());
    }
}
