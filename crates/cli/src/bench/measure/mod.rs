//! The measurements, one file each.

mod chain;
mod clones;
mod diff;
mod large;
mod pause;
mod restore;
mod yardstick;

pub use large::image as large_image;

use super::bed::Bed;
use super::metrics::Group;
use super::report::Results;
use crate::failure::Result;

pub fn run(group: Group, bed: &Bed, results: &mut Results) -> Result<()> {
    match group {
        Group::Restore => restore::run(bed, results),
        Group::RestoreLarge => large::restore(bed, results),
        Group::Pause => pause::run(bed, results),
        Group::PauseLarge => large::pause(bed, results),
        Group::Diff => diff::run(bed, results),
        Group::Clones => clones::run(bed, results),
        Group::Chain => chain::run(bed, results),
        Group::Criu => {
            yardstick::criu(bed, results);
            Ok(())
        }
        Group::Gvisor => {
            yardstick::gvisor(bed, results);
            Ok(())
        }
        // in the list of another bench
        Group::Machine(_) | Group::Service(_) => Ok(()),
    }
}
