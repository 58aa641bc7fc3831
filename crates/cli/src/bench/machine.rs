//! `stasis bench machine`: what machines promise, measured on a host in this process.

mod density;
mod jupyter;
mod speed;

use super::choice::Choice;
use super::host::Host as Place;
use super::metrics::{self, Group, MACHINE_METRICS, Machines};
use super::report::{Report, Results};
use crate::failure::{At, Result};
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
    choice: Choice,
    /// Where the measured host keeps its data; its template stays there for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-machine")]
    dir: PathBuf,
}

/// What measurements share.
pub struct Bed {
    dir: PathBuf,
    runs: usize,
    quick: bool,
}

impl Bed {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings::new(self.dir.clone(), super::setup::spawner()?))
    }

    /// A host on the bench's directory, with the default template built.
    fn host(&self) -> Result<Host> {
        let host = Host::open(self.settings()?)?;
        let recipe = stasis_template::Recipe::default_python();
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

struct Talk;

impl stasis_template::Progress for Talk {
    fn step(&self, name: &str, done: u64, _: Option<u64>) {
        if done == 0 {
            eprintln!("building the template: {name} ...");
        }
    }

    fn say(&self, _: &str) {}
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(MACHINE_METRICS)?, args.choice.runs());
    std::fs::create_dir_all(&args.dir).at("make", &args.dir)?;
    let bed = Bed { dir: args.dir.clone(), runs, quick: args.choice.quick };
    let host = Place::look(&bed.dir);
    let measured = measure(&bed, &wanted);
    let cleared = bed.clear();
    let mut results = measured?;
    results.keep(|key| wanted.contains(&key));
    let exit = args.choice.say(&Report { metrics: MACHINE_METRICS, runs, host, results });
    cleared.map(|()| exit)
}

fn measure(bed: &Bed, wanted: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    for (group, _) in metrics::groups(MACHINE_METRICS, wanted) {
        match group {
            Group::Machine(Machines::Exec) => speed::exec(bed, &mut results)?,
            Group::Machine(Machines::Wake) => speed::wake(bed, &mut results)?,
            Group::Machine(Machines::Cold) => speed::cold(bed, &mut results)?,
            Group::Machine(Machines::Burst) => speed::burst(bed, &mut results)?,
            Group::Machine(Machines::Live) => density::live(bed, &mut results)?,
            Group::Machine(Machines::Idle) => density::idle(bed, &mut results)?,
            _ => jupyter::measure(bed, &mut results),
        }
    }
    Ok(results)
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
