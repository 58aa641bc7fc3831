//! The measurements, one file each.

mod chain;
mod clones;
mod diff;
mod large;
mod pause;
mod restore;

pub use large::image as large_image;

use super::bed::EngineBench;
use super::metrics::MetricGroup;
use super::report::Results;
use stasis_command::failure::Result;

pub fn run(group: MetricGroup, bed: &EngineBench, results: &mut Results) -> Result<()> {
    match group {
        MetricGroup::Restore => restore::run(bed, results),
        MetricGroup::RestoreLarge => large::restore(bed, results),
        MetricGroup::Pause => pause::run(bed, results),
        MetricGroup::PauseLarge => large::pause(bed, results),
        MetricGroup::Diff => diff::run(bed, results),
        MetricGroup::Clones => clones::run(bed, results),
        MetricGroup::Chain => chain::run(bed, results),
        // in the list of another bench
        MetricGroup::Yardstick
        | MetricGroup::Machine(_)
        | MetricGroup::Mcp(_)
        | MetricGroup::Service(_)
        | MetricGroup::Branch(_)
        | MetricGroup::Egress(_)
        | MetricGroup::V8(_) => Ok(()),
    }
}
