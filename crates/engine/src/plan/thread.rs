//! Threads: made with their own numbers, given what the kernel keeps for each, and let go.
//!
//! The last steps of every thread lie in the LEAVE area, which stays mapped: the stage, whose
//! operations brought it there, is unmapped by the first thread when the others have left it.

use super::builder::{Builder, OWN_STAGE};
use super::jobs::StoppedThread;
use crate::error::Result;
use stasis_image::model::*;
use stasis_spawner::layout;
use stasis_spawner::program::Program;
use stasis_sys::arch::{self, FrameParts, OP_SIZE, UserRegs};
use stasis_sys::process::{CLONE_ARGS_SIZE, CloneArgs};
use stasis_sys::{PAGE, libc};

/// At the end of a process's first place: a mask, a word that stays zero, and a counter.
const WORDS: u64 = 24;
const MASK_BEFORE_END: u64 = 24;
const NEVER_BEFORE_END: u64 = 16;
const LEFT_BEFORE_END: u64 = 8;

/// Signal frames and last operations, one place per thread of any process.
#[derive(Default)]
pub struct LeaveArea {
    bytes: Vec<u8>,
}

impl LeaveArea {
    fn place_size() -> u64 {
        (arch::frame_size() as u64 + 64 + 6 * OP_SIZE + WORDS).next_multiple_of(PAGE)
    }

