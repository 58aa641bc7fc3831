//! Tools for a machine's history and its branches: explore, compare, adopt.

use crate::answer::Answer;
use crate::call::CallContext;
use crate::error::{Error, Result};
use crate::lenient;
use crate::output::{self, word};
use crate::table::{Effect, ToolDescription, ToolEntry};
use crate::text::{MAX_TEXT, cut, first_line};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_api::{Address, Timeout, Vary};
use stasis_machine::{AdoptSelection, Explore, StateRef};
use std::collections::BTreeMap;

/// Maximum candidates of one call.
const MAX_CANDIDATES: usize = 64;
/// Maximum differences of one kind in one answer.
const MAX_DIFFERENCES: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExploreInput {
    /// The machine to start from.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// Code of each candidate, run on its own branch.
    #[serde(alias = "candidate", alias = "codes", deserialize_with = "lenient::list")]
    pub candidates: Vec<String>,
    /// A Python expression that scores a branch after its code has run; higher is better.
    pub score: String,
    /// Lower is better instead.
    #[serde(default)]
    pub minimize: bool,
    /// Keep the other branches and the original machine.
    #[serde(default)]
    pub keep: bool,
    /// Time limit in seconds of each candidate and each score.
    #[serde(alias = "timeout")]
    pub timeout_seconds: Option<f64>,
}

/// The scores of the candidates.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExploreOutput {
    /// The machine; it has the state of the best candidate, if there is one.
    pub machine: String,
    pub address: Option<String>,
    /// Index of the best candidate, from 0.
    pub best: Option<u64>,
    /// New name of the original machine, if it was kept.
    pub former: Option<String>,
    pub candidates: Vec<TriedCandidate>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Tried")]
