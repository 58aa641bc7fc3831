//! What tools are called with. Unknown arguments are refused: a misspelt one is better noticed.

use schemars::JsonSchema;
use serde::Deserialize;
use std::collections::BTreeMap;

/// Languages machines speak.
#[derive(Debug, Clone, Copy, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    #[default]
    Python,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    /// The code to run. The value of the last expression comes back.
    pub code: String,
    /// The machine to run it on. Without one a new machine is made, and named in the result.
    pub machine: Option<String>,
    /// Seconds after which the code is interrupted; the machine keeps its state.
    pub timeout_seconds: Option<f64>,
    /// The language of the code.
    #[serde(default)]
    pub language: Language,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunShell {
    /// The command, as bash takes it. It may have several lines.
    pub command: String,
    /// The machine to run it on. Without one a new machine is made, and named in the result.
    pub machine: Option<String>,
    /// Seconds after which the command is ended.
    pub timeout_seconds: Option<f64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct InstallPackages {
    /// Packages as pip names them, such as `pandas` or `requests>=2.31`.
    pub packages: Vec<String>,
    /// The machine to install them on.
    pub machine: String,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct OneMachine {
    /// The machine's name.
    pub machine: String,
}

/// No arguments; foreverVM's clients may send some nevertheless.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Nothing {}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListMachines {
    /// Only machines that have all of these tags.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// At most so many, the newest first; 100 if absent.
    pub limit: Option<u32>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CreateMachine {
    /// 1 to 64 letters, digits, `_` or `-`; a fresh one is made up if absent.
    pub name: Option<String>,
    /// Words to find it by.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
    /// Memory it may use, in MB.
    pub memory_mb: Option<u64>,
    /// The template to start from; the default one if absent.
    pub template: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TagMachine {
    /// The machine's name.
    pub machine: String,
    /// Tags to add or change.
    #[serde(default)]
    pub set: BTreeMap<String, String>,
    /// Names of tags to take away.
    #[serde(default)]
    pub remove: Vec<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ShowHistory {
    /// The machine's name.
    pub machine: String,
    /// The first instruction to show; without it the last ones are shown.
    pub from: Option<u64>,
    /// At most so many instructions; 20 if absent.
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// The machine's name.
    pub machine: String,
    /// The instruction after which the state was as wanted: the number in `machine@seq`. Without
    /// it the machine goes back to its beginning.
    pub seq: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BranchMachine {
    /// The machine to branch from. It is not changed.
    pub machine: String,
    /// How many branches; 1 if absent.
    pub n: Option<u32>,
    /// The instruction whose state they start from; the state now if absent.
    pub seq: Option<u64>,
    /// Names for the branches; fresh ones are made up for those without.
    #[serde(default)]
    pub names: Vec<String>,
    /// Tags for the branches, beside those of the machine.
    #[serde(default)]
    pub tags: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
pub struct ForeverRun {
    /// Python code to run.
    #[serde(rename = "pythonCode")]
    pub python_code: String,
    /// The REPL's name, as `create-python-repl` gave it.
    #[serde(rename = "replId")]
    pub repl_id: String,
}
