//! `stasis bench machine`: measures the machines' promises on a host in this process.

mod density;
mod speed;
mod workload;

use super::choice::{BenchArgs, DirArgs};
use super::metrics::{MachineGroup, MetricGroup};
use super::progress::Talk;
use super::report::Results;
use stasis_api::NewMachine;
use stasis_command::failure::Result;
use stasis_command::install;
use stasis_machine::{Host, Machine, Settings};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
pub use workload::BenchLanguage;

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
    /// Language of the machines
    #[arg(long, value_name = "LANGUAGE", value_enum, default_value_t)]
    language: BenchLanguage,
}

/// State shared by measurements.
pub struct MachineBench {
    dir: PathBuf,
    runs: usize,
    quick: bool,
    language: BenchLanguage,
}

impl MachineBench {
    fn settings(&self) -> Result<Settings> {
        Ok(Settings::new(self.dir.clone(), install::spawner()?))
    }

    /// A host on the bench's directory, with the language's template built.
    fn host(&self) -> Result<Host> {
        let host = Host::open(self.settings()?)?;
        build(&host, self.language)?;
        Ok(host)
    }

    /// A machine of the bench's language.
    fn create(&self, host: &Host, new: NewMachine) -> Result<Arc<Machine>> {
        let template = Some(self.language.template().to_owned());
        Ok(host.create("bench", NewMachine { template, ..new })?)
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

/// Builds the template of a language, unless it is there.
pub fn build(host: &Host, language: BenchLanguage) -> Result<()> {
    let recipe = stasis_template::Recipe::built_in(language.template());
    let recipe = recipe.unwrap_or_else(stasis_template::Recipe::default_template);
    host.build_template(&recipe, &Talk)?;
    Ok(())
}

pub fn run(args: Args) -> Result<ExitCode> {
    let dir = args.data.dir;
    let run = args.choice.begin(args.language.metrics(), &dir)?;
    let (quick, language) = (args.choice.quick, args.language);
    let bed = MachineBench { dir, runs: run.runs, quick, language };
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
