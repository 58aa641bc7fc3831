//! Memory filled on demand.
//!
//! A large image answers before all of its memory is read. Large mappings start empty and are
//! registered with a userfaultfd; one thread per restored tree fills touched pages at once and the
//! rest in the background. Then it releases the userfaultfd, and the memory is like any other.
//!
//! The program's changes to such memory are followed exactly: a range given back (MADV_DONTNEED)
//! reads as zeros, a moved range is filled at its new address, an unmapped one not at all, and a
//! fork is served as long as it lives. If the engine dies, the descriptor that the machine's init
//! holds keeps faults waiting until the init has ended, too.

use crate::error::{Error, ErrorContext, Result};
use crate::fill::FillPack;
use stasis_image::PAGE_SIZE;
use stasis_image::model::{PageRun, Vma};
use stasis_store::Image;
use stasis_sys::uffd::{self, UffdEvent};
use stasis_sys::{PAGE, fds, libc, process};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Pages filled around a fault, and at a time behind the program's back.
const AROUND: u64 = 8;
const MOST_AROUND: u64 = 512;
const AHEAD: u64 = 64;
/// Quiet time before the rest is filled: faults come first.
const QUIET: Duration = Duration::from_millis(1);
/// The same at the start, while the restore continues and the program is about to fault.
const HEAD_START: Duration = Duration::from_millis(25);

/// Ranges the program wanted in huge pages, which arrive as small ones.
pub struct HugePageRanges {
    pub process: OwnedFd,
    pub ranges: Vec<(u64, u64)>,
}

impl HugePageRanges {
    /// Grants what can be granted; the program may have changed its mind meanwhile.
    fn grant(&self) {
        const HUGE: u64 = 2 << 20;
        for (start, end) in &self.ranges {
            let mut at = start.next_multiple_of(HUGE);
            while at + HUGE <= *end {
                let _ = stasis_sys::memory::collapse(self.process.as_fd(), at, HUGE as usize);
                at += HUGE;
            }
        }
    }
}

/// Makes huge pages again, behind everything else, of ranges that the program wanted in huge pages.
pub fn make_huge(pid: i32, image: &Image, split: &[(u64, u64)]) {
    let root = crate::plan::root_of(&image.manifest).ok().and_then(|root| root.live());
    let huge = root.iter().flat_map(|live| &live.vmas).filter(|vma| vma.traits.huge);
    let is_split = |vma: &&Vma| split.iter().any(|own| own.0 < vma.end && vma.start < own.1);
    let ranges: Vec<_> = huge.filter(is_split).map(|vma| (vma.start, vma.end)).collect();
    let process = process::pidfd_open(pid);
    if let (Ok(process), false) = (process, ranges.is_empty()) {
        let wanted = HugePageRanges { process, ranges };
        // without it the program is slower, and nothing else
        let thread = std::thread::Builder::new().name("stasis-huge".into());
        let _ = thread.spawn(move || wanted.grant());
    }
}

/// A tree being filled.
pub struct BackgroundFill {
    thread: JoinHandle<Result<()>>,
}

impl BackgroundFill {
    /// Starts filling. `runs` refer to `packs`; `release` makes every other holder of the
    /// userfaultfd close it. If a page cannot be read, the machine behind `init` is killed: it
    /// would wait for ever, or read zeros instead.
    pub fn start(
        init: OwnedFd,
        uffd: OwnedFd,
        runs: Vec<PageRun>,
        packs: Vec<FillPack>,
        release: impl FnOnce() + Send + 'static,
        ranges: HugePageRanges,
    ) -> Result<BackgroundFill> {
        let missing = runs.into_iter().map(|run| (run.page, run)).collect();
        let space = Space::new(uffd, missing);
        let filler = Filler { packs, spaces: vec![space], asked: Instant::now() + HEAD_START };
        let thread = std::thread::Builder::new()
            .name("stasis-fill".into())
            .spawn(move || {
                let result = filler.run();
                if result.is_err() {
                    let _ = process::pidfd_kill(init.as_fd(), libc::SIGKILL);
                    let _ = process::pidfd_wait(init.as_fd(), -1);
                }
                release();
                // a capture waits for this, too: a fork of small pages would stop the program for
                // five times as long, and this one for its own locks on top
                ranges.grant();
                result
            })
            .doing(|| "start a filling thread".into())?;
        Ok(BackgroundFill { thread })
    }

