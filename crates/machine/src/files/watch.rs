//! Watches a file, a directory, or a directory tree, across swaps.
//!
//!   kernel ─► events by number of watch ─► place of that watch ─► reported by path
//!                 └─ a directory came or went ─► watches below it are added or taken away
//!
//! Watches use inotify and do not hold the machine's file system: they end when the machine leaves
//! memory and are recreated when it returns. A machine can create any number of directories, so the
//! number of watched directories and scanned entries is bounded. Past the bound a new watch is
//! refused, and a running one reports it.

use super::access::FileAccess;
use super::{FileError, FileUser, MachineFiles, path};
use crate::error::Result;
use crate::machine::Machine;
use event_listener::EventListener;
use parking_lot::{Mutex, MutexGuard};
use stasis_api::{FileChange, FileEvent};
use stasis_sys::{below, fds, files, libc};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

const MASK: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_CLOSE_WRITE
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF;
const CAME: u32 = libc::IN_CREATE | libc::IN_MOVED_TO;
const WENT: u32 = libc::IN_DELETE | libc::IN_MOVED_FROM;
/// Size of an event before its name: watch, mask, cookie, length of the name.
const HEAD: usize = 16;
/// Directories that one watch covers.
const DIRECTORIES: usize = 1024;
/// Entries scanned at once to find them.
const ENTRIES: usize = 100_000;
/// Contents of a new directory that are reported.
const AT_ONCE: usize = 1000;
/// Maximum watches of one machine, of one account, and in total. Each is an inotify instance of
/// this process's user, who has 128 by default.
const OF_MACHINE: usize = 8;
const OF_ACCOUNT: usize = 32;
const IN_ALL: usize = 96;

pub struct Watch {
    machine: Arc<Machine>,
    path: String,
    recursive: bool,
    queue: File,
    /// Whether the machine is in memory and watched.
    on: bool,
    /// The version of the policies that allowed it.
    allowed_by: u64,
    /// Watched paths, relative to the requested one, by the kernel's watch number.
    places: HashMap<i32, String>,
    _one: One,
}

/// One slot of the allowed watches, by account and machine.
struct One(String, i64);

static OPEN: Mutex<Vec<(String, i64)>> = Mutex::new(Vec::new());

fn open() -> MutexGuard<'static, Vec<(String, i64)>> {
    OPEN.lock()
}

impl One {
    fn take(account: String, machine: i64) -> Option<One> {
        let mut open = open();
        let of_account = open.iter().filter(|(own, _)| *own == account).count();
        let of_machine = open.iter().filter(|(_, own)| *own == machine).count();
        if open.len() >= IN_ALL || of_account >= OF_ACCOUNT || of_machine >= OF_MACHINE {
            return None;
        }
        open.push((account.clone(), machine));
        Some(One(account, machine))
    }
}

impl Drop for One {
    fn drop(&mut self) {
        let mut open = open();
        let own = open.iter().position(|(account, id)| *account == self.0 && *id == self.1);
        own.map(|at| open.swap_remove(at));
    }
}

/// An event as reported by the kernel.
struct Told {
    watch: i32,
    mask: u32,
    name: Option<String>,
}

impl Machine {
    /// Starts to watch; wakes the machine.
    pub fn watch_file(self: &Arc<Self>, given: &str, recursive: bool) -> Result<Watch> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let one = One::take(self.account(), self.id.0);
        let one = one.ok_or_else(|| self.fault(&path, FileError::NoWatches))?;
        let queue = fds::inotify(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
        let queue = queue.map_err(|error| self.fault(&path, scarce(error)))?.into();
        let (machine, places) = (self.clone(), HashMap::new());
        let mut watch =
            Watch { machine, path, recursive, queue, on: false, allowed_by: 0, places, _one: one };
        watch.judge()?;
        self.files()?;
        watch.begin()?;
        Ok(watch)
    }
}

impl Watch {
    /// Wakes up when the machine may have changed.
    pub fn machine_changes(&self) -> EventListener {
        self.machine.listen()
    }

    /// Whether `step` has work, which may take a moment; this call does not.
    pub fn is_due(&self) -> bool {
        let back = !self.on && self.machine.work().files.is_some();
        back || fds::ready_for(self.queue.as_fd(), libc::POLLIN).is_ok_and(|ready| ready != 0)
    }

