//! The two tools of foreverVM's MCP server, under the names that its users' prompts contain.
//!
//! Differences: a plot comes with its text, an error is an error of the result, and an unknown REPL
//! is answered at once.

use crate::answer::Answer;
use crate::call::{CallContext, InstructionRequest};
use crate::error::Result;
use crate::input::NoArguments;
use crate::output::{ForeverRan, ForeverRepl, RunOutput};
use crate::table::{Effect, ToolDescription, ToolEntry};
use rmcp::ErrorData;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde::Deserialize;
use stasis_api::Exec;
use std::sync::LazyLock;

/// The tools' names, which foreverVM's clients know.
const CREATE: &str = "create-python-repl";
pub const RUN: &str = "run-python-in-repl";

pub const INSTRUCTIONS: &str = "\
Create a REPL with create-python-repl and run code in it with run-python-in-repl. The REPL keeps \
its state between calls.";

pub static TOOLS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    let create = ToolDescription {
        name: CREATE,
        title: "Create a Python REPL",
        about: "Creates a Python REPL that keeps its state. Returns its id for \
                run-python-in-repl.",
        effect: Effect::Adds,
    };
    let run = ToolDescription {
        name: RUN,
        title: "Run Python in a REPL",
        about: "Runs Python code in the REPL with the id that create-python-repl returned. \
                Variables, imports and files of earlier calls persist.",
        effect: Effect::Adds,
    };
    vec![create.does(create_repl), run.runs(run_in_repl, in_their_words)]
});

#[derive(Debug, Deserialize, JsonSchema)]
pub struct ForeverRun {
    /// Python code to run.
    #[serde(rename = "pythonCode")]
    pub code: String,
    /// The REPL's id from `create-python-repl`.
    #[serde(rename = "replId")]
    pub repl_id: String,
}

/// Refuses arguments like foreverVM's server: with a protocol error.
pub fn check(name: &str, arguments: &JsonObject) -> std::result::Result<(), ErrorData> {
    if name != RUN {
        return Ok(());
    }
    let parsed = serde_json::from_value::<ForeverRun>(arguments.clone().into());
    let words = |error| ErrorData::internal_error(format!("Invalid arguments: {error}"), None);
    parsed.map(drop).map_err(words)
}

fn create_repl(call: &CallContext, _: NoArguments) -> Result<Answer<ForeverRepl>> {
    let repl_id = call.new_machine(None)?.name().to_string();
    Ok(Answer::new(ForeverRepl { repl_id: repl_id.clone() }, repl_id))
}

fn run_in_repl(input: ForeverRun) -> Result<InstructionRequest> {
    let exec = Exec { code: input.code, ..Exec::default() };
    Ok(InstructionRequest::new(Some(input.repl_id), exec))
}

fn in_their_words(answer: Answer<RunOutput>) -> Answer<ForeverRan> {
    let ran = answer.data;
    let parts = [ran.stdout, ran.stderr];
    let output: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
    let error = ran.error.map(|error| match error.traceback.is_empty() {
        true => format!("Error: {}: {}", error.name, error.message),
        false => format!("Error: {}", error.traceback),
    });
    let no_value = || "The code did not return a value.".to_owned();
    let result = match &error {
        Some(_) => String::new(),
        None => ran.value.unwrap_or_else(no_value),
    };
    let data = ForeverRan {
        output: output.join("\n"),
        result,
        error,
        repl_id: ran.machine,
        address: ran.address,
        receipt: ran.receipt,
    };
    let text = serde_json::to_string(&data).unwrap_or_default();
    Answer { images: answer.images, failed: answer.failed, ..Answer::new(data, text) }
}
