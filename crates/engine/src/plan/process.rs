//! One process, apart from its memory: family, descriptors, limits, signals.

use super::builder::{BORN, Builder, GO, OWN_CONTROL, READY};
use super::thread;
use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_spawner::program::Label;
use stasis_sys::libc;
use stasis_sys::process::{CLONE_ARGS_SIZE, CloneArgs};
use std::collections::BTreeMap;

/// A pid for short-lived helpers, far from those a machine gives out by itself.
pub const HELPER_PID: i32 = 4_000_000;
/// The same for helpers made inside: the template may not have waited for its own yet.
pub const INNER_HELPER_PID: i32 = HELPER_PID + 1;

impl<'a> Builder<'a> {
    /// A session's leader must become one before it has children that belong to it.
    pub(super) fn begin_session(&mut self, process: &Process) {
        if process.sid == process.pid {
            self.program.must("begin a session", libc::SYS_setsid, &[]);
        } else if process.pgid == process.pid {
            self.program.must("begin a group", libc::SYS_setpgid, &[0, 0]);
        }
        self.control_terminal(process);
        self.program.arrive(BORN);
    }

    /// Everything after memory and children, up to the program's own first instruction.
    pub(super) fn finish_process(
        &mut self,
        process: &Process,
        live: &LiveProcess,
        is_root: bool,
    ) -> Result<()> {
        self.join_group(process);
        self.choose_foreground(process);
        self.settings(live);
        self.place_descriptors(process, live);
        self.surroundings(live);
        self.signals(live);
        self.late_advice(live);
        let emitted = thread::emit(self, process, live)?;
        // some timers notify a thread, which must exist
        self.timers(live)?;
        self.settle(process, live, is_root);
        self.rlimits(live);
        self.await_stopped_children(process);
        thread::personal(self, process, &live.threads[0]);
        thread::set_dumpable(self, live, &emitted);
        self.wait_for_all(live, is_root);
        self.shared_pending(process, live);
        self.program.must(
            "close our own",
            libc::SYS_close_range,
            &[self.prepared.high as u64, u32::MAX.into(), 0],
        );
        thread::leave(self, &emitted);
        Ok(())
    }

    /// Joins a group led by another process, once all processes exist.
    fn join_group(&mut self, process: &Process) {
        let parent = self.prepared.manifest.processes.iter().find(|p| p.pid == process.ppid);
        let inherited = parent.map_or(0, |parent| parent.pgid);
        if process.pgid != process.pid && process.pgid != inherited {
            let live = self.living();
            self.program.await_word(BORN, live);
            let group = process.pgid as u64;
            self.program.must("join a group", libc::SYS_setpgid, &[0, group]);
        }
    }

    pub(super) fn living(&self) -> u32 {
        self.prepared.manifest.processes.iter().filter(|p| p.live().is_some()).count() as u32
    }

    fn place_descriptors(&mut self, process: &Process, live: &LiveProcess) {
        self.place_pidfds(live);
        self.enter_removed(live);
        for fd in &live.fds {
            let Some(from) = self.prepared.objects[fd.object as usize] else { continue };
            let flags = if fd.close_on_exec { libc::O_CLOEXEC } else { 0 };
            let args = [from as u64, fd.number as u64, flags as u64];
            self.program.must("place a descriptor", libc::SYS_dup3, &args);
        }
        self.close_copies();
        self.take_locks(process, live);
        for fd in &live.fds {
            if !self.is_first_holder(process, fd) {
                continue;
            }
            let objects = &self.prepared.manifest.objects;
            match &objects[fd.object as usize].kind {
                ObjectKind::Epoll { watches } => self.watch(live, fd.number, watches),
                ObjectKind::Timerfd(timer) => self.arm(fd.number, timer),
                _ => {}
            }
        }
    }

