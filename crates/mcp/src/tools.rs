//! Our tools: code, machines, and their history.

use crate::answer::Answer;
use crate::call::{CallContext, InstructionRequest};
use crate::error::{Error, Result};
use crate::input::*;
use crate::output::{
    self, ActionOutput, HistoryOutput, MachinesOutput, PastInstruction, RunOutput, TemplatesOutput,
    VariablesOutput,
};
use crate::packages;
use crate::table::{Effect, ToolDescription, ToolEntry};
use rmcp::model::JsonObject;
use stasis_agent::Language;
use stasis_api::{Exec, Name, NewMachine, Timeout, Update};
use stasis_machine::{Branch, CommandText, Machine, Steps};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Maximum machines and instructions in one answer.
const MAX_LIST: usize = 1000;
/// Packages come over a network.
const INSTALL_TIMEOUT: f64 = 600.0;

pub static TOOLS: LazyLock<Vec<ToolEntry>> = LazyLock::new(|| {
    let mut all = code();
    all.extend(machines());
    all.extend(crate::files::tools());
    all.extend(history());
    all.extend(crate::travel::tools());
    all
});

fn face(
    name: &'static str,
    title: &'static str,
    effect: Effect,
    about: &'static str,
) -> ToolDescription {
    ToolDescription { name, title, about, effect }
}

fn code() -> Vec<ToolEntry> {
    vec![
        face(
            "run_code",
            "Run code",
            Effect::Adds,
            "Runs code on a machine that keeps variables, imports, files and processes between \
             calls. Without a machine's name it creates one; name it in the next call to \
             continue. Returns output, the value of the last expression, plots as images, and \
             machine@seq, the state after it, for undo and branch_machine.",
        )
        .runs(run_code, as_it_is),
        face(
            "run_shell",
            "Run a shell command",
            Effect::Adds,
            "Runs a bash command in a machine, on the same files as its session. Returns the exit \
             code as the value.",
        )
        .runs(run_shell, by_exit_code),
        face(
            "install_packages",
            "Install packages",
            Effect::Adds,
            "Installs packages on a machine, with pip or npm, depending on its language. They stay \
             installed.",
        )
        .runs(install_packages, by_exit_code),
        face(
            "interrupt_machine",
            "Interrupt",
            Effect::Sets,
            "Interrupts the code that runs on a machine. The machine keeps its state.",
        )
        .does(interrupt),
        face(
            "list_variables",
            "List variables",
            Effect::Reads,
            "Lists the variables of a machine's session with types, sizes and short values.",
        )
        .does(variables),
    ]
}

fn machines() -> Vec<ToolEntry> {
    vec![
        face(
            "create_machine",
            "Create a machine",
            Effect::Adds,
            "Creates a machine with a chosen name, tags, memory limit or network.",
        )
        .does(create),
        face("list_machines", "List machines", Effect::Reads, "Lists machines, newest first.")
            .does(list),
        face(
            "inspect_machine",
            "Inspect a machine",
            Effect::Reads,
            "Shows one machine: state, tags, limits, memory and disk use.",
        )
        .does(inspect),
        face("tag_machine", "Tag a machine", Effect::Sets, "Adds, changes or removes tags.")
            .does(tag),
        face(
            "swap_machine",
            "Swap out a machine",
            Effect::Sets,
            "Moves an idle machine out of memory. The next instruction brings it back.",
        )
        .does(swap),
        face(
            "delete_machine",
            "Delete a machine",
            Effect::Destroys,
            "Deletes a machine with its state and history. This cannot be undone.",
        )
        .does(delete)
        .asks(about_deletion),
        face(
            "list_templates",
            "List templates",
            Effect::Reads,
            "Lists the templates that machines can start from.",
        )
        .does(templates),
    ]
}

fn history() -> Vec<ToolEntry> {
    vec![
        face(
            "show_history",
            "Show history",
            Effect::Reads,
            "Lists the instructions of a machine and the states that undo can return to.",
        )
        .does(show_history),
        face(
            "undo",
            "Undo",
            Effect::Destroys,
            "Returns a machine to its state before the last instruction, or after an earlier one: \
             variables, files and processes. The log keeps undone instructions.",
        )
        .does(undo),
        face(
            "redo",
            "Redo",
            Effect::Adds,
            "Redoes undone instructions, as long as nothing new ran on the machine.",
        )
        .does(redo),
        face(
            "roll_back",
            "Roll back",
            Effect::Destroys,
            "Returns a machine to its state after an earlier instruction. The log keeps later \
             instructions.",
        )
        .does(roll_back),
        face(
            "branch_machine",
            "Branch a machine",
            Effect::Adds,
            "Creates new machines that start from another machine's current state, or its state \
             after an earlier instruction.",
        )
        .does(branch),
    ]
}

