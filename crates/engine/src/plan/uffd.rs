//! Steps with userfaultfds: memory that is filled on demand, and writes that are noted.
//!
//! A clone creates them while it is allowed to, and hands them to the engine. A clone that
//! inherited tracking from its template reports when its memory is mapped, and the engine does the
//! rest.

use super::builder::{Builder, OWN_CONTROL, OWN_OBJECTS};
use super::parts::spans;
use crate::track;
use stasis_image::model::*;
use stasis_sys::{libc, pagemap, uffd};

/// Bytes that come with a userfaultfd: pages are put in place by it, or it is for later.
pub const HAND_PAGES: u8 = b'u';
pub const HAND_LATER: u8 = b'w';
/// A byte that comes alone: memory is mapped, and the inherited userfaultfd has work to do.
pub const HAND_MEMORY: u8 = b'm';

/// How writes of the root are tracked: from the start, or from its first capture if it is filled
/// on demand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Track {
    No,
    /// By a userfaultfd it makes.
    Own,
    /// By the one it has from its template, with which all that it inherits is registered.
    Inherited,
}

impl Builder<'_> {
    /// Makes the userfaultfds that the root needs. The root keeps at most one of them for longer.
    pub(super) fn make_uffds(&mut self) {
        let (own, lazy) = (self.prepared.track == Track::Own, !self.prepared.lazy.is_empty());
        if own {
            self.make_uffd(uffd::FEATURE_WP_ASYNC);
        }
        if lazy {
            if own {
                self.hand_over_uffd(HAND_LATER);
            }
            self.make_uffd(
                uffd::FEATURE_EVENT_FORK
                    | uffd::FEATURE_EVENT_REMAP
                    | uffd::FEATURE_EVENT_REMOVE
                    | uffd::FEATURE_EVENT_UNMAP,
            );
        }
    }

    /// The one of a template that does not inherit any; its forks will.
    pub(super) fn make_template_uffd(&mut self) {
        if self.prepared.track == Track::Own {
            self.make_uffd(uffd::FEATURE_WP_ASYNC | uffd::FEATURE_EVENT_FORK);
            self.hand_over_uffd(HAND_PAGES);
        }
    }

    /// userfaultfd needs the host's privilege, so it is made before the walls are entered.
    fn make_uffd(&mut self, features: u64) {
        let p = &mut self.program;
        let api = p.words(&[uffd::API, features, 0]);
        let flags = (libc::O_CLOEXEC | libc::O_NONBLOCK) as u64;
        // the low descriptors are free, so it is number 0
        p.must("make a userfaultfd", libc::SYS_userfaultfd, &[flags]);
        p.must("choose its features", libc::SYS_ioctl, &[0, uffd::IOCTL_API, api]);
        let to = (self.prepared.high + OWN_OBJECTS - 1) as u64;
        p.must("set it aside", libc::SYS_dup3, &[0, to, libc::O_CLOEXEC as u64]);
        p.must("close the low one", libc::SYS_close, &[0]);
    }

    pub(super) fn register_lazy(&mut self, vmas: &[Vma], lazy: &[usize]) {
        let fd = self.own(OWN_OBJECTS - 1);
        for index in lazy {
            let vma = &vmas[*index];
            let range = self.program.words(&[vma.start, vma.len(), uffd::MODE_MISSING, 0]);
            let args = [fd, uffd::IOCTL_REGISTER, range];
            self.program.must("register memory", libc::SYS_ioctl, &args);
        }
        self.hand_over_uffd(HAND_PAGES);
    }

    /// Registers memory that is or may be written.
    pub(super) fn register(&mut self, vmas: &[Vma], runs: &[PageRun]) {
        let fd = self.own(OWN_OBJECTS - 1);
        for (start, end) in &track::ranges(vmas, runs) {
            let range = self.program.words(&[*start, end - start, uffd::MODE_WP, 0]);
            self.program.must("track memory", libc::SYS_ioctl, &[fd, uffd::IOCTL_REGISTER, range]);
        }
    }

    /// Says that memory is mapped, if there is something to do about it from outside.
    pub(super) fn hand_over_memory(&mut self) {
        if self.registers.is_empty() && self.installs.is_empty() {
            return;
        }
        let control = self.own(OWN_CONTROL);
        let byte = self.program.data(&[HAND_MEMORY]);
        self.program.must("say that it is mapped", libc::SYS_sendto, &[control, byte, 1, 0, 0, 0]);
        self.waits = true;
    }

    /// Makes the kernel record writes from here on.
    pub(super) fn arm_tracking(&mut self, vmas: &[Vma]) {
        if self.prepared.track == Track::Own {
            self.protect(&track::AROUND_RESERVED);
            self.await_installed();
        } else {
            // inherited memory is protected, and so are installed pages
            self.await_installed();
            self.protect(&spans(&self.fills, vmas));
        }
    }

    /// Write-protects present pages. Through the page map, which touches only pages that exist; the
    /// userfaultfd call would create page tables for all the rest.
    fn protect(&mut self, ranges: &[(u64, u64)]) {
        if ranges.is_empty() {
            return;
        }
        self.open("/proc/self/pagemap", libc::O_RDONLY);
        for (start, end) in ranges {
            let scan = self.program.words(&pagemap::arm_argument(*start, *end));
            self.program.must("arm tracking", libc::SYS_ioctl, &[0, pagemap::PAGEMAP_SCAN, scan]);
        }
        self.program.must("close it", libc::SYS_close, &[0]);
    }

    /// Sends the userfaultfd to the engine, with the byte that says so.
    pub(super) fn hand_over_uffd(&mut self, what: u8) {
        let fd = self.own(OWN_OBJECTS - 1);
        let control = self.own(OWN_CONTROL);
        let p = &mut self.program;
        let byte = p.data(&[what]);
        let iov = p.words(&[byte, 1]);
        let rights = p.words(&[20, (libc::SCM_RIGHTS as u64) << 32 | libc::SOL_SOCKET as u64, fd]);
        let message = p.words(&[0, 0, iov, 1, rights, 24, 0]);
        p.must("hand the userfaultfd over", libc::SYS_sendmsg, &[control, message, 0]);
        p.must("close it", libc::SYS_close, &[fd]);
    }
}
