//! Arguments of tools. Unknown ones are refused, so that misspelt ones are noticed.

use crate::lenient;
use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    /// The code to run. The result contains the value of the last expression.
    #[serde(alias = "python", alias = "source")]
    pub code: String,
    /// The machine to run it on; if absent, a new one is created and named in the result.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: Option<String>,
    /// Time limit in seconds; then the code is interrupted and the machine keeps its state.
    #[serde(alias = "timeout")]
    pub timeout_seconds: Option<f64>,
    /// The language of the code; the machine's if absent.
    pub language: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunShell {
    /// The bash command; may have several lines.
    #[serde(alias = "cmd")]
    pub command: String,
    /// The machine to run it on; if absent, a new one is created and named in the result.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: Option<String>,
    /// Time limit in seconds; then the command is killed.
    #[serde(alias = "timeout")]
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallPackages {
    /// Package names, such as `pandas` or `requests>=2.31`.
    #[serde(alias = "package", deserialize_with = "lenient::words")]
    pub packages: Vec<String>,
    /// The machine to install them on.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneMachine {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
}

/// No arguments; foreverVM's clients may send some nevertheless.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct NoArguments {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMachines {
    /// Only machines with all of these tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Maximum number of machines; 100 if absent.
    pub limit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateMachine {
    /// 1 to 64 letters, digits, `_` or `-`; generated if absent.
    #[serde(alias = "machine", alias = "machine_name")]
    pub name: Option<String>,
    /// Tags to find it by.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Memory limit in MB.
    pub memory_mb: Option<u64>,
    /// The template to start from; the default if absent.
    pub template: Option<String>,
    /// `open` to reach the internet; the service's default if absent.
    pub network: Option<WantedNetwork>,
}

/// The addresses that a machine may reach.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum WantedNetwork {
    None,
    Open,
}

impl From<WantedNetwork> for stasis_api::Network {
    fn from(network: WantedNetwork) -> stasis_api::Network {
        match network {
            WantedNetwork::None => stasis_api::Network::None,
            WantedNetwork::Open => stasis_api::Network::Open,
        }
    }
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TagMachine {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// Tags to add or change.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Names of tags to remove.
    #[serde(default, deserialize_with = "lenient::list")]
    pub remove: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowHistory {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// The first instruction to show; if absent, the last ones.
    pub from: Option<u64>,
    /// Maximum number of instructions; 20 if absent.
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Undo {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// Go back further, to the state after this instruction: the number in `machine@seq`.
    #[serde(default, deserialize_with = "lenient::number")]
    pub seq: Option<u64>,
    /// Or undo this many instructions instead of one.
    #[serde(default, alias = "count", deserialize_with = "lenient::number")]
    pub n: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Redo {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// Number of instructions; 1 if absent.
    #[serde(default, alias = "count", deserialize_with = "lenient::number")]
    pub n: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// The instruction to return to: the number in `machine@seq`. If absent, the machine returns
    /// to its first state.
    #[serde(default, deserialize_with = "lenient::number")]
    pub seq: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchMachine {
    /// The machine to branch from. It is not changed.
    #[serde(alias = "machine_name", alias = "machine_id")]
    pub machine: String,
    /// Number of branches; 1 if absent.
    #[serde(alias = "count")]
    pub n: Option<u32>,
    /// The instruction whose state they start from; the current state if absent.
    #[serde(default, deserialize_with = "lenient::number")]
    pub seq: Option<u64>,
    /// Names for the branches; missing ones are generated.
    #[serde(default, alias = "name", deserialize_with = "lenient::list")]
    pub names: Vec<String>,
    /// Tags for the branches, in addition to the machine's.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}
