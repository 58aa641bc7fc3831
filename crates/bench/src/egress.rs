//! `stasis bench egress`: how long decisions about a machine's requests take, and what its traffic
//! and its calls of tools cost.

mod outside;
mod traffic;

use super::choice::{BenchArgs, DirArgs};
use super::metrics::{EGRESS_METRICS, EgressGroup, MetricGroup};
use super::report::Results;
use super::samples::Samples;
use super::tool_call;
use stasis_command::failure::{CliFailure, Result};
use stasis_policy::document::PolicyFault;
use stasis_policy::timing;
use std::process::ExitCode;
use std::time::Duration;
use traffic::EgressBed;

/// Decisions of one run.
const RULE_DECISIONS: usize = 1000;
const REGO_DECISIONS: usize = 200;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let run = args.choice.begin(EGRESS_METRICS, &args.data.dir)?;
    let (runs, quick) = (run.runs, args.choice.quick);
    // made for the first group that needs it
    let mut bed: Option<EgressBed> = None;
    let measured = run.measure(|group, results| {
        let MetricGroup::Egress(group) = group else { return Ok(()) };
        match group {
            EgressGroup::Rules => {
                return decisions("decide_us", timing::rules(runs * RULE_DECISIONS), results);
            }
            EgressGroup::Rego => {
                return decisions("decide_rego_us", timing::rego(runs * REGO_DECISIONS), results);
            }
            EgressGroup::ToolCall => return tool_call::measure(&args.data.dir, runs, results),
            _ => {}
        }
        let bed = match &mut bed {
            Some(bed) => bed,
            none => none.insert(EgressBed::make(&args.data.dir, runs, quick)?),
        };
        match group {
            EgressGroup::Connect => bed.connect(results),
            EgressGroup::Bytes => bed.bytes(results),
            _ => bed.many(results),
        }
    });
    let cleared = bed.map_or(Ok(()), |bed| bed.clear());
    let exit = run.say(measured?);
    cleared.map(|()| exit)
}

fn decisions(
    key: &'static str,
    took: std::result::Result<Vec<Duration>, PolicyFault>,
    results: &mut Results,
) -> Result<()> {
    let took = took.map_err(|fault| CliFailure::new("bench.wrong_answer", fault.to_string()))?;
    let mut samples = Samples::default();
    took.iter().for_each(|one| samples.push(one.as_secs_f64() * 1e6));
    results.add(key, samples);
    Ok(())
}
