//! `stasis bench machine`: what machines promise, measured on a host in this process.

mod density;
mod speed;

use super::choice::{BenchArgs, DirArgs};
use super::metrics::{MACHINE_METRICS, MachineGroup, MetricGroup};
use super::progress::Talk;
use super::report::Results;
use stasis_command::failure::Result;
use stasis_command::install;
use stasis_machine::{Host, Settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// What most machines are measured after.
const PANDAS: &str = "import pandas as pd, numpy as np\n\
    df = pd.DataFrame({'a': np.arange(1000) % 7, 'b': np.random.rand(1000)})\n\
    float(df.groupby('a').b.mean().sum())";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
}

/// What measurements share.
pub struct MachineBench {
    dir: PathBuf,
    runs: usize,
    quick: bool,
}

impl MachineBench {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings::new(self.dir.clone(), install::spawner()?))
    }

    /// A host on the bench's directory, with the default template built.
    fn host(&self) -> Result<Host> {
        let host = Host::open(self.settings()?)?;
        let recipe = stasis_template::Recipe::default_template();
        host.build_template(&recipe, &Talk)?;
        Ok(host)
    }

    /// Leaves the directory as it was found, but for the template.
    fn clear(&self) -> Result<()> {
        let host = self.host()?;
        for machine in host.machines() {
            host.remove(&machine)?;
        }
        host.collect()?;
        Ok(())
    }
}

pub fn run(args: Args) -> Result<ExitCode> {
    let dir = args.data.dir;
    let run = args.choice.begin(MACHINE_METRICS, &dir)?;
    let bed = MachineBench { dir, runs: run.runs, quick: args.choice.quick };
    let measured = run.measure(|group, results| measure(&bed, group, results));
    let cleared = bed.clear();
    let exit = run.say(measured?);
    cleared.map(|()| exit)
}

fn measure(bed: &MachineBench, group: MetricGroup, results: &mut Results) -> Result<()> {
    match group {
        MetricGroup::Machine(MachineGroup::Exec) => speed::exec(bed, results),
        MetricGroup::Machine(MachineGroup::Wake) => speed::wake(bed, results),
        MetricGroup::Machine(MachineGroup::Cold) => speed::cold(bed, results),
        MetricGroup::Machine(MachineGroup::Burst) => speed::burst(bed, results),
        MetricGroup::Machine(MachineGroup::Live) => density::live(bed, results),
        _ => density::idle(bed, results),
    }
}

/// Bytes of everything below a directory, as the disk has them.
pub fn on_disk(dir: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries
        .map(|entry| match entry.metadata() {
            Ok(about) if about.is_dir() => on_disk(&entry.path()),
            Ok(about) => about.blocks() * 512,
            Err(_) => 0,
        })
        .sum()
}
