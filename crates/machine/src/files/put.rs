//! Putting a file into a machine: bytes first, the name last.

use super::look::info;
use super::{Fault, Files, path};
use crate::error::Result;
use crate::machine::Machine;
use stasis_api::{Durability, EventKind, FileInfo};
use stasis_sys::{below, fds, libc};
use std::fs::File;
use std::io::{Seek, SeekFrom, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// How often a machine may leave memory meanwhile.
const TRIES: usize = 3;
/// Permissions of directories that are made on the way.
const DIRECTORIES: u32 = 0o755;

/// A file on its way into a machine. Dropped before it is finished, it leaves nothing behind.
pub struct Upload {
    machine: Arc<Machine>,
    path: String,
    mode: u32,
    place: Place,
    written: u64,
    /// No file of the machine may be longer.
    most: u64,
}

/// A file without a name in its directory, and the files it is among.
struct Place {
    files: Arc<Files>,
    dir: OwnedFd,
    file: File,
}

impl Machine {
    /// Begins to put a file; directories on its way are made.
    pub fn put_file(self: &Arc<Self>, given: &str, mode: Option<u32>) -> Result<Upload> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let mode = mode.unwrap_or(0o644) & 0o777;
        let place = self.place_for(&path, mode)?;
        let most = place.files.inside.disk().map_or(u64::MAX, |(limit, _)| limit.bytes);
        Ok(Upload { machine: self.clone(), path, mode, place, written: 0, most })
    }
}

impl Machine {
    /// A file without a name in the directory of `path`, in the machine as it is now.
    fn place_for(self: &Arc<Self>, path: &str, mode: u32) -> Result<Place> {
        for _ in 0..TRIES {
            let files = self.files()?;
            match Place::at(files.clone(), path, mode) {
                // what is missing then is missing because the machine left memory
                Err(_) if !self.are_current(&files) => {}
                placed => return placed.map_err(|fault| self.fault(path, fault)),
            }
        }
        Err(self.fault(path, Fault::Unsteady))
    }
}

impl Upload {
    pub fn write(&mut self, bytes: &[u8]) -> Result<()> {
        self.written += bytes.len() as u64;
        if self.written > self.most {
            return Err(self.machine.fault(&self.path, Fault::Full(self.most)));
        }
        let wrote = self.place.file.write_all(bytes);
        wrote.map_err(|error| self.machine.fault(&self.path, error))
    }

    /// Gives the file its name; what had it is replaced. When this returns the file is there, and
    /// at durability `local` it is on disk.
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
        Err(self.machine.fault(&self.path, Fault::Unsteady))
    }

    fn give_name(&self) -> std::result::Result<FileInfo, Fault> {
        let Place { files, dir, file } = &self.place;
        if let Some((limit, used)) = files.inside.disk()
            && used.bytes + self.written > limit.bytes
        {
            return Err(Fault::Full(limit.bytes));
        }
        let (_, name) = path::split(&self.path)?;
        let _as = files.act();
        // the mask of this process has no say
        fds::set_mode(file.as_fd(), self.mode)?;
        match below::give_name(file.as_fd(), dir.as_fd(), name) {
            Err(error) if error.raw_os_error() == Some(libc::EEXIST) => replace(file, dir, name)?,
            other => other?,
        }
        info(file.as_fd(), self.path.clone())
    }

    /// The machine left memory meanwhile: goes on in the one that came back.
    fn move_over(&mut self) -> Result<()> {
        let mut new = self.machine.place_for(&self.path, self.mode)?;
        let copy = |old: &mut Place| -> std::result::Result<Place, Fault> {
            old.file.seek(SeekFrom::Start(0))?;
            std::io::copy(&mut old.file, &mut new.file)?;
            Ok(new)
        };
        let new = copy(&mut self.place);
        self.place = new.map_err(|fault| self.machine.fault(&self.path, fault))?;
        Ok(())
    }
}

fn replace(file: &File, dir: &OwnedFd, name: &str) -> std::result::Result<(), Fault> {
    let mut bytes = [0; 8];
    crate::host::random(&mut bytes);
    let temporary = format!(".stasis-{:016x}", u64::from_ne_bytes(bytes));
    below::give_name(file.as_fd(), dir.as_fd(), &temporary)?;
    let renamed = below::rename(dir.as_fd(), &temporary, name);
    if renamed.is_err() {
        let _ = below::remove(dir.as_fd(), &temporary, 0);
    }
    Ok(renamed?)
}

impl Place {
    fn at(files: Arc<Files>, path: &str, mode: u32) -> std::result::Result<Place, Fault> {
        let (parent, _) = path::split(path)?;
        let _changing = files.changing();
        let _as = files.act();
        let dir = directories(&files, parent)?;
        let file = below::nameless(dir.as_fd(), mode)?;
        drop((_changing, _as));
        Ok(Place { files, dir, file })
    }
}

/// The directory, with those on its way made.
fn directories(files: &Files, path: &str) -> std::result::Result<OwnedFd, Fault> {
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
        // it may be there, in a directory that is not ours
        Err(error) if error.raw_os_error() == Some(libc::EACCES) => {
            below::open(dir, name, libc::O_PATH, 0).map(drop)
        }
        other => other,
    }
}
