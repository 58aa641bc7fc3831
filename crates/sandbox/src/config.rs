//! The configuration of the sandbox. All layers are on, unless a test switches one off to show its
//! effect.

use std::path::PathBuf;

/// The sandbox of an engine's machines.
#[derive(Debug, Clone)]
pub struct WallsConfig {
    /// Machines have user ids of their own; which ranges are taken is noted in this directory,
    /// for all engines of the host. `None`: ids inside are the host's.
    pub ids: Option<PathBuf>,
    /// Programs start as their user, without capabilities and without a way to new ones. Else as
    /// the machine's root, with all capabilities in its namespaces.
    pub unprivileged: bool,
    pub seccomp: bool,
    pub landlock: bool,
    /// Mask the parts of `/proc` that reach beyond the machine.
    pub masked_proc: bool,
    /// Put machines into cgroups where the host has them.
    pub cgroups: bool,
    /// Every machine's limits until it gets others.
    pub limits: ResourceLimits,
}

impl Default for WallsConfig {
    fn default() -> WallsConfig {
        WallsConfig {
            ids: Some("/run/stasis/ids".into()),
            unprivileged: true,
            seccomp: true,
            landlock: true,
            masked_proc: true,
            cgroups: true,
            limits: ResourceLimits::default(),
        }
    }
}

impl WallsConfig {
    /// Namespaces and nothing else: for tests of the engine, whose programs are root.
    pub fn namespaces_only() -> WallsConfig {
        WallsConfig {
            ids: None,
            unprivileged: false,
            seccomp: false,
            landlock: false,
            masked_proc: false,
            cgroups: false,
            limits: ResourceLimits::NONE,
        }
    }
}

/// The limits of a machine; `None` is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResourceLimits {
    /// Bytes.
    pub memory: Option<u64>,
    /// Processes and threads.
    pub pids: Option<u64>,
    /// Thousandths of a processor.
    pub cpu_millis: Option<u64>,
    pub disk: Option<DiskLimit>,
    /// Open descriptors of one process. Holds for programs that are launched after it was set.
    pub descriptors: Option<u64>,
}

/// The size of a machine's written files, beside its root file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskLimit {
    pub bytes: u64,
    pub files: u64,
}

impl ResourceLimits {
    pub const NONE: ResourceLimits = ResourceLimits {
        memory: None,
        pids: None,
        cpu_millis: None,
        disk: None,
        descriptors: None,
    };
}

impl Default for ResourceLimits {
    fn default() -> ResourceLimits {
        ResourceLimits {
            memory: Some(4 << 30),
            pids: Some(1024),
            cpu_millis: None,
            disk: Some(DiskLimit { bytes: 8 << 30, files: 500_000 }),
            descriptors: Some(4096),
        }
    }
}