pub struct TriedCandidate {
    pub index: u64,
    /// Its branch; removed unless `keep` was set.
    pub machine: String,
    pub score: Option<f64>,
    pub error: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareInput {
    /// A machine, or `machine@seq`.
    pub left: String,
    /// The other machine, or `machine@seq`.
    pub right: String,
}

/// The differences between two states.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompareOutput {
    pub left: String,
    pub right: String,
    /// The common ancestor of both states.
    pub base: Option<String>,
    pub variables: Vec<VariableDiff>,
    pub files: Vec<VariableDiff>,
    /// Number of instructions with different results.
    pub outputs: usize,
    /// A description of each omitted part.
    pub cut: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Differs")]
pub struct VariableDiff {
    pub name: String,
    /// `added` (only on the right), `removed`, `changed` or `unknown`.
    pub change: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub right: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AdoptInput {
    /// The machine to change.
    pub machine: String,
    /// The machine or `machine@seq` to copy from.
    pub from: String,
    /// Names of variables to copy.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files to copy, or directories whose changed files to copy.
    #[serde(default)]
    pub files: Vec<String>,
    /// Overwrite names that changed since the machines parted.
    #[serde(default)]
    pub force: bool,
}

/// The adopted variables and files.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AdoptOutput {
    pub machine: String,
    /// The state after adopting; absent if nothing was adopted.
    pub address: Option<String>,
    pub variables: Vec<String>,
    pub files: Vec<String>,
    /// Conflicting names; without `force` they prevent adopting.
    pub conflicts: Vec<String>,
    /// Variables and files that could not be copied, with the reasons.
    pub failed: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteInput {
    /// The branch.
    pub machine: String,
    /// The machine to replace; its parent if absent.
    pub onto: Option<String>,
}

/// The exchanged names.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PromoteOutput {
    /// The branch, under its new name.
    pub machine: String,
    pub address: Option<String>,
    /// The old machine, under the branch's old name.
    pub former: String,
}

pub fn tools() -> Vec<ToolEntry> {
    let face = |name, title, effect, about| ToolDescription { name, title, about, effect };
    vec![
        face(
            "explore",
            "Explore candidates",
            Effect::Adds,
            "Runs several pieces of code, each on its own branch of a machine, and scores each \
             with an expression. The best branch replaces the machine; the others are removed.",
        )
        .does(explore),
        face(
            "compare_machines",
            "Compare two states",
            Effect::Reads,
            "Shows the differences between two machines or states: variables, files, results.",
        )
        .does(compare),
        face(
            "adopt",
            "Adopt from a branch",
            Effect::Sets,
            "Copies variables and files from another machine or state into a machine.",
        )
        .does(adopt),
        face(
            "promote_branch",
            "Promote a branch",
            Effect::Adds,
            "Replaces a machine by its branch: the two exchange their names.",
        )
        .does(promote),
    ]
}

fn timeout(seconds: Option<f64>) -> Result<Timeout> {
    crate::tools::timeout(seconds)
}

/// A state of the caller, by its address.
fn place(call: &CallContext, text: &str) -> Result<StateRef> {
    let parsed: std::result::Result<Address, _> = text.parse();
    let odd =
        |_| Error::Invalid(format!("`{}` is not a machine or machine@seq", first_line(text, 80)));
    let address = parsed.map_err(odd)?;
    let machine = call.machine(address.machine.as_str())?;
    Ok(call.host.place(&machine, address.seq)?)
}

fn explore(call: &CallContext, input: ExploreInput) -> Result<Answer<ExploreOutput>> {
    let (machine, seq) = call.state(&input.machine)?;
    if input.candidates.is_empty() || input.candidates.len() > MAX_CANDIDATES {
        return Err(Error::Invalid(format!("one call tries 1 to {MAX_CANDIDATES} candidates")));
    }
    let candidates =
        input.candidates.into_iter().map(|code| Vary { code: Some(code), ..Vary::default() });
    let ask = Explore {
        seq,
        candidates: candidates.collect(),
        score: input.score,
        minimize: input.minimize,
        keep: input.keep,
        timeout: timeout(input.timeout_seconds)?,
        ..Explore::default()
    };
    let explored = call.host.explore(&machine, ask)?;
    let won_by = explored.best.as_ref().map(|best| best.name.clone());
    let won = explored.best.map(output::MachineOutput::from);
    let own = won.unwrap_or_else(|| machine.describe().into());
    let best = explored.candidates.iter().find(|one| one.machine.as_str() == own.name);
    let best = won_by.and(best).map(|one| one.index);
    let one = |one: stasis_api::Candidate| TriedCandidate {
        index: one.index,
        machine: one.machine.to_string(),
        score: one.score,
        error: one.error.map(|error| cut(&error, 2000, "the branch")),
    };
    let data = ExploreOutput {
        machine: own.name,
        address: own.address,
        best,
        former: explored.former.map(|former| former.name.to_string()),
        candidates: explored.candidates.into_iter().map(one).collect(),
    };
    let text = explored_text(&data);
    Ok(Answer { failed: data.best.is_none(), ..Answer::new(data, text) })
}

fn explored_text(data: &ExploreOutput) -> String {
    let line = |one: &TriedCandidate| match (&one.score, &one.error) {
        (Some(score), _) => format!("candidate {}: {score}", one.index),
        (None, error) => {
            let why = error.as_deref().unwrap_or("it has no score");
            format!("candidate {}: {}", one.index, first_line(why, 300))
        }
    };
    let mut lines: Vec<_> = data.candidates.iter().map(line).collect();
    lines.push(match (data.best, &data.former) {
        (Some(best), Some(former)) => {
            format!(
                "{} continues from candidate {best}; the original is now {former}.",
                data.machine
            )
        }
        (Some(best), None) => format!("{} continues from candidate {best}.", data.machine),
        _ => format!("No candidate could be scored; {} is unchanged.", data.machine),
    });
    lines.join("\n")
}

fn compare(call: &CallContext, input: CompareInput) -> Result<Answer<CompareOutput>> {
    let (left, right) = (place(call, &input.left)?, place(call, &input.right)?);
    let found = call.host.compare(&left, &right)?;
    let mut missing = found.cut;
    let of = |var: Option<stasis_api::Var>| var.map(|var| first_line(&var.repr, 200));
    let variables = found.variables.into_iter().map(|one| VariableDiff {
        name: one.name,
        change: word(&one.change),
        left: of(one.left),
        right: of(one.right),
    });
    let size = |size: Option<u64>| size.map(|size| format!("{size} bytes"));
    let files = found.files.into_iter().map(|one| VariableDiff {
        name: one.path,
        change: word(&one.change),
        left: size(one.left_size),
        right: size(one.right_size),
    });
    let data = CompareOutput {
        left: found.left.to_string(),
        right: found.right.to_string(),
        base: found.base.map(|base| base.to_string()),
        variables: some(variables.collect(), "variables", &mut missing),
        files: some(files.collect(), "files", &mut missing),
        outputs: found.outputs.len(),
        cut: missing,
    };
    let text = cut(&compared_text(&data), MAX_TEXT, "the structured result");
    Ok(Answer::new(data, text))
}

/// Limits the list to a readable length.
fn some(mut all: Vec<VariableDiff>, what: &str, missing: &mut Vec<String>) -> Vec<VariableDiff> {
    if all.len() > MAX_DIFFERENCES {
        missing.push(format!("{} more {what} differ", all.len() - MAX_DIFFERENCES));
        all.truncate(MAX_DIFFERENCES);
    }
    all
}

fn compared_text(data: &CompareOutput) -> String {
    let line = |kind: &str, one: &VariableDiff| {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".into());
        let (left, right) = (side(&one.left), side(&one.right));
        format!("{kind} {} {}: {left} | {right}", one.name, one.change)
    };
    let mut lines = vec![format!("{} | {}", data.left, data.right)];
    lines.extend(data.variables.iter().map(|one| line("variable", one)));
    lines.extend(data.files.iter().map(|one| line("file", one)));
    lines.push(format!("{} instructions have different results", data.outputs));
    lines.extend(data.cut.iter().map(|words| format!("[{words}]")));
    lines.join("\n")
}

fn adopt(call: &CallContext, input: AdoptInput) -> Result<Answer<AdoptOutput>> {
    let machine = call.machine(&input.machine)?;
    let from = place(call, &input.from)?;
    let AdoptInput { variables, files, force, .. } = input;
    let done = call.host.adopt(&machine, &from, AdoptSelection { variables, files, force })?;
    let name = machine.name().to_string();
    let conflict = |one: stasis_api::Conflict| format!("{} {}: {}", one.kind, one.name, one.why);
    let data = AdoptOutput {
        address: done.seq.map(|seq| format!("{name}@{seq}")),
        machine: name,
        variables: done.variables,
        files: done.files,
        conflicts: done.conflicts.into_iter().map(conflict).collect(),
        failed: done.failed,
    };
    let taken = data.variables.len() + data.files.len();
    let mut lines = match &data.address {
        Some(address) => vec![format!("{taken} adopted. [{address}]")],
        None => vec!["Nothing was adopted.".to_owned()],
    };
    lines.extend(data.conflicts.iter().map(|words| format!("both changed {words}")));
    lines.extend(data.failed.iter().map(|(name, why)| format!("{name}: {why}")));
    let failed = data.address.is_none();
    Ok(Answer { failed, ..Answer::new(data, cut(&lines.join("\n"), MAX_TEXT, "the result")) })
}

fn promote(call: &CallContext, input: PromoteInput) -> Result<Answer<PromoteOutput>> {
    let branch = call.machine(&input.machine)?;
    let onto = input.onto.as_deref().map(|name| call.machine(name)).transpose()?;
    let former = call.host.promote(&branch, onto.as_ref())?;
    let own = output::MachineOutput::from(branch.describe());
    let former = former.name().to_string();
    let text =
        format!("The branch is now called {}; the old machine is called {former}.", own.name);
    Ok(Answer::new(PromoteOutput { machine: own.name, address: own.address, former }, text))
}
