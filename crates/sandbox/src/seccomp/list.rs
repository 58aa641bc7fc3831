//! The calls a machine may make, and why. What is not here does not exist for a machine (ENOSYS),
//! apart from the calls named in `REFUSED`, whose answer is one that programs expect.
//!
//! SECURITY.md shows this list; a test compares the two.

use super::arguments::{self, Rule};
use super::numbers;
use stasis_sys::libc;

/// Calls that are there for the same reason.
#[derive(Debug, Clone, Copy)]
pub struct Purpose {
    pub why: &'static str,
    pub calls: &'static [Call],
}

#[derive(Debug, Clone, Copy)]
pub struct Call {
    pub name: &'static str,
    pub number: i64,
    /// What its arguments must keep to.
    pub rules: &'static [Rule],
    /// What the rules keep out.
    pub note: &'static str,
}

/// A call that is answered with this error, and why it is not let through.
#[derive(Debug, Clone, Copy)]
pub struct Refusal {
    pub why: &'static str,
    pub errno: i32,
    pub calls: &'static [(&'static str, i64)],
}

macro_rules! calls {
    ($($name:ident)*) => {
        &[$(Call {
            name: stringify!($name),
            number: numbers::$name,
            rules: &[],
            note: "",
        }),*]
    };
}

macro_rules! ruled {
    ($name:ident, $rules:ident, $note:literal) => {
        Call {
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
pub const ALLOWED: &[Purpose] = &[
    Purpose { why: "read and write what is open", calls: calls!(
        read write readv writev pread64 pwrite64 preadv pwritev preadv2 pwritev2 lseek sendfile
        splice tee vmsplice copy_file_range) },
    Purpose { why: "open, close and duplicate descriptors", calls: calls!(
        open openat openat2 creat close close_range dup dup2 dup3 flock pipe pipe2) },
    Purpose { why: "locks, owners, sizes and seals of what is open", calls: &[
        ruled!(fcntl, FCNTL, "no leases, under which others wait to open a file")] },
    Purpose { why: "look at files", calls: calls!(
        stat fstat lstat newfstatat statx access faccessat faccessat2 readlink readlinkat
        getdents getdents64 statfs fstatfs getcwd cachestat) },
    Purpose { why: "change the machine's own files", calls: calls!(
        rename renameat renameat2 mkdir mkdirat rmdir unlink unlinkat link linkat symlink
        symlinkat truncate ftruncate fallocate chmod fchmod fchmodat fchmodat2 utime utimes
        futimesat utimensat umask chdir fchdir) },
    Purpose { why: "owners of its own files; needs capabilities it lacks for any other id",
        calls: calls!(chown fchown lchown fchownat) },
    Purpose { why: "named pipes and sockets; device nodes need a capability it lacks",
        calls: calls!(mknod mknodat) },
    Purpose { why: "extended attributes, as archives and package tools set them", calls: calls!(
        setxattr lsetxattr fsetxattr getxattr lgetxattr fgetxattr listxattr llistxattr flistxattr
        removexattr lremovexattr fremovexattr) },
    Purpose { why: "write back its own files, as databases do", calls: calls!(
        fsync fdatasync syncfs sync_file_range msync readahead fadvise64) },
    Purpose { why: "memory", calls: calls!(
        brk munmap mremap mprotect madvise mincore mlock mlock2 mlockall munlock munlockall
        mseal) },
    Purpose { why: "map memory, and files of it", calls: &[
        ruled!(mmap, MMAP, "not of the host's reserved huge pages, which no limit counts"),
        ruled!(memfd_create, MEMFD_CREATE, "the same")] },
    Purpose { why: "wait for several things at once", calls: calls!(
        poll ppoll select pselect6 epoll_create epoll_create1 epoll_ctl epoll_wait epoll_pwait
        epoll_pwait2 eventfd eventfd2 signalfd signalfd4) },
    Purpose { why: "watch its own files", calls: calls!(
        inotify_init inotify_init1 inotify_add_watch inotify_rm_watch) },
    Purpose { why: "start and end programs and threads", calls: calls!(
        fork vfork execve execveat exit exit_group wait4 waitid set_tid_address) },
    Purpose { why: "threads and children", calls: &[
        ruled!(clone, CLONE, "not into new namespaces, where it would hold capabilities")] },
    Purpose { why: "locks between threads, and what the C library registers for them",
        calls: calls!(
        futex futex_waitv set_robust_list get_robust_list rseq membarrier) },
    Purpose { why: "signals among the machine's processes", calls: calls!(
        rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigqueueinfo
        rt_tgsigqueueinfo rt_sigsuspend sigaltstack kill tkill tgkill pause restart_syscall
        pidfd_open pidfd_send_signal) },
    Purpose { why: "clocks, sleeping and timers", calls: calls!(
        time gettimeofday clock_gettime clock_getres clock_nanosleep nanosleep alarm getitimer
        setitimer timer_create timer_settime timer_gettime timer_getoverrun timer_delete
        timerfd_create timerfd_settime timerfd_gettime times) },
    Purpose { why: "who it is, and the processes of its machine", calls: calls!(
        getpid getppid gettid getuid geteuid getgid getegid getresuid getresgid getgroups getpgid
        getpgrp getsid setpgid setsid uname sysinfo getcpu getrusage capget) },
    Purpose { why: "give up ids; without capabilities nothing is gained", calls: calls!(
        setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset) },
    Purpose { why: "limits and scheduling of its own processes, never upwards", calls: calls!(
        getrlimit getpriority setpriority sched_yield sched_getaffinity
        sched_setaffinity sched_getparam sched_setparam sched_getscheduler sched_setscheduler
        sched_get_priority_max sched_get_priority_min sched_rr_get_interval sched_getattr
        sched_setattr ioprio_get ioprio_set) },
    Purpose { why: "limits of its own processes", calls: &[
        ruled!(setrlimit, SETRLIMIT, "that of core files stays: success, and nothing is done"),
        ruled!(prlimit64, PRLIMIT, "the same")] },
    Purpose { why: "random numbers", calls: calls!(getrandom) },
    Purpose { why: "sockets", calls: &[
        ruled!(socket, SOCKET,
            "unix, TCP and UDP; of netlink only the routes that getifaddrs reads")] },
    Purpose { why: "pairs of sockets", calls: &[
        ruled!(socketpair, SOCKETPAIR, "unix only")] },
    Purpose { why: "use sockets", calls: calls!(
        bind listen accept accept4 connect shutdown getsockname getpeername sendto sendmsg
        sendmmsg recvfrom recvmsg recvmmsg) },
    Purpose { why: "options of sockets", calls: &[
        ruled!(setsockopt, SETSOCKOPT, "those of a list: no filters, devices, upper layer \
            protocols, encapsulation, header options or packet tables"),
        ruled!(getsockopt, GETSOCKOPT, "those, and what only asks")] },
    Purpose { why: "System V shared memory, semaphores and queues, in its own namespace",
        calls: calls!(
        shmget shmat shmdt shmctl semget semop semtimedop semctl msgget msgsnd msgrcv msgctl) },
    Purpose { why: "terminals, descriptors, and which interfaces there are", calls: &[
        ruled!(ioctl, IOCTL, "those of a list; none that types for another program, changes a line \
            discipline, a file system or an interface")] },
    Purpose { why: "name threads and the like", calls: &[
        ruled!(prctl, PRCTL, "only what concerns the caller itself and images carry")] },
    Purpose { why: "thread pointers", calls: &[
        ruled!(arch_prctl, ARCH_PRCTL, "no new kinds of register state")] },
    Purpose { why: "turn address randomisation off", calls: &[
        ruled!(personality, PERSONALITY, "no old kernels' quirks")] },
    Purpose { why: "a program may confine itself further; images carry that", calls: &[
        ruled!(seccomp, SECCOMP, "filters only, without a listener")] },
];

#[rustfmt::skip]
pub const REFUSED: &[Refusal] = &[
    Refusal { why: "its flags are where a filter cannot look; libraries fall back to clone",
        errno: libc::ENOSYS, calls: numbered!(clone3) },
    Refusal { why: "mounts are the engine's", errno: libc::EPERM, calls: numbered!(
        mount umount2 pivot_root chroot fsopen fsconfig fsmount fspick move_mount open_tree
        mount_setattr) },
    Refusal { why: "namespaces are the engine's", errno: libc::EPERM,
        calls: numbered!(unshare setns) },
    Refusal { why: "no process reads or steers another", errno: libc::EPERM, calls: numbered!(
        ptrace process_vm_readv process_vm_writev process_madvise kcmp pidfd_getfd) },
    Refusal { why: "programs in the kernel, and looking into it", errno: libc::EPERM,
        calls: numbered!(bpf perf_event_open syslog) },
    Refusal { why: "files by handle pass by every directory's permissions", errno: libc::EPERM,
        calls: numbered!(name_to_handle_at open_by_handle_at) },
    Refusal { why: "watches the files of everybody", errno: libc::EPERM,
        calls: numbered!(fanotify_init fanotify_mark) },
    Refusal { why: "the host's kernel, disks, clock and names", errno: libc::EPERM,
        calls: numbered!(
        reboot kexec_load kexec_file_load init_module finit_module delete_module swapon swapoff
        acct quotactl quotactl_fd settimeofday clock_settime adjtimex clock_adjtime sethostname
        setdomainname iopl ioperm vhangup) },
    Refusal { why: "images do not carry keyrings",
        errno: libc::ENOSYS, calls: numbered!(keyctl add_key request_key) },
    Refusal { why: "a large part of the kernel that passes by this list; images do not carry it",
        errno: libc::ENOSYS, calls: numbered!(io_uring_setup io_uring_enter io_uring_register) },
    Refusal { why: "lets a program stop the kernel where it likes", errno: libc::ENOSYS,
        calls: numbered!(userfaultfd) },
    Refusal { why: "images cannot read these back, so they would be lost", errno: libc::ENOSYS,
        calls: numbered!(landlock_create_ruleset landlock_add_rule landlock_restrict_self
        memfd_secret pkey_alloc pkey_free pkey_mprotect map_shadow_stack modify_ldt mbind
        set_mempolicy get_mempolicy migrate_pages move_pages mq_open mq_unlink) },
    Refusal { why: "would write back all files of the host; a machine's own are synced by name",
        errno: 0, calls: numbered!(sync) },
];
