//! A clone under way: forked from a template, given its program, reporting back.
//!
//!   fork ─► waits at its gate ─► program, pages, descriptors ─► runs ─► says it is ready
//!
//! The engine writes a clone's program into shared memory, or sends it through the clone's socket,
//! so the clone can be forked before the program is known (`spare_pool`). A failed step is on the
//! report page; an exited clone has closed its socket.

use crate::error::{Error, ErrorContext, Result};
use crate::fill::{self, PageSource};
use crate::jobs;
use crate::objects::CreatedObjects;
use crate::plan::{self, Built};
use crate::spawner::Init;
use crate::template::Template;
use crate::walls::Walls;
use stasis_fault as fault;
use stasis_image::model::Manifest;
use stasis_spawner::layout;
use stasis_spawner::protocol::{CloneOrder, Entrance};
use stasis_sys::memory::SharedMap;
use stasis_sys::process as sysprocess;
use stasis_sys::{PAGE, fds, libc, socket};
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;

/// How long a clone may take before it counts as stuck.
const PATIENCE_MS: i32 = 60_000;

pub struct ProcessClone {
    control: OwnedFd,
    /// Its program, and the report page.
    stage: File,
    report: SharedMap,
    /// Pages it is to read.
    fill: File,
    pid: Option<i32>,
    /// Opened at its first message: a resumed clone may have ended.
    pidfd: Option<OwnedFd>,
    /// Tracks its memory, if its template's is tracked.
    inherited: Option<OwnedFd>,
}

/// Descriptors from a clone: mostly a userfaultfd that it created while it was allowed to.
pub enum CloneHandover {
    /// Pages are put in place by it, now or on demand.
    Pages(OwnedFd),
    /// Nothing is registered with it yet: it is for tracking writes later.
    Later(OwnedFd),
    /// Its memory is mapped: the engine registers new ranges and installs pages, through the
    /// userfaultfd it inherited.
    Memory,
}

/// Parameters of a clone inside a sandbox.
pub struct SandboxedClone<'a> {
    pub time: BorrowedFd<'a>,
    /// Preconditions, checked while it maps its memory.
    pub check: &'a dyn Fn() -> Result<()>,
}

impl ProcessClone {
    /// Forks a clone into walls, with that number, and leaves it at its gate.
    pub fn fork_into(template: &Template, walls: &Walls, pid: i32) -> Result<ProcessClone> {
        let order = CloneOrder {
            helper_pid: Some(plan::HELPER_PID),
            clone_pid: Some(pid),
            into_cgroup: walls.entrance == Entrance::Directory,
        };
        ProcessClone::fork(template, &order, walls.init.pidfd.as_fd(), &walls.entrances)
    }

    pub fn fork(
        template: &Template,
        order: &CloneOrder,
        namespace: BorrowedFd,
        entrances: &[OwnedFd],
    ) -> Result<ProcessClone> {
        let doing = || "stage a clone".to_owned();
        let (control, theirs) = socket::pair(libc::SOCK_SEQPACKET).doing(doing)?;
        socket::want_sender(control.as_fd()).doing(doing)?;
        let stage = File::from(fds::memfd("stasis-stage", libc::MFD_CLOEXEC).doing(doing)?);
        stage.set_len(layout::STAGE_SIZE).doing(doing)?;
        stage.write_all_at(&plan::gate(), layout::OPS - layout::STAGE).doing(doing)?;
        let report_at = (layout::REPORT - layout::STAGE) as usize;
        let report = SharedMap::new(stage.as_fd(), report_at + PAGE as usize).doing(doing)?;
        let fill = File::from(fds::memfd("stasis-fill", libc::MFD_CLOEXEC).doing(doing)?);
        let own = [namespace, stage.as_fd(), theirs.as_fd(), fill.as_fd()];
        let fds: Vec<BorrowedFd> =
            own.into_iter().chain(entrances.iter().map(AsFd::as_fd)).collect();
        let inherited = template.clone_process(order, &fds)?;
        fault::point("clone.ordered")?;
        Ok(ProcessClone { control, stage, report, fill, pid: None, pidfd: None, inherited })
    }

    /// The userfaultfd it inherited: its forks wait until it has been taken.
    pub fn take_inherited(&mut self) -> Option<OwnedFd> {
        self.inherited.take()
    }

    /// Whether it is still at its gate: one that ended has closed its end.
    pub fn is_waiting(&self) -> bool {
        fds::poll_readable(self.control.as_fd(), 0).is_ok_and(|spoke| !spoke)
    }

