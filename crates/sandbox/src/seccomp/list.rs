//! The calls a machine may make, and why. Any other call does not exist for a machine (ENOSYS),
//! except the calls in `REFUSED`, whose answer is one that programs expect.
//!
//! SECURITY.md shows this list; a test compares the two.

use super::arguments::{self, Rule};
use super::numbers;
use stasis_sys::libc;

/// Calls with the same reason.
#[derive(Debug, Clone, Copy)]
pub struct SyscallGroup {
    pub why: &'static str,
    pub calls: &'static [AllowedSyscall],
}

#[derive(Debug, Clone, Copy)]
pub struct AllowedSyscall {
    pub name: &'static str,
    pub number: i64,
    /// The rules for its arguments.
    pub rules: &'static [Rule],
    /// Calls that the rules exclude.
    pub note: &'static str,
}

/// A call that is answered with this error, and why it is not let through.
#[derive(Debug, Clone, Copy)]
pub struct RefusedSyscalls {
    pub why: &'static str,
    pub errno: i32,
    pub calls: &'static [(&'static str, i64)],
}

macro_rules! calls {
    ($($name:ident)*) => {
        &[$(AllowedSyscall {
            name: stringify!($name),
            number: numbers::$name,
            rules: &[],
            note: "",
        }),*]
    };
}

macro_rules! ruled {
    ($name:ident, $rules:ident, $note:literal) => {
        AllowedSyscall {
            name: stringify!($name),
            number: numbers::$name,
            rules: arguments::$rules,
            note: $note,
        }
    };
}

macro_rules! numbered {
    ($($name:ident)*) => { &[$((stringify!($name), numbers::$name)),*] };
}

#[rustfmt::skip]
pub const ALLOWED: &[SyscallGroup] = &[
    SyscallGroup { why: "read and write open files", calls: calls!(
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile
        splice tee vmsplice copy_file_range) },
    SyscallGroup { why: "open, close and duplicate descriptors", calls: calls!(
        open openat openat2 creat close close_range dup dup2 dup3 flock pipe pipe2) },
    SyscallGroup { why: "locks, owners, sizes and seals of open files", calls: &[
        ruled!(fcntl, FCNTL, "no leases, which make other processes wait")] },
    SyscallGroup { why: "inspect files", calls: calls!(
        stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
        getdents getdents64 statfs fstatfs getcwd cachestat) },
    SyscallGroup { why: "change the machine's own files", calls: calls!(
        rename renameat renameat2 mkdir mkdirat rmdir unlink unlinkat link linkat symlink
        symlinkat truncate ftruncate fallocate chmod fchmod fchmodat fchmodat2 utime utimes
        futimesat utimensat umask chdir fchdir) },
    SyscallGroup { why: "owners of its own files; other ids need capabilities it lacks",
        calls: calls!(chown fchown lchown fchownat) },
    SyscallGroup { why: "named pipes and sockets; device nodes need a capability it lacks",
        calls: calls!(mknod mknodat) },
    SyscallGroup { why: "extended attributes, as archives and package tools set them",
        calls: calls!(
        setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
        removexattr lremovexattr fremovexattr) },
    SyscallGroup { why: "write back its own files, as databases do", calls: calls!(
        fsync fdatasync syncfs sync_file_range msync readahead fadvise64) },
    SyscallGroup { why: "memory", calls: calls!(
        brk munmap mremap mprotect madvise mincore mlock mlock2 mlockall munlock munlockall
        mseal) },
    SyscallGroup { why: "map memory and files", calls: &[
        ruled!(mmap, MMAP, "no reserved huge pages, which no limit counts"),
        ruled!(memfd_create, MEMFD_CREATE, "the same")] },
    SyscallGroup { why: "wait for several events", calls: calls!(
        poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
        epoll_pwait2 eventfd eventfd2 signalfd signalfd4) },
    SyscallGroup { why: "watch its own files", calls: calls!(
        inotify_init inotify_init1 inotify_add_watch inotify_rm_watch) },
    SyscallGroup { why: "start and end programs and threads", calls: calls!(
        fork vfork execve execveat exit exit_group wait4 waitid set_tid_address) },
    SyscallGroup { why: "threads and children", calls: &[
        ruled!(clone, CLONE, "no new namespaces, which would grant capabilities")] },
    SyscallGroup { why: "locks between threads, and the C library's registrations for them",
        calls: calls!(
        futex futex_waitv set_robust_list get_robust_list rseq membarrier) },
    SyscallGroup { why: "signals among the machine's processes", calls: calls!(
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
        rt_tgsigqueueinfo rt_sigsuspend sigaltstack kill tkill tgkill pause restart_syscall
        pidfd_open pidfd_send_signal) },
    SyscallGroup { why: "clocks, sleeping and timers", calls: calls!(
        time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer
        setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
        timerfd_create timerfd_settime timerfd_gettime times) },
    SyscallGroup { why: "identity, and the processes of the machine", calls: calls!(
        getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid
        getpgrp getsid setpgid setsid uname sysinfo getcpu getrusage capget) },
    SyscallGroup { why: "drop ids; nothing is gained without capabilities", calls: calls!(
        setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset) },
    SyscallGroup { why: "limits and priorities of its own processes, never raised", calls: calls!(
        getrlimit getpriority setpriority sched_yield sched_getaffinity
        sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler
        sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getattr
        sched_setattr ioprio_get ioprio_set) },
    SyscallGroup { why: "limits of its own processes", calls: &[
        ruled!(setrlimit, SETRLIMIT, "the core limit stays: the call succeeds without effect"),
        ruled!(prlimit64, PRLIMIT, "the same")] },
    SyscallGroup { why: "random numbers", calls: calls!(getrandom) },
    SyscallGroup { why: "sockets", calls: &[
        ruled!(socket, SOCKET,
            "unix, TCP and UDP; netlink only for the routes that getifaddrs reads")] },
    SyscallGroup { why: "socket pairs", calls: &[
        ruled!(socketpair, SOCKETPAIR, "unix only")] },
    SyscallGroup { why: "use sockets", calls: calls!(
        bind listen accept accept4 connect shutdown getsockname getpeername sendto sendmsg
        sendmmsg recvfrom recvmsg recvmmsg) },
    SyscallGroup { why: "socket options", calls: &[
        ruled!(setsockopt, SETSOCKOPT, "listed options: no filters, devices, upper layer \
            protocols, encapsulation, header options or packet tables"),
        ruled!(getsockopt, GETSOCKOPT, "those, and read-only ones")] },
    SyscallGroup { why: "System V shared memory, semaphores and queues, in its own namespace",
        calls: calls!(
        shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl) },
    SyscallGroup { why: "terminals, descriptors, and the list of interfaces", calls: &[
        ruled!(ioctl, IOCTL, "listed requests: none that types for another program or changes a \
            line discipline, file system or interface")] },
    SyscallGroup { why: "name threads and the like", calls: &[
        ruled!(prctl, PRCTL, "only options of the caller itself that images support")] },
    SyscallGroup { why: "thread pointers", calls: &[
        ruled!(arch_prctl, ARCH_PRCTL, "no new register state")] },
    SyscallGroup { why: "disable address randomisation", calls: &[
        ruled!(personality, PERSONALITY, "no old kernels' quirks")] },
    SyscallGroup { why: "further restrictions; images save them", calls: &[
        ruled!(seccomp, SECCOMP, "filters only, without a listener")] },
];