    /// Events since the last call; does not block.
    pub fn step(&mut self) -> Result<Vec<FileEvent>> {
        if self.allowed_by != self.machine.host.policies.version() {
            self.judge()?;
        }
        match self.begin()? {
            true => Ok(vec![plain(FileChange::Watching)]),
            false => self.take(),
        }
    }

    fn access(&self) -> FileAccess<'_> {
        FileAccess { below: self.recursive, ..self.machine.reading(FileUser::Client) }
    }

    /// Whether policies allow it, in their present version.
    fn judge(&mut self) -> Result<()> {
        let version = self.machine.host.policies.version();
        let judged = self.access().judge(&self.path);
        judged.map_err(|fault| self.machine.fault(&self.path, fault))?;
        self.allowed_by = version;
        Ok(())
    }

    /// Watches if the machine is in memory; whether the watch is new.
    fn begin(&mut self) -> Result<bool> {
        let files = self.machine.work().files.clone();
        let Some(files) = files.filter(|_| !self.on) else { return Ok(false) };
        let all = self.add_all(&files);
        all.map_err(|fault| self.machine.fault(&self.path, fault))?;
        self.on = true;
        Ok(true)
    }

    /// Replaces all watches by the requested path and, if recursive, everything below it.
    fn add_all(&mut self, files: &MachineFiles) -> std::result::Result<(), FileError> {
        let before = std::mem::take(&mut self.places);
        let _as = files.act();
        let fd = files.open(&self.path, libc::O_PATH)?;
        if self.access().judge(&self.path)? {
            self.access().judge_place(files, fd.as_fd(), None)?;
        }
        self.add(fd.as_fd(), String::new())?;
        if self.recursive {
            self.add_below(files, String::new(), drop)?;
        }
        let stale = before.into_keys().filter(|watch| !self.places.contains_key(watch));
        stale.for_each(|watch| drop(fds::inotify_unwatch(self.queue.as_fd(), watch)));
        Ok(())
    }

    fn add(&mut self, fd: BorrowedFd, place: String) -> std::result::Result<(), FileError> {
        if self.places.len() >= DIRECTORIES {
            return Err(FileError::TooMany(DIRECTORIES));
        }
        let name = below::own_name(fd);
        let watch = fds::inotify_watch(self.queue.as_fd(), &name, MASK).map_err(scarce)?;
        self.places.insert(watch, place);
        Ok(())
    }

    /// Watches a directory and all directories below it. `found` receives everything that already
    /// exists, because it may be older than its watch.
    fn add_below(
        &mut self,
        files: &MachineFiles,
        place: String,
        mut found: impl FnMut(String),
    ) -> std::result::Result<(), FileError> {
        let (mut todo, mut seen) = (vec![place], 0);
        while let Some(place) = todo.pop() {
            // removed by now, unreadable for the machine's user, or on another file system
            let Some(dir) = self.open(files, &place) else { continue };
            if !place.is_empty() {
                self.add(dir.as_fd(), place.clone())?;
            }
            loop {
                let some = files::next_entries(dir.as_fd())?;
                seen += some.len();
                if seen > ENTRIES || todo.len() > DIRECTORIES {
                    return Err(FileError::TooMany(DIRECTORIES));
                }
                if some.is_empty() {
                    break;
                }
                for entry in some.into_iter().filter(|one| one.name != "." && one.name != "..") {
                    let path = joined(&place, &entry.name);
                    todo.extend(entry.is_dir.then(|| path.clone()));
                    found(path);
                }
            }
        }
        Ok(())
    }

    /// A directory below the watched one; links are not followed.
    fn open(&self, files: &MachineFiles, place: &str) -> Option<OwnedFd> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY;
        let flags = if place.is_empty() { flags } else { flags | libc::O_NOFOLLOW };
        files.open(&joined(&self.path, place), flags).ok()
    }

    fn take(&mut self) -> Result<Vec<FileEvent>> {
        let mut buffer = [0; 16 << 10];
        let read = match self.queue.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(self.machine.fault(&self.path, error)),
        };
        let mut events = Vec::new();
        let mut rest = &buffer[..read];
        while let Some((told, more)) = parse(rest) {
            rest = more;
            self.digest(told, &mut events);
        }
        Ok(events)
    }

    fn digest(&mut self, told: Told, events: &mut Vec<FileEvent>) {
        if told.mask & libc::IN_Q_OVERFLOW != 0 {
            self.look_again(events);
            return events.push(plain(FileChange::Overflowed));
        }
        // a removed watch may still have queued events
        let Some(place) = self.places.get(&told.watch).cloned() else { return };
        if told.mask & libc::IN_UNMOUNT != 0 {
            self.on = false;
            self.places.clear();
            return events.push(plain(FileChange::Swapped));
        }
        if told.mask & libc::IN_IGNORED != 0 {
            self.places.remove(&told.watch);
            return;
        }
        match told.name {
            None if !place.is_empty() => {}
            None => tell(told.mask, None, events),
            Some(name) => {
                let path = joined(&place, &name);
                tell(told.mask, Some(path.clone()), events);
                if self.recursive && told.mask & libc::IN_ISDIR != 0 {
                    self.follow(told.mask, path, events);
                }
            }
        }
    }

    /// Adds or removes the watches of a directory that was created or removed.
    fn follow(&mut self, mask: u32, path: String, events: &mut Vec<FileEvent>) {
        if mask & WENT != 0 {
            let own = |place: &str| place == path || place.starts_with(&format!("{path}/"));
            let queue = self.queue.as_fd();
            self.places.retain(|watch, place| {
                let gone = own(place);
                if gone {
                    let _ = fds::inotify_unwatch(queue, *watch);
                }
                !gone
            });
        }
        let files = self.machine.work().files.clone();
        let Some(files) = files.filter(|_| mask & CAME != 0) else { return };
        let _as = files.act();
        let mut seen = 0;
        let added = self.add_below(&files, path.clone(), |path| {
            seen += 1;
            if seen <= AT_ONCE {
                events.push(FileEvent { kind: FileChange::Created, name: Some(path) });
            }
        });
        if seen > AT_ONCE {
            events.push(plain(FileChange::Overflowed));
        }
        if added.is_err() {
            events.push(FileEvent { kind: FileChange::Unwatched, name: Some(path) });
        }
    }

    /// Directories may have been created or removed unnoticed.
    fn look_again(&mut self, events: &mut Vec<FileEvent>) {
        let files = self.machine.work().files.clone();
        let Some(files) = files.filter(|_| self.recursive && self.on) else { return };
        if self.add_all(&files).is_err() {
            events.push(plain(FileChange::Unwatched));
        }
    }
}

