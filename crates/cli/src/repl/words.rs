//! The words of the prompt: `:help`, `:undo` and the others.

use super::Repl;
use crate::commands::{history, tree, undo};
use crate::failure::{Failure, Result};
use crate::show::{self, Table};
use serde_json::{Value, json};
use stasis_api::{Branches, Machine};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Word {
    Help,
    Quit,
    Vars,
    Undo,
    Branch,
    Tree,
    History,
    Machine,
    Swap,
}

/// Each word, its name, and what it does.
pub const WORDS: [(Word, &str, &str); 9] = [
    (Word::Help, "help", "this list"),
    (Word::Vars, "vars", "the machine's variables"),
    (Word::Undo, "undo", "take back the last instruction"),
    (Word::Branch, "branch", "make a machine that goes on from here; this one stays"),
    (Word::Tree, "tree", "this machine's family"),
    (Word::History, "history", "what was run, and which states are kept"),
    (Word::Machine, "machine", "about this machine"),
    (Word::Swap, "swap", "move the machine out of memory; the next instruction wakes it"),
    (Word::Quit, "quit", "leave; the machine stays as it is"),
];

impl Word {
    pub fn parse(text: &str) -> Result<Word> {
        let text = text.trim();
        let fits = |name: &str| name == text || (text.len() == 1 && name.starts_with(text));
        match WORDS.iter().find(|(_, name, _)| fits(name)) {
            Some((word, ..)) => Ok(*word),
            None => {
                let text = show::one_line(text, 40);
                Err(Failure::usage(format!("there is no `:{text}`"))
                    .hint("`:help` lists the words"))
            }
        }
    }

    pub fn obey(self, repl: &Repl) -> Result<()> {
        let path = |verb: &str| format!("/v1/machine/{}{verb}", repl.machine);
        match self {
            Word::Help => help(),
            Word::Quit => {}
            Word::Vars => vars(&repl.client.get(&path("/vars"))?),
            Word::Undo => undo::say_where(&undo::undo(repl.client, &repl.machine)?, false),
            Word::Branch => branch(&repl.client.post(&path("/branch"), &json!({}))?),
            Word::Tree => tree::print(repl.client, Some(&repl.machine.parse().map_err(no_name)?))?,
            Word::History => history::print(repl.client, &repl.machine, 50)?,
            Word::Machine => show::object(&repl.client.get::<Value>(&path(""))?),
            Word::Swap => {
                repl.client.post::<Machine>(&path("/swap"), &json!({}))?;
                eprintln!("{} is out of memory", repl.machine);
            }
        }
        Ok(())
    }
}

fn help() {
    for (_, name, about) in WORDS {
        show::say(&format!(":{name:<8} {about}"));
    }
    show::say("Ctrl-C interrupts what runs and keeps the state; Ctrl-D leaves.");
    show::say("A line that ends with `:` opens a block; a blank line ends it.");
}

fn no_name(error: impl std::fmt::Display) -> Failure {
    Failure::usage(error.to_string())
}

fn branch(made: &Branches) {
    for machine in &made.machines {
        show::say(machine.name.as_str());
        eprintln!("`stasis repl {}` talks to it", machine.name);
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
            assert_eq!(Word::parse(name).unwrap(), word);
        }
        assert_eq!(Word::parse("q").unwrap(), Word::Quit);
        assert!(Word::parse("").is_err() && Word::parse("qu").is_err());
    }
}
