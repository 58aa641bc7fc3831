//! Mapped files are found again by name, and must be unchanged: a replaced library has other code
//! at the addresses a program remembers.
//!
//! A file is the same if its size and time of change are. Looked at as the restored process will
//! find it: below its machine's root, or, for a template, below the directories it comes from.

use crate::error::{Error, ErrorContext, Result};
use stasis_image::model::*;
use stasis_sys::{files as sysfiles, libc};
use std::collections::HashSet;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};

/// Opens a file below the first of `roots` that has it, and sees that it is the one recorded.
pub fn open(roots: &[OwnedFd], file: &MappedFile, flags: i32) -> Result<OwnedFd> {
    let opened = roots
        .iter()
        .find_map(|root| sysfiles::open_in_root(root.as_fd(), &file.path, flags).ok())
        .ok_or_else(|| Error::Unfit(format!("{} is missing", file.path)))?;
    let opened = File::from(opened);
    let meta = opened.metadata().doing(|| format!("look at {}", file.path))?;
    if (meta.len(), meta.mtime(), meta.mtime_nsec()) != (file.size, file.mtime_s, file.mtime_ns) {
        return Err(Error::Unfit(format!("{} has changed since the capture", file.path)));
    }
    Ok(opened.into())
}

/// Checks every file that a restore will map by name, in the machine whose init is `init`.
/// `held` are those a template has mapped, which its clones inherit whatever the names mean by now.
pub fn check(manifest: &Manifest, root: i32, held: &[MappedFile], init: i32) -> Result<()> {
    let files = &manifest.meta.mapped_files;
    let held: HashSet<&MappedFile> = held.iter().collect();
    let others = manifest.processes.iter().filter(|process| process.pid != root);
    let by_others: HashSet<u32> = others.filter_map(Process::live).flat_map(files_of).collect();
    let needed = files
        .iter()
        .zip(0..)
        .filter(|(file, index)| !held.contains(file) || by_others.contains(index));
    let mut machine = None;
    for (file, _) in needed {
        if machine.is_none() {
            machine = Some([root_of(init)?]);
        }
        if let Some(machine) = &machine {
            open(machine, file, libc::O_PATH)?;
        }
    }
    Ok(())
}

fn files_of(live: &LiveProcess) -> impl Iterator<Item = u32> {
    live.vmas.iter().filter_map(Vma::file).chain([live.exe])
}

fn root_of(init: i32) -> Result<OwnedFd> {
    let path = format!("/proc/{init}/root");
    let root =
        File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(&path);
    Ok(root.doing(|| format!("open {path}"))?.into())
}