    /// Opens its gate. Inside a machine it gets its time namespace, and maps its memory while its
    /// pages are still being read and verified. None of its descriptors stays here: a pipe whose
    /// other end is closed must report that from the first moment.
    pub fn begin(
        &self,
        pages: PageSource,
        manifest: &Manifest,
        built: &Built,
        inside: Option<SandboxedClone>,
        made: CreatedObjects,
    ) -> Result<()> {
        let doing = || "stage a clone".to_owned();
        let meanwhile = inside.is_some() && fill::is_much(&built.fills);
        let write_fills = || fill::write_fills(pages, manifest, &built.fills, &self.fill);
        if !meanwhile {
            write_fills()?;
        }
        // outside a sandbox, nothing would end a clone that waits for missing data
        if inside.is_none() {
            self.tell(plan::FILLED);
        }
        let ops = built.program.ops_bytes();
        for (at, bytes) in [
            (layout::LEAVE, built.leave.as_slice()),
            (layout::BEHIND_GATE, ops.as_slice()),
            (layout::DATA, built.program.data_bytes()),
        ] {
            self.stage.write_all_at(bytes, at - layout::STAGE).doing(doing)?;
        }
        fault::point("clone.staged")?;
        self.tell(plan::WRITTEN);
        socket::send(self.control.as_fd(), b"g", &[]).doing(doing)?;
        if let Some(inside) = &inside {
            socket::send(self.control.as_fd(), b"t", &[inside.time]).doing(doing)?;
        }
        let mut rest = &made.fds[..];
        for count in made.batches() {
            let (batch, more) = rest.split_at(count);
            let batch: Vec<BorrowedFd> = batch.iter().map(AsFd::as_fd).collect();
            socket::send(self.control.as_fd(), b"o", &batch).doing(doing)?;
            rest = more;
        }
        drop(made);
        if let Some(inside) = inside {
            if meanwhile {
                write_fills()?;
            }
            (inside.check)()?;
            self.tell(plan::FILLED);
        }
        Ok(())
    }

    /// The host's number, and a hold on it, of one that has spoken.
    pub fn known(self) -> Result<(i32, OwnedFd, OwnedFd)> {
        let (pid, pidfd) = self.pid.zip(self.pidfd).ok_or(Error::Gone)?;
        Ok((pid, pidfd, self.control))
    }

    pub fn pid(&self) -> Result<i32> {
        self.pid.ok_or(Error::Gone)
    }

    /// Raises a word it waits for.
    pub fn tell(&self, word: u64) {
        self.report.raise((word - layout::STAGE) as usize);
    }

    /// A handed-over descriptor, or `None` when it is ready.
    pub fn next(&mut self, built: &Built) -> Result<Option<CloneHandover>> {
        match self.message(built)? {
            (plan::HAND_PAGES, Some(fd)) => Ok(Some(CloneHandover::Pages(fd))),
            (plan::HAND_LATER, Some(fd)) => Ok(Some(CloneHandover::Later(fd))),
            (plan::HAND_MEMORY, _) => Ok(Some(CloneHandover::Memory)),
            _ => Ok(None),
        }
    }

    /// If some processes of the tree are stopped, all wait until those are stopped again.
    pub fn let_go(&self, init: &Init, built: &Built) -> Result<()> {
        if !built.stopped.is_empty() {
            jobs::load(init.pid, &built.stopped)?;
            self.tell(plan::GO);
        }
        Ok(())
    }

    /// Waits until it is a template; the userfaultfd it made, if it was to make one.
    pub fn wait_parked(&mut self, built: &Built) -> Result<Option<OwnedFd>> {
        let mut made = None;
        while let Some(handed) = self.next(built)? {
            if let CloneHandover::Pages(uffd) = handed {
                made = Some(uffd);
            }
        }
        Ok(made)
    }

    fn message(&mut self, built: &Built) -> Result<(u8, Option<OwnedFd>)> {
        let ready = self.wait()?;
        let mut byte = [0];
        let received =
            if ready { socket::receive(self.control.as_fd(), &mut byte).ok() } else { None };
        match received {
            Some(mut received) if received.len == 1 => {
                self.know(received.sender);
                Ok((byte[0], received.fds.pop()))
            }
            _ => Err(self.failure(built)),
        }
    }

    fn know(&mut self, sender: Option<i32>) {
        if let Some(pid) = sender.filter(|pid| *pid > 0 && self.pid.is_none()) {
            self.pid = Some(pid);
            self.pidfd = sysprocess::pidfd_open(pid).ok();
        }
    }

    /// Whether it has something to say. One process of several may fail while the one that would
    /// tell us waits for it: its report is enough.
    fn wait(&self) -> Result<bool> {
        const LOOK_MS: i32 = 50;
        let base = (layout::REPORT - layout::STAGE) as usize;
        for _ in 0..PATIENCE_MS / LOOK_MS {
            let ready = fds::poll_readable(self.control.as_fd(), LOOK_MS)
                .doing(|| "wait for a clone".into())?;
            if ready || self.report.read_u64(base) != 0 {
                return Ok(ready);
            }
        }
        Ok(false)
    }

    /// The error on the report page.
    fn failure(&self, built: &Built) -> Error {
        let base = (layout::REPORT - layout::STAGE) as usize;
        let op = self.report.read_u64(base);
        let result = self.report.read_u64(base + 8) as i64;
        let step = built.program.describe(op).unwrap_or_else(|| "an unknown step".into());
        let source = if op == 0 {
            std::io::Error::other("the clone ended without a report")
        } else {
            std::io::Error::from_raw_os_error(-result as i32)
        };
        Error::Step { step, source }
    }
}
