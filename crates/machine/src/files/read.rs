//! Inspects and reads files.

use super::access::FileAccess;
use super::{FileError, FileUser, MachineFiles, WAKES, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::{FileInfo, FileKind, FileList, Timestamp};
use stasis_engine::fault;
use stasis_sys::{below, fds, files, libc};
use std::collections::BTreeSet;
use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

/// The question to ask about an opened file; none, if no policy has rules about files.
type Rules<'a> = Option<FileAccess<'a>>;

/// Maximum number of entries on one page.
const PAGE: usize = 1000;

impl Machine {
    /// Metadata of a file; links are not followed.
    pub fn file(self: &Arc<Self>, given: &str) -> Result<FileInfo> {
        self.file_for(FileUser::Client, given)
    }

    pub fn file_for(self: &Arc<Self>, user: FileUser, given: &str) -> Result<FileInfo> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        self.look_at(user, &path, |files, rules| files.look(&path, rules))
    }

    /// Opens a regular file for reading.
    pub fn read_file(self: &Arc<Self>, given: &str) -> Result<(FileInfo, File)> {
        self.read_file_for(FileUser::Client, given)
    }

    pub fn read_file_for(
        self: &Arc<Self>,
        user: FileUser,
        given: &str,
    ) -> Result<(FileInfo, File)> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        self.look_at(user, &path, |files, rules| files.read(&path, rules))
    }

    /// A page of a directory: names after `cursor`, in order.
    pub fn list_files(
        self: &Arc<Self>,
        given: &str,
        cursor: Option<&str>,
        limit: Option<u64>,
    ) -> Result<FileList> {
        self.list_files_for(FileUser::Client, given, cursor, limit)
    }

    pub fn list_files_for(
        self: &Arc<Self>,
        user: FileUser,
        given: &str,
        cursor: Option<&str>,
        limit: Option<u64>,
    ) -> Result<FileList> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let limit = limit.map_or(PAGE, |limit| (limit as usize).clamp(1, PAGE));
        let (files, next) = self.look_at(user, &path, |files, rules| {
            let found = files.list(&path, rules, cursor, limit)?;
            // entries that vanish are omitted from the list
            if self.are_current(files) { Ok(found) } else { Err(FileError::Unsteady) }
        })?;
        Ok(FileList { path, files, next })
    }

    /// Reads the machine's files, and retries if the machine left memory meanwhile: its directory
    /// is removed then, so a result from it would be meaningless. `look` gets the question to ask
    /// about the opened file, if policies have rules about files.
    fn look_at<T>(
        self: &Arc<Self>,
        user: FileUser,
        path: &str,
        look: impl Fn(&Arc<MachineFiles>, Rules<'_>) -> std::result::Result<T, FileError>,
    ) -> Result<T> {
        let access = self.reading(user);
        let judged = access.judge(path).map_err(|fault| self.fault(path, fault))?;
        let rules = judged.then_some(access);
        for _ in 0..WAKES {
            let files = self.files()?;
            let _ = fault::point("files.looking");
            let acting = files.act();
            let found = look(&files, rules);
            drop(acting);
            match found {
                Err(_) if !self.are_current(&files) => {}
                found => return found.map_err(|fault| self.fault(path, fault)),
            }
        }
        Err(self.fault(path, FileError::Unsteady))
    }
}

impl MachineFiles {
    pub(super) fn look(
        &self,
        path: &str,
        rules: Rules<'_>,
    ) -> std::result::Result<FileInfo, FileError> {
        let fd = self.open(path, libc::O_PATH | libc::O_NOFOLLOW)?;
        self.check(rules, fd.as_fd())?;
        info(fd.as_fd(), path.to_owned())
    }

    fn check(&self, rules: Rules<'_>, found: BorrowedFd) -> std::result::Result<(), FileError> {
        rules.map_or(Ok(()), |rules| rules.judge_place(self, found, None))
    }

    fn read(
        &self,
        path: &str,
        rules: Rules<'_>,
    ) -> std::result::Result<(FileInfo, File), FileError> {
        let fd = self.open(path, libc::O_PATH)?;
        self.check(rules, fd.as_fd())?;
        let info = info(fd.as_fd(), path.to_owned())?;
        // opens exactly the inspected file: a pipe in its place would block
        match info.kind {
            FileKind::File => Ok((info, below::reopen(fd.as_fd())?)),
            _ => Err(FileError::NotAFile),
        }
    }

    fn list(
        &self,
        path: &str,
        rules: Rules<'_>,
        cursor: Option<&str>,
        limit: usize,
    ) -> std::result::Result<(Vec<FileInfo>, Option<String>), FileError> {
        let dir = self.open(path, libc::O_RDONLY | libc::O_DIRECTORY)?;
        self.check(rules, dir.as_fd())?;
        let names = first_names(dir.as_fd(), cursor, limit + 1)?;
        let more = names.len() > limit;
        let base = path.trim_end_matches('/');
        let mut found = Vec::new();
        for name in names.iter().take(limit) {
            found.extend(entry(dir.as_fd(), name, format!("{base}/{name}")));
        }
        let next = names.iter().nth(limit - 1).filter(|_| more).cloned();
        Ok((found, next))
    }
}

/// The first names of a directory after `cursor`, holding few of them in memory.
fn first_names(
    dir: BorrowedFd,
    cursor: Option<&str>,
    count: usize,
) -> std::io::Result<BTreeSet<String>> {
    let mut names = BTreeSet::new();
    loop {
        let entries = files::next_entries(dir)?;
        if entries.is_empty() {
            return Ok(names);
        }
        for entry in entries {
            let name = entry.name;
            let own = name == "." || name == "..";
            if !own && cursor.is_none_or(|cursor| name.as_str() > cursor) {
                names.insert(name);
            }
            if names.len() > count {
                names.pop_last();
            }
        }
    }
}

/// One entry of a directory, or nothing if it no longer exists.
fn entry(dir: BorrowedFd, name: &str, path: String) -> Option<FileInfo> {
    match below::open(dir, name, libc::O_PATH | libc::O_NOFOLLOW, 0) {
        Ok(fd) => info(fd.as_fd(), path).ok(),
        Err(error) if error.raw_os_error() == Some(libc::EXDEV) => Some(FileInfo {
            path,
            kind: FileKind::Other,
            size: 0,
            mode: "0".into(),
            modified_at: Timestamp::UNIX_EPOCH,
            target: None,
        }),
        Err(_) => None,
    }
}

pub(super) fn info(fd: BorrowedFd, path: String) -> std::result::Result<FileInfo, FileError> {
    let stat = fds::stat(fd)?;
    let kind = match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => FileKind::File,
        libc::S_IFDIR => FileKind::Directory,
        libc::S_IFLNK => FileKind::Symlink,
        _ => FileKind::Other,
    };
    let target = match kind {
        FileKind::Symlink => Some(below::read_link(fd)?.to_string_lossy().into_owned()),
        _ => None,
    };
    Ok(FileInfo {
        path,
        kind,
        size: stat.st_size.max(0) as u64,
        mode: format!("{:o}", stat.st_mode & 0o7777),
        modified_at: Timestamp::new(stat.st_mtime, stat.st_mtime_nsec as i32)
            .unwrap_or(Timestamp::UNIX_EPOCH),
        target,
    })
}
