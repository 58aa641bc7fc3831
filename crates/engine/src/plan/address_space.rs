//! A process's memory: mapped, filled and advised as its plan says.

use super::builder::{Builder, ClonePurpose, FILLED, INSTALLED, OWN_FILL};
use super::memory::{MemoryPlan, MemoryStep};
use super::parts::{inherited_spans, split_anonymous, without_lazy};
use super::uffd::{HAND_PAGES, Track};
use crate::error::Result;
use crate::track;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_sys::{PAGE, libc};

impl Builder<'_> {
    /// Carries a memory plan out.
    pub(super) fn memory(&mut self, plan: &MemoryPlan, vmas: &[Vma], lazy: &[usize]) -> Result<()> {
        let fills = without_lazy(&plan.fills, vmas, lazy);
        self.before_filling(plan, vmas, &fills)?;
        self.fill(&fills);
        self.after_filling(plan, vmas, &fills)
    }

    /// The same for a root whose writes are tracked. Pages of anonymous memory are given back here
    /// and installed by the engine: each is copied once, without a fault.
    pub(super) fn tracked_memory(&mut self, vmas: &[Vma], runs: &[PageRun]) -> Result<()> {
        let plan = self.prepared.root_plan;
        let (installs, fills) = split_anonymous(&plan.fills, vmas);
        self.before_filling(plan, vmas, &plan.fills)?;
        if self.prepared.track == Track::Own {
            self.register(vmas, runs);
        }
        for (start, end) in inherited_spans(&installs, vmas, &plan.mapped) {
            let args = [start, end - start, libc::MADV_DONTNEED as u64];
            self.program.must("give pages back", libc::SYS_madvise, &args);
        }
        self.installs = installs;
        if self.prepared.track == Track::Own {
            self.hand_over_uffd(HAND_PAGES);
            self.waits = !self.installs.is_empty();
        } else {
            self.registers = track::new_ranges(vmas, runs, plan);
            self.hand_over_memory();
        }
        // all other processes are forked from the root, whatever their parent, and start with these
        // pages; locking them would replace them
        let others = self.prepared.manifest.processes.len() > 1;
        if others || vmas.iter().any(|vma| vma.traits.locked) {
            self.await_installed();
        }
        self.fill(&fills);
        self.after_filling(plan, vmas, &plan.fills)
    }

    /// Waits for pages that come while the root does other things: nothing may touch them before.
    pub(super) fn await_installed(&mut self) {
        if std::mem::take(&mut self.waits) {
            self.program.await_word(INSTALLED, 1);
        }
    }

    fn before_filling(&mut self, plan: &MemoryPlan, vmas: &[Vma], fills: &[PageRun]) -> Result<()> {
        for step in &plan.before {
            self.step(step, vmas, fills)?;
        }
        self.close_file();
        Ok(())
    }

    fn after_filling(&mut self, plan: &MemoryPlan, vmas: &[Vma], fills: &[PageRun]) -> Result<()> {
        for step in &plan.after {
            self.step(step, vmas, fills)?;
        }
        for index in &plan.mapped {
            self.traits(&vmas[*index]);
        }
        Ok(())
    }

    fn step(&mut self, step: &MemoryStep, vmas: &[Vma], fills: &[PageRun]) -> Result<()> {
        let p = &mut self.program;
        match step {
            MemoryStep::Unmap { start, end } => {
                p.must("unmap", libc::SYS_munmap, &[*start, end - start]);
            }
            MemoryStep::Grow { start, end, new_end } => {
                let args = [*start, end - start, new_end - start, 0, 0];
                p.must("grow a mapping", libc::SYS_mremap, &args);
            }
            MemoryStep::Discard { start, end } => {
                let args = [*start, end - start, libc::MADV_DONTNEED as u64];
                p.must("discard pages", libc::SYS_madvise, &args);
            }
            MemoryStep::Protect { start, end, prot } => {
                p.must("protect", libc::SYS_mprotect, &[*start, end - start, (*prot).into()]);
            }
            MemoryStep::Guard { start, end, up } => {
                const MADV_GUARD_INSTALL: u64 = 102;
                const MADV_GUARD_REMOVE: u64 = 103;
                let advice = if *up { MADV_GUARD_INSTALL } else { MADV_GUARD_REMOVE };
                p.must("set a guard", libc::SYS_madvise, &[*start, end - start, advice]);
            }
            MemoryStep::MoveKernel { from, to, len, .. } => {
                let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                p.must(
                    "move the kernel's pages",
                    libc::SYS_mremap,
                    &[*from, *len, *len, flags, *to],
                );
            }
            MemoryStep::Map { index } => self.map(&vmas[*index], fills)?,
        }
        Ok(())
    }

    /// Maps one target mapping, writable if pages of it will be filled.
    fn map(&mut self, vma: &Vma, fills: &[PageRun]) -> Result<()> {
        let (first, last) = (vma.start / PAGE, vma.end / PAGE);
        let index = fills.partition_point(|run| run.end() <= first);
        let filled = fills.get(index).is_some_and(|run| run.page < last);
        let prot = u64::from(vma.prot) | if filled { 3 } else { 0 };
        let traits = &vma.traits;
        let mut flags = libc::MAP_FIXED;
        if traits.grows_down {
            flags |= libc::MAP_GROWSDOWN;
        }
        if traits.no_reserve {
            flags |= libc::MAP_NORESERVE;
        }
        let range = [vma.start, vma.len(), prot];
        match &vma.backing {
            Backing::Anonymous => {
                let flags = (flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
                let args = [range[0], range[1], range[2], flags, u64::MAX, 0];
                self.program.must("map memory", libc::SYS_mmap, &args);
            }
            Backing::PrivateFile { file, offset } => {
                let flags = (flags | libc::MAP_PRIVATE) as u64;
                self.map_file(*file, range, flags, *offset);
            }
            Backing::SharedFile { path, offset, writable } => {
                let mode = if *writable { libc::O_RDWR } else { libc::O_RDONLY };
                self.open(path, mode);
                let flags = (flags | libc::MAP_SHARED) as u64;
                let args = [range[0], range[1], vma.prot.into(), flags, 0, *offset];
                self.program.must("map a shared file", libc::SYS_mmap, &args);
                self.program.must("close it", libc::SYS_close, &[0]);
            }
            Backing::Sysv { id, writable } => self.attach(*id, *writable, vma),
            Backing::PrivateSegment { segment, offset } => {
                let fd = self.prepared.segments[*segment as usize] as u64;
                let flags = (flags | libc::MAP_PRIVATE) as u64;
                let args = [range[0], range[1], range[2], flags, fd, *offset];
                self.program.must("map a nameless file", libc::SYS_mmap, &args);
            }
            Backing::Segment { segment, offset } => {
                let fd = self.prepared.segments[*segment as usize] as u64;
                let flags = (flags | libc::MAP_SHARED) as u64;
                let args = [range[0], range[1], vma.prot.into(), flags, fd, *offset];
                self.program.must("map shared memory", libc::SYS_mmap, &args);
            }
            Backing::Droppable => {
                const MAP_DROPPABLE: i32 = 0x08;
                let flags = (flags | MAP_DROPPABLE | libc::MAP_ANONYMOUS) as u64;
                let args = [range[0], range[1], range[2], flags, u64::MAX, 0];
                self.program.must("map droppable memory", libc::SYS_mmap, &args);
            }
            Backing::Kernel(_) => {}
        }
        Ok(())
    }

    fn map_file(&mut self, file: u32, range: [u64; 3], flags: u64, offset: u64) {
        let path = &self.prepared.manifest.meta.mapped_files[file as usize].path;
        match self.prepared.purpose {
            ClonePurpose::Park { files } => {
                let fd = number_of(files, file) as u64;
                let args = [range[0], range[1], range[2], flags, fd, offset];
                self.program.must("map a file", libc::SYS_mmap, &args);
            }
            ClonePurpose::Run => {
                // a library is mapped in several pieces, one after another
                if self.open_file != Some(file) {
                    self.open(path, libc::O_RDONLY);
                    self.open_file = Some(file);
                }
                let args = [range[0], range[1], range[2], flags, 0, offset];
                self.program.must("map a file", libc::SYS_mmap, &args);
            }
        }
    }

    /// Closes the file that was kept open for its next piece.
    fn close_file(&mut self) {
        if self.open_file.take().is_some() {
            self.program.must("close it", libc::SYS_close, &[0]);
        }
    }

    /// Opens a file of the machine. The low numbers are free, so it becomes number 0.
    pub(super) fn open(&mut self, path: &str, flags: i32) {
        self.close_file();
        let path = self.program.text(path);
        let flags = (flags | libc::O_CLOEXEC | libc::O_NOCTTY) as u64;
        let here = libc::AT_FDCWD as i64 as u64;
        self.program.must("open a file", libc::SYS_openat, &[here, path, flags, 0]);
    }

    /// Reads pages from the fill file to their addresses, many at a time. With none to read it
    /// waits as well: then, too, the engine has checked the preconditions.
    fn fill(&mut self, fills: &[PageRun]) {
        const MOST: usize = 1024;
        let fd = self.own(OWN_FILL);
        self.program.await_word(FILLED, 1);
        for group in fills.chunks(MOST) {
            let words: Vec<u64> = group
                .iter()
                .flat_map(|run| [run.page * PAGE, u64::from(run.count) * PAGE_SIZE as u64])
                .collect();
            let iov = self.program.words(&words);
            let args = [fd, iov, group.len() as u64, self.filled, 0];
            self.program.must("fill pages", libc::SYS_preadv, &args);
            self.filled += group.iter().map(|run| u64::from(run.count) * PAGE).sum::<u64>();
        }
        self.fills.extend_from_slice(fills);
    }

    /// Advice that goes with a mapping and does not hinder forking.
    fn traits(&mut self, vma: &Vma) {
        let traits = &vma.traits;
        let advice = [
            (traits.huge, libc::MADV_HUGEPAGE),
            (traits.no_huge, libc::MADV_NOHUGEPAGE),
            (traits.mergeable, libc::MADV_MERGEABLE),
            (traits.dont_dump, libc::MADV_DONTDUMP),
        ];
        for (_, advice) in advice.into_iter().filter(|(wanted, _)| *wanted) {
            let args = [vma.start, vma.len(), advice as u64];
            self.program.any("advise", libc::SYS_madvise, &args);
        }
        if let Some(name) = &vma.name {
            let name = self.program.text(name);
            let args = [0x5356_4d41, 0, vma.start, vma.len(), name];
            self.program.any("name a mapping", libc::SYS_prctl, &args);
        }
    }

    pub(super) fn mm(&mut self, live: &LiveProcess) {
        let auxv = self.program.words(&live.mm.auxv);
        let exe = &self.prepared.manifest.meta.mapped_files[live.exe as usize].path;
        let fd = match self.prepared.purpose {
            ClonePurpose::Park { files } => number_of(files, live.exe) as u32,
            ClonePurpose::Run => {
                self.open(exe, libc::O_RDONLY);
                0
            }
        };
        for (mode_must, fd) in [(false, fd), (true, u32::MAX)] {
            // a template's clone has the right program already, and while that is mapped the
            // kernel refuses to set it again; the rest must succeed
            let map = super::mm_map(&live.mm, auxv, fd);
            let at = self.program.data(&map);
            let args =
                [crate::vdso::PR_SET_MM, crate::vdso::PR_SET_MM_MAP, at, map.len() as u64, 0];
            if mode_must {
                self.program.must("set the address space's fields", libc::SYS_prctl, &args);
            } else {
                self.program.any("set the program file", libc::SYS_prctl, &args);
            }
        }
        if self.prepared.purpose == ClonePurpose::Run {
            self.program.must("close it", libc::SYS_close, &[0]);
        }
    }
}

/// The descriptor of a file that is to be mapped; what does not exist is refused by the kernel.
fn number_of(files: &[Option<i32>], file: u32) -> i32 {
    files.get(file as usize).copied().flatten().unwrap_or(-1)
}