/// Default timeout of an instruction.
pub fn timeout(seconds: Option<f64>) -> Result<Timeout> {
    let Some(seconds) = seconds else { return Ok(Timeout::Default) };
    if seconds > 0.0 && Duration::try_from_secs_f64(seconds).is_ok() {
        return Ok(Timeout::Seconds(seconds));
    }
    Err(Error::Invalid("timeout_seconds must be more than 0".into()))
}

fn run_code(input: RunCode) -> Result<InstructionRequest> {
    let timeout = timeout(input.timeout_seconds)?;
    let exec = Exec { code: input.code, timeout, ..Exec::default() };
    let Some(language) = input.language else {
        return Ok(InstructionRequest::new(input.machine, exec));
    };
    let language = known_language(&language)?;
    let write = move |machine: &Machine| match machine.language() {
        own if own.name() == language.name() => Ok(exec.code),
        own => Err(other_language(own, language)),
    };
    let request = InstructionRequest::written(input.machine, timeout, write);
    // the template of a language has its name
    Ok(InstructionRequest { template: Some(language.name().to_owned()), ..request })
}

fn known_language(name: &str) -> Result<&'static dyn Language> {
    stasis_agent::language(&name.to_lowercase()).ok_or_else(|| {
        let known: Vec<_> = stasis_agent::LANGUAGES.iter().map(|one| one.name()).collect();
        let name = crate::text::first_line(name, 80);
        Error::Invalid(format!("unknown language `{name}`; machines run {}", known.join(" and ")))
    })
}

fn other_language(own: &dyn Language, wanted: &dyn Language) -> Error {
    let (own, wanted) = (own.name(), wanted.name());
    Error::Invalid(format!(
        "this machine runs {own}, not {wanted}: leave `machine` out for a new {wanted} machine"
    ))
}

fn as_it_is(answer: Answer<RunOutput>) -> Answer<RunOutput> {
    answer
}

fn run_shell(input: RunShell) -> Result<InstructionRequest> {
    if input.command.trim().is_empty() {
        return Err(Error::Invalid("command is empty".into()));
    }
    let timeout = timeout(input.timeout_seconds)?;
    let write = move |machine: &Machine| {
        machine.may_start(CommandText::Shell(&input.command))?;
        Ok(machine.language().shell(&input.command))
    };
    Ok(InstructionRequest::written(input.machine, timeout, write))
}

fn install_packages(input: InstallPackages) -> Result<InstructionRequest> {
    let timeout = Timeout::Seconds(INSTALL_TIMEOUT);
    let write = move |machine: &Machine| packages::install(machine, &input.packages);
    Ok(InstructionRequest::written(Some(input.machine), timeout, write))
}

/// A command with a failing exit code counts as failed.
fn by_exit_code(mut answer: Answer<RunOutput>) -> Answer<RunOutput> {
    let fine = answer.data.value.as_deref().is_none_or(|code| code == "0");
    answer.failed |= !fine;
    answer
}

fn interrupt(call: &CallContext, input: OneMachine) -> Result<Answer<ActionOutput>> {
    let machine = call.machine(&input.machine)?;
    let ran = machine.interrupt()?;
    let words =
        if ran { "was interrupted and keeps its state" } else { "was not running anything" };
    Ok(done(&machine, ran, words))
}

fn done(machine: &Arc<Machine>, done: bool, words: &str) -> Answer<ActionOutput> {
    let now = output::MachineOutput::from(machine.describe());
    let address = now.address.as_deref().map(|at| format!(" [{at}]")).unwrap_or_default();
    let text = format!("{} {words}.{address}", now.name);
    Answer::new(ActionOutput { machine: now.name, address: now.address, done }, text)
}

