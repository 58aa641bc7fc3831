//! Results of tools as data. Fields are only ever added.

use crate::text::{MAX_TEXT, cut, first_line};
use schemars::JsonSchema;
use serde::Serialize;
use stasis_api::{Chunk, Data, Instruction, Receipt, Stream};
use std::collections::BTreeMap;

/// Prefix of a note about what a wake renewed.
const FRESH: &str = "made fresh: ";

/// How an instruction ended.
#[derive(Debug, Serialize, JsonSchema)]
pub struct RunOutput {
    /// The machine it ran on. Name it in the next call to continue.
    pub machine: String,
    /// `machine@seq`: the state after this instruction.
    pub address: String,
    /// `done`, `failed`, `interrupted`, `cancelled` or `lost`.
    pub status: String,
    pub stdout: String,
    pub stderr: String,
    /// The value of the last expression, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<FailureOutput>,
    /// Number of images in the result.
    pub images: usize,
    pub runtime_ms: f64,
    /// A description of each omitted part.
    pub cut: Vec<String>,
    pub receipt: Option<StateOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Failure")]
pub struct FailureOutput {
    /// The exception's class, or a code such as `machine.out_of_memory`.
    pub name: String,
    pub message: String,
    pub traceback: String,
}

/// The state of the machine.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Kept")]
pub struct StateOutput {
    /// Whether the state includes this instruction and all before it.
    pub intact: bool,
    /// The newest checkpoint on disk when this was written.
    pub durable: Option<String>,
    /// The loss, and its cause.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost: Option<String>,
    pub notes: Vec<String>,
}

impl From<&Receipt> for StateOutput {
    fn from(receipt: &Receipt) -> StateOutput {
        // reseeded generators are of no use to an agent
        StateOutput {
            intact: receipt.intact,
            durable: receipt.durable.as_ref().map(ToString::to_string),
            lost: receipt.lost.clone(),
            notes: receipt.notes.iter().filter(|note| !note.starts_with(FRESH)).cloned().collect(),
        }
    }
}

impl RunOutput {
    /// `pictures`: the number included, and the number omitted.
    pub fn new(
        machine: &str,
        end: &Instruction,
        chunks: &[Chunk],
        pictures: (usize, usize),
    ) -> RunOutput {
        let outcome = end.outcome.clone().unwrap_or_default();
        let whole = format!("stasis://machine/{machine}/instruction/{}", end.seq);
        let short = |text: &str| cut(text, MAX_TEXT, &whole);
        let error = outcome.error.map(|error| FailureOutput {
            name: error.name,
            message: short(&error.message),
            traceback: short(&error.traceback),
        });
        let left_out = Some(pictures.1).filter(|n| *n > 0);
        let left_out = left_out.map(|n| format!("{n} more images were left out"));
        let undrawn = undrawn(outcome.shown.iter().map(|shown| &shown.data).chain(&outcome.data));
        RunOutput {
            machine: machine.to_owned(),
            address: format!("{machine}@{}", end.seq),
            status: word(&end.status),
            stdout: short(&stream(chunks, Stream::Stdout)),
            stderr: short(&stream(chunks, Stream::Stderr)),
            value: outcome.value.as_deref().map(short),
            error,
            images: pictures.0,
            runtime_ms: outcome.runtime_ms,
            cut: outcome.cut.into_iter().chain(left_out).chain(undrawn).collect(),
            receipt: end.receipt.as_ref().map(StateOutput::from),
        }
    }

    /// The same as text.
    pub fn text(&self) -> String {
        let mut parts = Vec::new();
        let mut part = |title: &str, text: &str| {
            if !text.is_empty() {
                parts.push(format!("{title}{text}"));
            }
        };
        part("", &self.stdout);
        part("stderr:\n", &self.stderr);
        part("value: ", self.value.as_deref().unwrap_or_default());
        if let Some(error) = &self.error {
            let bare = || format!("{}: {}", error.name, error.message);
            let shown = Some(error.traceback.clone()).filter(|text| !text.is_empty());
            part("error:\n", &shown.unwrap_or_else(bare));
        }
        self.cut.iter().for_each(|cut| part("", &format!("[{cut}]")));
        part("", &self.last_line());
        parts.join("\n")
    }

