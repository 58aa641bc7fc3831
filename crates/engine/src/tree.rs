//! A live process tree inside its walls.

use crate::capture::TrackedPages;
use crate::disk::DiskExcess;
use crate::engine::OutsideFds;
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::Restarts;
use crate::lazy::{self, BackgroundFill};
use crate::proc::{self, ProcStatus};
use crate::remains;
use crate::spawner;
use crate::track::Tracker;
use crate::unsaved::UnsavedPages;
use crate::walls::Walls;
use parking_lot::Mutex;
use stasis_sandbox::disk::DiskUsage;
use stasis_sandbox::{CgroupUsage, ResourceLimits};
use stasis_spawner::protocol::{InitRequest, LaunchSpec, NetworkLink, ProgramConfinement};
use stasis_store::{Image, PageCounts};
use stasis_sys::alarm::Alarm;
use stasis_sys::pagemap::Region;
use stasis_sys::{libc, process, ptrace};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A descriptor that leads outside the tree; the engine identifies it by its open file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct External {
    pub slot: u32,
    pub device: u64,
    pub inode: u64,
}

/// A running tree: its sandbox, its root process, and the engine's state between captures.
pub struct Tree {
    /// The root process, in the host's numbering.
    pub(crate) root: i32,
    pub(crate) root_fd: OwnedFd,
    pub(crate) walls: Walls,
    /// The name of the root file system below everything.
    pub(crate) root_name: String,
    /// The image the tree was restored from; its files lie below the upper directory.
    pub(crate) base: Option<Image>,
    pub(crate) externals: Vec<External>,
    pub(crate) memo: Mutex<Memo>,
}

/// State that makes the next capture cheaper; losing it costs time, never correctness.
#[derive(Default)]
pub(crate) struct Memo {
    pub tracker: Option<Tracker>,
    pub filling: Option<BackgroundFill>,
    /// The program has memory that a twin shows only afterwards to be missing (emptied in forks,
    /// or shared without being resident), so captures look for it in the pause.
    pub look_closer: bool,
    /// A file was unmapped while a capture without a twin still read it, so captures make twins.
    pub twins_only: bool,
    /// The targets of the init's namespace links; empty until they were read.
    pub namespaces: Vec<String>,
    /// Waits that captures interrupted, by thread.
    pub restarts: Restarts,
    /// The image the next capture is compared with, and the tracker's answers are relative to.
    pub last: Option<Image>,
    /// The state it was restored from was not on disk then: it has another image there.
    pub unsaved: Option<Arc<UnsavedPages>>,
}

impl Tree {
    /// The root process's pid on the host.
    pub fn pid(&self) -> i32 {
        self.root
    }

    /// Gives a tree that has no way outside one; where its packets come and go.
    pub fn open_network(&self, link: NetworkLink, trusted: &[BorrowedFd]) -> Result<OwnedFd> {
        self.walls.open_network(link, trusted)
    }

    /// Sends a signal to the root process.
    pub fn signal(&self, signal: i32) -> Result<()> {
        process::pidfd_kill(self.root_fd.as_fd(), signal).doing(|| "signal the tree's root".into())
    }

    /// Kills every process of the tree and waits until the last has ended; if the kernel does not
    /// end it in time, [`remains`](crate::remains()) counts it.
    pub fn kill(self) -> Result<()> {
        // freeing 64 GiB takes several seconds
        const LIMIT: Duration = Duration::from_secs(10);
        if !self.walls.init.kill(LIMIT)? {
            remains::keep(self);
        }
        Ok(())
    }

    /// Whether the root process still runs.
    pub fn is_alive(&self) -> bool {
        !process::pidfd_wait(self.root_fd.as_fd(), 0).unwrap_or(true)
    }

    /// Host pids of all processes of the tree but its init.
    pub fn processes(&self) -> Result<Vec<i32>> {
        proc::descendants(self.walls.init.pid)
    }

    /// The tree's limits.
    pub fn limits(&self) -> ResourceLimits {
        self.walls.group.limits()
    }

