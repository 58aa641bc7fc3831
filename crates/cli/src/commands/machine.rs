//! `stasis machine`: machines themselves, not what they run.

use super::making;
use super::pairs::{Level, LimitArgs, Reach, map, pair};
use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_api::{DiskUse, Limits, Name, NewMachine, Retention, State, Timestamp, Update};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Machine {
    /// Make a machine
    New(New),
    /// List machines, newest first
    List(List),
    /// Show one machine
    Get {
        name: Name,
        /// Show it again whenever something changes
        #[arg(long)]
        watch: bool,
    },
    /// Change a machine
    Set(Set),
    /// Remove machines and all they hold
    Rm(super::rm::Args),
    /// Move a machine out of memory
    Swap { name: Name },
    /// Bring a machine into memory before it is spoken to
    Wake { name: Name },
    /// Tell what changes, as it happens
    Watch(super::watch::Args),
    /// List a machine's instructions and checkpoints
    History(super::history::Args),
    /// Say what a machine takes on the disk: its own, and shared with others
    Disk { name: Name },
}

#[derive(clap::Args)]
pub struct New {
    /// Its name [default: a new one]
    name: Option<Name>,
    /// The template to start from [default: python]
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// A word to find it by
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// A variable of its environment
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    limits: LimitArgs,
    /// When answers are sent
    #[arg(long, value_name = "LEVEL", default_value = "memory")]
    durability: Level,
    /// What it may reach
    #[arg(long, value_name = "NETWORK", default_value = "none")]
    network: Reach,
    /// When it is removed, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires: Option<Timestamp>,
    /// Which checkpoints stay, such as `last=10` or `last=10,seconds=3600` [default: the host's]
    #[arg(long, value_name = "RULE", value_parser = rule)]
    keep: Option<Rule>,
}

#[derive(clap::Args)]
pub struct List {
    #[command(flatten)]
    filter: Filter,
    /// List them again whenever something changes
    #[arg(long)]
    watch: bool,
}

/// Which machines are meant: those that fit everything given.
#[derive(clap::Args)]
pub struct Filter {
    /// Only machines with this tag
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Only machines in this state
    #[arg(long, value_name = "STATE")]
    state: Option<InState>,
}

impl Filter {
    pub fn is_empty(&self) -> bool {
        self.tags.is_empty() && self.state.is_none()
    }

    /// The query that lists these machines.
    pub fn query(self) -> Value {
        let mut query = json!({ "tags": map(self.tags) });
        if let Some(state) = self.state {
            query["state"] = json!(match state {
                InState::Ready => State::Ready,
                InState::Running => State::Running,
                InState::Swapped => State::Swapped,
            });
        }
        query
    }
}

#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum InState {
    Ready,
    Running,
    Swapped,
}

#[derive(clap::Args)]
pub struct Set {
    name: Name,
    /// Replaces all tags
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair, conflicts_with = "no_tags")]
    tags: Vec<(String, String)>,
    /// Takes all tags away
    #[arg(long)]
    no_tags: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// When answers are sent
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// When it is removed, such as 2030-01-01T00:00:00Z, or `never`
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<Expiry>,
    /// Which checkpoints stay, such as `all`, `last=10,seconds=3600`, `last=0`, or `default`
    #[arg(long, value_name = "RULE", value_parser = rule)]
    keep: Option<Rule>,
}

/// A rule, or none: the host's.
#[derive(Debug, Clone, Copy)]
struct Rule(Option<Retention>);

fn rule(text: &str) -> std::result::Result<Rule, String> {
    let mut rule = Retention::default();
    match text {
        "default" => return Ok(Rule(None)),
        "all" => return Ok(Rule(Some(rule))),
        _ => {}
    }
    for part in text.split(',') {
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is no number"));
        match part.split_once('=') {
            Some(("last", count)) => rule.last = Some(number(count)?),
            Some(("seconds", count)) => rule.seconds = Some(number(count)?),
            None if part == "unlabelled" => rule.labelled = false,
            _ => return Err("write `all`, `default`, or `last=N,seconds=N,unlabelled`".into()),
        }
    }
    Ok(Rule(Some(rule)))
}

#[derive(Debug, Clone, Copy)]
struct Expiry(Option<Timestamp>);

fn expiry(text: &str) -> std::result::Result<Expiry, String> {
    match text {
        "never" => Ok(Expiry(None)),
        text => text.parse().map(|time| Expiry(Some(time))).map_err(|_| "no time".to_owned()),
    }
}

