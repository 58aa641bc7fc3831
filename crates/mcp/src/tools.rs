//! Our tools: code, machines, and their history.

use crate::answer::Answer;
use crate::call::{Call, Wanted};
use crate::error::{Error, Result};
use crate::input::*;
use crate::output::{self, Done, History, Machines, Past, Ran, Templates, Variables};
use crate::shell;
use crate::table::{Effect, Entry, Face};
use rmcp::model::JsonObject;
use stasis_api::{Exec, Name, NewMachine, Timeout, Update};
use stasis_machine::{Branch, Machine};
use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// Machines and instructions in one answer.
const MAX_LIST: usize = 1000;
/// Packages come over a network.
const INSTALL_TIMEOUT: f64 = 600.0;

pub static TOOLS: LazyLock<Vec<Entry>> = LazyLock::new(|| {
    let mut all = code();
    all.extend(machines());
    all.extend(crate::files::tools());
    all.extend(history());
    all.extend(crate::travel::tools());
    all
});

fn face(name: &'static str, title: &'static str, effect: Effect, about: &'static str) -> Face {
    Face { name, title, about, effect }
}

fn code() -> Vec<Entry> {
    vec![
        face(
            "run_code",
            "Run code",
            Effect::Adds,
            "Runs code on a machine that keeps everything between calls: variables, imports, \
             files, processes. Without a machine's name a new one is made; name it in the next \
             call to go on. Returns output, the value of the last expression, plots as images, and \
             machine@seq, a state that roll_back and branch_machine can return to.",
        )
        .runs(run_code, as_it_is),
        face(
            "run_shell",
            "Run a shell command",
            Effect::Adds,
            "Runs a bash command in a machine, beside its Python session and on the same files. \
             The value is the exit code.",
        )
        .runs(run_shell, by_exit_code),
        face(
            "install_packages",
            "Install packages",
            Effect::Adds,
            "Installs Python packages on a machine with pip. They stay, like everything else.",
        )
        .runs(install_packages, by_exit_code),
        face(
            "interrupt_machine",
            "Interrupt",
            Effect::Sets,
            "Interrupts the code that runs on a machine. Its state is kept.",
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

fn machines() -> Vec<Entry> {
    vec![
        face(
            "create_machine",
            "Create a machine",
            Effect::Adds,
            "Makes a machine with a name, tags or a memory limit of your choice.",
        )
        .does(create),
        face("list_machines", "List machines", Effect::Reads, "Lists machines, the newest first.")
            .does(list),
        face(
            "inspect_machine",
            "Inspect a machine",
            Effect::Reads,
            "Tells everything about one machine: state, tags, limits, use of memory and disk.",
        )
        .does(inspect),
        face("tag_machine", "Tag a machine", Effect::Sets, "Adds, changes or removes tags.")
            .does(tag),
        face(
            "swap_machine",
            "Swap out a machine",
            Effect::Sets,
            "Moves an idle machine out of memory. The next instruction brings it back as it was.",
        )
        .does(swap),
        face(
            "delete_machine",
            "Delete a machine",
            Effect::Destroys,
            "Ends a machine and forgets its state and history for good.",
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

fn history() -> Vec<Entry> {
    vec![
        face(
            "show_history",
            "Show history",
            Effect::Reads,
            "Lists what was run on a machine, and which states can be returned to.",
        )
        .does(show_history),
        face(
            "undo",
            "Undo",
            Effect::Destroys,
            "Takes a machine back to its state before the last instruction: variables, files and \
             processes. The log keeps what was undone.",
        )
        .does(undo),
        face(
            "roll_back",
            "Roll back",
            Effect::Destroys,
            "Takes a machine back to its state after an earlier instruction. The log keeps what \
             came later.",
        )
        .does(roll_back),
        face(
            "branch_machine",
            "Branch a machine",
            Effect::Adds,
            "Makes new machines that start from the state of another, now or after an earlier \
             instruction, so that several ways can be tried from there.",
        )
        .does(branch),
    ]
}

/// How long an instruction may run.
pub fn timeout(seconds: Option<f64>) -> Result<Timeout> {
    let Some(seconds) = seconds else { return Ok(Timeout::Default) };
    if seconds > 0.0 && Duration::try_from_secs_f64(seconds).is_ok() {
        return Ok(Timeout::Seconds(seconds));
    }
    Err(Error::Invalid("timeout_seconds must be more than 0".into()))
}

fn run_code(input: RunCode) -> Result<Wanted> {
    let Language::Python = input.language;
    let timeout = timeout(input.timeout_seconds)?;
    Ok(Wanted::new(input.machine, Exec { code: input.code, timeout, ..Exec::default() }))
}

fn as_it_is(answer: Answer<Ran>) -> Answer<Ran> {
    answer
}

fn run_shell(input: RunShell) -> Result<Wanted> {
    if input.command.trim().is_empty() {
        return Err(Error::Invalid("command is empty".into()));
    }
    let timeout = timeout(input.timeout_seconds)?;
    let exec = Exec { code: shell::command(&input.command), timeout, ..Exec::default() };
    Ok(Wanted::new(input.machine, exec))
}

fn install_packages(input: InstallPackages) -> Result<Wanted> {
    let timeout = Timeout::Seconds(INSTALL_TIMEOUT);
    let exec = Exec { code: shell::install(&input.packages)?, timeout, ..Exec::default() };
    Ok(Wanted::new(Some(input.machine), exec))
}

/// A command that says it failed has failed.
fn by_exit_code(mut answer: Answer<Ran>) -> Answer<Ran> {
    let fine = answer.data.value.as_deref().is_none_or(|code| code == "0");
    answer.failed |= !fine;
    answer
}

fn interrupt(call: &Call, input: OneMachine) -> Result<Answer<Done>> {
    let machine = call.machine(&input.machine)?;
    let ran = machine.interrupt()?;
    let words = if ran { "was interrupted; its state is kept" } else { "was not running anything" };
    Ok(done(&machine, ran, words))
}

fn done(machine: &Arc<Machine>, done: bool, words: &str) -> Answer<Done> {
    let now = output::Machine::from(machine.describe());
    let address = now.address.as_deref().map(|at| format!(" [{at}]")).unwrap_or_default();
    let text = format!("{} {words}.{address}", now.name);
    Answer::new(Done { machine: now.name, address: now.address, done }, text)
}

fn variables(call: &Call, input: OneMachine) -> Result<Answer<Variables>> {
    let machine = call.machine(&input.machine)?;
    let variables: Vec<_> = call.host.vars(&machine)?.into_iter().map(Into::into).collect();
    let line = |one: &output::Variable| {
        let shape = one.shape.as_deref().map(|shape| format!(" {shape}")).unwrap_or_default();
        format!("{}: {}{shape} = {}", one.name, one.kind, crate::text::glance(&one.repr, 200))
    };
    let lines: Vec<_> = variables.iter().map(line).collect();
    let now = output::Machine::from(machine.describe());
    let text = if lines.is_empty() { "There are no variables.".into() } else { lines.join("\n") };
    let text = crate::text::cut(&text, crate::text::MAX_TEXT, "the machine");
    let data = Variables { machine: now.name, address: now.address, variables };
    Ok(Answer::new(data, text))
}

fn name(text: &str) -> Result<Name> {
    text.parse().map_err(|error: stasis_api::NameError| Error::Invalid(error.to_string()))
}

fn create(call: &Call, input: CreateMachine) -> Result<Answer<output::Machine>> {
    let new = NewMachine {
        name: input.name.as_deref().map(name).transpose()?,
        tags: input.tags,
        memory_mb: input.memory_mb,
        template: input.template,
        ..NewMachine::default()
    };
    let machine = call.host.create(&call.account, new)?;
    Ok(described(&machine))
}

fn described(machine: &Arc<Machine>) -> Answer<output::Machine> {
    let machine = output::Machine::from(machine.describe());
    let text = machine.line();
    Answer::new(machine, text)
}

fn list(call: &Call, input: ListMachines) -> Result<Answer<Machines>> {
    let limit = input.limit.map_or(100, |limit| limit as usize).min(MAX_LIST);
    let tagged = |machine: &stasis_api::Machine| {
        input.tags.iter().all(|(key, value)| machine.tags.get(key) == Some(value))
    };
    let all = call.machines().map(|machine| machine.describe()).filter(tagged);
    let mut machines: Vec<_> = all.map(output::Machine::from).collect();
    let more = machines.len().saturating_sub(limit);
    machines.truncate(limit);
    let data = Machines { machines, more };
    let text = crate::text::cut(&data.text(), crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(data, text))
}

fn inspect(call: &Call, input: OneMachine) -> Result<Answer<output::Machine>> {
    let machine = call.machine(&input.machine)?;
    let mut answer = described(&machine);
    // a machine that runs something answers questions about its use only when that is over
    if !answer.data.pending && answer.data.state == "ready" {
        answer.data.usage = Some(call.host.usage(&machine)?.into());
    }
    answer.text = serde_json::to_string_pretty(&answer.data).unwrap_or(answer.text);
    Ok(answer)
}

fn tag(call: &Call, input: TagMachine) -> Result<Answer<output::Machine>> {
    let machine = call.machine(&input.machine)?;
    let mut tags = machine.describe().tags;
    input.remove.iter().for_each(|key| drop(tags.remove(key)));
    tags.extend(input.set);
    call.host.update(&machine, Update { tags: Some(tags), ..Update::default() })?;
    Ok(described(&machine))
}

fn swap(call: &Call, input: OneMachine) -> Result<Answer<Done>> {
    let machine = call.machine(&input.machine)?;
    let was_in = machine.describe().running;
    call.host.swap(&machine)?;
    Ok(done(&machine, was_in, "is out of memory; the next instruction wakes it"))
}

fn delete(call: &Call, input: OneMachine) -> Result<Answer<Done>> {
    let machine = call.machine(&input.machine)?;
    let name = machine.name().to_string();
    call.host.remove(&machine)?;
    let text = format!("{name} is deleted.");
    Ok(Answer::new(Done { machine: name, address: None, done: true }, text))
}

fn about_deletion(arguments: &JsonObject) -> String {
    let name = arguments.get("machine").and_then(|name| name.as_str()).unwrap_or_default();
    let name = crate::text::glance(name, 80);
    format!("Delete the machine {name}? Its state and its history are gone then.")
}

fn templates(call: &Call, _: Nothing) -> Result<Answer<Templates>> {
    let one = |template: stasis_api::Template| output::Template {
        name: template.name,
        language: template.language,
        version: template.version,
    };
    let templates: Vec<_> = call.host.templates()?.into_iter().map(one).collect();
    let line = |one: &output::Template| format!("{} ({} {})", one.name, one.language, one.version);
    let text = templates.iter().map(line).collect::<Vec<_>>().join("\n");
    Ok(Answer::new(Templates { templates }, text))
}

fn show_history(call: &Call, input: ShowHistory) -> Result<Answer<History>> {
    let machine = call.machine(&input.machine)?;
    let now = output::Machine::from(machine.describe());
    let limit = input.limit.unwrap_or(20).min(MAX_LIST as u64);
    let from = input.from.unwrap_or_else(|| now.instructions.saturating_sub(limit));
    let checkpoints = call.host.history(&machine)?.into_iter();
    let mut labels: HashMap<_, _> = checkpoints.map(|one| (one.seq, one.label)).collect();
    let past = machine.instructions(from, limit)?.into_iter().map(|instruction| {
        let checkpoint = labels.remove(&instruction.seq);
        Past::new(&now.name, instruction, checkpoint)
    });
    let instructions: Vec<_> = past.collect();
    let lines: Vec<_> = instructions.iter().map(Past::line).collect();
    let text = if lines.is_empty() { "Nothing was run yet.".into() } else { lines.join("\n") };
    let text = crate::text::cut(&text, crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(History { machine: now.name, address: now.address, instructions }, text))
}

fn undo(call: &Call, input: OneMachine) -> Result<Answer<Done>> {
    let machine = call.machine(&input.machine)?;
    call.host.undo(&machine)?;
    Ok(done(&machine, true, "is back before its last instruction"))
}

fn roll_back(call: &Call, input: RollBack) -> Result<Answer<Done>> {
    let machine = call.machine(&input.machine)?;
    call.host.roll_back(&machine, input.seq)?;
    let words = match input.seq {
        Some(seq) => format!("is back after instruction {seq}"),
        None => "is back at its beginning".to_owned(),
    };
    Ok(done(&machine, true, &words))
}

fn branch(call: &Call, input: BranchMachine) -> Result<Answer<Machines>> {
    let source = call.machine(&input.machine)?;
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
    let branch = Branch { seq: input.seq, names, tags: input.tags, ..Branch::default() };
    let made = call.host.branch(&source, branch)?;
    let machines = made.iter().map(|machine| machine.describe().into()).collect();
    let data = Machines { machines, more: 0 };
    let text = crate::text::cut(&data.text(), crate::text::MAX_TEXT, "the structured result");
    Ok(Answer::new(data, text))
}
