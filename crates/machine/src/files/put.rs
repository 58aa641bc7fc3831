//! Writes a file to a machine: bytes first, the name last.

use super::read::info;
use super::{FileError, FileUser, MachineFiles, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::{Durability, EventKind, FileInfo};
use stasis_engine::{DiskLimit, DiskUsage};
use stasis_sys::{below, fds, libc};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How often a machine may leave memory during an upload.
pub(super) const TRIES: usize = 3;
/// Permissions of created parent directories.
const DIRECTORIES: u32 = 0o755;

/// A file being uploaded to a machine. Dropped before it is finished, it leaves nothing behind.
pub struct Upload {
    machine: Arc<Machine>,
    path: String,
    mode: u32,
    user: FileUser,
    /// Whether a policy has rules about the path.
    has_rules: bool,
    place: Place,
    written: u64,
    /// The machine's disk limit, and the free part when the upload began.
    limit: u64,
    left: u64,
}

/// An unnamed file in its directory, and the files it belongs to.
struct Place {
    files: Arc<MachineFiles>,
    dir: OwnedFd,
    file: File,
    /// Bytes of it counted as pending uploads.
    counted: u64,
}

impl Place {
    /// Counts bytes to be written; whether all uploads of the machine still fit.
    fn count(&mut self, bytes: u64, left: u64) -> bool {
        self.counted += bytes;
        self.files.uploading.fetch_add(bytes, Ordering::Relaxed) + bytes <= left
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.files.uploading.fetch_sub(self.counted, Ordering::Relaxed);
    }
}

impl Machine {
    /// Starts an upload; creates missing parent directories.
    pub fn put_file(self: &Arc<Self>, given: &str, mode: Option<u32>) -> Result<Upload> {
        self.put_file_for(FileUser::Client, given, mode)
    }

    pub fn put_file_for(
        self: &Arc<Self>,
        user: FileUser,
        given: &str,
        mode: Option<u32>,
    ) -> Result<Upload> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let judged = self.writing(user).judge(&path);
        let has_rules = judged.map_err(|fault| self.fault(&path, fault))?;
        let mode = mode.unwrap_or(0o644) & 0o777;
        let place = self.place_for(&path, mode)?;
        let whole = |disk: (DiskLimit, DiskUsage)| {
            (disk.0.bytes, disk.0.bytes.saturating_sub(disk.1.bytes))
        };
        let (limit, left) = place.files.inside.disk().map_or((u64::MAX, u64::MAX), whole);
        let machine = self.clone();
        Ok(Upload { machine, path, mode, user, has_rules, place, written: 0, limit, left })
    }
}

impl Machine {
    /// An unnamed file in the directory of `path`, in the machine as it is now.
    fn place_for(self: &Arc<Self>, path: &str, mode: u32) -> Result<Place> {
        for _ in 0..TRIES {
            let files = self.files()?;
            match Place::at(files.clone(), path, mode) {
                // if something is missing here, the machine left memory
                Err(_) if !self.are_current(&files) => {}
                placed => return placed.map_err(|fault| self.fault(path, fault)),
            }
        }
        Err(self.fault(path, FileError::Unsteady))
    }
}

impl Upload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        if !self.place.count(bytes.len() as u64, self.left) {
            return Err(self.machine.fault(&self.path, FileError::Full(self.limit)));
        }
        let wrote = self.place.file.write_all(bytes);
        wrote.map_err(|error| self.machine.fault(&self.path, error))
    }

    /// Gives the file its name and replaces any file of that name. When this returns, the file
    /// exists; at durability `local` it is on disk.
    pub fn finish(mut self, durability: Option<Durability>) -> Result<FileInfo> {
        for _ in 0..TRIES {
            match self.machine.change(&self.place.files, || self.give_name()) {
                Some((done, falls)) => {
                    let info = done.map_err(|fault| self.machine.fault(&self.path, fault))?;
                    self.machine.keep_changes(&self.path, falls, durability)?;
                    self.machine.event_about(EventKind::FilePut, &self.path);
                    return Ok(info);
                }
                None => self.move_over()?,
            }
        }
        Err(self.machine.fault(&self.path, FileError::Unsteady))
    }

    fn give_name(&self) -> std::result::Result<FileInfo, FileError> {
        if self.has_rules {
            let (_, name) = path::split(&self.path)?;
            let access = self.machine.writing(self.user);
            access.judge_place(&self.place.files, self.place.dir.as_fd(), Some(name))?;
        }
        self.place.give_name(&self.path, self.mode, self.written)?;
        info(self.place.file.as_fd(), self.path.clone())
    }

    /// The machine left memory meanwhile: continue in the restored one.
    fn move_over(&mut self) -> Result<()> {
        let mut new = self.machine.place_for(&self.path, self.mode)?;
        let copy = |old: &mut Place| -> std::result::Result<Place, FileError> {
            old.file.seek(SeekFrom::Start(0))?;
            std::io::copy(&mut old.file, &mut new.file)?;
            new.count(old.counted, u64::MAX);
            Ok(new)
        };
        let new = copy(&mut self.place);
        self.place = new.map_err(|fault| self.machine.fault(&self.path, fault))?;
        Ok(())
    }
}

