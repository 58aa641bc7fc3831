//! Others doing the same, where they are installed.

use crate::bench::bed::Bed;
use crate::bench::report::Results;
use crate::failure::Result;

pub fn criu(_bed: &Bed, results: &mut Results) -> Result<()> {
    results.absent("criu_restore_ms", "not measured yet".into());
    Ok(())
}

pub fn gvisor(_bed: &Bed, results: &mut Results) -> Result<()> {
    results.absent("gvisor_restore_ms", "not measured yet".into());
    Ok(())
}
