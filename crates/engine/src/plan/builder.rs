//! The program of a whole tree.

use super::confine::Confine;
use super::jobs::StoppedThread;
use super::memory::{self, Layout, MemoryPlan, Step};
use super::parts::{
    dense_ranges, inherited_spans, layout_of, parked, split_anonymous, without_lazy,
};
use super::uffd::{HAND_PAGES, Track};
use super::{process, thread};
use crate::error::{Error, Result};
use crate::track;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_spawner::program::{Label, Program};
use stasis_sys::{PAGE, libc};

/// What the engine has ready for the program to use.
pub struct Prepared<'a> {
    pub manifest: &'a Manifest,
    /// How the root gets from the template's memory to its own.
    pub root_plan: &'a MemoryPlan,
    /// Our own descriptors go here and above; above all of the program's.
    pub high: i32,
    /// Number under which each object waits, once taken in (`None`: it has none of its own).
    pub objects: &'a [Option<i32>],
    pub segments: &'a [i32],
    /// How many descriptors come in how many messages, after the first.
    pub batches: &'a [usize],
    /// Limits a new process has by itself.
    pub rlimits: &'a [(u64, u64)],
    pub purpose: Purpose<'a>,
    /// Target mappings of the root to be filled on demand.
    pub lazy: &'a [usize],
    pub track: Track,
    /// timer_create can be told which number to give.
    pub timer_ids: bool,
    pub confine: Confine<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose<'a> {
    /// Become the program, inside the machine's walls.
    Run,
    /// Stay as a template. Of the manifest's mapped files, those that are needed come as
    /// descriptors with these numbers.
    Park { files: &'a [Option<i32>] },
}

/// Numbers of our own descriptors, relative to `Prepared::high`.
pub const OWN_WALLS: i32 = 0;
pub const OWN_STAGE: i32 = 1;
pub const OWN_CONTROL: i32 = 2;
pub const OWN_FILL: i32 = 3;
/// Objects and segments start here.
pub const OWN_OBJECTS: i32 = 8;

/// Words of the report page.
pub const BORN: u64 = layout::REPORT + 64;
pub const READY: u64 = layout::REPORT + 68;
pub const GO: u64 = layout::REPORT + 72;
pub const GROUPED: u64 = layout::REPORT + 76;
pub const FORKED: u64 = layout::REPORT + 80;
pub const PLACED: u64 = layout::REPORT + 84;
pub const FILTERED: u64 = layout::REPORT + 88;
/// The engine has installed the root's pages.
pub const INSTALLED: u64 = layout::REPORT + 92;
/// The fill file is written, and what must hold was looked at.
pub const FILLED: u64 = layout::REPORT + 104;

/// A program ready to be staged.
pub struct Built {
    pub program: Program,
    /// Bytes for `layout::LEAVE`.
    pub leave: Vec<u8>,
    /// Pages the fill file must hold, one after another.
    pub fills: Vec<Run>,
    /// Memory the engine registers when the root has mapped it.
    pub registers: Vec<(u64, u64)>,
    /// Pages of the root that the engine installs when it has the root's userfaultfd.
    pub installs: Vec<Run>,
    /// Threads the engine has to load before it lets the others go.
    pub stopped: Vec<StoppedThread>,
}

pub(super) struct Builder<'a> {
    pub prepared: &'a Prepared<'a>,
    pub program: Program,
    pub leave: thread::LeaveArea,
    pub fills: Vec<Run>,
    pub registers: Vec<(u64, u64)>,
    pub installs: Vec<Run>,
    /// They were asked for and not waited for yet.
    pub waits: bool,
    /// Capabilities that some thread may still get from a program it starts.
    pub bounding: u64,
    filled: u64,
    /// The file that is number 0, for its next piece.
    open_file: Option<u32>,
    pub stopped: Vec<StoppedThread>,
}

