//! `stasis bench mcp`: measures an agent's waits through the protocol: a service of this process
//! over Streamable HTTP, and `stasis mcp` over standard streams.

mod http;
mod stdio;

use super::choice::BenchArgs;
use super::metrics::{MCP_METRICS, Mcp, MetricGroup};
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_machine::{Host, Settings};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    /// Data directory for the benchmark; its template is kept for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-mcp")]
    dir: PathBuf,
    /// Number of concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 32)]
    sessions: usize,
    /// Duration in seconds
    #[arg(long, value_name = "SECONDS")]
    seconds: Option<f64>,
}

/// State shared by measurements.
pub struct McpBench {
    dir: PathBuf,
    runs: usize,
    sessions: usize,
    length: Duration,
}

impl McpBench {
    /// A host on the bench's directory, with the default template built and no machine.
    fn host(&self) -> Result<Host> {
        let host = Host::open(Settings::new(self.dir.clone(), install::spawner()?))?;
        let recipe = stasis_template::Recipe::default_template();
        host.build_template(&recipe, &stasis_template::NoProgress)?;
        for machine in host.machines() {
            host.remove(&machine)?;
        }
        Ok(host)
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let run = args.choice.begin(MCP_METRICS, &args.dir)?;
    let usual = if args.choice.quick { 1.0 } else { 10.0 };
    let length = Duration::try_from_secs_f64(args.seconds.unwrap_or(usual));
    let length = length.map_err(|error| CliFailure::usage(format!("--seconds: {error}")))?;
    let bed = McpBench { dir: args.dir, runs: run.runs, sessions: args.sessions, length };
    let results = run.measure(|group, results| match group {
        MetricGroup::Mcp(Mcp::Http) => http::measure(&bed, results),
        _ => stdio::measure(&bed, results),
    })?;
    Ok(run.say(results))
}

fn wrong(what: impl std::fmt::Display) -> CliFailure {
    CliFailure::new("bench.wrong_answer", what.to_string())
}
