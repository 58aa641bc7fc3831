//! Watching a file or a directory, over swaps.
//!
//! The kernel tells through inotify, whose watch does not keep the machine's file system: when
//! the machine leaves memory the watch ends by itself, and begins anew when it is back.

use super::{Fault, path};
use crate::error::Result;
use crate::machine::Machine;
use event_listener::EventListener;
use stasis_api::{FileChange, FileEvent};
use stasis_sys::{below, fds, libc};
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::sync::Arc;

const MASK: u32 = libc::IN_CREATE
    | libc::IN_MODIFY
    | libc::IN_CLOSE_WRITE
    | libc::IN_DELETE
    | libc::IN_MOVED_FROM
    | libc::IN_MOVED_TO
    | libc::IN_DELETE_SELF
    | libc::IN_MOVE_SELF;
/// Of an event before its name: watch, what, cookie, length of the name.
const HEAD: usize = 16;

pub struct Watch {
    machine: Arc<Machine>,
    path: String,
    queue: File,
    /// Whether the machine is in memory and watched.
    on: bool,
}

impl Machine {
    /// Begins to watch; the machine is woken for it.
    pub fn watch_file(self: &Arc<Self>, given: &str) -> Result<Watch> {
        let path = path::absolute(given).map_err(|fault| self.fault(given, fault))?;
        let queue = fds::inotify(libc::IN_CLOEXEC | libc::IN_NONBLOCK);
        let queue = queue.map_err(|error| self.fault(&path, error))?;
        let mut watch = Watch { machine: self.clone(), path, queue: queue.into(), on: false };
        self.files()?;
        watch.begin()?;
        Ok(watch)
    }
}

impl Watch {
    /// Wakes up when something may have happened to the machine.
    pub fn machine_changes(&self) -> EventListener {
        self.machine.listen()
    }

    /// Watches if the machine is in memory; whether it does now and did not before.
    pub fn begin(&mut self) -> Result<bool> {
        let files = self.machine.work().files.clone();
        let Some(files) = files.filter(|_| !self.on) else { return Ok(false) };
        let add = || -> std::result::Result<(), Fault> {
            let _as = files.act();
            let fd = files.open(&self.path, libc::O_PATH)?;
            let name = below::own_name(fd.as_fd());
            fds::inotify_watch(self.queue.as_fd(), &name, MASK)?;
            Ok(())
        };
        add().map_err(|fault| self.machine.fault(&self.path, fault))?;
        self.on = true;
        Ok(true)
    }

    /// What happened since the last call; never waits.
    pub fn take(&mut self) -> Result<Vec<FileEvent>> {
        let mut buffer = [0; 16 << 10];
        let read = match self.queue.read(&mut buffer) {
            Ok(read) => read,
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => 0,
            Err(error) => return Err(self.machine.fault(&self.path, error)),
        };
        let mut events = Vec::new();
        let mut rest = &buffer[..read];
        while let Some((mask, name, more)) = parse(rest) {
            rest = more;
            self.tell(mask, name, &mut events);
        }
        Ok(events)
    }

    fn tell(&mut self, mask: u32, name: Option<String>, events: &mut Vec<FileEvent>) {
        let kinds = [
            (libc::IN_CREATE | libc::IN_MOVED_TO, FileChange::Created),
            (libc::IN_MODIFY, FileChange::Changed),
            (libc::IN_CLOSE_WRITE, FileChange::Written),
            (libc::IN_DELETE | libc::IN_MOVED_FROM, FileChange::Removed),
            (libc::IN_Q_OVERFLOW, FileChange::Overflowed),
            (libc::IN_UNMOUNT, FileChange::Swapped),
            (libc::IN_DELETE_SELF | libc::IN_MOVE_SELF, FileChange::Gone),
        ];
        if mask & libc::IN_UNMOUNT != 0 {
            self.on = false;
        }
        let known = kinds.into_iter().find(|(bits, _)| mask & bits != 0);
        let Some((_, kind)) = known else { return };
        let event = FileEvent { kind, name };
        // a writer changes much in a row; once is enough
        if kind != FileChange::Changed || events.last() != Some(&event) {
            events.push(event);
        }
    }
}

/// The first event: what, of whom, and the rest.
fn parse(bytes: &[u8]) -> Option<(u32, Option<String>, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD)?;
    let number = |at: usize| head[at..at + 4].try_into().map(u32::from_ne_bytes).ok();
    let (mask, length) = (number(4)?, number(12)? as usize);
    let (name, rest) = rest.split_at_checked(length)?;
    let name = name.split(|byte| *byte == 0).next().filter(|name| !name.is_empty());
    Some((mask, name.map(|name| String::from_utf8_lossy(name).into_owned()), rest))
}
