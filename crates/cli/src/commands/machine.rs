//! `stasis machine`: creates, lists, changes and removes machines.

use super::making;
use super::pairs::{Level, LimitArgs, States, map, pair};
use crate::client::Client;
use crate::context::Context;
use crate::failure::Result;
use crate::show::{self, Table, age};
use clap::Subcommand;
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_api::{
    DiskUse, Limits, Name, Network, NewMachine, OlderCheckpoints, Retention, State, Timestamp,
    Update,
};
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum MachineCommand {
    /// Create a machine
    New(NewArgs),
    /// List machines, newest first
    List(ListArgs),
    /// Show one machine
    Get {
        name: Name,
        /// Refresh on every change
        #[arg(long)]
        watch: bool,
    },
    /// Change a machine
    Set(SetArgs),
    /// Remove machines with all their data
    Rm(super::rm::Args),
    /// Move a machine out of memory
    Swap { name: Name },
    /// Bring a machine into memory
    Wake { name: Name },
    /// Print events as they happen
    Watch(super::watch::Args),
    /// List a machine's instructions and checkpoints
    History(super::history::Args),
    /// Show how much disk a machine uses alone, and how much it shares
    Disk { name: Name },
}

#[derive(clap::Args)]
pub struct NewArgs {
    /// Name [default: generated]
    name: Option<Name>,
    /// Template to start from [default: python]
    #[arg(long, value_name = "NAME")]
    template: Option<String>,
    /// Language: starts from the template of that name
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "template",
        value_parser = making::languages())]
    language: Option<String>,
    /// Tag
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Environment variable
    #[arg(long = "env", value_name = "KEY=VALUE", value_parser = pair)]
    env: Vec<(String, String)>,
    #[command(flatten)]
    limits: LimitArgs,
    /// Answer at once, or when the state is on disk
    #[arg(long, value_name = "LEVEL", default_value = "memory")]
    durability: Level,
    /// Which instructions have a state of their own
    #[arg(long, value_name = "STATES", default_value = "exact")]
    checkpoints: States,
    /// Network: none, open or policy:NAME [default: from the configuration, or none]
    #[arg(long, value_name = "NETWORK")]
    network: Option<Network>,
    /// Time of removal, such as 2030-01-01T00:00:00Z
    #[arg(long, value_name = "TIME")]
    expires: Option<Timestamp>,
    /// Checkpoints to keep, such as `last=10,seconds=3600` [default: from the configuration]
    #[arg(long, value_name = "RULE", value_parser = rule)]
    keep: Option<Rule>,
}

#[derive(clap::Args)]
pub struct ListArgs {
    #[command(flatten)]
    filter: FilterArgs,
    /// Refresh on every change
    #[arg(long)]
    watch: bool,
}

/// Selected machines: those that match every given filter.
#[derive(clap::Args)]
pub struct FilterArgs {
    /// Only machines with this tag
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair)]
    tags: Vec<(String, String)>,
    /// Only machines in this state
    #[arg(long, value_name = "STATE")]
    state: Option<InState>,
}

