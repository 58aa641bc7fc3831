//! `stasis bench engine`: what the image engine promises, measured.

use super::bed::Bed;
use super::choice::Choice;
use super::host::Host;
use super::measure;
use super::metrics::{self, METRICS};
use super::report::{Report, Results};
use super::setup::Places;
use crate::failure::{Failure, Result};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Root file system to run in [default: $STASIS_ROOTFS, else .dev/rootfs of the repository]
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Python inside that root [default: $STASIS_TEST_PYTHON, else .dev/venv/bin/python]
    #[arg(long, value_name = "PATH")]
    python: Option<PathBuf>,
    /// A directory on a real disk; images go below it and are removed at the end
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(METRICS)?, args.choice.runs());
    let places = Places::find(args.root, args.python)?;
    let bed = Bed::make(places, &args.dir, runs)?;
    let host = Host::look(bed.dir());
    let measured = measure_all(&bed, &wanted);
    let cleared = bed.clear();
    let mut results = measured?;
    results.keep(|key| wanted.contains(&key));
    let exit = args.choice.say(&Report { metrics: METRICS, runs, host, results });
    cleared.map(|()| exit)
}

fn measure_all(bed: &Bed, wanted: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    for (group, key) in metrics::groups(METRICS, wanted) {
        measure::run(group, bed, &mut results).map_err(|failure| Failure {
            message: format!("{key}: {}", failure.message),
            ..failure
        })?;
    }
    Ok(results)
}
