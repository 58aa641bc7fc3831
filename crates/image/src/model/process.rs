//! Processes and threads.

use super::{KernelMapping, Vma};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Process {
    pub pid: i32,
    /// 1 is the namespace's init, which belongs to the sandbox and not to the image.
    pub ppid: i32,
    pub pgid: i32,
    pub sid: i32,
    /// The signal its parent gets when it ends; 0 for none.
    pub exit_signal: i32,
    pub state: ProcessState,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ProcessState {
    Live(Box<LiveProcess>),
    /// Ended and not yet waited for; `status` is what wait(2) will report.
    Zombie {
        status: i32,
        comm: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveProcess {
    /// Index into `Meta::mapped_files`.
    pub exe: u32,
    pub mm: MmFields,
    pub vmas: Vec<Vma>,
    /// The leader first.
    pub threads: Vec<Thread>,
    pub actions: Vec<SigAction>,
    /// Signals sent to the process as a whole and not yet taken.
    pub pending: Vec<SigInfo>,
    pub itimers: [ITimer; 3],
    pub timers: Vec<PosixTimer>,
    pub fds: Vec<Fd>,
    pub cwd: String,
    pub umask: u32,
    /// Soft and hard limit, by resource number.
    pub rlimits: Vec<(u64, u64)>,
    pub dumpable: u32,
    pub oom_score_adj: i32,
    pub personality: u32,
    pub child_subreaper: bool,
    pub huge_pages_disabled: bool,
    /// Seccomp filters of every thread, oldest first, by index into `Meta::filters`.
    pub filters: Vec<u32>,
    /// Stopped by job control.
    pub stopped: Option<JobStop>,
}

/// A stop by SIGSTOP, SIGTSTP, SIGTTIN or SIGTTOU, which lasts until SIGCONT.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobStop {
    pub signal: i32,
    /// Whether wait(2) has reported it to the parent.
    pub told: bool,
}

/// A seccomp filter: classic BPF, one instruction a word as the kernel lays it out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeccompFilter(pub Vec<u64>);

impl Process {
    pub fn live(&self) -> Option<&LiveProcess> {
        match &self.state {
            ProcessState::Live(live) => Some(live),
            ProcessState::Zombie { .. } => None,
        }
    }
}

/// The kernel's record of an address space beside its mappings.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MmFields {
    pub start_code: u64,
    pub end_code: u64,
    pub start_data: u64,
    pub end_data: u64,
    pub start_brk: u64,
    pub brk: u64,
    pub start_stack: u64,
    pub arg_start: u64,
    pub arg_end: u64,
    pub env_start: u64,
    pub env_end: u64,
    pub auxv: Vec<u64>,
    /// Shape of the kernel's own mappings when the program can call into them: kind and
    /// length of each and a hash of the code. Empty when the program does not know of them.
    pub vdso: Vec<(KernelMapping, u64)>,
    pub vdso_hash: Option<[u8; 32]>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Thread {
    pub tid: i32,
    pub name: String,
    pub regs: Registers,
    /// XSAVE area in the standard (not compacted) format.
    pub xstate: Vec<u8>,
    pub sigmask: u64,
    pub altstack: AltStack,
    pub clear_tid: u64,
    pub robust_list: (u64, u64),
    pub rseq: Option<Rseq>,
    pub pending: Vec<SigInfo>,
    pub creds: Credentials,
    pub no_new_privs: bool,
    pub pdeathsig: i32,
    pub nice: i32,
    /// SCHED_* policy and its priority.
    pub policy: i32,
    pub priority: i32,
    pub timer_slack_ns: u64,
    /// Processors it may run on, as a bit mask.
    pub affinity: Vec<u8>,
}

/// General registers as ptrace gives them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Registers {
    pub r15: u64,
    pub r14: u64,
    pub r13: u64,
    pub r12: u64,
    pub rbp: u64,
    pub rbx: u64,
    pub r11: u64,
    pub r10: u64,
    pub r9: u64,
    pub r8: u64,
    pub rax: u64,
    pub rcx: u64,
    pub rdx: u64,
    pub rsi: u64,
    pub rdi: u64,
    pub orig_rax: u64,
    pub rip: u64,
    pub cs: u64,
    pub eflags: u64,
    pub rsp: u64,
    pub ss: u64,
    pub fs_base: u64,
    pub gs_base: u64,
    pub ds: u64,
    pub es: u64,
    pub fs: u64,
    pub gs: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AltStack {
    pub sp: u64,
    pub flags: u32,
    pub size: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rseq {
    pub address: u64,
    pub length: u32,
    pub signature: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credentials {
    pub uids: [u32; 4],
    pub gids: [u32; 4],
    pub groups: Vec<u32>,
    pub inheritable: u64,
    pub permitted: u64,
    pub effective: u64,
    pub bounding: u64,
    pub ambient: u64,
    pub securebits: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigAction {
    pub signal: i32,
    pub handler: u64,
    pub flags: u64,
    pub restorer: u64,
    pub mask: u64,
}

/// The kernel's 128-byte siginfo, kept as it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SigInfo(pub Vec<u8>);

impl SigInfo {
    pub fn signal(&self) -> i32 {
        self.0.get(..4).map_or(0, |b| i32::from_ne_bytes([b[0], b[1], b[2], b[3]]))
    }
}

/// setitimer(2): time left and interval, in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ITimer {
    pub left_us: u64,
    pub interval_us: u64,
}

/// timer_create(2), with the time that was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PosixTimer {
    pub id: i32,
    pub clock: i32,
    pub notify: i32,
    pub signal: i32,
    pub value: u64,
    /// Thread for SIGEV_THREAD_ID.
    pub tid: i32,
    pub left_ns: u64,
    pub interval_ns: u64,
    pub overrun: i32,
}

/// One entry of a descriptor table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fd {
    pub number: i32,
    /// Index into `Manifest::objects`: descriptors that share an open file share the index.
    pub object: u32,
    pub close_on_exec: bool,
}