    /// Address and receipt.
    fn last_line(&self) -> String {
        let mut line = format!("[{} {}, {:.0} ms", self.address, self.status, self.runtime_ms);
        match self.images {
            0 => {}
            1 => line += ", 1 image",
            images => line += &format!(", {images} images"),
        }
        if let Some(receipt) = &self.receipt {
            line += if receipt.intact { ", state kept" } else { ", state rolled back" };
            let words = receipt.lost.iter().chain(&receipt.notes);
            words.for_each(|words| line += &format!("; {words}"));
        }
        line + "]"
    }
}

/// Why a chart has no image, and what to do about it.
fn undrawn<'a>(mut shown: impl Iterator<Item = &'a Data>) -> Option<String> {
    let needs = |data: &Data| {
        let is = |start: &str| data.keys().any(|kind| kind.starts_with(start));
        match () {
            () if data.contains_key("image/png") => None,
            () if is("application/vnd.plotly") => Some(
                "a Plotly chart of this kind has no image here; draw it with matplotlib".to_owned(),
            ),
            () if is("application/vnd.vega") => {
                let package = stasis_agent::VEGA_PACKAGE;
                Some(format!("a Vega chart has no image here; install {package} to get one"))
            }
            () => None,
        }
    };
    shown.find_map(needs)
}

/// The lines of one stream, as text.
pub fn stream(chunks: &[Chunk], stream: Stream) -> String {
    let own = chunks.iter().filter(|chunk| chunk.stream == stream);
    own.map(|chunk| chunk.data.as_str()).collect::<Vec<_>>().join("\n")
}

/// The serialised name of an enum's value.
pub fn word(value: &impl Serialize) -> String {
    let value = serde_json::to_value(value).ok();
    value.and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
}

/// A machine.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Machine")]
pub struct MachineOutput {
    pub name: String,
    /// `machine@seq` of the last checkpoint on disk; absent before the first instruction.
    pub address: Option<String>,
    /// `ready`, `running` or `swapped` (out of memory; the next instruction wakes it).
    pub state: String,
    pub created_at: String,
    pub tags: BTreeMap<String, String>,
    pub template: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_mb: Option<u64>,
    /// Number of its instructions.
    pub instructions: u64,
    /// Whether instructions run or wait.
    pub pending: bool,
    /// The `machine@seq` it was branched from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Why it cannot leave memory, if it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pinned: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<UsageOutput>,
}

/// Resources that a machine in memory uses.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Usage")]
pub struct UsageOutput {
    pub memory_kib: Option<u64>,
    pub cpu_seconds: Option<f64>,
    pub processes: Option<u64>,
    pub disk_kib: Option<u64>,
}

impl From<stasis_api::Usage> for UsageOutput {
    fn from(usage: stasis_api::Usage) -> UsageOutput {
        UsageOutput {
            memory_kib: usage.memory_kib,
            cpu_seconds: usage.cpu_seconds,
            processes: usage.pids,
            disk_kib: usage.disk_kib,
        }
    }
}

impl From<stasis_api::MachineInfo> for MachineOutput {
    fn from(machine: stasis_api::MachineInfo) -> MachineOutput {
        let parent = |parent: stasis_api::Parent| {
            stasis_api::Address { machine: parent.machine, seq: parent.seq }.to_string()
        };
        MachineOutput {
            name: machine.name.to_string(),
            address: machine.checkpoint.map(|address| address.to_string()),
            state: word(&machine.state),
            created_at: machine.created_at.to_string(),
            tags: machine.tags,
            template: machine.template,
            memory_mb: machine.limits.memory_mb,
            instructions: machine.instructions,
            pending: machine.has_pending_instruction,
            parent: machine.parent.map(parent),
            pinned: machine.pinned,
            usage: None,
        }
    }
}