fn variables(call: &CallContext, input: OneMachine) -> Result<Answer<VariablesOutput>> {
    let machine = call.machine(&input.machine)?;
    let variables: Vec<_> = call.host.vars(&machine)?.into_iter().map(Into::into).collect();
    let line = |one: &output::VariableOutput| {
        let shape = one.shape.as_deref().map(|shape| format!(" {shape}")).unwrap_or_default();
        format!("{}: {}{shape} = {}", one.name, one.kind, crate::text::first_line(&one.repr, 200))
    };
    let lines: Vec<_> = variables.iter().map(line).collect();
    let now = output::MachineOutput::from(machine.describe());
    let text = if lines.is_empty() { "No variables.".into() } else { lines.join("\n") };
    let text = crate::text::cut(&text, crate::text::MAX_TEXT, "the machine");
    let data = VariablesOutput { machine: now.name, address: now.address, variables };
    Ok(Answer::new(data, text))
}

fn name(text: &str) -> Result<Name> {
    text.parse().map_err(|error: stasis_api::NameError| Error::Invalid(error.to_string()))
}

fn create(call: &CallContext, input: CreateMachine) -> Result<Answer<output::MachineOutput>> {
    let new = NewMachine {
        name: input.name.as_deref().map(name).transpose()?,
        tags: input.tags,
        memory_mb: input.memory_mb,
        template: input.template,
        network: input.network.map(Into::into),
        ..NewMachine::default()
    };
    let machine = call.host.create(&call.account, new)?;
    Ok(described(&machine))
}

fn described(machine: &Arc<Machine>) -> Answer<output::MachineOutput> {
    let machine = output::MachineOutput::from(machine.describe());
    let text = machine.line();
    Answer::new(machine, text)
}

fn list(call: &CallContext, input: ListMachines) -> Result<Answer<MachinesOutput>> {
    let limit = input.limit.map_or(100, |limit| limit as usize).min(MAX_LIST);
    let tagged = |machine: &stasis_api::MachineInfo| {
        input.tags.iter().all(|(key, value)| machine.tags.get(key) == Some(value))
    };
    let all = call.machines().map(|machine| machine.describe()).filter(tagged);
    let mut machines: Vec<_> = all.map(output::MachineOutput::from).collect();
    let more = machines.len().saturating_sub(limit);
    machines.truncate(limit);
    let data = MachinesOutput { machines, more };
    let text = crate::text::cut(&data.text(), crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(data, text))
}

fn inspect(call: &CallContext, input: OneMachine) -> Result<Answer<output::MachineOutput>> {
    let machine = call.machine(&input.machine)?;
    let mut answer = described(&machine);
    // a busy machine reports its usage only after its instruction
    if !answer.data.pending && answer.data.state == "ready" {
        answer.data.usage = Some(call.host.usage(&machine)?.into());
    }
    answer.text = serde_json::to_string_pretty(&answer.data).unwrap_or(answer.text);
    Ok(answer)
}

fn tag(call: &CallContext, input: TagMachine) -> Result<Answer<output::MachineOutput>> {
    let machine = call.machine(&input.machine)?;
    let mut tags = machine.describe().tags;
    input.remove.iter().for_each(|key| drop(tags.remove(key)));
    tags.extend(input.set);
    call.host.update(&machine, Update { tags: Some(tags), ..Update::default() })?;
    Ok(described(&machine))
}

fn swap(call: &CallContext, input: OneMachine) -> Result<Answer<ActionOutput>> {
    let machine = call.machine(&input.machine)?;
    let was_in = machine.describe().running;
    call.host.swap(&machine)?;
    Ok(done(&machine, was_in, "is swapped out; the next instruction wakes it"))
}

fn delete(call: &CallContext, input: OneMachine) -> Result<Answer<ActionOutput>> {
    let machine = call.machine(&input.machine)?;
    let name = machine.name().to_string();
    call.host.remove(&machine)?;
    let text = format!("{name} is deleted.");
    Ok(Answer::new(ActionOutput { machine: name, address: None, done: true }, text))
}

fn about_deletion(arguments: &JsonObject) -> String {
    let name = arguments.get("machine").and_then(|name| name.as_str()).unwrap_or_default();
    let name = crate::text::first_line(name, 80);
    format!("Delete the machine {name}? Its state and history will be lost.")
}