    fn reserve(&mut self, places: usize) -> u64 {
        let at = layout::LEAVE + self.bytes.len() as u64;
        let size = LeaveArea::place_size() * places as u64;
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

/// Makes every thread but the first, and loads the process's part of the LEAVE area.
pub(super) fn emit(builder: &mut Builder, process: &Process, live: &Live) -> Result<()> {
    let area = builder.leave.reserve(live.threads.len());
    let size = LeaveArea::place_size() * live.threads.len() as u64;
    for (index, thread) in live.threads.iter().enumerate() {
        write_place(builder, area, index, thread, live);
    }
    load(builder, area, size);
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
        if live.stopped.is_none() {
            builder.program.await_word(super::builder::GO, 1);
        }
        builder.program.jump_to(place(area, index + 1));
    }
    builder.program.land(over);
    Ok(())
}

fn place(area: u64, index: usize) -> u64 {
    area + LeaveArea::place_size() * index as u64
}

/// The last operations of a thread, and after them the frame they load.
fn write_place(builder: &mut Builder, area: u64, index: usize, thread: &Thread, live: &Live) {
    let at = place(area, index);
    let frame_at = (at + 6 * OP_SIZE).next_multiple_of(64);
    let end = area + LeaveArea::place_size();
    let mut ops = Program::new(at, 0);
    if index == 0 {
        ops.await_word(end - LEFT_BEFORE_END, live.threads.len() as u32 - 1);
        let stage = layout::STAGE + layout::LEAVE_MAX;
        let len = layout::STAGE_SIZE - layout::LEAVE_MAX;
        ops.any("drop the stage", libc::SYS_munmap, &[stage, len]);
    } else {
        ops.arrive(end - LEFT_BEFORE_END);
    }
    let mut sigmask = thread.sigmask;
    match live.stopped {
        Some(stop) => {
            if index == 0 {
                stop_oneself(builder, &mut ops, end, stop, thread.tid);
            }
            // the engine takes it from here, and sets the mask when nothing can be delivered
            ops.await_word(end - NEVER_BEFORE_END, 1);
            builder.stopped.push(StoppedThread { tid: thread.tid, frame: frame_at, sigmask });
            sigmask = u64::MAX;
        }
        None => ops.sigreturn(frame_at),
    }
    let regs = user_regs(&thread.regs);
    let altstack = (thread.altstack.sp, thread.altstack.flags & !1, thread.altstack.size);
    let parts = FrameParts { regs: &regs, xstate: &thread.xstate, sigmask, altstack };
    let frame = arch::build_frame(frame_at, &parts);
    builder.leave.write(at, &ops.ops_bytes());
    builder.leave.write(frame_at, &frame);
}

/// Stops the process by the signal that had stopped it, or by one that cannot fail when nobody
/// will be told which it was. Its handler is the default one, or it would not have stopped.
fn stop_oneself(builder: &mut Builder, ops: &mut Program, end: u64, stop: JobStop, pid: i32) {
    let signal = if stop.told { libc::SIGSTOP } else { stop.signal };
    let mask = end - MASK_BEFORE_END;
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

/// What each thread sets for itself.
pub(super) fn personal(builder: &mut Builder, process: &Process, thread: &Thread) {
    let is_leader = thread.tid == process.pid;
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
    if let Some(rseq) = thread.rseq {
        let args = [rseq.address, rseq.length.into(), 0, rseq.signature.into()];
        p.must("register rseq", libc::SYS_rseq, &args);
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
    credentials(p, &thread.creds);
    if thread.no_new_privs {
        p.must("give up new privileges", libc::SYS_prctl, &[38, 1, 0, 0, 0]);
    }
    if thread.pdeathsig != 0 {
        let args = [libc::PR_SET_PDEATHSIG as u64, thread.pdeathsig as u64, 0, 0, 0];
        p.must("set the parent death signal", libc::SYS_prctl, &args);
    }
    if is_leader {
        let dumpable = process.live().map_or(1, |live| live.dumpable);
        p.any("set dumpable", libc::SYS_prctl, &[libc::PR_SET_DUMPABLE as u64, dumpable.into()]);
    }
}

/// Policy, timer slack and processors, where they are not what a new thread has anyway.
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

const ALL_CAPABILITIES: u64 = (1 << 41) - 1;

/// From the full set that entering the walls gave, down to what the image has.
fn credentials(p: &mut Program, creds: &Credentials) {
    let full = Credentials {
        uids: [0; 4],
        gids: [0; 4],
        groups: Vec::new(),
        inheritable: 0,
        permitted: ALL_CAPABILITIES,
        effective: ALL_CAPABILITIES,
        bounding: ALL_CAPABILITIES,
        ambient: 0,
        securebits: 0,
    };
    if *creds == full {
        return;
    }
    for bit in (0..41).filter(|bit| creds.bounding & (1 << bit) == 0) {
        let args = [libc::PR_CAPBSET_DROP as u64, bit, 0, 0, 0];
        p.must("narrow the bounding set", libc::SYS_prctl, &args);
    }
    let groups: Vec<u8> = creds.groups.iter().flat_map(|group| group.to_ne_bytes()).collect();
    let at = p.data(&groups);
    p.must("set groups", libc::SYS_setgroups, &[creds.groups.len() as u64, at]);
    let three = |ids: &[u32; 4]| [ids[0].into(), ids[1].into(), ids[2].into()];
    p.must("set group ids", libc::SYS_setresgid, &three(&creds.gids));
    p.any("set the file group", libc::SYS_setfsgid, &[creds.gids[3].into()]);
    p.must("keep capabilities", libc::SYS_prctl, &[libc::PR_SET_KEEPCAPS as u64, 1, 0, 0, 0]);
    p.must("set user ids", libc::SYS_setresuid, &three(&creds.uids));
    p.any("set the file user", libc::SYS_setfsuid, &[creds.uids[3].into()]);
    let secure = [libc::PR_SET_SECUREBITS as u64, creds.securebits.into(), 0, 0, 0];
    p.any("set securebits", libc::SYS_prctl, &secure);
    let version = 0x2008_0522u64;
    let header = p.words(&[version]);
    let halves = |shift: u32| {
        let half = |mask: u64| (mask >> shift & 0xffff_ffff) as u32;
        [half(creds.effective), half(creds.permitted), half(creds.inheritable)]
    };
    let data: Vec<u8> =
        [halves(0), halves(32)].concat().iter().flat_map(|word| word.to_ne_bytes()).collect();
    let data = p.data(&data);
    p.must("set capabilities", libc::SYS_capset, &[header, data]);
}

/// Ends the stage: the first thread goes to its place.
pub(super) fn leave(builder: &mut Builder, live: &Live) {
    let area = layout::LEAVE + builder.leave.bytes.len() as u64
        - LeaveArea::place_size() * live.threads.len() as u64;
    builder.program.jump_to(area);
}

fn user_regs(r: &Registers) -> UserRegs {
    UserRegs {
        r15: r.r15,
        r14: r.r14,
        r13: r.r13,
        r12: r.r12,
        rbp: r.rbp,
        rbx: r.rbx,
        r11: r.r11,
        r10: r.r10,
        r9: r.r9,
        r8: r.r8,
        rax: r.rax,
        rcx: r.rcx,
        rdx: r.rdx,
        rsi: r.rsi,
        rdi: r.rdi,
        orig_rax: r.orig_rax,
        rip: r.rip,
        cs: r.cs,
        eflags: r.eflags,
        rsp: r.rsp,
        ss: r.ss,
        fs_base: r.fs_base,
        gs_base: r.gs_base,
        ds: r.ds,
        es: r.es,
        fs: r.fs,
        gs: r.gs,
    }
}
