//! The commands of the prompt: `:help`, `:undo` and the others.

use super::Repl;
use crate::commands::undo::Direction;
use crate::commands::{history, tree, undo};
use crate::failure::{CliFailure, Result};
use crate::show::{self, Table};
use serde_json::{Value, json};
use stasis_api::{Branches, MachineInfo, StepRequest};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplCommand {
    Help,
    Quit,
    Vars,
    Undo,
    Redo,
    Branch,
    Tree,
    History,
    Machine,
    Swap,
}

/// Each command, its name and its effect.
pub const WORDS: [(ReplCommand, &str, &str); 10] = [
    (ReplCommand::Help, "help", "this list"),
    (ReplCommand::Vars, "vars", "the machine's variables"),
    (ReplCommand::Undo, "undo", "undo the last instruction"),
    (ReplCommand::Redo, "redo", "redo the last undone instruction, as long as nothing new ran"),
    (ReplCommand::Branch, "branch", "create a machine that continues from here; this one stays"),
    (ReplCommand::Tree, "tree", "this machine's family"),
    (ReplCommand::History, "history", "instructions, and the states that are kept"),
    (ReplCommand::Machine, "machine", "about this machine"),
    (ReplCommand::Swap, "swap", "move the machine out of memory; the next instruction wakes it"),
    (ReplCommand::Quit, "quit", "leave; the machine keeps its state"),
];

impl ReplCommand {
    pub fn parse(text: &str) -> Result<ReplCommand> {
        let text = text.trim();
        let fits = |name: &str| name == text || (text.len() == 1 && name.starts_with(text));
        match WORDS.iter().find(|(_, name, _)| fits(name)) {
            Some((word, ..)) => Ok(*word),
            None => {
                let text = show::one_line(text, 40);
                Err(CliFailure::usage(format!("unknown command `:{text}`"))
                    .hint("`:help` lists the commands"))
            }
        }
    }

    pub fn obey(self, repl: &Repl) -> Result<()> {
        let path = |verb: &str| format!("/v1/machine/{}{verb}", repl.machine);
        match self {
            ReplCommand::Help => help(),
            ReplCommand::Quit => {}
            ReplCommand::Vars => vars(&repl.client.get(&path("/vars"))?),
            ReplCommand::Undo => step(repl, Direction::Undo)?,
            ReplCommand::Redo => step(repl, Direction::Redo)?,
            ReplCommand::Branch => branch(&repl.client.post(&path("/branch"), &json!({}))?),
            ReplCommand::Tree => {
                tree::print(repl.client, Some(&repl.machine.parse().map_err(no_name)?))?
            }
            ReplCommand::History => history::print(repl.client, &repl.machine, 50)?,
            ReplCommand::Machine => show::object(&repl.client.get::<Value>(&path(""))?),
            ReplCommand::Swap => {
                repl.client.post::<MachineInfo>(&path("/swap"), &json!({}))?;
                eprintln!("{} is swapped out", repl.machine);
            }
        }
        Ok(())
    }
}

fn step(repl: &Repl, direction: Direction) -> Result<()> {
    let machine = undo::step(repl.client, direction, &repl.machine, &StepRequest::default())?;
    undo::say_where(&machine, false);
    Ok(())
}

fn help() {
    for (_, name, about) in WORDS {
        show::say(&format!(":{name:<8} {about}"));
    }
    show::say("Ctrl-C interrupts the code and keeps the state; Ctrl-D exits.");
    show::say("A line that ends with `:` opens a block; a blank line ends it.");
}

fn no_name(error: impl std::fmt::Display) -> CliFailure {
    CliFailure::usage(error.to_string())
}

fn branch(made: &Branches) {
    for machine in &made.machines {
        show::say(machine.name.as_str());
        eprintln!("open it with `stasis repl {}`", machine.name);
    }
}

fn vars(answer: &Value) {
    let mut table = Table::new(["NAME", "TYPE", "SHAPE", "VALUE"]);
    let none = Vec::new();
    for var in answer["vars"].as_array().unwrap_or(&none) {
        let text = |key: &str| var[key].as_str().map(|text| show::one_line(text, 60));
        table.row(["name", "kind", "shape", "repr"].map(|key| text(key).unwrap_or_default()));
    }
    table.print();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_their_first_letters() {
        for (word, name, _) in WORDS {
            assert_eq!(ReplCommand::parse(name).unwrap(), word);
        }
        assert_eq!(ReplCommand::parse("q").unwrap(), ReplCommand::Quit);
        assert!(ReplCommand::parse("").is_err() && ReplCommand::parse("qu").is_err());
    }
}