    /// State in a shared object is set once, by the first process in the image.
    pub(super) fn is_first_holder(&self, process: &Process, fd: &Fd) -> bool {
        let mut all = self.prepared.manifest.processes.iter().flat_map(|p| {
            p.live().into_iter().flat_map(move |live| live.fds.iter().map(move |fd| (p.pid, fd)))
        });
        let first = all.find(|(_, other)| other.object == fd.object);
        first.is_some_and(|(pid, other)| pid == process.pid && other.number == fd.number)
    }

    fn surroundings(&mut self, live: &LiveProcess) {
        if !live.cwd.is_empty() {
            let cwd = self.program.text(&live.cwd);
            self.program.must("change directory", libc::SYS_chdir, &[cwd]);
        }
        self.program.any("set the umask", libc::SYS_umask, &[live.umask.into()]);
        if live.personality != 0 {
            let personality = live.personality.into();
            self.program.must("set the personality", libc::SYS_personality, &[personality]);
        }
        if live.huge_pages_disabled {
            let args = [libc::PR_SET_THP_DISABLE as u64, 1, 0, 0, 0];
            self.program.any("disable huge pages", libc::SYS_prctl, &args);
        }
        if live.child_subreaper {
            let args = [libc::PR_SET_CHILD_SUBREAPER as u64, 1, 0, 0, 0];
            self.program.must("become a subreaper", libc::SYS_prctl, &args);
        }
    }

    /// Settings that are files; written while the low descriptor numbers are still free.
    fn settings(&mut self, live: &LiveProcess) {
        if live.oom_score_adj != 0 {
            let text = live.oom_score_adj.to_string();
            self.open("/proc/self/oom_score_adj", libc::O_WRONLY);
            let data = self.program.data(text.as_bytes());
            self.program.any("write a setting", libc::SYS_write, &[0, data, text.len() as u64]);
            self.program.must("close it", libc::SYS_close, &[0]);
        }
    }

    fn signals(&mut self, live: &LiveProcess) {
        for action in &live.actions {
            let words = [action.handler, action.flags, action.restorer, action.mask];
            let at = self.program.words(&words);
            let args = [action.signal as u64, at, 0, 8];
            self.program.must("set a signal handler", libc::SYS_rt_sigaction, &args);
        }
    }

    /// Advice that hinders forking, and locks, which a fork does not inherit.
    fn late_advice(&mut self, live: &LiveProcess) {
        for vma in &live.vmas {
            let traits = &vma.traits;
            let range = [vma.start, vma.len()];
            for (wanted, advice) in [
                (traits.dont_fork, libc::MADV_DONTFORK),
                (traits.wipe_on_fork, libc::MADV_WIPEONFORK),
            ] {
                if wanted {
                    let args = [range[0], range[1], advice as u64];
                    self.program.must("advise", libc::SYS_madvise, &args);
                }
            }
            if traits.locked {
                const MLOCK_ONFAULT: u64 = 1;
                let args = [range[0], range[1], MLOCK_ONFAULT];
                self.program.any("lock memory", libc::SYS_mlock2, &args);
            }
        }
    }

    fn rlimits(&mut self, live: &LiveProcess) {
        let own = self.prepared.rlimits;
        let fixed = self.prepared.confine.core.map(|_| libc::RLIMIT_CORE as usize);
        for (resource, limit) in live.rlimits.iter().enumerate() {
            if own.get(resource) != Some(limit) && Some(resource) != fixed {
                let at = self.program.words(&[limit.0, limit.1]);
                let args = [0, resource as u64, at, 0];
                self.program.must("set a limit", libc::SYS_prlimit64, &args);
            }
        }
    }