impl Machine {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        match self {
            Machine::New(args) => new(args, &client, context.json)?,
            Machine::List(args) => return list(args, context),
            Machine::Get { name, watch } => return get(&name, watch, &client, context.json),
            Machine::Set(args) => set(args, &client, context.json)?,
            Machine::Rm(args) => return super::rm::run(args, context),
            Machine::Swap { name } => tell(&client, &name, "swap", context.json)?,
            Machine::Wake { name } => tell(&client, &name, "wake", context.json)?,
            Machine::Watch(args) => return super::watch::run(args, context),
            Machine::History(args) => return super::history::run(args, context),
            Machine::Disk { name } => disk(&client, &name, context.json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn new(args: New, client: &Client, as_json: bool) -> Result<()> {
    let wanted = NewMachine {
        name: args.name,
        tags: map(args.tags),
        limits: args.limits.limits(),
        memory_mb: None,
        env: map(args.env),
        template: args.template,
        durability: args.durability.into(),
        network: args.network.into(),
        expires_at: args.expires,
        retention: args.keep.and_then(|rule| rule.0),
    };
    let machine = making::make(client, &wanted)?;
    match as_json {
        true => show::json(&machine),
        false => show::say(machine.name.as_str()),
    }
    Ok(())
}

fn get(name: &Name, watch: bool, client: &Client, as_json: bool) -> Result<ExitCode> {
    let look = || {
        show_value(&client.get(&format!("/v1/machine/{name}"))?, as_json);
        Ok(())
    };
    if watch {
        return super::watch::again(client, format!("&machine={name}"), look);
    }
    look()?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Deserialize)]
struct Page {
    machines: Vec<stasis_api::Machine>,
    next: Option<Value>,
}

pub fn list(args: List, context: &Context) -> Result<ExitCode> {
    let client = context.client()?;
    let query = args.filter.query();
    let look = || look(&client, query.clone(), context.json);
    if args.watch {
        return super::watch::again(&client, String::new(), look);
    }
    look()?;
    Ok(ExitCode::SUCCESS)
}

fn look(client: &Client, query: Value, as_json: bool) -> Result<()> {
    let machines = all(client, query)?;
    if as_json {
        show::json(&json!({ "machines": machines }));
        return Ok(());
    }
    let mut table = Table::new(["NAME", "STATE", "INSTRUCTIONS", "TEMPLATE", "AGE", "TAGS"]);
    for machine in machines {
        let tags = machine.tags.iter().map(|(key, value)| format!("{key}={value}"));
        table.row([
            machine.name.to_string(),
            state_word(&machine),
            machine.instructions.to_string(),
            machine.template.clone(),
            age(machine.created_at),
            tags.collect::<Vec<_>>().join(" "),
        ]);
    }
    table.print();
    Ok(())
}

/// Every page of a list.
pub fn all(client: &Client, mut query: Value) -> Result<Vec<stasis_api::Machine>> {
    let mut machines = Vec::new();
    loop {
        let page: Page = client.post("/v1/machine/list", &query)?;
        machines.extend(page.machines);
        match page.next {
            None | Some(Value::Null) => return Ok(machines),
            Some(next) => query["cursor"] = next,
        }
    }
}

pub fn state_word(machine: &stasis_api::Machine) -> String {
    let word = match machine.state {
        State::Ready => "ready",
        State::Running => "running",
        State::Swapped => "swapped",
    };
    if machine.pinned.is_some() { format!("{word}, pinned") } else { word.to_owned() }
}

fn set(args: Set, client: &Client, as_json: bool) -> Result<()> {
    let tags = (args.no_tags || !args.tags.is_empty()).then(|| map(args.tags));
    let limits = Some(args.limits.limits()).filter(|limits| *limits != Limits::default());
    let update = Update {
        tags,
        limits,
        durability: args.durability.map(Into::into),
        expires_at: args.expires.map(|expiry| expiry.0),
        retention: args.keep.map(|rule| rule.0),
    };
    show_value(&client.patch(&format!("/v1/machine/{}", args.name), &update)?, as_json);
    Ok(())
}

fn tell(client: &Client, name: &Name, verb: &str, as_json: bool) -> Result<()> {
    let machine: stasis_api::Machine =
        client.post(&format!("/v1/machine/{name}/{verb}"), &json!({}))?;
    match as_json {
        true => show::json(&machine),
        false => show::say(&format!("{name}  {}", state_word(&machine))),
    }
    Ok(())
}

fn disk(client: &Client, name: &Name, as_json: bool) -> Result<()> {
    let used: DiskUse = client.get(&format!("/v1/machine/{name}/disk"))?;
    match as_json {
        true => show::json(&used),
        false => show::object(&with_sizes(json!(used))),
    }
    Ok(())
}

/// Counts of bytes as people read them.
fn with_sizes(mut value: Value) -> Value {
    for (key, field) in value.as_object_mut().into_iter().flatten() {
        if let (true, Some(bytes)) = (key.ends_with("bytes"), field.as_u64()) {
            *field = show::size(bytes).into();
        }
    }
    value
}

fn show_value(machine: &stasis_api::Machine, as_json: bool) {
    match as_json {
        true => show::json(machine),
        false => show::object(&json!(machine)),
    }
}
