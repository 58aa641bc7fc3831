//! `stasis policy`: named policies of the service, and files with them.

use super::pairs;
use crate::client::escape;
use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::show::{self, Table, age, one_line};
use clap::Subcommand;
use serde_json::json;
use stasis_api::{Explanation, Name, PolicyDocument, PolicyInfo, PolicyList, PolicyRules};
use stasis_policy::document::{self, Policy, PolicyFault};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum PolicyCommand {
    /// Create or replace a policy; it applies to running machines at once
    Set {
        name: Name,
        /// TOML or JSON; `-` is standard input
        file: PathBuf,
    },
    /// List policies
    Ls,
    /// Print a policy as TOML
    Show { name: Name },
    /// Remove a policy that no machine has
    Rm { name: Name },
    /// Check a file without a service
    Check { file: PathBuf },
    /// Run the tests in a file without a service
    Test { file: PathBuf },
    /// Show which rule decides about a request of a machine
    Explain {
        machine: Name,
        action: ExplainedAction,
        /// A URL (http, https, tcp or udp) to fetch, or a module (npm, jsr or https) to import
        object: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExplainedAction {
    /// Connect to the host of a URL
    Fetch,
    /// Import a module through the service
    Import,
}

impl PolicyCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        match self {
            PolicyCommand::Set { name, file } => set(&name, &file, context),
            PolicyCommand::Ls => list(context),
            PolicyCommand::Show { name } => print(&name, context),
            PolicyCommand::Rm { name } => {
                let answer = context.client()?.delete(&format!("/v1/policies/{name}"))?;
                match context.json {
                    true => show::json(&answer),
                    false => eprintln!("removed {name}"),
                }
                Ok(ExitCode::SUCCESS)
            }
            PolicyCommand::Check { file } => check(&file, context),
            PolicyCommand::Test { file } => test(&file, context),
            PolicyCommand::Explain { machine, action, object } => {
                explain(&machine, action, &object, context)
            }
        }
    }
}

/// Reads and checks a file.
fn read(file: &Path) -> Result<PolicyDocument> {
    let wrong = |fault: PolicyFault| {
        let message = format!("{}: {fault}", file.display());
        CliFailure::new("policy.invalid", message).exit(Exit::Usage)
    };
    let text = pairs::code(None, Some(&file.to_string_lossy()))?;
    let document = document::parse(&text).map_err(wrong)?;
    let name: Name = "checked".parse().map_err(|_| CliFailure::usage("no name"))?;
    Policy::compile(name, &document).map_err(wrong)?;
    Ok(document)
}

fn set(name: &Name, file: &Path, context: &Context) -> Result<ExitCode> {
    let document = read(file)?;
    let set: PolicyInfo = context.client()?.put(&format!("/v1/policies/{name}"), &document)?;
    match context.json {
        true => show::json(&set),
        false => eprintln!("set {name}: {}", counts(&set.document)),
    }
    Ok(ExitCode::SUCCESS)
}

fn counts(document: &PolicyDocument) -> String {
    let of = |rules: &PolicyRules| rules.allow.len() + rules.ask.len() + rules.deny.len();
    let (network, modules) = (of(&document.network), of(&document.modules));
    format!("{network} network rules, {modules} module rules, {} tests", document.test.len())
}

fn list(context: &Context) -> Result<ExitCode> {
    let all: PolicyList = context.client()?.get("/v1/policies")?;
    if context.json {
        show::json(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["NAME", "CHANGED", "ALLOW", "ASK", "DENY", "DESCRIPTION"]);
    for PolicyInfo { name, changed_at, document } in all.policies {
        let PolicyDocument { network, modules, description, .. } = document;
        let count = |of: fn(&PolicyRules) -> usize| (of(&network) + of(&modules)).to_string();
        table.row([
            name.to_string(),
            age(changed_at),
            count(|rules| rules.allow.len()),
            count(|rules| rules.ask.len()),
            count(|rules| rules.deny.len()),
            one_line(&description.unwrap_or_default(), 60),
        ]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}

fn print(name: &Name, context: &Context) -> Result<ExitCode> {
    let info: PolicyInfo = context.client()?.get(&format!("/v1/policies/{name}"))?;
    if context.json {
        show::json(&info);
        return Ok(ExitCode::SUCCESS);
    }
    let text = toml::to_string(&info.document);
    let text = text.map_err(|error| CliFailure::new("policy.invalid", error.to_string()))?;
    show::say_on(&text);
    Ok(ExitCode::SUCCESS)
}

fn check(file: &Path, context: &Context) -> Result<ExitCode> {
    let document = read(file)?;
    match context.json {
        true => show::json(&document),
        false => show::say(&format!("ok: {}", counts(&document))),
    }
    Ok(ExitCode::SUCCESS)
}

/// Exits with 1 if a test fails.
fn test(file: &Path, context: &Context) -> Result<ExitCode> {
    let document = read(file)?;
    let wrong = |fault: PolicyFault| CliFailure::new("policy.invalid", fault.to_string());
    let (count, failed) = document::test(&document).map_err(wrong)?;
    if context.json {
        let each = failed.iter().map(|case| {
            json!({ "index": case.index, "request": case.request, "expected": case.expected,
                "answer": case.decision.explain() })
        });
        show::json(&json!({ "tests": count, "failed": each.collect::<Vec<_>>() }));
    } else {
        for case in &failed {
            let answer = case.decision.explain();
            show::say(&format!(
                "FAILED test[{}] {}: expected {}, got {}",
                case.index,
                one_line(&case.request, 200),
                case.expected.word(),
                told(&answer)
            ));
        }
        show::say(&format!("{} of {count} tests passed", count - failed.len()));
    }
    Ok(if failed.is_empty() { ExitCode::SUCCESS } else { Exit::Failed.into() })
}

fn explain(
    machine: &Name,
    action: ExplainedAction,
    object: &str,
    context: &Context,
) -> Result<ExitCode> {
    let key = match action {
        ExplainedAction::Fetch => "fetch",
        ExplainedAction::Import => "import",
    };
    let path = format!("/v1/machine/{machine}/explain?{key}={}", escape::part(object));
    let answer: Explanation = context.client()?.get(&path)?;
    match context.json {
        true => show::json(&answer),
        false => show::say(&told(&answer)),
    }
    Ok(ExitCode::SUCCESS)
}

/// An answer on one line: `deny: no rule allows it (policy web)`.
fn told(answer: &Explanation) -> String {
    let by = match (&answer.policy, &answer.rule) {
        (Some(policy), Some(rule)) => format!(" (policy {policy}, {rule})"),
        (Some(policy), None) => format!(" (policy {policy})"),
        _ => String::new(),
    };
    format!("{}: {}{by}", answer.verdict.word(), answer.reason)
}