    /// Changes the tree's limits while it runs. The descriptor limit belongs to each process and
    /// stays.
    pub fn set_limits(&self, limits: ResourceLimits) -> Result<()> {
        self.walls.group.set_limits(limits).doing(|| "change a machine's limits".into())?;
        self.walls.disk.set_limit(limits.disk);
        Ok(())
    }

    /// The tree's use of memory, processor and processes.
    pub fn usage(&self) -> CgroupUsage {
        self.walls.group.usage()
    }

    /// Why the tree was ended, if it was because of its disk.
    pub fn disk_excess(&self) -> Option<DiskExcess> {
        self.walls.disk.ended_for()
    }

    /// The size of the tree's own files, including those of its image; found by walking them.
    pub fn disk_usage(&self) -> DiskUsage {
        self.walls.disk.usage(u64::MAX)
    }

    /// Waits until memory that is filled on demand is all there: a twin of a half-filled process
    /// would lack the rest.
    pub(crate) fn wait_filled(&self) -> Result<()> {
        // a tree that forks without end has without end to be filled
        const LIMIT: Duration = Duration::from_secs(60);
        let end = Instant::now() + LIMIT;
        loop {
            let mut memo = self.memo();
            match memo.filling.take() {
                None => return Ok(()),
                Some(filling) if filling.is_over() => return filling.wait(),
                filling => memo.filling = filling,
            }
            drop(memo);
            if Instant::now() > end {
                return Err(Error::refused(0, "its memory is still being filled"));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Waits until the state it was restored from is on disk: the next image refers to its pages.
    pub(crate) fn wait_saved(&self) -> Result<()> {
        let Some(unsaved) = self.memo().unsaved.clone() else { return Ok(()) };
        let image = unsaved.saved()?;
        let mut memo = self.memo();
        (memo.last, memo.unsaved) = (Some(image), None);
        Ok(())
    }

    /// Whether the next capture will know which pages were written.
    pub(crate) fn knows_written(&self) -> bool {
        self.memo().tracker.as_ref().is_some_and(Tracker::is_complete)
    }

    /// Registered pages of a stopped process, and those written since the last capture, where they
    /// are known. `anonymous` are ranges in which no page can be a file's.
    pub(crate) fn take_changed(
        &self,
        pid: i32,
        anonymous: &[(u64, u64)],
    ) -> Result<Option<TrackedPages>> {
        // out of the memo meanwhile: it takes a moment, and others look into the memo
        let Some(mut tracker) = self.memo().tracker.take_if(|_| pid == self.root) else {
            return Ok(None);
        };
        let changed = tracker.take(pid, anonymous);
        self.memo().tracker = Some(tracker);
        changed
    }

    /// Tracks untracked memory from its next image on, and stops tracking memory that is written
    /// repeatedly.
    pub(crate) fn adapt_tracking(
        &self,
        pid: i32,
        written: &[Region],
        untracked: &[Region],
    ) -> Result<()> {
        let Some(mut tracker) = self.memo().tracker.take_if(|_| pid == self.root) else {
            return Ok(());
        };
        let adapted = tracker.adapt(pid, written, untracked);
        self.memo().tracker = Some(tracker);
        adapted
    }

    pub(crate) fn last_image(&self) -> Option<Image> {
        self.memo().last.clone()
    }

    /// Remembers a finished capture.
    pub(crate) fn captured(&self, image: &Image, pages: &PageCounts) {
        let mut memo = self.memo();
        memo.last = Some(image.clone());
        let split = memo.tracker.as_mut().map(|tracker| tracker.captured(pages));
        drop(memo);
        if let Some(split) = split.filter(|split| !split.is_empty()) {
            lazy::make_huge(self.root, image, &split);
        }
    }

    pub(crate) fn memo(&self) -> parking_lot::MutexGuard<'_, Memo> {
        self.memo.lock()
    }

    /// Proportional and private memory of the whole tree, its init included, in KiB.
    pub fn memory_kib(&self) -> Result<(u64, u64)> {
        let mut sum = (0, 0);
        for pid in self.processes()?.into_iter().chain([self.walls.init.pid]) {
            let Ok(text) = proc::read_text(pid, "smaps_rollup") else { continue };
            let status = ProcStatus::parse(&text);
            let kib = |key: &str| status.number(key).unwrap_or(0) as u64;
            sum.0 += kib("Pss");
            sum.1 += kib("Private_Clean") + kib("Private_Dirty");
        }
        Ok(sum)
    }
}

/// Slots of outside descriptors, by their open files.
pub(crate) fn externals(fds: &[OwnedFd]) -> Result<Vec<External>> {
    fds.iter()
        .enumerate()
        .map(|(slot, fd)| {
            let stat = stasis_sys::fds::stat(fd.as_fd()).doing(|| "look at a descriptor".into())?;
            open_to_all(fd, stat.st_mode)?;
            Ok(External { slot: slot as u32, device: stat.st_dev, inode: stat.st_ino })
        })
        .collect()
}

/// A pipe is opened again by its name in `/dev` (`/dev/stderr`), by users who did not make it.
fn open_to_all(fd: &OwnedFd, mode: u32) -> Result<()> {
    if mode & libc::S_IFMT != libc::S_IFIFO {
        return Ok(());
    }
    stasis_sys::fds::set_mode(fd.as_fd(), 0o666).doing(|| "open a pipe to its machine".into())
}

/// Starts the first program of new walls.
pub(crate) fn launch(
    walls: Walls,
    root: &str,
    program: LaunchSpec,
    outside: OutsideFds,
    confine: ProgramConfinement,
) -> Result<Tree> {
    let OutsideFds { fds, numbers } = outside;
    let externals = externals(&fds)?;
    let borrowed: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
    let (program, confine) = (Box::new(program), Box::new(confine));
    let request = InitRequest::Launch { program, fds: numbers, confine };
    let root_fd = walls.init.ask(&request, &borrowed)?.pop().ok_or(Error::Gone)?;
    let pid = spawner::pid_of(root_fd.as_fd())?;
    exec_without_vdso(pid)?;
    Ok(Tree {
        root: pid,
        root_fd,
        walls,
        root_name: root.to_owned(),
        base: None,
        externals,
        memo: Mutex::default(),
    })
}

/// A program that is not there by then does not start.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Resumes a program that stopped itself before exec, and hides the kernel's vdso from it: code of
/// a particular kernel build must not become part of an image.
fn exec_without_vdso(pid: i32) -> Result<()> {
    let step = || -> std::io::Result<bool> {
        let alarm = Alarm::set(START_LIMIT)?;
        ptrace::seize(pid, ptrace::OPT_TRACEEXEC | ptrace::OPT_EXITKILL)?;
        let mut interrupted = false;
        loop {
            match ptrace::wait_stop(pid, &alarm)? {
                // stopped by its own SIGSTOP: wake it up into exec
                ptrace::StopReason::Group(_) if !interrupted => {
                    interrupted = true;
                    process::kill(pid, libc::SIGCONT)?;
                    ptrace::resume(pid, 0)?;
                }
                ptrace::StopReason::Signal(signal) => {
                    let drop_it = signal == libc::SIGSTOP || signal == libc::SIGCONT;
                    ptrace::resume(pid, if drop_it { 0 } else { signal })?;
                }
                // still inside execve, which would overwrite a register: leave it first
                ptrace::StopReason::Event(_) => {
                    ptrace::step(pid)?;
                    let stop = ptrace::wait_stop(pid, &alarm)?;
                    return Ok(!matches!(stop, ptrace::StopReason::Gone(_)));
                }
                ptrace::StopReason::Gone(_) => return Ok(false),
                _ => ptrace::resume(pid, 0)?,
            }
        }
    };
    let alive = step().doing(|| "start the program".into())?;
    if !alive {
        return Err(Error::Gone);
    }
    let hidden = crate::vdso::hide(pid);
    ptrace::detach(pid, 0).doing(|| "let the program run".into())?;
    hidden
}
