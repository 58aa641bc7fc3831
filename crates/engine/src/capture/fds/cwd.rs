//! The working directory of a process. A removed directory is recorded as such (an empty name) and
//! is one of the objects; a process with its own root is refused.

use super::Objects;
use super::files::removed_directory;
use super::names::Inode;
use crate::capture::refuse;
use crate::error::{ErrorContext, Result};
use crate::freeze::FrozenProcess;
use crate::proc;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_sys::libc;
use std::os::unix::fs::MetadataExt;

pub fn read(
    objects: &mut Objects,
    process: &FrozenProcess,
    tree: &Tree,
    live: &mut LiveProcess,
) -> Result<()> {
    let root = proc::read_link(process.pid, "root")?;
    if root != "/" {
        return Err(refuse(process, format!("its root directory is {root}")));
    }
    let link = proc::read_link(process.pid, "cwd")?;
    let path = format!("/proc/{}/cwd", process.pid);
    let meta = std::fs::metadata(&path).doing(|| format!("look at {path}"))?;
    let name = objects.names(tree)?.current(&link, Inode::of(&meta), meta.nlink());
    live.cwd = name.unwrap_or_default();
    let removed = removed_directory();
    if live.cwd.is_empty() && !objects.list.iter().any(|object| object.kind == removed) {
        let flags = (libc::O_PATH | libc::O_DIRECTORY) as u32;
        objects.add(Object { flags, owner: None, kind: removed });
    }
    Ok(())
}
