//! Threads: created with their own numbers, given the state the kernel keeps for each, and started.
//!
//! The last steps of every thread lie in the LEAVE area, which stays mapped: the stage, whose
//! operations brought it there, is unmapped by the first thread when the others have left it.
//!
//!   first thread    others gone ─► machine's filter ─► rseq ─► own filters ─► registers
//!   the others              ... ─► wait for it      ─► rseq ─► wait        ─► registers
//!
//! From the registration of an rseq area on, the kernel may divert a thread to any address in the
//! area. Its contents come from the image, so it is cleared first, and the filter is installed by
//! then.

use super::builder::{Builder, FILTERED, OWN_STAGE};
use super::credentials::credentials;
use super::jobs::StoppedThread;
use crate::error::Result;
use crate::{registers, rseq};
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_spawner::program::Program;
use stasis_sys::arch::{self, FrameParts, OP_SIZE};
use stasis_sys::process::{CLONE_ARGS_SIZE, CloneArgs};
use stasis_sys::{PAGE, libc, seccomp};

/// Signal frames and last operations, one place per thread of any process.
#[derive(Default)]
pub struct LeaveArea {
    bytes: Vec<u8>,
}

impl LeaveArea {
    fn reserve(&mut self, size: u64) -> u64 {
        let at = layout::LEAVE + self.bytes.len() as u64;
        self.bytes.resize(self.bytes.len() + size as usize, 0);
        at
    }

    fn write(&mut self, at: u64, bytes: &[u8]) {
        let offset = (at - layout::LEAVE) as usize;
        self.bytes[offset..offset + bytes.len()].copy_from_slice(bytes);
    }

    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// A process's part of the LEAVE area: a place per thread, then its filters.
struct Places<'a> {
    area: u64,
    /// Operations of one address.
    size: u64,
    threads: usize,
    filters: Vec<&'a [u64]>,
    /// The first filter is the walls'.
    walls_first: bool,
    stopped: Option<JobStop>,
}

/// Operations of a place beside one for each filter.
const PLACE_OPS: u64 = 16;
/// Words at the end of the first place.
const WORDS: u64 = 6 * 8;
/// `struct sock_fprog`.
const HEADER: u64 = 16;

