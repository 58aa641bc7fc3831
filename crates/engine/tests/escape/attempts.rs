//! The attempts: what each must meet, and where it succeeds.

use stasis_engine::WallsConfig;

pub struct Attempt {
    pub name: &'static str,
    pub with: With,
    /// The arguments of a sandboxed program.
    pub refusal: &'static str,
    pub without: Without,
}

/// The arguments of an attempt, beside its name.
#[derive(Debug, Clone, Copy)]
pub enum With {
    Nothing,
    Text(&'static str),
    /// A file of the host outside every machine.
    HostFile,
    /// A file that another machine wrote, by its name on the host.
    OthersFile,
    /// A process of the host.
    HostProcess,
    /// A process of another machine.
    OthersProcess,
    /// A process that holds an image's memory.
    Template,
    /// A port of the host with a listener.
    HostPort,
    /// An abstract socket of the host with a listener.
    HostSocket,
    /// A program of root's that is set-user-id, by its name where the attempt is made.
    SetUserId,
}

#[derive(Clone, Copy)]
pub enum Without {
    /// A machine with these walls taken away.
    Walls(fn(&mut WallsConfig)),
    /// The host itself, as this user.
    Host(u32),
}

impl Attempt {
    pub fn title(&self) -> String {
        match self.with {
            With::Nothing => self.name.to_owned(),
            With::Text(text) => format!("{}:{text}", self.name),
            other => format!("{}:{other:?}", self.name),
        }
    }
}

const fn attempt(name: &'static str, refusal: &'static str, without: Without) -> Attempt {
    Attempt { name, with: With::Nothing, refusal, without }
}

const fn given(name: &'static str, with: With, refusal: &'static str, without: Without) -> Attempt {
    Attempt { name, with, refusal, without }
}

const CALLS: Without = Without::Walls(|walls| walls.seccomp = false);
const PRIVILEGES: Without = Without::Walls(|walls| walls.unprivileged = false);
const PROC: Without = Without::Walls(|walls| walls.masked_proc = false);
/// Root in its namespaces, who may make all calls.
const ROOT: Without = Without::Walls(|walls| {
    walls.seccomp = false;
    walls.unprivileged = false;
    walls.landlock = false;
});
const ROOT_AND_PROC: Without = Without::Walls(|walls| {
    walls.seccomp = false;
    walls.unprivileged = false;
    walls.landlock = false;
    walls.masked_proc = false;
});
const CALLS_AND_PROC: Without = Without::Walls(|walls| {
    walls.seccomp = false;
    walls.masked_proc = false;
});
const HOST: Without = Without::Host(0);
const HOST_USER: Without = Without::Host(65534);

#[rustfmt::skip]
pub const ATTEMPTS: &[Attempt] = &[
    attempt("mount_tmpfs", "EPERM", ROOT),
    attempt("bind_proc", "EPERM", ROOT),
    attempt("unmount_proc", "EPERM", ROOT),
    attempt("new_mount_api", "EPERM", ROOT),
    attempt("change_root", "EPERM", ROOT),
    attempt("unshare_user", "EPERM", CALLS_AND_PROC),
    attempt("unshare_net", "EPERM", ROOT),
    attempt("clone_user", "EPERM", CALLS_AND_PROC),
    attempt("clone3_user", "ENOSYS", CALLS_AND_PROC),
    attempt("join_namespace", "EPERM", ROOT),
    attempt("set_hostname", "EPERM", ROOT),
    attempt("trace_child", "EPERM", CALLS),
    attempt("read_child", "EPERM", CALLS),
    attempt("take_descriptor", "EPERM", CALLS),
    attempt("init_memory", "ENOENT", ROOT_AND_PROC),
    attempt("init_shown", "ENOENT", PROC),
    attempt("init_descriptors", "ENOENT", ROOT_AND_PROC),
    attempt("signal_init", "EPERM", ROOT),
    given("signal_pid", With::HostProcess, "ESRCH", HOST),
    given("signal_pid", With::OthersProcess, "ESRCH", HOST),
    given("signal_pid", With::Template, "ESRCH", HOST),
    given("memory_of_pid", With::HostProcess, "ENOENT", HOST),
    given("memory_of_pid", With::OthersProcess, "ENOENT", HOST),
    given("memory_of_pid", With::Template, "ENOENT", HOST),
    attempt("raise_priority", "EACCES", HOST),
    given("open_path", With::HostFile, "ENOENT", HOST),
    given("open_path", With::OthersFile, "ENOENT", HOST),
    given("open_path", With::Text("/sys/fs/cgroup"), "ENOENT", HOST),
    given("open_by_link", With::HostFile, "ENOENT", HOST),
    given("above_root", With::HostFile, "ENOENT", HOST),
    attempt("device_node", "EACCES", HOST),
    attempt("change_device", "EROFS", HOST),
    given("write_root_file", With::Text("/etc/roots"), "EACCES", PRIVILEGES),
    attempt("file_handle", "EPERM", CALLS),
    given("read_some", With::Text("/proc/cmdline"), "empty", PROC),
    given("read_some", With::Text("/proc/interrupts"), "empty", PROC),
    given("setting", With::Text("/proc/sys/net/ipv4/ip_default_ttl"), "EACCES", ROOT_AND_PROC),
    given("setting", With::Text("/proc/sys/kernel/panic"), "EACCES", HOST),
    attempt("become_root", "EPERM", PRIVILEGES),
    attempt("become_other", "EPERM", PRIVILEGES),
    given("new_privileges", With::SetUserId, "EPERM", HOST_USER),
    attempt("key", "ENOSYS", CALLS),
    attempt("uring", "ENOSYS", CALLS),
    attempt("bpf_map", "EPERM", HOST),
    attempt("perf", "EPERM", HOST),
    attempt("page_faults", "ENOSYS", CALLS),
    attempt("descriptor_table", "ENOSYS", CALLS),
    attempt("old_quirks", "EPERM", CALLS),
    attempt("kernel_log", "EPERM", HOST),
    attempt("own_landlock", "ENOSYS", CALLS),
    attempt("old_calls", "killed 31", CALLS),
    attempt("raw_socket", "EPROTONOSUPPORT", ROOT),
    attempt("multipath", "EPROTONOSUPPORT", CALLS),
    attempt("partial_checksums", "EPROTONOSUPPORT", CALLS),
    attempt("upper_layer", "ENOPROTOOPT", CALLS),
    attempt("socket_filter", "ENOPROTOOPT", HOST),
    attempt("packet_tables", "ENOPROTOOPT", CALLS),
    attempt("file_size", "ENOTTY", CALLS),
    attempt("line_discipline", "ENOTTY", CALLS),
    attempt("lease", "EINVAL", CALLS),
    attempt("hold_calls", "EINVAL", CALLS),
    attempt("divert_calls", "EINVAL", CALLS),
    given("set_core_limit", With::Text("0"), "EPERM", CALLS),
    attempt("packet_socket", "EAFNOSUPPORT", ROOT),
    attempt("generic_netlink", "EPROTONOSUPPORT", CALLS),
    given("connect_port", With::HostPort, "ECONNREFUSED", HOST),
    given("connect_abstract", With::HostSocket, "ECONNREFUSED", HOST),
];