    /// No process runs before all can: a failure anywhere ends the whole tree unseen.
    fn wait_for_all(&mut self, live: &LiveProcess, is_root: bool) {
        if is_root {
            let others = self.living() - 1;
            self.program.await_word(READY, others);
            let control = self.own(OWN_CONTROL);
            let byte = self.program.data(b"k");
            let args = [control, byte, 1, 0, 0, 0];
            self.program.must("say that all is ready", libc::SYS_sendto, &args);
            // where some are to stand still, the engine says when the others go
            if !self.has_stopped() {
                self.program.arrive(GO);
            }
        } else {
            self.program.arrive(READY);
        }
        // a stopped process stays there, and the others wait until it has stopped
        if live.stopped.is_none() {
            self.program.await_word(GO, 1);
        }
    }

    /// Signals for the process as a whole; every signal is still blocked.
    fn shared_pending(&mut self, process: &Process, live: &LiveProcess) {
        for info in &live.pending {
            let at = self.program.data(&info.0);
            let args = [process.pid as u64, info.signal() as u64, at];
            self.program.any("queue a signal", libc::SYS_rt_sigqueueinfo, &args);
        }
    }

    pub(super) fn clone_args(&mut self, args: &CloneArgs) -> u64 {
        self.program.data(&args.to_bytes())
    }
}

/// Forks the children of a process (and, for the root, the processes whose parent is init).
pub(super) fn fork_children<'a>(
    builder: &mut Builder<'a>,
    process: &'a Process,
    is_root: bool,
) -> Result<Vec<(Label, &'a Process)>> {
    let mut live = Vec::new();
    let processes = &builder.prepared.manifest.processes;
    for child in processes.iter().filter(|child| child.ppid == process.pid) {
        check_family(child, process)?;
        match &child.state {
            ProcessState::Live(_) => live.push((fork(builder, child), child)),
            ProcessState::Zombie { status, .. } => {
                let user = process.live().map(|live| &live.threads[0].creds);
                fork_zombie(builder, child, *status, user);
            }
        }
    }
    if is_root {
        let orphans = processes.iter().filter(|other| other.ppid == 1 && other.pid != process.pid);
        let mut leaderless: BTreeMap<i32, Vec<&Process>> = BTreeMap::new();
        for orphan in orphans.filter(|orphan| orphan.live().is_some()) {
            if is_leaderless(orphan, processes) {
                leaderless.entry(orphan.sid).or_default().push(orphan);
                continue;
            }
            check_family(orphan, process)?;
            live.extend(fork_orphans(builder, Helper::Plain, &[orphan]));
        }
        for (sid, orphans) in leaderless {
            live.extend(fork_orphans(builder, Helper::Leader(sid), &orphans));
        }
    }
    Ok(live)
}

/// Whether a process is in a session without a leader, and can be put into it: only processes
/// adopted by init can, by a helper with the number of the former leader.
pub fn is_leaderless(process: &Process, all: &[Process]) -> bool {
    process.ppid == 1 && all.iter().all(|other| other.pid != process.sid)
}

/// The helper that forks processes whose parent is init; it ends at once.
enum Helper {
    /// Any; its forks stay in the session of its creator.
    Plain,
    /// A helper with the number of an exited leader, which starts its session anew.
    Leader(i32),
}

/// Processes whose parent is init.
fn fork_orphans<'a>(
    builder: &mut Builder<'a>,
    helper: Helper,
    orphans: &[&'a Process],
) -> Vec<(Label, &'a Process)> {
    let number = match helper {
        Helper::Plain => INNER_HELPER_PID,
        Helper::Leader(sid) => sid,
    } as u64;
    let set_tid = builder.program.words(&[number]);
    let own = builder.clone_args(&CloneArgs {
        flags: (libc::CLONE_VM | libc::CLONE_VFORK) as u64,
        set_tid,
        set_tid_size: 1,
        ..CloneArgs::default()
    });
    let args: Vec<u64> =
        orphans.iter().map(|orphan| fork_args(builder, orphan.pid, libc::SIGCHLD)).collect();
    let p = &mut builder.program;
    let made = p.if_zero("make a helper", libc::SYS_clone3, &[own, CLONE_ARGS_SIZE]);
    p.must("wait for the helper", libc::SYS_wait4, &[number, 0, libc::__WALL as u64, 0]);
    let over = p.jump();
    p.land(made);
    if let Helper::Leader(_) = helper {
        p.must("begin a session", libc::SYS_setsid, &[]);
    }
    let fork =
        |args: &u64| p.if_zero("fork an orphan", libc::SYS_clone3, &[*args, CLONE_ARGS_SIZE]);
    let labels: Vec<Label> = args.iter().map(fork).collect();
    p.any("end the helper", libc::SYS_exit, &[0]);
    p.land(over);
    labels.into_iter().zip(orphans.iter().copied()).collect()
}

