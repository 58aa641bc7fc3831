//! Forks of processes whose writes are tracked.
//!
//!   template ──fork──► machine's root ──fork──► its children
//!      │ tracked          │ tracked               │ not tracked
//!      └─ who orders      └────── the thread here takes what each fork hands on
//!         takes it
//!
//! A fork of a tracked process is tracked from its first moment on, which saves each machine the
//! work of registering and protecting all of its memory. In return the kernel blocks such a fork
//! until its new userfaultfd has been taken. Templates fork when the engine orders it, and it is
//! taken there. Machines fork at any time, and it is taken here: the writes of their children are
//! not needed. A child is released, which takes the kernel a while, only when there are many: by
//! then most have ended or started another program. If a userfaultfd cannot be taken, the fork
//! waits, and the engine tries again; when the engine ends, the kernel releases all.

use crate::error::{ErrorContext, Result};
use parking_lot::{Mutex, MutexGuard};
use stasis_sys::uffd::{self, UffdEvent};
use stasis_sys::{fds, libc};
use std::collections::{HashMap, VecDeque};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// Children that are not released yet.
const HELD: usize = 64;
/// The marker for the end of the watch.
const OVER: u64 = 0;

/// Ends with its thread.
pub struct Forks {
    shared: Arc<Shared>,
    over: File,
    thread: Option<JoinHandle<()>>,
}

struct Shared {
    set: OwnedFd,
    watched: Mutex<Watched>,
}

#[derive(Default)]
struct Watched {
    last: u64,
    all: HashMap<u64, Weak<OwnedFd>>,
}

impl Forks {
    pub fn start() -> Result<Forks> {
        let doing = || "watch for forks".to_owned();
        let set = fds::epoll().doing(doing)?;
        let over = File::from(fds::eventfd(0, libc::EFD_CLOEXEC).doing(doing)?);
        fds::epoll_watch(set.as_fd(), over.as_fd(), OVER).doing(doing)?;
        let shared = Arc::new(Shared { set, watched: Mutex::default() });
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("stasis-forks".into());
        let thread = thread.spawn(move || own.run()).doing(doing)?;
        Ok(Forks { shared, over, thread: Some(thread) })
    }

    /// Takes the userfaultfds of a process's forks, for as long as its own is held.
    pub fn watch(&self, uffd: OwnedFd) -> Result<Arc<OwnedFd>> {
        self.shared.watch(uffd).doing(|| "watch for forks".into())
    }
}

impl Drop for Forks {
    fn drop(&mut self) {
        let _ = self.over.write_all(&1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn watched(&self) -> MutexGuard<'_, Watched> {
        self.watched.lock()
    }

    fn watch(&self, uffd: OwnedFd) -> io::Result<Arc<OwnedFd>> {
        let uffd = Arc::new(uffd);
        let mut watched = self.watched();
        watched.all.retain(|_, known| known.strong_count() > 0);
        watched.last += 1;
        let number = watched.last;
        watched.all.insert(number, Arc::downgrade(&uffd));
        fds::epoll_watch(self.set.as_fd(), uffd.as_fd(), number)?;
        Ok(uffd)
    }

    fn run(&self) {
        const AT_ONCE: usize = 16;
        const AGAIN: Duration = Duration::from_millis(20);
        let mut held = VecDeque::new();
        loop {
            let told = fds::epoll_wait(self.set.as_fd(), AT_ONCE, -1).unwrap_or_default();
            for (_, number) in told {
                if number == OVER {
                    return;
                }
                let forker = self.watched().all.get(&number).and_then(Weak::upgrade);
                if forker.is_some_and(|forker| self.take(&forker, &mut held).is_err()) {
                    // most likely too many descriptors are open
                    held.clear();
                    std::thread::sleep(AGAIN);
                }
            }
            while held.len() > HELD {
                held.pop_front();
            }
        }
    }

    /// Takes the userfaultfds of a process's new children, whose own forks are watched in turn.
    fn take(&self, forker: &OwnedFd, held: &mut VecDeque<Arc<OwnedFd>>) -> io::Result<()> {
        while let Some(event) = uffd::read_event(forker.as_fd())? {
            if let UffdEvent::Fork { fd } = event {
                held.push_back(self.watch(fds::inherited(fd))?);
            }
        }
        Ok(())
    }
}
