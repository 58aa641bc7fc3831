//! `stasis bench branch`: branches and going back, through the API of a service on loopback.
//!
//!   service in this process ◄── HTTP ── client in this process
//!
//! The branched machine has the default template and a pandas frame. A process inside it that only
//! writes and reads the clock observes stalls.

mod in_process;
mod large;
mod past;
mod stall;
mod twigs;

use super::choice::{BenchArgs, DirArgs};
use super::metrics::{BRANCH_METRICS, BranchGroup, MetricGroup};
use super::report::Results;
use in_process::InProcessService;
use stasis_command::failure::{PathContext, Result};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
}

/// Options of measurements.
#[derive(Clone)]
pub struct BranchBench {
    dir: PathBuf,
    runs: usize,
}

pub fn run(args: Args) -> Result<ExitCode> {
    let dir = args.data.dir;
    let run = args.choice.begin(BRANCH_METRICS, &dir)?;
    let bed = BranchBench { dir, runs: run.runs };
    let results = run.measure(|group, results| measure(&bed, group, results))?;
    Ok(run.say(results))
}

fn measure(bed: &BranchBench, group: MetricGroup, results: &mut Results) -> Result<()> {
    let place = InProcessService::open(bed, |_| {})?;
    match group {
        MetricGroup::Branch(BranchGroup::One) => twigs::one(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::Hundred) => twigs::hundred(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::Pause) => stall::small(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::PauseLarge) => stall::large(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::Back) => past::rollback(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::Steps) => past::steps(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::Exact) => past::exact(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::BranchLarge) => large::branches(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::TravelLarge) => large::travel(bed, &place, results)?,
        MetricGroup::Branch(BranchGroup::SaveLarge) => large::save(bed, &place, results)?,
        _ => past::history(bed, &place, results)?,
    }
    place.close()?;
    // writes of one measurement must not reach the disk during the next
    sync(&bed.dir)?;
    if group == MetricGroup::Branch(BranchGroup::History) {
        past::overhead(bed, results)?;
    }
    Ok(())
}

fn sync(dir: &Path) -> Result<()> {
    let open = std::fs::File::open(dir).at("open", dir)?;
    stasis_sys::files::sync_file_system(open.as_fd()).at("write out", dir)
}