/// A session can be begun or inherited, not joined.
fn check_family(child: &Process, parent: &Process) -> Result<()> {
    if child.sid == child.pid || child.sid == parent.sid {
        return Ok(());
    }
    let what =
        format!("process {} is in session {}, whose leader has exited", child.pid, child.sid);
    Err(Error::Unfit(what))
}

fn fork_args(builder: &mut Builder, pid: i32, exit_signal: i32) -> u64 {
    let set_tid = builder.program.words(&[pid as u64]);
    builder.clone_args(&CloneArgs {
        exit_signal: exit_signal as u64,
        set_tid,
        set_tid_size: 1,
        ..CloneArgs::default()
    })
}

fn fork(builder: &mut Builder, child: &Process) -> Label {
    let args = fork_args(builder, child.pid, child.exit_signal);
    builder.program.if_zero("fork a child", libc::SYS_clone3, &[args, CLONE_ARGS_SIZE])
}

/// A child that ends at once with the status the image has, and is not waited for. It ends as its
/// parent's user, who may signal it.
fn fork_zombie(builder: &mut Builder, child: &Process, status: i32, user: Option<&Credentials>) {
    let args = fork_args(builder, child.pid, child.exit_signal);
    let info = builder.program.data(&[0; 128]);
    let zero = builder.program.words(&[0, 0]);
    let mask = builder.program.words(&[1 << (libc::SIGCHLD - 1)]);
    let none = builder.program.words(&[0]);
    let default = builder.program.words(&[0, 0, 0, 0]);
    let p = &mut builder.program;
    let label = p.if_zero("fork a zombie", libc::SYS_clone3, &[args, CLONE_ARGS_SIZE]);
    let wait = [
        libc::P_PID as u64,
        child.pid as u64,
        info,
        (libc::WEXITED | libc::WNOWAIT | libc::__WALL) as u64,
        0,
    ];
    p.must("wait for a zombie", libc::SYS_waitid, &wait);
    // whether its signal is still pending is the image's to say
    p.any("forget its signal", libc::SYS_rt_sigtimedwait, &[mask, 0, zero, 8]);
    let over = p.jump();
    p.land(label);
    if process_group_differs(child) {
        p.any("join a group", libc::SYS_setpgid, &[0, child.pgid as u64]);
    }
    if let Some(user) = user {
        let three = |ids: &[u32; 4]| [ids[0].into(), ids[1].into(), ids[2].into()];
        p.any("set group ids", libc::SYS_setresgid, &three(&user.gids));
        p.any("set user ids", libc::SYS_setresuid, &three(&user.uids));
    }
    let signal = status & 0x7f;
    if signal != 0 {
        let args = [signal as u64, default, 0, 8];
        p.any("default the signal", libc::SYS_rt_sigaction, &args);
        p.any("unblock it", libc::SYS_rt_sigprocmask, &[libc::SIG_SETMASK as u64, none, 0, 8]);
        p.any("end by signal", libc::SYS_kill, &[child.pid as u64, signal as u64]);
    }
    p.any("end", libc::SYS_exit_group, &[(status >> 8 & 0xff) as u64]);
    p.land(over);
}

fn process_group_differs(child: &Process) -> bool {
    child.pgid == child.pid
}
