//! Settings and paths of a host.

use stasis_api::{Limits, Name, Network, Retention};
use stasis_policy::modules::ImportRule;
use stasis_policy::quota::Quota;
use stasis_template::Registries;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// Everything the host keeps is below this directory.
    pub data_dir: PathBuf,
    /// The spawner's program file.
    pub spawner: PathBuf,
    /// How long a machine may be idle before it leaves memory; never, if absent.
    pub idle_swap: Option<Duration>,
    /// How long an instruction may run unless it says otherwise.
    pub timeout: Option<Duration>,
    /// What machines may use unless they or their template say otherwise.
    pub limits: Limits,
    /// What one machine may use at most: what the host has, unless told otherwise.
    pub most: Limits,
    /// Output of one instruction that is kept.
    pub max_output: usize,
    /// Value and data of one instruction that are kept.
    pub max_result: u64,
    /// Of what is too large for that, what is kept beside the result of one instruction.
    pub max_artifact: u64,
    /// What each account may have; the first one, which runs the service, has no quota.
    pub quota: Quota,
    /// Instructions that may wait on one machine.
    pub max_queue: usize,
    /// Quiet time after an instruction before its checkpoint begins, so that instructions that
    /// follow each other at once do not wait for one.
    pub settle: Duration,
    /// Memory of the host to keep free, in bytes; a share of it, if absent.
    pub keep_free: Option<u64>,
    /// How long unused data stays on disk before it is compressed; for ever, if absent.
    pub cold_after: Option<Duration>,
    /// Work done since the last checkpoint beyond which the next instruction waits for one: what
    /// a crash may cost at most.
    pub at_risk: Duration,
    /// Which checkpoints are kept on machines that have no rule of their own.
    pub retention: Retention,
    /// What machines may reach that do not say.
    pub network: Network,
    /// The policy that every machine with a network is held to, besides its own.
    pub policy: Option<Name>,
    /// Imports that the host serves to machines without a network.
    pub imports: ImportRule,
    /// Where packages come from that machines import.
    pub registries: Registries,
    /// The file that names the host's resolvers, which machines with a network ask.
    pub resolv_conf: PathBuf,
}

impl Settings {
    /// Processors of a machine by default: three quarters of the host's, and
    /// at least one, so that one machine that is busy leaves some for the service.
    pub fn default_cpus() -> f64 {
        let all = std::thread::available_parallelism().map_or(1, |count| count.get());
        (all as f64 * 0.75).max(1.0)
    }

    pub fn new(data_dir: PathBuf, spawner: PathBuf) -> Settings {
        Settings {
            data_dir,
            spawner,
            idle_swap: Some(Duration::from_secs(600)),
            timeout: Some(Duration::from_secs(15)),
            limits: Limits {
                memory_mb: Some(4096),
                cpus: Some(Settings::default_cpus()),
                pids: Some(512),
                disk_mb: Some(8192),
            },
            most: crate::pressure::of_host(),
            max_output: 4 << 20,
            max_result: 16 << 20,
            max_artifact: 256 << 20,
            quota: Quota::default(),
            max_queue: 1000,
            keep_free: None,
            cold_after: Some(Duration::from_secs(24 * 3600)),
            settle: Duration::from_millis(5),
            at_risk: Duration::from_millis(25),
            retention: Retention::default(),
            network: Network::None,
            policy: None,
            imports: ImportRule::default(),
            registries: Registries::of_environment(),
            resolv_conf: "/etc/resolv.conf".into(),
        }
    }
}

/// The directories below a data directory.
#[derive(Debug, Clone)]
pub struct DataDirs {
    pub data: PathBuf,
    /// Images, packs and layers.
    pub content: PathBuf,
    /// Writable layers of running trees.
    pub run: PathBuf,
    /// Root file systems of templates.
    pub roots: PathBuf,
    /// Downloads of template builds and machines' imports.
    pub cache: PathBuf,
    /// What is too large for results.
    pub artifacts: PathBuf,
}

impl DataDirs {
    pub fn below(data: &Path) -> DataDirs {
        DataDirs {
            data: data.to_owned(),
            content: data.join("content"),
            run: data.join("run"),
            roots: data.join("roots"),
            cache: data.join("cache"),
            artifacts: data.join("artifacts"),
        }
    }
}