fn plain(kind: FileChange) -> FileEvent {
    FileEvent { kind, name: None }
}

fn joined(place: &str, name: &str) -> String {
    match (place, name) {
        ("", name) => name.to_owned(),
        (place, "") => place.to_owned(),
        (place, name) => format!("{}/{name}", place.trim_end_matches('/')),
    }
}

fn tell(mask: u32, name: Option<String>, events: &mut Vec<FileEvent>) {
    let kinds = [
        (CAME, FileChange::Created),
        (libc::IN_MODIFY, FileChange::Changed),
        (libc::IN_CLOSE_WRITE, FileChange::Written),
        (WENT, FileChange::Removed),
        (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF, FileChange::Gone),
    ];
    let known = kinds.into_iter().find(|(bits, _)| mask & bits != 0);
    let Some((_, kind)) = known else { return };
    let event = FileEvent { kind, name };
    // a writer causes many changes in a row; one report is enough
    if kind != FileChange::Changed || events.last() != Some(&event) {
        events.push(event);
    }
}

/// The kernel has no more watches; it reports this with the same code as a full disk or too many
/// descriptors.
fn scarce(error: std::io::Error) -> FileError {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EMFILE) => FileError::NoWatches,
        _ => error.into(),
    }
}

/// The first event, and the rest.
fn parse(bytes: &[u8]) -> Option<(Told, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
    let (watch, mask, length) = (number(0)? as i32, number(4)?, number(12)? as usize);
    let (name, rest) = rest.split_at_checked(length)?;
    let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    let name = name.map(|name| String::from_utf8_lossy(name).into_owned());
    Some((Told { watch, mask, name }, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_account_leaves_watches_for_others() {
        let of = |account: &str, machine: i64| One::take(account.to_owned(), machine);
        let own: Vec<One> = (0..100).filter_map(|number| of("greedy", number / 10)).collect();
        assert_eq!(own.len(), OF_ACCOUNT);
        assert_eq!(own.iter().filter(|one| one.1 == 0).count(), OF_MACHINE);
        assert!(of("other", 200).is_some());
        drop(own);
        assert!(of("greedy", 0).is_some());
    }
}
