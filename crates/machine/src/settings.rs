//! Settings and paths of a host.

use stasis_api::{Limits, Name, Network, Retention};
use stasis_engine::Preparation;
use stasis_policy::modules::ImportRule;
use stasis_policy::quota::Quota;
use stasis_secrets::KeySource;
use stasis_template::Registries;
use stasis_tools::ToolServer;
use std::path::{Path, PathBuf};
use std::time::Duration;

#[derive(Debug, Clone)]
pub struct Settings {
    /// The data directory: everything the host stores is below it.
    pub data_dir: PathBuf,
    /// The spawner's program file.
    pub spawner: PathBuf,
    /// Idle time before a machine leaves memory; never, if absent.
    pub idle_swap: Option<Duration>,
    /// Default timeout of an instruction.
    pub timeout: Option<Duration>,
    /// Default limits of machines, where neither they nor their template set them.
    pub limits: Limits,
    /// Upper bounds of one machine's limits; by default the host's resources.
    pub most: Limits,
    /// Stored output of one instruction.
    pub max_output: usize,
    /// Stored value and data of one instruction.
    pub max_result: u64,
    /// Maximum artifacts of one instruction: the data too large for its result.
    pub max_artifact: u64,
    /// Quotas of each account; the first account, which runs the service, has none.
    pub quota: Quota,
    /// Maximum waiting instructions of one machine.
    pub max_queue: usize,
    /// Quiet time after an instruction before its checkpoint begins, so that rapid instructions do
    /// not wait for one.
    pub settle: Duration,
    /// Memory of the host to keep free, in bytes; a share of it, if absent.
    pub keep_free: Option<u64>,
    /// Unused time before data on disk is compressed; never, if absent.
    pub cold_after: Option<Duration>,
    /// Unsaved work beyond which the next instruction waits for a checkpoint: the maximum that a
    /// crash can cost.
    pub at_risk: Duration,
    /// Retention of machines without a rule of their own.
    pub retention: Retention,
    /// Network of machines created without the option.
    pub network: Network,
    /// The policy of every machine with a network, besides its own.
    pub policy: Option<Name>,
    /// Imports that the host serves to machines without a network.
    pub imports: ImportRule,
    /// Registries of packages that machines import.
    pub registries: Registries,
    /// Servers whose tools machines call.
    pub tools: Vec<ToolServer>,
    /// The file that names the host's resolvers, which machines with a network use.
    pub resolv_conf: PathBuf,
    /// Where the key of secrets is.
    pub secret_key: KeySource,
    /// The authorities that servers outside are checked against, in a file; those that the host
    /// trusts, if absent.
    pub trusted_roots: Option<PathBuf>,
    /// How much is prepared ahead of requests.
    pub preparation: Preparation,
}

impl Settings {
    /// Default processors of a machine: three quarters of the host's, and at least one, so that one
    /// busy machine leaves some for the service.
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
            tools: Vec::new(),
            resolv_conf: "/etc/resolv.conf".into(),
            secret_key: KeySource::of_process(),
            trusted_roots: None,
            preparation: Preparation::default(),
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
    /// Artifacts: data too large for results.
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
