//! `stasis bench mcp`: what an agent waits for, measured through the protocol: a service of this
//! process over Streamable HTTP, and `stasis mcp` over standard streams.

mod http;
mod stdio;

use super::choice::Choice;
use super::host::Host as Place;
use super::metrics::{self, Group, MCP_METRICS, Mcp};
use super::report::{Report, Results};
use crate::failure::{At, Failure, Result};
use stasis_machine::{Host, Settings};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Where the measured host keeps its data; its template stays there for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-mcp")]
    dir: PathBuf,
    /// How many sessions call at once
    #[arg(long, value_name = "N", default_value_t = 32)]
    sessions: usize,
    /// How long they do, in seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
}

/// What measurements share.
pub struct Bed {
    dir: PathBuf,
    runs: usize,
    sessions: usize,
    length: Duration,
}

impl Bed {
    /// A host on the bench's directory, with the default template built and no machine.
    fn host(&self) -> Result<Host> {
        let host = Host::open(Settings::new(self.dir.clone(), super::setup::spawner()?))?;
        let recipe = stasis_template::Recipe::default_python();
        host.build_template(&recipe, &stasis_template::Silent)?;
        for machine in host.machines() {
            host.remove(&machine)?;
        }
        Ok(host)
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(MCP_METRICS)?, args.choice.runs());
    std::fs::create_dir_all(&args.dir).at("make", &args.dir)?;
    let usual = if args.choice.quick { 1.0 } else { 10.0 };
    let length = Duration::try_from_secs_f64(args.seconds.unwrap_or(usual));
    let length = length.map_err(|error| Failure::usage(format!("--seconds: {error}")))?;
    let bed = Bed { dir: args.dir.clone(), runs, sessions: args.sessions, length };
    let host = Place::look(&bed.dir);
    let mut results = Results::default();
    for (group, _) in metrics::groups(MCP_METRICS, &wanted) {
        match group {
            Group::Mcp(Mcp::Http) => http::measure(&bed, &mut results)?,
            _ => stdio::measure(&bed, &mut results)?,
        }
    }
    results.keep(|key| wanted.contains(&key));
    Ok(args.choice.say(&Report { metrics: MCP_METRICS, runs, host, results }))
}

fn wrong(what: impl std::fmt::Display) -> Failure {
    Failure::new("bench.wrong_answer", what.to_string())
}
