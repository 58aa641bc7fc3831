//! `stasis bench branch`: branches and going back, through the API of a service on loopback.
//!
//!   service in this process ◄── HTTP ── client in this process
//!
//! The machine that is branched has the default template and a pandas frame. Stalls are seen by a
//! process inside it that does nothing but write and look at the clock.

mod past;
mod place;
mod stall;
mod twigs;

use super::choice::Choice;
use super::host::Host as Machine;
use super::metrics::{self, BRANCH_METRICS, Branches, Group};
use super::report::{Report, Results};
use crate::failure::{At, Result};
use place::Place;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Where the measured service keeps its data; its template stays there for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-machine")]
    dir: PathBuf,
}

/// What measurements are told.
#[derive(Clone)]
pub struct Bed {
    dir: PathBuf,
    runs: usize,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(BRANCH_METRICS)?, args.choice.runs());
    std::fs::create_dir_all(&args.dir).at("make", &args.dir)?;
    let bed = Bed { dir: args.dir.clone(), runs };
    let host = Machine::look(&bed.dir);
    let mut results = Results::default();
    for (group, _) in metrics::groups(BRANCH_METRICS, &wanted) {
        let place = Place::open(&bed, |_| {})?;
        match group {
            Group::Branch(Branches::One) => twigs::one(&bed, &place, &mut results)?,
            Group::Branch(Branches::Hundred) => twigs::hundred(&bed, &place, &mut results)?,
            Group::Branch(Branches::Pause) => stall::small(&bed, &place, &mut results)?,
            Group::Branch(Branches::PauseLarge) => stall::large(&bed, &place, &mut results)?,
            Group::Branch(Branches::Back) => past::rollback(&bed, &place, &mut results)?,
            _ => past::history(&bed, &place, &mut results)?,
        }
        place.close()?;
        // what one wrote must not be on its way to the disk while the next is measured
        sync(&bed.dir)?;
        if group == Group::Branch(Branches::History) {
            past::overhead(&bed, &mut results)?;
        }
    }
    results.keep(|key| wanted.contains(&key));
    Ok(args.choice.say(&Report { metrics: BRANCH_METRICS, runs, host, results }))
}

fn sync(dir: &Path) -> Result<()> {
    let open = std::fs::File::open(dir).at("open", dir)?;
    stasis_sys::files::sync_file_system(open.as_fd()).at("write out", dir)
}
