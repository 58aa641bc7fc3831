//! `stasis policy`: named policies of the service, and files with them.

use super::pairs;
use crate::client::{EventStream, escape};
use crate::context::Context;
use crate::failure::{CliFailure, Exit, Result};
use crate::show::{self, Table, age, one_line};
use clap::Subcommand;
use serde_json::json;
use stasis_api::{
    Explanation, Name, PolicyDocument, PolicyInfo, PolicyList, PolicyRules, RefusedAccess,
};
use stasis_policy::document::{self, Policy, PolicyFault};
use stasis_policy::request;
use stasis_policy::suggest::{self, SuggestedRule};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// How long an event that was is waited for.
const EVENT: Duration = Duration::from_secs(5);

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
    /// Add the rule that would have allowed a refused access to the policy that refused it
    Allow {
        /// Number of the event `network.refused`, from
        /// `stasis machine watch --kind network.refused`
        #[arg(long, value_name = "NUMBER")]
        from_event: u64,
        /// Print the rule and change nothing
        #[arg(long)]
        dry_run: bool,
    },
    /// Show which rule decides about a request of a machine
    Explain {
        machine: Name,
        action: ExplainedAction,
        /// A URL (http, https, tcp or udp) to fetch, a module (npm, jsr or https) to import, a
        /// secret as NAME@HOST, a tool as SERVER.TOOL, a template, a path in the machine, or a
        /// command
        object: String,
        /// The method of a fetch
        #[arg(long, value_name = "METHOD")]
        method: Option<String>,
        /// The arguments of a tool, as a JSON object
        #[arg(long, value_name = "JSON")]
        arguments: Option<String>,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ExplainedAction {
    /// Send a request to a URL
    Fetch,
    /// Import a module through the service
    Import,
    /// Send a secret to a host
    Secret,
    /// Call a tool
    Tool,
    /// Create a machine from a template
    Create,
    /// Read a file through the service
    Read,
    /// Write a file through the service
    Write,
    /// Have the service start a command
    Command,
}

impl ExplainedAction {
    fn key(self) -> &'static str {
        match self {
            ExplainedAction::Fetch => "fetch",
            ExplainedAction::Import => "import",
            ExplainedAction::Secret => "secret",
            ExplainedAction::Tool => "tool",
            ExplainedAction::Create => "create",
            ExplainedAction::Read | ExplainedAction::Write => "file",
            ExplainedAction::Command => "command",
        }
    }

    /// The object as the service wants it.
    fn object(self, given: String) -> String {
        match self {
            ExplainedAction::Read => format!("read {given}"),
            ExplainedAction::Write => format!("write {given}"),
            _ => given,
        }
    }
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
            PolicyCommand::Allow { from_event, dry_run } => allow(from_event, dry_run, context),
            PolicyCommand::Explain { machine, action, object, method, arguments } => {
                let asked = [(action.key(), Some(action.object(object)))];
                let asked = asked.into_iter().chain([("method", method), ("arguments", arguments)]);
                explain(&machine, asked, context)
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

/// The sections of a policy, each with its name.
fn sections(document: &PolicyDocument) -> Vec<(&'static str, &PolicyRules)> {
    let PolicyDocument { network, http, secrets, tools, modules, .. } = document;
    let all = [
        ("network", network),
        ("http", http),
        ("secret", secrets),
        ("tool", tools),
        ("module", modules),
    ];
    let PolicyDocument { machines, files, commands, .. } = document;
    let optional = [("machine", machines), ("file", files), ("command", commands)];
    let optional = optional.into_iter().filter_map(|(name, own)| Some((name, own.as_ref()?)));
    all.into_iter().chain(optional).collect()
}

fn counts(document: &PolicyDocument) -> String {
    let of = |rules: &PolicyRules| rules.allow.len() + rules.ask.len() + rules.deny.len();
    let told = |(name, rules): (&str, &PolicyRules)| match of(rules) {
        0 => None,
        1 => Some(format!("1 {name} rule")),
        count => Some(format!("{count} {name} rules")),
    };
    let mut parts: Vec<String> = sections(document).into_iter().filter_map(told).collect();
    if document.rego.is_some() {
        parts.push("Rego".to_owned());
    }
    parts.push(match document.test.len() {
        1 => "1 test".to_owned(),
        count => format!("{count} tests"),
    });
    parts.join(", ")
}

fn list(context: &Context) -> Result<ExitCode> {
    let all: PolicyList = context.client()?.get("/v1/policies")?;
    if context.json {
        show::json(&all);
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Table::new(["NAME", "CHANGED", "ALLOW", "ASK", "DENY", "DESCRIPTION"]);
    for PolicyInfo { name, changed_at, document } in all.policies {
        let count = |of: fn(&PolicyRules) -> usize| {
            sections(&document).into_iter().map(|(_, rules)| of(rules)).sum::<usize>().to_string()
        };
        table.row([
            name.to_string(),
            age(changed_at),
            count(|rules| rules.allow.len()),
            count(|rules| rules.ask.len()),
            count(|rules| rules.deny.len()),
            one_line(document.description.as_deref().unwrap_or_default(), 60),
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
    let (count, failed) = request::test(&document).map_err(wrong)?;
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

/// Event numbers start at 1, so that "after 0" is all of them.
fn refusal(number: u64, context: &Context) -> Result<RefusedAccess> {
    let client = context.client()?;
    let query = "&kind=network.refused".to_owned();
    let mut events = EventStream::new(&client, query, Some(number.saturating_sub(1)));
    let found = client.block(async { tokio::time::timeout(EVENT, events.next()).await });
    let event = found.ok().transpose()?.filter(|event| event.id == number);
    event.and_then(|event| event.refused).ok_or_else(|| {
        let said = format!("event {number} is no refusal that the service remembers");
        CliFailure::new("event.missing", said)
            .hint("`stasis machine watch --kind network.refused --after 0` lists refusals")
    })
}

fn allow(number: u64, dry_run: bool, context: &Context) -> Result<ExitCode> {
    let refused = refusal(number, context)?;
    let wrong = |fault: PolicyFault| CliFailure::new("policy.unchanged", fault.to_string());
    let rule = suggest::rule_for(&refused).map_err(wrong)?;
    let name = refused.policy.unwrap_or_default();
    let path = format!("/v1/policies/{}", escape::part(&name));
    if !dry_run {
        let mut info: PolicyInfo = context.client()?.get(&path)?;
        rule.add(&mut info.document).map_err(wrong)?;
        let _: PolicyInfo = context.client()?.put(&path, &info.document)?;
    }
    let SuggestedRule { section, text } = rule;
    match context.json {
        true => show::json(&json!({ "policy": name, "section": section, "rule": text,
            "changed": !dry_run })),
        false => show::say(&format!("policy {name}: {section}.allow {text:?}")),
    }
    Ok(ExitCode::SUCCESS)
}

fn explain(
    machine: &Name,
    asked: impl Iterator<Item = (&'static str, Option<String>)>,
    context: &Context,
) -> Result<ExitCode> {
    let field = |(key, value): (_, Option<String>)| {
        value.map(|value| format!("{key}={}", escape::part(&value)))
    };
    let query: Vec<String> = asked.filter_map(field).collect();
    let path = format!("/v1/machine/{machine}/explain?{}", query.join("&"));
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
