//! Entry point for the fuzz target of whole files with machines: the store's importer, with the
//! checks that this engine makes of images.

use crate::validate;
use std::path::Path;

pub use stasis_store::fuzzing::{Importer, model, sample_bundles, with_images};

pub fn importer(dir: &Path) -> Importer {
    Importer::new(dir, validate::check)
}
