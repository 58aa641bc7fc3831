//! The files of a run: a tree is written below /work of its machine before the run, and read back
//! after it.
//!
//! The machine's files are untrusted: their number, sizes and names are bounded here, and only
//! regular files and links are accepted. Links are kept as links and never followed.

use crate::V8;
use crate::error::{Error, Result};
use crate::executions::RunningExecution;
use crate::trees::{LONGEST_PATH, MOST_ENTRIES, TreeEntry, WorkTree, too_large};
use stasis_api::{Durability, FileInfo, FileKind};
use stasis_machine::{FileUser, Machine};
use std::io::Read;
use std::sync::Arc;

const SERVICE: FileUser = FileUser::Service;
const WORK: &str = "/work";
/// The directory of modules by hash.
const MODULES: &str = "/tmp/.mcp-v8-wasm";

/// Names in a directory, page by page.
fn names(machine: &Arc<Machine>, dir: &str, most: usize) -> Result<Vec<FileInfo>> {
    let mut all: Vec<FileInfo> = Vec::new();
    let mut cursor = None;
    loop {
        let page = machine.list_files_for(SERVICE, dir, cursor.as_deref(), None)?;
        all.extend(page.files);
        if all.len() > most {
            return Err(too_large());
        }
        match page.next {
            None => return Ok(all),
            next => cursor = next,
        }
    }
}

/// Templates built before there were file trees have no such directory.
fn check_work(machine: &Arc<Machine>) -> Result<()> {
    match machine.file_for(SERVICE, WORK).is_ok_and(|info| info.kind == FileKind::Directory) {
        true => Ok(()),
        false => Err(Error::new(
            503,
            "machines of this template have no /work: remove it with `stasis template rm \
             javascript` and restart the service, which builds it again",
        )),
    }
}

impl V8 {
    /// Writes the files a run starts from: the named ones, else those of its heap, which exist,
    /// else its session's.
    pub(crate) fn files_before(
        &self,
        own: &RunningExecution,
        machine: &Arc<Machine>,
    ) -> Result<()> {
        let (account, run) = (&own.account, &own.run);
        if !run.mode.keeps_files() {
            return Ok(());
        }
        check_work(machine)?;
        let id = match (&run.fs, &run.session) {
            (Some(name), _) => self.named_tree(account, name)?,
            (None, Some(session)) if self.input(own)?.is_none() => {
                let found = self.session(account, session)?.and_then(|own| own.fs);
                let Some(id) = found else { return Ok(()) };
                Some(id)
            }
            (None, _) => return Ok(()),
        };
        let tree = id.map(|id| self.tree(account, &id)).transpose()?.unwrap_or_default();
        self.lay_out(account, machine, &tree)
    }

    /// Makes /work of a machine contain a tree and nothing else.
    pub(crate) fn lay_out(
        &self,
        account: &str,
        machine: &Arc<Machine>,
        tree: &WorkTree,
    ) -> Result<()> {
        let memory = Some(Durability::Memory);
        for old in names(machine, WORK, usize::MAX)? {
            machine.remove_file_for(SERVICE, &old.path, true)?;
        }
        for (path, entry) in &tree.0 {
            let path = format!("{WORK}/{path}");
            match entry {
                TreeEntry::File { blob, executable, .. } => {
                    let mode = if *executable { 0o755 } else { 0o644 };
                    let mut upload = machine.put_file_for(SERVICE, &path, Some(mode))?;
                    self.read_content(account, blob, |piece| Ok(upload.write(piece)?))?;
                    upload.finish(memory)?;
                }
                TreeEntry::Link { target } => {
                    machine.put_link_for(SERVICE, &path, target, memory)?;
                }
            }
        }
        Ok(())
    }

    /// Writes the WebAssembly modules of a run to the directory of its program, unless they exist.
    pub(crate) fn modules_before(
        &self,
        own: &RunningExecution,
        machine: &Arc<Machine>,
    ) -> Result<()> {
        for module in &own.run.modules {
            let path = format!("{MODULES}/{}", module.file);
            if machine.file_for(SERVICE, &path).is_ok_and(|info| info.size == module.size) {
                continue;
            }
            let bytes = self.setup_file(&own.account, &module.file)?;
            let mut upload = machine.put_file_for(SERVICE, &path, Some(0o444))?;
            upload.write(&bytes)?;
            upload.finish(Some(Durability::Memory))?;
        }
        Ok(())
    }

    /// Stores the files below /work as a tree; returns its id.
    pub(crate) fn capture(&self, account: &str, machine: &Arc<Machine>) -> Result<String> {
        let mut tree = WorkTree::default();
        let mut dirs = vec![WORK.to_owned()];
        let mut seen = 0;
        while let Some(dir) = dirs.pop() {
            for info in names(machine, &dir, MOST_ENTRIES)? {
                seen += 1;
                let own = info.path.strip_prefix(WORK).and_then(|path| path.strip_prefix('/'));
                let Some(path) = own.map(str::to_owned) else { continue };
                if seen > MOST_ENTRIES || path.len() > LONGEST_PATH {
                    return Err(too_large());
                }
                let entry = match info.kind {
                    FileKind::Directory => {
                        dirs.push(info.path);
                        continue;
                    }
                    FileKind::File => self.captured(account, machine, &info)?,
                    FileKind::Symlink => info.target.map(|target| TreeEntry::Link { target }),
                    _ => None,
                };
                tree.0.extend(entry.map(|entry| (path, entry)));
                if tree.bytes() > crate::trees::LARGEST_TREE {
                    return Err(too_large());
                }
            }
        }
        self.put_tree(account, &tree)
    }

    /// One file; nothing, if a process of the machine removed it meanwhile.
    fn captured(
        &self,
        account: &str,
        machine: &Arc<Machine>,
        info: &FileInfo,
    ) -> Result<Option<TreeEntry>> {
        if info.size > crate::trees::LARGEST_TREE {
            return Err(too_large());
        }
        let Ok((_, file)) = machine.read_file_for(SERVICE, &info.path) else { return Ok(None) };
        // a file that grows while it is read is cut at a bound
        let (blob, size) = self.put_content(account, file.take(info.size))?;
        let mode = u32::from_str_radix(&info.mode, 8).unwrap_or(0);
        Ok(Some(TreeEntry::File { blob, size, executable: mode & 0o100 != 0 }))
    }
}