pub fn build(prepared: &Prepared) -> Result<Built> {
    let mut builder = Builder {
        prepared,
        program: Program::new(layout::BEHIND_GATE, layout::DATA),
        leave: thread::LeaveArea::default(),
        fills: Vec::new(),
        registers: Vec::new(),
        installs: Vec::new(),
        waits: false,
        bounding: super::confine::bounding(prepared.manifest),
        filled: 0,
        open_file: None,
        stopped: Vec::new(),
    };
    builder.prologue();
    let root = root_of(prepared.manifest)?;
    match prepared.purpose {
        Purpose::Run => builder.run_root(root)?,
        Purpose::Park { .. } => builder.park_root(root)?,
    }
    let leave = builder.leave.finish();
    if leave.len() as u64 > layout::LEAVE_MAX
        || builder.program.ops_bytes().len() as u64 > layout::OPS_MAX - PAGE
        || builder.program.data_bytes().len() as u64 > layout::DATA_MAX
    {
        return Err(Error::Unfit("it has more threads or mappings than a restore can hold".into()));
    }
    let Builder { program, fills, registers, installs, stopped, .. } = builder;
    Ok(Built { program, leave, fills, registers, installs, stopped })
}

/// The process everything else hangs on: the first child of init.
pub fn root_of(manifest: &Manifest) -> Result<&Process> {
    manifest
        .processes
        .iter()
        .find(|process| process.ppid == 1 && process.live().is_some())
        .ok_or_else(|| Error::Unfit("it has no living root process".into()))
}

impl<'a> Builder<'a> {
    pub fn own(&self, which: i32) -> u64 {
        (self.prepared.high + which) as u64
    }

    /// Moves our descriptors out of the program's way and lets go of the template's.
    fn prologue(&mut self) {
        let high = self.prepared.high;
        self.program.report_to(layout::REPORT);
        if self.prepared.purpose == Purpose::Run {
            self.join_cgroup();
        }
        let p = &mut self.program;
        p.must("close the template's", libc::SYS_close_range, &[900, u32::MAX.into(), 0]);
        p.must("drop the loop", libc::SYS_munmap, &[layout::LOOP, layout::LOOP_SIZE]);
        let order = [
            (layout::CLONE_PIDNS_FD, OWN_WALLS),
            (layout::CLONE_STAGE_FD, OWN_STAGE),
            (layout::CLONE_CONTROL_FD, OWN_CONTROL),
            (layout::CLONE_FIRST_EXTRA_FD, OWN_FILL),
        ];
        for (from, to) in order {
            let to = (high + to) as u64;
            p.must("set aside", libc::SYS_dup3, &[from as u64, to, libc::O_CLOEXEC as u64]);
        }
        p.must("close the low ones", libc::SYS_close_range, &[0, high as u64 - 1, 0]);
    }

    fn run_root(&mut self, root: &'a Process) -> Result<()> {
        self.make_uffds();
        self.enter_walls();
        self.take_objects();
        self.process(root, None)
    }

    fn enter_walls(&mut self) {
        const CLONE_NEWTIME: u64 = 0x80;
        let flags = libc::CLONE_NEWUSER
            | libc::CLONE_NEWNS
            | libc::CLONE_NEWNET
            | libc::CLONE_NEWIPC
            | libc::CLONE_NEWUTS
            | libc::CLONE_NEWCGROUP;
        let (walls, control) = (self.own(OWN_WALLS), self.own(OWN_CONTROL));
        let p = &mut self.program;
        p.must("enter the walls", libc::SYS_setns, &[walls, flags as u64]);
        let byte = p.data(&[0]);
        let message = stasis_spawner::program::receive_message(p, byte, 1, 1);
        p.must("take the time namespace", libc::SYS_recvmsg, &[control, message, 0]);
        p.must("enter the time namespace", libc::SYS_setns, &[0, CLONE_NEWTIME]);
        p.must("close it", libc::SYS_close, &[0]);
        p.must("become the machine's root", libc::SYS_setresgid, &[0, 0, 0]);
        p.must("become the machine's root", libc::SYS_setresuid, &[0, 0, 0]);
        self.confine();
    }

    /// Takes in what the engine sent after the order: they land on the lowest numbers.
    fn take_objects(&mut self) {
        let control = self.own(OWN_CONTROL);
        let mut next = self.prepared.high + OWN_OBJECTS;
        let p = &mut self.program;
        for count in self.prepared.batches {
            let byte = p.data(&[0]);
            let message = stasis_spawner::program::receive_message(p, byte, 1, *count as u64);
            p.must("take descriptors", libc::SYS_recvmsg, &[control, message, 0]);
            for index in 0..*count {
                let cloexec = libc::O_CLOEXEC as u64;
                p.must("set aside", libc::SYS_dup3, &[index as u64, next as u64, cloexec]);
                next += 1;
            }
            p.must("close the low ones", libc::SYS_close_range, &[0, *count as u64 - 1, 0]);
        }
    }

