//! Giving a stopped process a descriptor.
//!
//! The process is made to open a pair of sockets; we take one end, send the descriptor through it,
//! and have the process receive it. It needs no permission of its own for this. Everything it was
//! made to open is closed again by `finish`, and on drop when something failed on the way.

use crate::error::{Error, ErrorContext, Result};
use crate::freeze::FrozenProcess;
use crate::inject::Injector;
use stasis_sys::{libc, process as sysprocess, socket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

pub struct Handover<'a> {
    injector: Injector<'a>,
    ours: OwnedFd,
    /// Descriptors it holds only for this.
    opened: Vec<i32>,
    theirs: i32,
}

impl<'a> Handover<'a> {
    pub fn open(process: &'a FrozenProcess) -> Result<Handover<'a>> {
        let live = process.live.as_ref().ok_or(Error::Gone)?;
        let tid = live.threads.first().ok_or(Error::Gone)?.tid;
        let mut injector = Injector::new(tid, &live.memory, live.site)?;
        let at = injector.put(0, &[0; 8])?;
        let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
        let args = [libc::AF_UNIX as u64, kind as u64, 0, at, 0, 0];
        injector.must("open a pair of sockets", libc::SYS_socketpair, args)?;
        let numbers = injector.get(0, 8)?;
        let number = |at: usize| i32::from_ne_bytes(numbers[at..at + 4].try_into().expect("4"));
        let opened = vec![number(0), number(4)];
        let pidfd = sysprocess::pidfd_open(process.pid).doing(|| "open a process".into())?;
        let ours = sysprocess::pidfd_getfd(pidfd.as_fd(), opened[0])
            .doing(|| "take an end of a pair of sockets".into());
        let theirs = opened[1];
        match ours {
            Ok(ours) => Ok(Handover { injector, ours, opened, theirs }),
            Err(error) => {
                close(&mut injector, &opened);
                Err(error)
            }
        }
    }

    /// Gives it a copy of `fd`; the number it has there.
    pub fn pass(&mut self, fd: BorrowedFd) -> Result<i32> {
        socket::send(self.ours.as_fd(), b"d", &[fd]).doing(|| "send a descriptor".into())?;
        // struct msghdr, then a byte to receive, its iovec, and room for the control message
        const HEADER: usize = 56;
        let base = self.injector.put(0, &[0; 160])?;
        let (iovec, byte, control) = (base + 64, base + 80, base + 96);
        let words = [0, 0, iovec, 1, control, 24, 0];
        let header: Vec<u8> = words.iter().flat_map(|word: &u64| word.to_ne_bytes()).collect();
        debug_assert_eq!(header.len(), HEADER);
        self.injector.put(0, &header)?;
        self.injector.put(64, &[byte.to_ne_bytes(), 1u64.to_ne_bytes()].concat())?;
        let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
        let args = [self.theirs as u64, base, flags as u64, 0, 0, 0];
        self.injector.must("receive a descriptor", libc::SYS_recvmsg, args)?;
        let control = self.injector.get(96, 24)?;
        let word = |at: usize| i32::from_ne_bytes(control[at..at + 4].try_into().expect("4"));
        if (word(8), word(12)) != (libc::SOL_SOCKET, libc::SCM_RIGHTS) {
            return Err(Error::Gone);
        }
        self.opened.push(word(16));
        Ok(word(16))
    }

    /// Has it connect one of its sockets, which must not block; an errno in place of success.
    pub fn connect(&mut self, number: i32, address: &[u8]) -> Result<i64> {
        let at = self.injector.put(0, address)?;
        let args = [number as u64, at, address.len() as u64, 0, 0, 0];
        self.injector.call(libc::SYS_connect, args)
    }

    /// Puts one descriptor in place of another.
    pub fn replace(&mut self, with: i32, number: i32, close_on_exec: bool) -> Result<()> {
        let flags = if close_on_exec { libc::O_CLOEXEC } else { 0 };
        let args = [with as u64, number as u64, flags as u64, 0, 0, 0];
        self.injector.must("replace a descriptor", libc::SYS_dup3, args).map(drop)
    }

    /// Adds a descriptor to an epoll set.
    pub fn watch(&mut self, epoll: i32, number: i32, events: u32, data: u64) -> Result<()> {
        let mut event = events.to_ne_bytes().to_vec();
        event.extend(data.to_ne_bytes());
        let at = self.injector.put(0, &event)?;
        let args = [epoll as u64, libc::EPOLL_CTL_ADD as u64, number as u64, at, 0, 0];
        self.injector.must("watch a descriptor", libc::SYS_epoll_ctl, args).map(drop)
    }

    /// Closes the descriptors opened for this.
    pub fn finish(mut self) {
        close(&mut self.injector, &std::mem::take(&mut self.opened));
    }
}

impl Drop for Handover<'_> {
    fn drop(&mut self) {
        close(&mut self.injector, &std::mem::take(&mut self.opened));
    }
}

fn close(injector: &mut Injector, numbers: &[i32]) {
    for number in numbers {
        // a close that fails has closed all the same
        let _ = injector.call(libc::SYS_close, [*number as u64, 0, 0, 0, 0, 0]);
    }
}
