//! Tools for a machine's past and its branches: try ways, look at what differs, take what is good.

use crate::answer::Answer;
use crate::call::Call;
use crate::error::{Error, Result};
use crate::output::{self, word};
use crate::table::{Effect, Entry, Face};
use crate::text::{MAX_TEXT, cut, glance};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_api::{Address, Timeout, Vary};
use stasis_machine::{Explore, Place, Wanted};
use std::collections::BTreeMap;

/// Candidates of one call.
const MAX_CANDIDATES: usize = 64;
/// Differences of one kind in one answer.
const MAX_DIFFERENCES: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExploreInput {
    /// The machine to try from.
    pub machine: String,
    /// The ways to try: code for each, run on a branch of its own.
    pub candidates: Vec<String>,
    /// A Python expression that each branch is scored with after its code; higher is better.
    pub score: String,
    /// Lower is better instead.
    #[serde(default)]
    pub minimize: bool,
    /// Leave the branches that lose there; they are removed otherwise.
    #[serde(default)]
    pub keep: bool,
    /// Seconds that each candidate, and each score, may take.
    pub timeout_seconds: Option<f64>,
}

/// How the candidates did.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ExploreOutput {
    /// The machine; its state is that of the best candidate, if there is one.
    pub machine: String,
    pub address: Option<String>,
    /// Which candidate won, from 0.
    pub best: Option<u64>,
    /// The machine as it was before, under a name of its own.
    pub former: Option<String>,
    pub candidates: Vec<Tried>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Tried {
    pub index: u64,
    /// Its branch, which is gone unless it was to be kept.
    pub machine: String,
    pub score: Option<f64>,
    pub error: Option<String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CompareInput {
    /// A machine, or `machine@seq`.
    pub left: String,
    /// Another one.
    pub right: String,
}

/// What differs between two states.
#[derive(Debug, Serialize, JsonSchema)]
pub struct CompareOutput {
    pub left: String,
    pub right: String,
    /// The state both came from.
    pub base: Option<String>,
    pub variables: Vec<Differs>,
    pub files: Vec<Differs>,
    /// How many instructions gave something else.
    pub outputs: usize,
    /// What is missing here, in words.
    pub cut: Vec<String>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct Differs {
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
    /// The machine that takes.
    pub machine: String,
    /// The machine or `machine@seq` to take from.
    pub from: String,
    /// Names of variables to take.
    #[serde(default)]
    pub variables: Vec<String>,
    /// Files to take, or directories with all that was changed in them.
    #[serde(default)]
    pub files: Vec<String>,
    /// Overwrite what both changed since they parted.
    #[serde(default)]
    pub force: bool,
}

/// What was taken over.
#[derive(Debug, Serialize, JsonSchema)]
pub struct AdoptOutput {
    pub machine: String,
    /// The state with what was taken in it; absent when nothing was.
    pub address: Option<String>,
    pub variables: Vec<String>,
    pub files: Vec<String>,
    /// What both sides changed; nothing was taken because of it, without `force`.
    pub conflicts: Vec<String>,
    /// What could not be carried, and why.
    pub failed: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PromoteInput {
    /// The branch.
    pub machine: String,
    /// Whose name it takes; its parent's, if absent.
    pub onto: Option<String>,
}

/// Which names were exchanged.
#[derive(Debug, Serialize, JsonSchema)]
pub struct PromoteOutput {
    /// The branch, under its new name.
    pub machine: String,
    pub address: Option<String>,
    /// What had that name, under the branch's old one.
    pub former: String,
}

pub fn tools() -> Vec<Entry> {
    let face = |name, title, effect, about| Face { name, title, about, effect };
    vec![
        face(
            "explore",
            "Explore ways to go on",
            Effect::Adds,
            "Tries several pieces of code at once, each on a branch of a machine, scores each with \
             an expression, and lets the best one take the machine's place. The machine as it was \
             stays under another name.",
        )
        .does(explore),
        face(
            "compare_machines",
            "Compare two states",
            Effect::Reads,
            "Says what differs between two machines or states: variables, files, results.",
        )
        .does(compare),
        face(
            "adopt",
            "Adopt from a branch",
            Effect::Sets,
            "Takes variables and files of another machine or state over into a machine, such as \
             the good parts of a branch.",
        )
        .does(adopt),
        face(
            "promote_branch",
            "Promote a branch",
            Effect::Adds,
            "Lets a branch take its parent's name, so that work goes on from it. The parent stays, \
             under the branch's name.",
        )
        .does(promote),
    ]
}

fn timeout(seconds: Option<f64>) -> Result<Timeout> {
    crate::tools::timeout(seconds)
}

/// A state of the caller's, by its address.
fn place(call: &Call, text: &str) -> Result<Place> {
    let parsed: std::result::Result<Address, _> = text.parse();
    let odd = |_| Error::Invalid(format!("`{}` is not a machine or machine@seq", glance(text, 80)));
    let address = parsed.map_err(odd)?;
    let machine = call.machine(address.machine.as_str())?;
    Ok(call.host.place(&machine, address.seq)?)
}

fn explore(call: &Call, input: ExploreInput) -> Result<Answer<ExploreOutput>> {
    let machine = call.machine(&input.machine)?;
    if input.candidates.is_empty() || input.candidates.len() > MAX_CANDIDATES {
        return Err(Error::Invalid(format!("one call tries 1 to {MAX_CANDIDATES} candidates")));
    }
    let candidates =
        input.candidates.into_iter().map(|code| Vary { code: Some(code), ..Vary::default() });
    let ask = Explore {
        candidates: candidates.collect(),
        score: input.score,
        minimize: input.minimize,
        keep: input.keep,
        timeout: timeout(input.timeout_seconds)?,
        ..Explore::default()
    };
    let explored = call.host.explore(&machine, ask)?;
    let won = explored.best.map(output::Machine::from);
    let own = won.unwrap_or_else(|| machine.describe().into());
    let best = explored.candidates.iter().find(|one| one.machine.as_str() == own.name);
    let best = explored.former.as_ref().and(best).map(|one| one.index);
    let one = |one: stasis_api::Candidate| Tried {
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
    let line = |one: &Tried| match (&one.score, &one.error) {
        (Some(score), _) => format!("candidate {}: {score}", one.index),
        (None, error) => {
            let why = error.as_deref().unwrap_or("it has no score");
            format!("candidate {}: {}", one.index, glance(why, 300))
        }
    };
    let mut lines: Vec<_> = data.candidates.iter().map(line).collect();
    lines.push(match (data.best, &data.former) {
        (Some(best), Some(former)) => {
            format!("{} goes on from candidate {best}; as it was, it is {former}.", data.machine)
        }
        _ => format!("No candidate could be scored; {} is as it was.", data.machine),
    });
    lines.join("\n")
}

fn compare(call: &Call, input: CompareInput) -> Result<Answer<CompareOutput>> {
    let (left, right) = (place(call, &input.left)?, place(call, &input.right)?);
    let found = call.host.compare(&left, &right)?;
    let mut missing = found.cut;
    let of = |var: Option<stasis_api::Var>| var.map(|var| glance(&var.repr, 200));
    let variables = found.variables.into_iter().map(|one| Differs {
        name: one.name,
        change: word(&one.change),
        left: of(one.left),
        right: of(one.right),
    });
    let size = |size: Option<u64>| size.map(|size| format!("{size} bytes"));
    let files = found.files.into_iter().map(|one| Differs {
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

/// Not more than an agent can read.
fn some(mut all: Vec<Differs>, what: &str, missing: &mut Vec<String>) -> Vec<Differs> {
    if all.len() > MAX_DIFFERENCES {
        missing.push(format!("{} more {what} differ", all.len() - MAX_DIFFERENCES));
        all.truncate(MAX_DIFFERENCES);
    }
    all
}

fn compared_text(data: &CompareOutput) -> String {
    let line = |kind: &str, one: &Differs| {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "-".into());
        let (left, right) = (side(&one.left), side(&one.right));
        format!("{kind} {} {}: {left} | {right}", one.name, one.change)
    };
    let mut lines = vec![format!("{} | {}", data.left, data.right)];
    lines.extend(data.variables.iter().map(|one| line("variable", one)));
    lines.extend(data.files.iter().map(|one| line("file", one)));
    lines.push(format!("{} instructions gave something else", data.outputs));
    lines.extend(data.cut.iter().map(|words| format!("[{words}]")));
    lines.join("\n")
}

fn adopt(call: &Call, input: AdoptInput) -> Result<Answer<AdoptOutput>> {
    let machine = call.machine(&input.machine)?;
    let from = place(call, &input.from)?;
    let AdoptInput { variables, files, force, .. } = input;
    let done = call.host.adopt(&machine, &from, Wanted { variables, files, force })?;
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
        Some(address) => vec![format!("{taken} taken over. [{address}]")],
        None => vec!["Nothing was taken over.".to_owned()],
    };
    lines.extend(data.conflicts.iter().map(|words| format!("both changed {words}")));
    lines.extend(data.failed.iter().map(|(name, why)| format!("{name}: {why}")));
    let failed = data.address.is_none();
    Ok(Answer { failed, ..Answer::new(data, cut(&lines.join("\n"), MAX_TEXT, "the result")) })
}

fn promote(call: &Call, input: PromoteInput) -> Result<Answer<PromoteOutput>> {
    let branch = call.machine(&input.machine)?;
    let onto = input.onto.as_deref().map(|name| call.machine(name)).transpose()?;
    let former = call.host.promote(&branch, onto.as_ref())?;
    let own = output::Machine::from(branch.describe());
    let former = former.name().to_string();
    let text = format!("The branch is {} now; what had that name is {former}.", own.name);
    Ok(Answer::new(PromoteOutput { machine: own.name, address: own.address, former }, text))
}