impl MachineOutput {
    /// One line about it.
    pub fn line(&self) -> String {
        let address = self.address.as_deref().unwrap_or("no checkpoint yet");
        let tags: Vec<_> = self.tags.iter().map(|(key, value)| format!(" {key}={value}")).collect();
        let count = self.instructions;
        format!("{} ({}, {count} instructions, {address}){}", self.name, self.state, tags.concat())
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct MachinesOutput {
    pub machines: Vec<MachineOutput>,
    /// Number of further machines.
    pub more: usize,
}

impl MachinesOutput {
    pub fn text(&self) -> String {
        let lines: Vec<_> = self.machines.iter().map(MachineOutput::line).collect();
        match (lines.is_empty(), self.more) {
            (true, _) => "There are no machines.".to_owned(),
            (false, 0) => lines.join("\n"),
            (false, more) => format!("{}\n[{more} more]", lines.join("\n")),
        }
    }
}

/// Something that was done to a machine.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ActionOutput {
    pub machine: String,
    /// `machine@seq` of the state it has on disk now, if it has one.
    pub address: Option<String>,
    /// Whether anything changed.
    pub done: bool,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct HistoryOutput {
    pub machine: String,
    /// `machine@seq` of the state it has on disk now.
    pub address: Option<String>,
    pub instructions: Vec<PastInstruction>,
}

/// An earlier instruction.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Past")]
pub struct PastInstruction {
    pub address: String,
    pub seq: u64,
    pub code: String,
    pub status: String,
    /// Whether `roll_back` and `branch_machine` can start from here.
    pub checkpoint: bool,
    /// Whether a later `undo` or `roll_back` undid it.
    pub undone: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Maximum characters of code, value and error in a history.
const MAX_PAST: usize = 2000;

impl PastInstruction {
    pub fn new(
        machine: &str,
        end: Instruction,
        checkpoint: Option<Option<String>>,
    ) -> PastInstruction {
        let address = format!("{machine}@{}", end.seq);
        let whole = format!("stasis://machine/{machine}/instruction/{}", end.seq);
        let short = |text: &str| cut(text, MAX_PAST, &whole);
        let outcome = end.outcome.unwrap_or_default();
        let error = outcome.error.map(|error| short(&format!("{}: {}", error.name, error.message)));
        PastInstruction {
            address,
            seq: end.seq,
            code: short(&end.code),
            status: word(&end.status),
            checkpoint: checkpoint.is_some(),
            undone: end.rolled_back,
            label: checkpoint.flatten(),
            value: outcome.value.as_deref().map(short),
            error,
        }
    }

    pub fn line(&self) -> String {
        let marks = [(self.undone, ", undone"), (self.checkpoint, ", checkpoint")];
        let marks: String = marks.iter().filter(|(set, _)| *set).map(|(_, mark)| *mark).collect();
        format!("{} ({}{marks}): {}", self.address, self.status, first_line(&self.code, 100))
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct VariablesOutput {
    pub machine: String,
    /// `machine@seq` of the state it has on disk.
    pub address: Option<String>,
    pub variables: Vec<VariableOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Variable")]
pub struct VariableOutput {
    pub name: String,
    /// Its type.
    pub kind: String,
    /// Shape or length, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shape: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    pub repr: String,
}

impl From<stasis_machine::Variable> for VariableOutput {
    fn from(own: stasis_machine::Variable) -> VariableOutput {
        let repr = cut(&own.repr, MAX_PAST, "the machine");
        VariableOutput { name: own.name, kind: own.kind, shape: own.shape, bytes: own.bytes, repr }
    }
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct TemplatesOutput {
    pub templates: Vec<TemplateOutput>,
}

#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Template")]
pub struct TemplateOutput {
    pub name: String,
    pub language: String,
    pub version: String,
}

/// A REPL, in foreverVM's form.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeverRepl {
    pub repl_id: String,
}

/// A result, in foreverVM's form.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForeverRan {
    pub output: String,
    pub result: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    pub repl_id: String,
    /// `machine@seq`: the state after this code.
    pub address: String,
    pub receipt: Option<StateOutput>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_chart_that_is_no_picture_says_what_to_do() {
        let data = |kinds: &[&str]| -> Data {
            kinds.iter().map(|kind| ((*kind).to_owned(), "x".into())).collect()
        };
        let plotly = "application/vnd.plotly.v1+json";
        let said = undrawn([data(&["text/plain"]), data(&[plotly])].iter()).expect("words");
        assert!(said.contains("Plotly") && said.contains("matplotlib"), "{said}");
        assert_eq!(undrawn([data(&[plotly, "image/png"])].iter()), None);
        let vega = undrawn([data(&["application/vnd.vegalite.v5+json"])].iter());
        assert!(vega.is_some_and(|said| said.contains("vl-convert-python")));
    }
}
