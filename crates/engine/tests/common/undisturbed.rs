//! A conversation with an undisturbed program.

use super::program::History;
use super::{Bench, Failure, Program, Result, Spec};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex};

/// A program's command line, whether it is sandboxed, and its questions.
type Question = (String, bool, Vec<String>);
type Answers = Arc<Mutex<Option<Vec<String>>>>;

/// Many events say the same words.
static KNOWN: LazyLock<Mutex<HashMap<Question, Answers>>> = LazyLock::new(Mutex::default);

/// Compares everything a program answered in its life, across captures and restores, with an
/// undisturbed run of the same commands; then lets it end.
pub fn same_as_undisturbed(bench: &Bench, spec: &Spec, program: Program) -> Result<()> {
    let history = program.history.clone();
    program.quit()?;
    let expected = undisturbed(bench, spec, &history)?;
    for (index, ((command, got), expected)) in history.iter().zip(&expected).enumerate() {
        if got != expected {
            let name = &spec.name;
            return Err(Failure::Program(format!(
                "{name} answers `{command}` (the {index}th) with {got}; undisturbed with {expected}"
            )));
        }
    }
    Ok(())
}

fn undisturbed(bench: &Bench, spec: &Spec, history: &History) -> Result<Vec<String>> {
    let commands: Vec<String> = history.iter().map(|(command, _)| command.clone()).collect();
    let key = (spec.launch_spec()?.argv.join(" "), bench.is_walled(), commands.clone());
    let answers = {
        let mut known = KNOWN.lock().unwrap_or_else(|poison| poison.into_inner());
        known.entry(key).or_default().clone()
    };
    let mut answers = answers.lock().unwrap_or_else(|poison| poison.into_inner());
    if let Some(answers) = &*answers {
        return Ok(answers.clone());
    }
    let mut program = bench.launch(spec)?;
    for command in &commands {
        program.ask(command)?;
    }
    let got: Vec<String> = program.history.iter().map(|(_, answer)| answer.clone()).collect();
    program.quit()?;
    *answers = Some(got.clone());
    Ok(got)
}