/// A unique name.
fn temporary() -> String {
    format!(".stasis-{}", hex::encode(crate::host::random::<8>()))
}

/// For the driver, which alone saves the machine: all or nothing; the caller marks the change.
impl MachineFiles {
    pub fn put(
        self: &Arc<Self>,
        path: &str,
        mode: u32,
        bytes: &[u8],
    ) -> std::result::Result<(), FileError> {
        let mode = mode & 0o777;
        self.has_room(bytes.len() as u64)?;
        let mut place = Place::at(self.clone(), path, mode)?;
        place.file.write_all(bytes)?;
        place.give_name(path, mode, bytes.len() as u64)
    }

    fn has_room(&self, bytes: u64) -> std::result::Result<(), FileError> {
        match self.inside.disk() {
            Some((limit, used)) if used.bytes + bytes > limit.bytes => {
                Err(FileError::Full(limit.bytes))
            }
            _ => Ok(()),
        }
    }

    pub fn link(&self, path: &str, target: &str) -> std::result::Result<(), FileError> {
        let (parent, name) = path::split(path)?;
        let _as = self.act();
        let dir = directories(self, parent)?;
        replace(&dir, name, |temporary| below::link_to(target, dir.as_fd(), temporary))
    }

    /// A missing file counts as removed.
    pub fn discard(&self, path: &str) -> std::result::Result<(), FileError> {
        let (parent, name) = path::split(path)?;
        let _as = self.act();
        let dir = self.open(parent, libc::O_PATH | libc::O_DIRECTORY);
        let missing = |error: &std::io::Error| error.raw_os_error() == Some(libc::ENOENT);
        match dir.and_then(|dir| below::remove(dir.as_fd(), name, 0)) {
            Err(error) if !missing(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Creates a file under a unique name, then renames it over the target.
fn replace(
    dir: &OwnedFd,
    name: &str,
    make: impl FnOnce(&str) -> std::io::Result<()>,
) -> std::result::Result<(), FileError> {
    let temporary = temporary();
    make(&temporary)?;
    let renamed = below::rename(dir.as_fd(), &temporary, name);
    if renamed.is_err() {
        let _ = below::remove(dir.as_fd(), &temporary, 0);
    }
    Ok(renamed?)
}

impl Place {
    fn at(
        files: Arc<MachineFiles>,
        path: &str,
        mode: u32,
    ) -> std::result::Result<Place, FileError> {
        let (parent, _) = path::split(path)?;
        let _changing = files.changing();
        let _as = files.act();
        let dir = directories(&files, parent)?;
        let file = below::nameless(dir.as_fd(), mode)?;
        drop((_changing, _as));
        Ok(Place { files, dir, file, counted: 0 })
    }

    fn give_name(&self, path: &str, mode: u32, written: u64) -> std::result::Result<(), FileError> {
        let Place { files, dir, file, .. } = self;
        files.has_room(written)?;
        let (_, name) = path::split(path)?;
        let _as = files.act();
        // the umask of this process does not apply
        fds::set_mode(file.as_fd(), mode)?;
        let give = |name: &str| below::give_name(file.as_fd(), dir.as_fd(), name);
        match give(name) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => replace(dir, name, give),
            other => Ok(other?),
        }
    }
}

/// The directory, with missing parents created.
pub(super) fn directories(
    files: &MachineFiles,
    path: &str,
) -> std::result::Result<OwnedFd, FileError> {
    const DIRECTORY: i32 = libc::O_PATH | libc::O_DIRECTORY;
    match files.open(path, DIRECTORY) {
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
        other => return Ok(other?),
    }
    let mut so_far = String::new();
    let mut dir = files.open("/", DIRECTORY)?;
    for name in path.split('/').filter(|name| !name.is_empty()) {
        so_far = format!("{so_far}/{name}");
        make(dir.as_fd(), name)?;
        dir = files.open(&so_far, DIRECTORY)?;
    }
    Ok(dir)
}

fn make(dir: BorrowedFd, name: &str) -> std::io::Result<()> {
    match below::make_dir(dir, name, DIRECTORIES) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        // it may exist, in a directory that is not ours
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            below::open(dir, name, libc::O_PATH, 0).map(drop)
        }
        other => other,
    }
}