fn templates(call: &CallContext, _: NoArguments) -> Result<Answer<TemplatesOutput>> {
    let one = |template: stasis_api::TemplateInfo| output::TemplateOutput {
        name: template.name,
        language: template.language,
        version: template.version,
    };
    let templates: Vec<_> = call.host.templates()?.into_iter().map(one).collect();
    let line =
        |one: &output::TemplateOutput| format!("{} ({} {})", one.name, one.language, one.version);
    let text = templates.iter().map(line).collect::<Vec<_>>().join("\n");
    Ok(Answer::new(TemplatesOutput { templates }, text))
}

fn show_history(call: &CallContext, input: ShowHistory) -> Result<Answer<HistoryOutput>> {
    let machine = call.machine(&input.machine)?;
    let now = output::MachineOutput::from(machine.describe());
    let limit = input.limit.unwrap_or(20).min(MAX_LIST as u64);
    let from = input.from.unwrap_or_else(|| now.instructions.saturating_sub(limit));
    let checkpoints = call.host.history(&machine)?.into_iter();
    let mut labels: HashMap<_, _> = checkpoints.map(|one| (one.seq, one.label)).collect();
    let past = machine.instructions(from, limit)?.into_iter().map(|instruction| {
        let checkpoint = labels.remove(&instruction.seq);
        PastInstruction::new(&now.name, instruction, checkpoint)
    });
    let instructions: Vec<_> = past.collect();
    let lines: Vec<_> = instructions.iter().map(PastInstruction::line).collect();
    let text = if lines.is_empty() { "No instructions yet.".into() } else { lines.join("\n") };
    let text = crate::text::cut(&text, crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(HistoryOutput { machine: now.name, address: now.address, instructions }, text))
}

fn undo(call: &CallContext, input: Undo) -> Result<Answer<ActionOutput>> {
    let (machine, seq) = call.state(&input.machine)?;
    if let Some(seq) = input.seq.or(seq) {
        return back_to(call, &machine, Some(seq));
    }
    let steps = steps(input.n)?;
    call.host.undo(&machine, steps)?;
    let words = match steps.n {
        1 => "is back before its last instruction".to_owned(),
        n => format!("is back before its last {n} instructions"),
    };
    Ok(done(&machine, true, &words))
}

fn redo(call: &CallContext, input: Redo) -> Result<Answer<ActionOutput>> {
    let (machine, _) = call.state(&input.machine)?;
    let steps = steps(input.n)?;
    call.host.redo(&machine, steps)?;
    Ok(done(&machine, true, "has redone the undone instructions"))
}

fn steps(n: Option<u64>) -> Result<Steps> {
    let n = n.unwrap_or(1);
    stasis_api::within("n", &n, stasis_api::STEPS).map_err(stasis_machine::Error::from)?;
    Ok(Steps { n: n as usize, grouped: false })
}

fn roll_back(call: &CallContext, input: RollBack) -> Result<Answer<ActionOutput>> {
    let (machine, seq) = call.state(&input.machine)?;
    back_to(call, &machine, input.seq.or(seq))
}

fn back_to(
    call: &CallContext,
    machine: &Arc<Machine>,
    seq: Option<u64>,
) -> Result<Answer<ActionOutput>> {
    call.host.roll_back(machine, seq)?;
    let words = match seq {
        Some(seq) => format!("is back at the state after instruction {seq}"),
        None => "is back at its first state".to_owned(),
    };
    Ok(done(machine, true, &words))
}

fn branch(call: &CallContext, input: BranchMachine) -> Result<Answer<MachinesOutput>> {
    let (source, seq) = call.state(&input.machine)?;
    let n = input.n.map_or(input.names.len().max(1), |n| n as usize);
    if n > stasis_machine::MAX_BRANCHES || input.names.len() > n {
        let words = format!(
            "n is at least the number of names and at most {}",
            stasis_machine::MAX_BRANCHES
        );
        return Err(Error::Invalid(words));
    }
    let names: Result<Vec<_>> = input.names.iter().map(|text| name(text).map(Some)).collect();
    let mut names = names?;
    names.resize(n, None);
    let branch = Branch { seq: input.seq.or(seq), names, tags: input.tags, ..Branch::default() };
    let made = call.host.branch(&source, branch)?;
    let machines = made.iter().map(|machine| machine.describe().into()).collect();
    let data = MachinesOutput { machines, more: 0 };
    let text = crate::text::cut(&data.text(), crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(data, text))
}