#[rustfmt::skip]
pub const REFUSED: &[RefusedSyscalls] = &[
    RefusedSyscalls { why: "a filter cannot read its flags; libraries fall back to clone",
        errno: libc::ENOSYS, calls: numbered!(clone3) },
    RefusedSyscalls { why: "only the engine mounts", errno: libc::EPERM, calls: numbered!(
        mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree
        mount_setattr) },
    RefusedSyscalls { why: "only the engine creates and enters namespaces", errno: libc::EPERM,
        calls: numbered!(unshare setns) },
    RefusedSyscalls { why: "no process reads or controls another", errno: libc::EPERM,
        calls: numbered!(
        ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd) },
    RefusedSyscalls { why: "code in the kernel, and inspection of it", errno: libc::EPERM,
        calls: numbered!(bpf perf_event_open syslog) },
    RefusedSyscalls { why: "file handles bypass directory permissions",
        errno: libc::EPERM, calls: numbered!(name_to_handle_at open_by_handle_at) },
    RefusedSyscalls { why: "watches files of the whole host", errno: libc::EPERM,
        calls: numbered!(fanotify_init fanotify_mark) },
    RefusedSyscalls { why: "the host's kernel, disks, clock and names", errno: libc::EPERM,
        calls: numbered!(
        reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff
        acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime sethostname
        setdomainname iopl ioperm vhangup) },
    RefusedSyscalls { why: "images do not support keyrings",
        errno: libc::ENOSYS, calls: numbered!(keyctl add_key request_key) },
    RefusedSyscalls {
        why: "a large kernel interface that bypasses this filter; images do not support it",
        errno: libc::ENOSYS, calls: numbered!(io_uring_setup io_uring_enter io_uring_register) },
    RefusedSyscalls { why: "lets a program block the kernel at a chosen point", errno: libc::ENOSYS,
        calls: numbered!(userfaultfd) },
    RefusedSyscalls { why: "images cannot capture this state",
        errno: libc::ENOSYS, calls: numbered!(
        landlock_create_ruleset landlock_add_rule landlock_restrict_self
        memfd_secret pkey_alloc pkey_free pkey_mprotect map_shadow_stack modify_ldt mbind
        set_mempolicy get_mempolicy migrate_pages move_pages mq_open mq_unlink) },
    RefusedSyscalls {
        why: "would flush all files of the host; fsync and syncfs work",
        errno: 0, calls: numbered!(sync) },
];
