//! The programs that are installed together.

use crate::failure::{CliFailure, Result};
use std::path::PathBuf;

/// The spawner, in the directory of the running program.
pub fn spawner() -> Result<PathBuf> {
    let own = std::env::current_exe().unwrap_or_default();
    let path = own.with_file_name("stasis-spawner");
    if path.is_file() {
        return Ok(path);
    }
    Err(CliFailure::new("install.spawner", format!("no {}", path.display()))
        .hint("build the whole workspace: `cargo build --release`"))
}