    fn park_root(&mut self, root: &'a Process) -> Result<()> {
        self.make_template_uffd();
        self.take_objects();
        let live = root.live().ok_or(Error::Gone)?;
        let vmas = parked(live);
        self.memory(self.prepared.root_plan, &vmas, &[])?;
        self.collapse(&self.prepared.root_plan.fills, &vmas);
        self.mm(live);
        self.loop_again();
        Ok(())
    }

    /// Makes huge pages of what is densely filled: a fork then copies one entry in place of 512.
    /// A clone that writes to one gets small pages back, copied one by one as before. Neighbours
    /// are asked for at once: each call makes all processors put down what they hold.
    fn collapse(&mut self, fills: &[Run], vmas: &[Vma]) {
        const MADV_COLLAPSE: u64 = 25;
        for (start, end) in dense_ranges(fills, vmas) {
            let args = [start, end - start, MADV_COLLAPSE];
            self.program.any("make huge pages", libc::SYS_madvise, &args);
        }
    }

    /// Becomes a template: its order descriptors again, its loop again.
    fn loop_again(&mut self) {
        let (control, stage) = (self.own(OWN_CONTROL), self.own(OWN_STAGE));
        let walls = self.own(OWN_WALLS);
        let p = &mut self.program;
        let cloexec = 0;
        let to = layout::TEMPLATE_CONTROL_FD as u64;
        p.must("keep the control", libc::SYS_dup3, &[control, to, cloexec]);
        let to = layout::TEMPLATE_PIDNS_FD as u64;
        p.must("keep the namespace", libc::SYS_dup3, &[walls, to, cloexec]);
        let map = [
            layout::LOOP,
            layout::LOOP_SIZE,
            (libc::PROT_READ | libc::PROT_WRITE) as u64,
            (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
            u64::MAX,
            0,
        ];
        p.must("map the loop", libc::SYS_mmap, &map);
        let at = layout::LEAVE - layout::STAGE;
        let args = [stage, layout::LOOP, layout::LOOP_SIZE, at];
        p.must("load the loop", libc::SYS_pread64, &args);
        p.must("ready", libc::SYS_sendto, &[control, layout::LOOP, 1, 0, 0, 0]);
        p.must("close the rest", libc::SYS_close_range, &[0, 899, 0]);
        p.must("close the rest", libc::SYS_close_range, &[902, u32::MAX.into(), 0]);
        p.jump_to(layout::LOOP + PAGE);
    }

    /// Everything from memory on, for one process and (after it) its children. A child starts
    /// with the memory of its `parent`, the root with the template's.
    pub(super) fn process(
        &mut self,
        process: &'a Process,
        parent: Option<Layout<'_>>,
    ) -> Result<()> {
        let live = process.live().ok_or(Error::Gone)?;
        let target = layout_of(self.prepared.manifest, process.pid, live);
        let is_root = parent.is_none();
        let lazy: &[usize] = if is_root { self.prepared.lazy } else { &[] };
        self.begin_session(process);
        match parent {
            None if self.prepared.track != Track::No && lazy.is_empty() => {
                self.tracked_memory(&live.vmas, target.runs)?
            }
            None => self.memory(self.prepared.root_plan, &live.vmas, lazy)?,
            Some(parent) => self.memory(&memory::plan(parent, target), &live.vmas, lazy)?,
        }
        self.mm(live);
        let children = self.fork_children(process, is_root)?;
        if is_root && !lazy.is_empty() {
            self.register_lazy(&live.vmas, lazy);
        } else if is_root && self.prepared.track != Track::No {
            self.arm_tracking(&live.vmas);
        }
        self.finish_process(process, live, is_root)?;
        let there = without_lazy(target.runs, &live.vmas, lazy);
        for (label, child) in children {
            self.program.land(label);
            self.process(child, Some(Layout { runs: &there, ..target }))?;
        }
        Ok(())
    }

    /// Carries a memory plan out.
    fn memory(&mut self, plan: &MemoryPlan, vmas: &[Vma], lazy: &[usize]) -> Result<()> {
        let fills = without_lazy(&plan.fills, vmas, lazy);
        self.before_filling(plan, vmas, &fills)?;
        self.fill(&fills);
        self.after_filling(plan, vmas, &fills)
    }

    /// The same for a root whose writes are tracked. Pages of anonymous memory are given back here
    /// and installed by the engine: each is copied once, and nobody meets a fault.
    fn tracked_memory(&mut self, vmas: &[Vma], runs: &[Run]) -> Result<()> {
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
        // all others are forked from the root, whoever their parent is, and begin with these pages;
        // and locking them would bring others in their place
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

    fn before_filling(&mut self, plan: &MemoryPlan, vmas: &[Vma], fills: &[Run]) -> Result<()> {
        for step in &plan.before {
            self.step(step, vmas, fills)?;
        }
        self.close_file();
        Ok(())
    }

    fn after_filling(&mut self, plan: &MemoryPlan, vmas: &[Vma], fills: &[Run]) -> Result<()> {
        for step in &plan.after {
            self.step(step, vmas, fills)?;
        }
        for index in &plan.mapped {
            self.traits(&vmas[*index]);
        }
        Ok(())
    }

    fn step(&mut self, step: &Step, vmas: &[Vma], fills: &[Run]) -> Result<()> {
        let p = &mut self.program;
        match step {
            Step::Unmap { start, end } => {
                p.must("unmap", libc::SYS_munmap, &[*start, end - start]);
            }
            Step::Grow { start, end, new_end } => {
                let args = [*start, end - start, new_end - start, 0, 0];
                p.must("grow a mapping", libc::SYS_mremap, &args);
            }
            Step::Discard { start, end } => {
                let args = [*start, end - start, libc::MADV_DONTNEED as u64];
                p.must("discard pages", libc::SYS_madvise, &args);
            }
            Step::Protect { start, end, prot } => {
                p.must("protect", libc::SYS_mprotect, &[*start, end - start, (*prot).into()]);
            }
            Step::Guard { start, end, up } => {
                const MADV_GUARD_INSTALL: u64 = 102;
                const MADV_GUARD_REMOVE: u64 = 103;
                let advice = if *up { MADV_GUARD_INSTALL } else { MADV_GUARD_REMOVE };
                p.must("set a guard", libc::SYS_madvise, &[*start, end - start, advice]);
            }
            Step::MoveKernel { from, to, len, .. } => {
                let flags = (libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED) as u64;
                p.must(
                    "move the kernel's pages",
                    libc::SYS_mremap,
                    &[*from, *len, *len, flags, *to],
                );
            }
            Step::Map { index } => self.map(&vmas[*index], fills)?,
        }
        Ok(())
    }

    /// Maps one target mapping, writable if pages of it will be filled.
    fn map(&mut self, vma: &Vma, fills: &[Run]) -> Result<()> {
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
            Purpose::Park { files } => {
                let fd = number_of(files, file) as u64;
                let args = [range[0], range[1], range[2], flags, fd, offset];
                self.program.must("map a file", libc::SYS_mmap, &args);
            }
            Purpose::Run => {
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
    pub fn open(&mut self, path: &str, flags: i32) {
        self.close_file();
        let path = self.program.text(path);
        let flags = (flags | libc::O_CLOEXEC | libc::O_NOCTTY) as u64;
        let here = libc::AT_FDCWD as i64 as u64;
        self.program.must("open a file", libc::SYS_openat, &[here, path, flags, 0]);
    }

    /// Reads pages from the fill file to where they belong, many at a time. With none to read it
    /// waits as well: then, too, the engine has looked at what must hold.
    fn fill(&mut self, fills: &[Run]) {
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

    fn mm(&mut self, live: &Live) {
        let auxv = self.program.words(&live.mm.auxv);
        let exe = &self.prepared.manifest.meta.mapped_files[live.exe as usize].path;
        let fd = match self.prepared.purpose {
            Purpose::Park { files } => number_of(files, live.exe) as u32,
            Purpose::Run => {
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
        if self.prepared.purpose == Purpose::Run {
            self.program.must("close it", libc::SYS_close, &[0]);
        }
    }

    /// Forks the process's children; each goes on at its label.
    fn fork_children(
        &mut self,
        process: &'a Process,
        is_root: bool,
    ) -> Result<Vec<(Label, &'a Process)>> {
        process::fork_children(self, process, is_root)
    }
}

/// The descriptor of a file that is to be mapped; what does not exist is refused by the kernel.
fn number_of(files: &[Option<i32>], file: u32) -> i32 {
    files.get(file as usize).copied().flatten().unwrap_or(-1)
}
