//! The program of a whole tree.

use super::confine::CloneConfinement;
use super::jobs::StoppedThread;
use super::memory::{self, Layout, MemoryPlan};
use super::parts::{dense_ranges, layout_of, parked, without_lazy};
use super::uffd::Track;
use super::{process, thread};
use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_spawner::program::{Label, Program};
use stasis_sys::{PAGE, libc};
use std::rc::Rc;

/// Resources the engine has ready for the program.
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
    pub purpose: ClonePurpose<'a>,
    /// Target mappings of the root to be filled on demand.
    pub lazy: &'a [usize],
    pub track: Track,
    /// timer_create accepts the number to assign.
    pub timer_ids: bool,
    pub confine: CloneConfinement<'a>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClonePurpose<'a> {
    /// Become the program, inside the machine's walls.
    Run,
    /// Stay as a template. The needed ones of the manifest's mapped files come as descriptors with
    /// these numbers.
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
/// The fill file is written, and the preconditions were checked.
pub const FILLED: u64 = layout::REPORT + 104;

/// A program ready to be staged.
pub struct Built {
    pub program: Program,
    /// Bytes for `layout::LEAVE`.
    pub leave: Vec<u8>,
    /// Pages the fill file must hold, one after another.
    pub fills: Vec<PageRun>,
    /// Memory the engine registers when the root has mapped it.
    pub registers: Vec<(u64, u64)>,
    /// Pages of the root that the engine installs when it has the root's userfaultfd.
    pub installs: Vec<PageRun>,
    /// Threads the engine has to load before it lets the others go.
    pub stopped: Vec<StoppedThread>,
}

pub(super) struct Builder<'a> {
    pub prepared: &'a Prepared<'a>,
    pub program: Program,
    pub leave: thread::LeaveArea,
    pub fills: Vec<PageRun>,
    pub registers: Vec<(u64, u64)>,
    pub installs: Vec<PageRun>,
    /// They were requested and not awaited yet.
    pub waits: bool,
    /// Capabilities that some thread may still get from a program it starts.
    pub bounding: u64,
    /// Bytes of the fill file that were read so far.
    pub filled: u64,
    /// The file that is number 0, for its next piece.
    pub open_file: Option<u32>,
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
        ClonePurpose::Run => builder.run_root(root)?,
        ClonePurpose::Park { .. } => builder.park_root(root)?,
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

/// A process that its parent forks: it continues at the label.
struct Forked<'a> {
    label: Label,
    process: &'a Process,
    parent: Rc<ParentMemory<'a>>,
}

/// The memory that children start with: without what the parent gets on demand.
struct ParentMemory<'a> {
    target: Layout<'a>,
    runs: Vec<PageRun>,
}

impl ParentMemory<'_> {
    fn layout(&self) -> Layout<'_> {
        Layout { runs: &self.runs, ..self.target }
    }
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

    /// Moves our descriptors out of the program's way and closes the template's.
    fn prologue(&mut self) {
        let high = self.prepared.high;
        self.program.report_to(layout::REPORT);
        if self.prepared.purpose == ClonePurpose::Run {
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
        self.processes(root)
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

    /// Receives the descriptors that the engine sent after the order: they get the lowest numbers.
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

    /// Turns densely filled ranges into huge pages: a fork then copies one entry in place of 512. A
    /// clone that writes to one gets small pages back, copied one by one as before. Neighbours are
    /// requested together: each call interrupts all processors.
    fn collapse(&mut self, fills: &[PageRun], vmas: &[Vma]) {
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

    /// Everything from memory on, for one process and (after it) its descendants. A child starts
    /// with the memory of its parent, the root with the template's. Machines control the depth, so
    /// this does not recurse.
    pub(super) fn processes(&mut self, root: &'a Process) -> Result<()> {
        let mut waiting = self.process(root, None)?;
        while let Some(Forked { label, process, parent }) = waiting.pop() {
            self.program.land(label);
            waiting.extend(self.process(process, Some(parent.layout()))?);
        }
        Ok(())
    }

    /// One process; its children, the last one first.
    fn process(
        &mut self,
        process: &'a Process,
        parent: Option<Layout<'_>>,
    ) -> Result<Vec<Forked<'a>>> {
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
        let runs = match children.is_empty() {
            true => Vec::new(),
            false => without_lazy(target.runs, &live.vmas, lazy),
        };
        let parent = Rc::new(ParentMemory { target, runs });
        let children = children.into_iter().rev();
        Ok(children
            .map(|(label, process)| Forked { label, process, parent: parent.clone() })
            .collect())
    }

    /// Forks the process's children; each continues at its label.
    fn fork_children(
        &mut self,
        process: &'a Process,
        is_root: bool,
    ) -> Result<Vec<(Label, &'a Process)>> {
        process::fork_children(self, process, is_root)
    }
}
