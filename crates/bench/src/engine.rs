//! `stasis bench engine`: measures the image engine's promises.

use super::bed::EngineBench;
use super::choice::BenchArgs;
use super::measure;
use super::metrics::METRICS;
use super::setup::{Given, Places};
use stasis_command::failure::Result;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    given: Given,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let run = args.choice.begin(METRICS, &args.given.dir)?;
    let places = Places::find(&args.given)?;
    let bed = EngineBench::make(places, &args.given.dir, run.runs)?;
    let measured = run.measure(|group, results| measure::run(group, &bed, results));
    let cleared = bed.clear();
    let exit = run.say(measured?);
    cleared.map(|()| exit)
}
