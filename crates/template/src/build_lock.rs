//! A lock on a file serialises builds and removals.

use crate::error::{ErrorContext, Result};
use crate::progress::Progress;
use stasis_sys::{files, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;

/// Waits until no other process changes anything below `roots`. The kernel releases the lock when
/// this process ends, however it ends.
pub fn take(roots: &Path, progress: &dyn Progress) -> Result<File> {
    let path = roots.join(".lock");
    let doing = || format!("{}", path.display());
    let file = File::create(&path).doing(doing)?;
    if files::flock(file.as_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err() {
        progress.say("waiting for another build");
        files::flock(file.as_fd(), libc::LOCK_EX).doing(doing)?;
    }
    Ok(file)
}