impl FilterArgs {
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
pub struct SetArgs {
    name: Name,
    /// Tag; replaces all existing tags
    #[arg(long = "tag", value_name = "KEY=VALUE", value_parser = pair, conflicts_with = "no_tags")]
    tags: Vec<(String, String)>,
    /// Remove all tags
    #[arg(long)]
    no_tags: bool,
    #[command(flatten)]
    limits: LimitArgs,
    /// Answer at once, or when the state is on disk
    #[arg(long, value_name = "LEVEL")]
    durability: Option<Level>,
    /// Which instructions have a state of their own
    #[arg(long, value_name = "STATES")]
    checkpoints: Option<States>,
    /// Network (none, open or policy:NAME) from the next wake on; apply it with `stasis machine
    /// swap`
    #[arg(long, value_name = "NETWORK")]
    network: Option<Network>,
    /// Time of removal, such as 2030-01-01T00:00:00Z, or `never`
    #[arg(long, value_name = "TIME", value_parser = expiry)]
    expires: Option<Expiry>,
    /// Checkpoints to keep, such as `all`, `last=10,seconds=3600`, `last=0`, or `default`
    #[arg(long, value_name = "RULE", value_parser = rule)]
    keep: Option<Rule>,
}

/// A rule, or none for the host's.
#[derive(Debug, Clone, Copy)]
struct Rule(Option<Retention>);

const RULES: &str =
    "write `all`, `default`, or some of `last=N,seconds=N,older=thinned,unlabelled`";

fn rule(text: &str) -> std::result::Result<Rule, String> {
    let mut rule = Retention::default();
    match text {
        "default" => return Ok(Rule(None)),
        "all" => return Ok(Rule(Some(rule))),
        _ => {}
    }
    for part in text.split(',') {
        let number = |text: &str| text.parse().map_err(|_| format!("{text:?} is not a number"));
        match part.split_once('=') {
            Some(("last", count)) => rule.last = Some(number(count)?),
            Some(("seconds", count)) => rule.seconds = Some(number(count)?),
            Some(("older", "thinned")) => rule.older = OlderCheckpoints::Thinned,
            Some(("older", "removed")) => rule.older = OlderCheckpoints::Removed,
            None if part == "unlabelled" => rule.labelled = false,
            _ => return Err(format!("{part:?} is not part of a rule: {RULES}")),
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

impl MachineCommand {
    pub fn run(self, context: &Context) -> Result<ExitCode> {
        let client = context.client()?;
        match self {
            MachineCommand::New(args) => new(args, &client, context.json)?,
            MachineCommand::List(args) => return list(args, context),
            MachineCommand::Get { name, watch } => return get(&name, watch, &client, context.json),
            MachineCommand::Set(args) => set(args, &client, context.json)?,
            MachineCommand::Rm(args) => return super::rm::run(args, context),
            MachineCommand::Swap { name } => tell(&client, &name, "swap", context.json)?,
            MachineCommand::Wake { name } => tell(&client, &name, "wake", context.json)?,
            MachineCommand::Watch(args) => return super::watch::run(args, context),
            MachineCommand::History(args) => return super::history::run(args, context),
            MachineCommand::Disk { name } => disk(&client, &name, context.json)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn new(args: NewArgs, client: &Client, as_json: bool) -> Result<()> {
    let wanted = NewMachine {
        name: args.name,
        tags: map(args.tags),
        limits: args.limits.limits(),
        memory_mb: None,
        env: map(args.env),
        template: args.template.or(args.language.and_then(making::template_of)),
        durability: args.durability.into(),
        checkpoints: args.checkpoints.into(),
        network: args.network,
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
    machines: Vec<stasis_api::MachineInfo>,
    next: Option<Value>,
}

pub fn list(args: ListArgs, context: &Context) -> Result<ExitCode> {
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
pub fn all(client: &Client, mut query: Value) -> Result<Vec<stasis_api::MachineInfo>> {
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

pub fn state_word(machine: &stasis_api::MachineInfo) -> String {
    let word = match machine.state {
        State::Ready => "ready",
        State::Running => "running",
        State::Swapped => "swapped",
    };
    if machine.pinned.is_some() { format!("{word}, pinned") } else { word.to_owned() }
}

fn set(args: SetArgs, client: &Client, as_json: bool) -> Result<()> {
    let tags = (args.no_tags || !args.tags.is_empty()).then(|| map(args.tags));
    let limits = Some(args.limits.limits()).filter(|limits| *limits != Limits::default());
    let update = Update {
        tags,
        limits,
        durability: args.durability.map(Into::into),
        checkpoints: args.checkpoints.map(Into::into),
        network: args.network,
        expires_at: args.expires.map(|expiry| expiry.0),
        retention: args.keep.map(|rule| rule.0),
    };
    show_value(&client.patch(&format!("/v1/machine/{}", args.name), &update)?, as_json);
    Ok(())
}

fn tell(client: &Client, name: &Name, verb: &str, as_json: bool) -> Result<()> {
    let machine: stasis_api::MachineInfo =
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

/// Byte counts in units.
fn with_sizes(mut value: Value) -> Value {
    for (key, field) in value.as_object_mut().into_iter().flatten() {
        if let (true, Some(bytes)) = (key.ends_with("bytes"), field.as_u64()) {
            *field = show::size(bytes).into();
        }
    }
    value
}

fn show_value(machine: &stasis_api::MachineInfo, as_json: bool) {
    match as_json {
        true => show::json(machine),
        false => show::object(&json!(machine)),
    }
}
