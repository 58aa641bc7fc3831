//! `stasis tree`: draws machines and their branches.

use super::watch;
use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show;
use serde::{Deserialize, Serialize};
use stasis_api::{Lineage, Name, Relative};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    /// Show only this machine's family [default: all]
    machine: Option<Name>,
    /// Refresh on every change
    #[arg(long)]
    watch: bool,
}

#[derive(Serialize, Deserialize)]
struct Families {
    families: Vec<Relative>,
}

pub fn run(args: Args, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let look = || look(&client, args.machine.as_ref(), context.json);
    if args.watch {
        return watch::again(&client, "&kind=machine.".into(), look);
    }
    look()?;
    Ok(ExitCode::SUCCESS)
}

/// Draws a machine's family, or all.
pub fn print(client: &Client, machine: Option<&Name>) -> Result<()> {
    look(client, machine, false)
}

fn look(client: &Client, machine: Option<&Name>, as_json: bool) -> Result<()> {
    let families = match machine {
        Some(machine) => {
            let lineage: Lineage = client.get(&format!("/v1/machine/{machine}/lineage"))?;
            vec![lineage.tree]
        }
        None => client.get::<Families>("/v1/lineage")?.families,
    };
    if as_json {
        show::json(&Families { families });
        return Ok(());
    }
    for family in &families {
        let mut lines = Vec::new();
        draw(family, "", "", machine, &mut lines);
        lines.iter().for_each(|line| show::say(line));
    }
    Ok(())
}

/// A machine and its branches below. `first` precedes its own line, `rest` theirs.
fn draw(one: &Relative, first: &str, rest: &str, own: Option<&Name>, lines: &mut Vec<String>) {
    let from = one.from.map(|seq| format!("@{seq} ")).filter(|_| !first.is_empty());
    let at = one.seq.map_or_else(|| " (new)".to_owned(), |seq| format!("@{seq}"));
    let mark = if own == Some(&one.machine) { " *" } else { "" };
    lines.push(format!("{first}{}{}{at}{mark}", from.unwrap_or_default(), one.machine));
    for (index, child) in one.children.iter().enumerate() {
        let last = index + 1 == one.children.len();
        let (branch, below) = if last { ("└── ", "    ") } else { ("├── ", "│   ") };
        draw(child, &format!("{rest}{branch}"), &format!("{rest}{below}"), own, lines);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, from: Option<u64>, children: Vec<Relative>) -> Relative {
        Relative { machine: name.parse().expect("a name"), from, seq: from, children }
    }

    #[test]
    fn branches_hang_below_their_machine() {
        let deep = one("b1", Some(4), vec![one("c", Some(0), Vec::new())]);
        let root = one("root", None, vec![deep, one("b2", None, Vec::new())]);
        let mut lines = Vec::new();
        draw(&root, "", "", Some(&"c".parse().expect("a name")), &mut lines);
        let want = ["root (new)", "├── @4 b1@4", "│   └── @0 c@0 *", "└── b2 (new)"];
        assert_eq!(lines, want);
    }
}