    pub fn is_over(&self) -> bool {
        self.thread.is_finished()
    }

    /// Waits until everything is there, in huge pages where the program wanted them.
    pub fn wait(self) -> Result<()> {
        self.thread.join().unwrap_or_else(|_| {
            Err(io::Error::other("the filling thread panicked")).doing(|| "fill memory".into())
        })
    }
}

/// One address space: the tree's, or that of a process it forked meanwhile.
struct Space {
    uffd: OwnedFd,
    /// Pages still to come, by first page.
    missing: BTreeMap<u64, PageRun>,
    /// The position of the background fill.
    next: u64,
    /// Pages installed for the last fault, and where the next one would continue.
    window: u64,
    expected: u64,
    /// Contents on their way, in memory that was used before.
    bytes: Vec<u8>,
}

struct Filler {
    packs: Vec<FillPack>,
    spaces: Vec<Space>,
    /// The time of the last fault.
    asked: Instant,
}

impl Filler {
    fn run(mut self) -> Result<()> {
        while !self.spaces.is_empty() {
            let mut index = 0;
            while index < self.spaces.len() {
                match self.serve(index) {
                    Ok(true) => index += 1,
                    Ok(false) => drop(self.spaces.swap_remove(index)),
                    // the process has ended
                    Err(error) if is_gone(&error) => drop(self.spaces.swap_remove(index)),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// One round for one address space: all faults, then a piece ahead. False when it is complete.
    fn serve(&mut self, index: usize) -> Result<bool> {
        let space = &mut self.spaces[index];
        let is_quiet = space.is_walked() || self.asked.elapsed() >= QUIET;
        let patience = if is_quiet { 0 } else { 1 };
        let waiting = fds::poll_readable(space.uffd.as_fd(), patience).doing(|| "poll".into())?;
        if waiting {
            self.asked = Instant::now();
            while let Some(event) =
                uffd::read_event(space.uffd.as_fd()).doing(|| "read a fault".into())?
            {
                if let Some(child) = space.handle(event, &self.packs)? {
                    self.spaces.push(child);
                    return Ok(true);
                }
            }
        }
        let space = &mut self.spaces[index];
        if waiting && !space.missing.is_empty() && !space.is_walked() {
            return Ok(true);
        }
        if space.missing.is_empty() {
            // the last descriptor closes: the kernel unregisters all remaining ranges, wherever the
            // program moved or grew them, and wakes all waiting threads
            return Ok(false);
        }
        space.fill_ahead(&self.packs)?;
        Ok(true)
    }
}

fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Io { source, .. }
        if matches!(source.raw_os_error(), Some(libc::ESRCH | libc::EBADF)))
}

impl Space {
    fn new(uffd: OwnedFd, missing: BTreeMap<u64, PageRun>) -> Space {
        Space { uffd, missing, next: 0, window: AROUND, expected: 0, bytes: Vec::new() }
    }

    /// Whether the program walks through memory: it gets the pages ahead of it without asking.
    fn is_walked(&self) -> bool {
        self.window == MOST_AROUND
    }

    fn handle(&mut self, event: UffdEvent, packs: &[FillPack]) -> Result<Option<Space>> {
        match event {
            UffdEvent::Fault { address } => self.fault(address / PAGE, packs)?,
            UffdEvent::Remove { start, end } | UffdEvent::Unmap { start, end } => {
                drop(self.take(start / PAGE, end / PAGE));
            }
            UffdEvent::Remap { from, to, len } => self.moved(from, to, len),
            UffdEvent::Fork { fd } => {
                return Ok(Some(Space::new(fds::inherited(fd), self.missing.clone())));
            }
            UffdEvent::Unknown(kind) => {
                return Err(io::Error::other(format!("an unknown event {kind:#x}")))
                    .doing(|| "fill memory".into());
            }
        }
        Ok(None)
    }

    /// Removes the missing pages between two pages, splitting runs at the edges.
    fn take(&mut self, first: u64, last: u64) -> Vec<PageRun> {
        let from = self.missing.range(..first).next_back().map_or(first, |(page, _)| *page);
        let touched: Vec<PageRun> = self
            .missing
            .range(from..last)
            .map(|(_, run)| *run)
            .filter(|run| run.end() > first && run.page < last)
            .collect();
        let mut taken = Vec::new();
        for run in touched {
            self.missing.remove(&run.page);
            if run.page < first {
                let head = run.slice(run.page, (first - run.page) as u32);
                self.missing.insert(head.page, head);
            }
            if run.end() > last {
                let tail = run.slice(last, (run.end() - last) as u32);
                self.missing.insert(tail.page, tail);
            }
            let (start, end) = (run.page.max(first), run.end().min(last));
            taken.push(run.slice(start, (end - start) as u32));
        }
        taken
    }

    fn fault(&mut self, page: u64, packs: &[FillPack]) -> Result<()> {
        let holds =
            self.missing.range(..=page).next_back().is_some_and(|(_, run)| run.end() > page);
        if holds {
            let first = page - page % AROUND;
            // one who walks through memory gets more and more at a time
            let goes_on = first == self.expected;
            self.window = if goes_on { (self.window * 2).min(MOST_AROUND) } else { AROUND };
            self.expected = first + self.window;
            let wanted = self.take(first, first + self.window);
            return self.install(wanted, packs);
        }
        self.zero(page)
    }

    fn zero(&self, page: u64) -> Result<()> {
        match uffd::zero(self.uffd.as_fd(), page * PAGE, PAGE) {
            Ok(()) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // it came meanwhile, or the mapping is being changed: the thread tries again
                Some(libc::EEXIST | libc::EAGAIN | libc::ENOENT) => {
                    let _ = uffd::wake(self.uffd.as_fd(), page * PAGE, PAGE);
                    Ok(())
                }
                _ => Err(error).doing(|| "fill a page with zeros".into()),
            },
        }
    }

    /// Fills what the program is about to reach, or else the next pages in order.
    fn fill_ahead(&mut self, packs: &[FillPack]) -> Result<()> {
        if self.is_walked() {
            let wanted = self.take(self.expected, self.expected + self.window);
            if !wanted.is_empty() {
                self.expected += self.window;
                return self.install(wanted, packs);
            }
            self.window = AROUND;
        }
        let next = self.missing.range(self.next..).next().or_else(|| self.missing.iter().next());
        let Some((page, _)) = next else { return Ok(()) };
        let first = *page;
        self.next = first + AHEAD;
        let wanted = self.take(first, first + AHEAD);
        self.install(wanted, packs)
    }

    /// Reads, verifies and installs pages. Pages that cannot be installed now are missing again.
    fn install(&mut self, wanted: Vec<PageRun>, packs: &[FillPack]) -> Result<()> {
        for run in wanted {
            let pack = &packs[run.pack as usize];
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.resize(run.count as usize * PAGE_SIZE, 0);
            pack.read(run.slot, &mut bytes)?;
            let left = self.copy(&run, &bytes)?;
            self.bytes = bytes;
            if let Some(rest) = left {
                self.missing.insert(rest.page, rest);
            }
        }
        Ok(())
    }

    /// Installs one run. Returns the rest of it if an event must be handled first.
    fn copy(&self, run: &PageRun, bytes: &[u8]) -> Result<Option<PageRun>> {
        let uffd = self.uffd.as_fd();
        let (mut done, mut most) = (0, bytes.len());
        while done < bytes.len() {
            let at = run.page * PAGE + done as u64;
            let piece = &bytes[done..bytes.len().min(done + most)];
            let failed = match uffd::copy(uffd, at, piece) {
                Ok(copied) => {
                    done += copied as usize;
                    continue;
                }
                Err(error) => error,
            };
            match failed.raw_os_error() {
                // an event is on its way that may concern these pages
                Some(libc::EAGAIN) => {
                    return Ok(Some(run.slice(at / PAGE, (run.end() - at / PAGE) as u32)));
                }
                // the program split the mapping since: a piece may not reach over the edge
                Some(libc::ENOENT) if piece.len() > PAGE_SIZE => most = PAGE_SIZE,
                // the page exists, or its mapping was removed and an event reports it
                Some(libc::EEXIST | libc::ENOENT) => {
                    let _ = uffd::wake(uffd, at, PAGE);
                    done += PAGE_SIZE;
                }
                _ => return Err(failed).doing(|| "fill memory".into()),
            }
        }
        Ok(None)
    }

    fn moved(&mut self, from: u64, to: u64, len: u64) {
        for run in self.take(from / PAGE, (from + len) / PAGE) {
            let page = run.page - from / PAGE + to / PAGE;
            self.missing.insert(page, PageRun { page, ..run });
        }
    }
}