impl<'a> Places<'a> {
    fn reserve(builder: &mut Builder<'a>, live: &LiveProcess) -> Places<'a> {
        let confine = builder.prepared.confine;
        let filters = confine.filters(builder.prepared.manifest, live);
        let ops = (PLACE_OPS + filters.len() as u64) * OP_SIZE;
        let size = (arch::frame_size() as u64 + 64 + ops + WORDS).next_multiple_of(PAGE);
        let bytes: u64 = filters.iter().map(|filter| HEADER + filter.len() as u64 * 8).sum();
        let threads = live.threads.len();
        let area = builder.leave.reserve(size * threads as u64 + bytes.next_multiple_of(PAGE));
        let walls_first = !confine.filter.is_empty();
        let stopped = live.stopped;
        Places { area, size, threads, filters, walls_first, stopped }
    }

    fn place(&self, index: usize) -> u64 {
        self.area + self.size * index as u64
    }

    fn word(&self, index: u64) -> u64 {
        self.area + self.size - WORDS + index * 8
    }

    /// A counter the first thread waits on.
    fn left(&self) -> u64 {
        self.word(0)
    }

    /// Whether the program's own filters are there, which the others wait for.
    fn filtered(&self) -> u64 {
        self.word(1)
    }

    /// Whether the machine's filter is there, in all processes.
    fn walled(&self) -> u64 {
        self.word(4)
    }

    /// How many of the others have their rseq area.
    fn registered(&self) -> u64 {
        self.word(5)
    }

    fn others(&self) -> u32 {
        self.threads as u32 - 1
    }

    /// Stays zero: its waiter stays stopped.
    fn never(&self) -> u64 {
        self.word(2)
    }

    /// The signal by which a process stops itself, as a set.
    fn mask(&self) -> u64 {
        self.word(3)
    }

    fn len(&self, builder: &Builder) -> u64 {
        layout::LEAVE + builder.leave.bytes.len() as u64 - self.area
    }

    /// Writes the filters behind the places; addresses of their headers.
    fn write_filters(&self, leave: &mut LeaveArea) -> Vec<u64> {
        let mut at = self.place(self.threads);
        let mut headers = Vec::new();
        for filter in &self.filters {
            let header = seccomp::header(filter.len(), at + HEADER);
            let words = header.iter().chain(*filter).flat_map(|word| word.to_ne_bytes());
            let bytes: Vec<u8> = words.collect();
            leave.write(at, &bytes);
            headers.push(at);
            at += bytes.len() as u64;
        }
        headers
    }
}

/// Steps that `emit` leaves for the first thread.
pub(super) struct FirstThreadWork {
    first_place: u64,
    /// A word in which the other threads count themselves once they are who they should be.
    personal: Option<(u64, u32)>,
}

/// Makes every thread but the first, and loads the process's part of the LEAVE area.
pub(super) fn emit(
    builder: &mut Builder,
    process: &Process,
    live: &LiveProcess,
) -> Result<FirstThreadWork> {
    let places = Places::reserve(builder, live);
    let headers = places.write_filters(&mut builder.leave);
    for (index, thread) in live.threads.iter().enumerate() {
        write_place(builder, &places, index, thread, &headers);
    }
    load(builder, places.area, places.len(builder));
    let others = live.threads.len() as u32 - 1;
    let counted = (others > 0).then(|| (builder.program.words(&[0]), others));
    let mut labels = Vec::new();
    for thread in &live.threads[1..] {
        let set_tid = builder.program.words(&[thread.tid as u64]);
        let flags = libc::CLONE_VM
            | libc::CLONE_FS
            | libc::CLONE_FILES
            | libc::CLONE_SIGHAND
            | libc::CLONE_THREAD
            | libc::CLONE_SYSVSEM
            | libc::CLONE_SETTLS
            | if thread.clear_tid != 0 { libc::CLONE_CHILD_CLEARTID } else { 0 };
        let args = builder.clone_args(&CloneArgs {
            flags: flags as u64,
            child_tid: thread.clear_tid,
            tls: thread.regs.fs_base,
            set_tid,
            set_tid_size: 1,
            ..CloneArgs::default()
        });
        let call = [args, CLONE_ARGS_SIZE];
        labels.push(builder.program.if_zero("make a thread", libc::SYS_clone3, &call));
    }
    let over = builder.program.jump();
    for (index, (thread, label)) in live.threads[1..].iter().zip(labels).enumerate() {
        builder.program.land(label);
        personal(builder, process, thread);
        if let Some((word, _)) = counted {
            builder.program.arrive(word);
        }
        if live.stopped.is_none() {
            builder.program.await_word(super::builder::GO, 1);
        }
        builder.program.jump_to(places.place(index + 1));
    }
    builder.program.land(over);
    Ok(FirstThreadWork { first_place: places.area, personal: counted })
}

/// The last operations of a thread, and after them the frame they load.
fn write_place(
    builder: &mut Builder,
    places: &Places,
    index: usize,
    thread: &Thread,
    headers: &[u64],
) {
    let at = places.place(index);
    let ops_len = (PLACE_OPS + headers.len() as u64) * OP_SIZE;
    let frame_at = (at + ops_len).next_multiple_of(64);
    let (walls, own) = headers.split_at(usize::from(places.walls_first));
    let mut ops = Program::new(at, 0);
    if index == 0 {
        ops.await_word(places.left(), places.others());
        install_filters(&mut ops, walls);
        if places.walls_first {
            meet_filtered(builder, &mut ops, places);
        }
        let stage = layout::STAGE + layout::LEAVE_MAX;
        let len = layout::STAGE_SIZE - layout::LEAVE_MAX;
        ops.any("drop the stage", libc::SYS_munmap, &[stage, len]);
        if places.others() > 0 {
            ops.arrive(places.walled());
        }
    } else {
        ops.arrive(places.left());
        ops.await_word(places.walled(), 1);
    }
    register_rseq(&mut ops, places, index, thread, !own.is_empty());
    let mut sigmask = thread.sigmask;
    if let Some(stop) = places.stopped {
        if index == 0 {
            stop_oneself(builder, &mut ops, places, stop, thread.tid);
        }
        ops.await_word(places.never(), 1);
        // the engine takes it from here, and sets the mask when nothing can be delivered
        let filters = if index == 0 { own.to_vec() } else { Vec::new() };
        let own_filters = !own.is_empty();
        let tid = thread.tid;
        builder.stopped.push(StoppedThread { tid, frame: frame_at, sigmask, filters, own_filters });
        sigmask = u64::MAX;
    } else {
        go_on(&mut ops, places, index, own);
        ops.sigreturn(frame_at);
    }
    debug_assert!(ops.ops_bytes().len() as u64 <= ops_len, "more operations than fit a place");
    let regs = registers::restored(&thread.regs);
    let altstack = (thread.altstack.sp, thread.altstack.flags & !1, thread.altstack.size);
    let parts = FrameParts { regs: &regs, xstate: &thread.xstate, sigmask, altstack };
    let frame = arch::build_frame(frame_at, &parts);
    builder.leave.write(at, &ops.ops_bytes());
    builder.leave.write(frame_at, &frame);
}

/// No process of the tree runs before all are under the sandbox's filter: a running one could reach
/// into another that still waits for it. A stopped process does not run and waits for none.
fn meet_filtered(builder: &Builder, ops: &mut Program, places: &Places) {
    let living = builder.living();
    if living > 1 {
        ops.arrive(FILTERED);
        if places.stopped.is_none() {
            ops.await_word(FILTERED, living);
        }
    }
}

/// All have theirs before the program's own filters are there, which may refuse it, and before a
/// process stops itself.
fn register_rseq(ops: &mut Program, places: &Places, index: usize, thread: &Thread, own: bool) {
    if let Some(rseq) = thread.rseq {
        ops.store(rseq.address + rseq::POINTER_AT, 0);
        let args = [rseq.address, rseq.length.into(), 0, rseq.signature.into()];
        ops.must("register rseq", libc::SYS_rseq, &args);
    }
    let meet = places.others() > 0 && (own || places.stopped.is_some());
    match (meet, index) {
        (false, _) => {}
        (true, 0) => ops.await_word(places.registered(), places.others()),
        (true, _) => ops.arrive(places.registered()),
    }
}

/// The program's own filters come last, for they may refuse all that is left to do but loading
/// the registers. They may also refuse the call that waits, so that the others watch the word
/// instead; it is a matter of microseconds.
fn go_on(ops: &mut Program, places: &Places, index: usize, own: &[u64]) {
    if own.is_empty() {
        return;
    }
    match index {
        0 => {
            install_filters(ops, own);
            ops.store(places.filtered(), 1);
        }
        _ => ops.watch_word(places.filtered(), 1),
    }
}

/// By the first thread for all of them, which need be one filter for later ones to be so too.
fn install_filters(ops: &mut Program, headers: &[u64]) {
    for header in headers {
        ops.must("install a filter", libc::SYS_seccomp, &install_arguments(*header));
    }
}

/// The result of a call that puts all threads under a filter.
pub fn install_arguments(header: u64) -> [u64; 3] {
    const TSYNC_ESRCH: u64 = 16;
    [seccomp::SET_MODE_FILTER, seccomp::FLAG_TSYNC | TSYNC_ESRCH, header]
}

/// Stops the process by the signal that had stopped it, or by one that cannot fail if the signal
/// will not be reported. Its handler is the default one, or it would not have stopped. The
/// program's own filters might refuse this, so the engine installs them once it has stopped.
fn stop_oneself(
    builder: &mut Builder,
    ops: &mut Program,
    places: &Places,
    stop: JobStop,
    pid: i32,
) {
    let signal = if stop.told { libc::SIGSTOP } else { stop.signal };
    let mask = places.mask();
    builder.leave.write(mask, &(1u64 << (signal - 1)).to_ne_bytes());
    ops.any("unblock it", libc::SYS_rt_sigprocmask, &[libc::SIG_UNBLOCK as u64, mask, 0, 8]);
    ops.any("stop", libc::SYS_kill, &[pid as u64, signal as u64]);
}

/// Replaces the shared stage by private memory where the LEAVE places of this process are, so
/// that what stays mapped is the process's own.
fn load(builder: &mut Builder, area: u64, size: u64) {
    let stage = builder.own(OWN_STAGE);
    let p = &mut builder.program;
    p.must("drop the shared places", libc::SYS_munmap, &[layout::LEAVE, layout::LEAVE_MAX]);
    let map = [
        area,
        size,
        (libc::PROT_READ | libc::PROT_WRITE) as u64,
        (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED) as u64,
        u64::MAX,
        0,
    ];
    p.must("map the last places", libc::SYS_mmap, &map);
    let args = [stage, area, size, area - layout::STAGE];
    p.must("load the last places", libc::SYS_pread64, &args);
}

/// State that each thread sets for itself.
pub(super) fn personal(builder: &mut Builder, process: &Process, thread: &Thread) {
    let is_leader = thread.tid == process.pid;
    let bounding = builder.bounding;
    let p = &mut builder.program;
    if is_leader {
        if thread.clear_tid != 0 {
            p.any("set the tid address", libc::SYS_set_tid_address, &[thread.clear_tid]);
        }
        let args = [0x1002, thread.regs.fs_base];
        p.must("set the thread pointer", libc::SYS_arch_prctl, &args);
    }
    if thread.regs.gs_base != 0 {
        p.must("set the second base", libc::SYS_arch_prctl, &[0x1001, thread.regs.gs_base]);
    }
    if thread.robust_list.0 != 0 {
        let args = [thread.robust_list.0, thread.robust_list.1];
        p.must("set the robust list", libc::SYS_set_robust_list, &args);
    }
    let name = p.text(&thread.name.chars().take(15).collect::<String>());
    p.any("set the name", libc::SYS_prctl, &[libc::PR_SET_NAME as u64, name]);
    schedule(p, thread);
    if thread.nice != 0 {
        p.any("set the priority", libc::SYS_setpriority, &[0, 0, thread.nice as i64 as u64]);
    }
    for info in &thread.pending {
        let at = p.data(&info.0);
        let args = [process.pid as u64, thread.tid as u64, info.signal() as u64, at];
        p.any("queue a signal", libc::SYS_rt_tgsigqueueinfo, &args);
    }
    credentials(p, &thread.creds, bounding);
    if thread.no_new_privs {
        p.must("give up new privileges", libc::SYS_prctl, &[38, 1, 0, 0, 0]);
    }
    if thread.pdeathsig != 0 {
        let args = [libc::PR_SET_PDEATHSIG as u64, thread.pdeathsig as u64, 0, 0, 0];
        p.must("set the parent death signal", libc::SYS_prctl, &args);
    }
}

/// Whether the process is dumpable. Any thread that changes its ids resets it, so it is set when
/// all have theirs.
pub(super) fn set_dumpable(builder: &mut Builder, live: &LiveProcess, emitted: &FirstThreadWork) {
    if let Some((word, others)) = emitted.personal {
        builder.program.await_word(word, others);
    }
    let args = [libc::PR_SET_DUMPABLE as u64, live.dumpable.into()];
    builder.program.any("set dumpable", libc::SYS_prctl, &args);
}

/// Policy, timer slack and processors, where they differ from a new thread's.
fn schedule(p: &mut Program, thread: &Thread) {
    const DEFAULT_SLACK_NS: u64 = 50_000;
    if (thread.policy, thread.priority) != (libc::SCHED_OTHER, 0) {
        let at = p.words(&[thread.priority as u64]);
        let args = [0, thread.policy as u64, at];
        p.any("set the policy", libc::SYS_sched_setscheduler, &args);
    }
    if thread.timer_slack_ns != DEFAULT_SLACK_NS && thread.timer_slack_ns != 0 {
        let args = [libc::PR_SET_TIMERSLACK as u64, thread.timer_slack_ns, 0, 0, 0];
        p.any("set the timer slack", libc::SYS_prctl, &args);
    }
    // a host with other processors ignores a mask that fits none of them
    let at = p.data(&thread.affinity);
    let args = [0, thread.affinity.len() as u64, at];
    p.any("set processors", libc::SYS_sched_setaffinity, &args);
}

/// Ends the stage: the first thread goes to its place.
pub(super) fn leave(builder: &mut Builder, emitted: &FirstThreadWork) {
    builder.program.jump_to(emitted.first_place);
}
