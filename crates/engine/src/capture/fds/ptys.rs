//! Pseudo-terminals of the machine's own devpts.
//!
//! Both sides are collected while descriptors are read; then each terminal's settings and what
//! waits in it are read through them, and its session from the processes. A terminal whose
//! master is outside, in exclusive mode or with another line discipline is refused.

use super::{Objects, OpenDescriptor};
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::Frozen;
use crate::tree::Tree;
use crate::tty;
use stasis_image::model::*;
use stasis_sys::{fds, libc};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

const TIOCGEXCL: u64 = 0x8004_5440;
const TIOCGPTLCK: u64 = 0x8004_5439;
const TIOCGPKT: u64 = 0x8004_5438;
const TIOCGDEV: u64 = 0x8004_5432;
/// Slaves have this major number, and their index as minor.
const SLAVES: u32 = 136;

/// One terminal's descriptors, as far as they were met.
pub struct FoundTerminal {
    object: u32,
    /// Where it was met first, for messages.
    pid: i32,
    number: i32,
    master: Option<OwnedFd>,
    slave: Option<OwnedFd>,
}

/// Terminals by index.
pub type Terminals = BTreeMap<u32, FoundTerminal>;

/// Whether a device number is that of a terminal this module knows.
pub fn is_terminal(device: u64) -> bool {
    let number = (libc::major(device), libc::minor(device));
    number.0 == SLAVES || number == (5, 2) || number == (5, 0)
}

pub fn read(objects: &mut Objects, descriptor: &OpenDescriptor, tree: &Tree) -> Result<ObjectKind> {
    // not opened again: opening /dev/ptmx makes another terminal
    let fd = descriptor.copy().doing(|| format!("copy {}", descriptor.path()))?;
    let device = descriptor.meta.rdev();
    let (master, index) = match (libc::major(device), libc::minor(device)) {
        (5, 2) => (true, ask(descriptor, fd.as_fd(), libc::TIOCGPTN)?),
        // opened as /dev/tty: which one it is now, the terminal says
        (5, 0) => {
            let device = ask(descriptor, fd.as_fd(), TIOCGDEV)?;
            (false, libc::minor(device.into()))
        }
        (_, index) => (false, index),
    };
    check_instance(descriptor, tree)?;
    if !objects.terminals.contains_key(&index) {
        let terminal = ObjectKind::Terminal(Box::new(Terminal { index, ..Terminal::default() }));
        let object = objects.add(Object { flags: 0, owner: None, kind: terminal });
        let (pid, number) = (descriptor.process.own_pid, descriptor.number);
        let found = FoundTerminal { object, pid, number, master: None, slave: None };
        objects.terminals.insert(index, found);
    }
    let found = objects.terminals.get_mut(&index).ok_or(Error::Gone)?;
    *if master { &mut found.master } else { &mut found.slave } = Some(fd);
    Ok(ObjectKind::Pty(Pty { terminal: found.object, master }))
}

fn ask(descriptor: &OpenDescriptor, fd: BorrowedFd, request: u64) -> Result<u32> {
    tty::get_word(fd, request)
        .map_err(|error| descriptor.refuse(format!("terminal {}: {error}", descriptor.link)))
}

/// Terminals have numbers of their own in every devpts; only the machine's counts.
fn check_instance(descriptor: &OpenDescriptor, tree: &Tree) -> Result<()> {
    let path = format!("/proc/{}/root/dev/pts", tree.walls.init.pid);
    let own = std::fs::metadata(&path).doing(|| format!("look at {path}"))?.dev();
    if descriptor.link != "/dev/tty" && descriptor.meta.dev() != own {
        let what = format!("terminal {} is not of this machine", descriptor.link);
        return Err(descriptor.refuse(what));
    }
    Ok(())
}

/// Reads every terminal that was met, now that both sides are known.
pub fn finish(objects: &mut Objects, frozen: &Frozen, tree: &Tree) -> Result<()> {
    let terminals = std::mem::take(&mut objects.terminals);
    check_controlling(frozen, &terminals)?;
    for (index, found) in &terminals {
        let refuse = |error: std::io::Error| {
            let what = format!("fd {}: terminal {index}: {error}", found.number);
            Error::refused(found.pid, what)
        };
        let mut terminal = look(found, tree, *index).map_err(refuse)?;
        sessions(frozen, &mut terminal);
        if terminal.session != 0 && found.slave.is_none() {
            // its leader needs the slave for a moment, to be controlled by it again
            let kind = ObjectKind::Pty(Pty { terminal: found.object, master: false });
            objects.add(Object { flags: libc::O_RDWR as u32, owner: None, kind });
        }
        objects.list[found.object as usize].kind = ObjectKind::Terminal(Box::new(terminal));
    }
    Ok(())
}

fn look(found: &FoundTerminal, tree: &Tree, index: u32) -> std::io::Result<Terminal> {
    let Some(master) = found.master.as_ref().map(AsFd::as_fd) else { return orphan(found, index) };
    let path = format!("/proc/{}/root/dev/pts/{index}", tree.walls.init.pid);
    let node = std::fs::metadata(path)?;
    let own = |id: u32| tree.walls.ids().inside(id).unwrap_or(0);
    let mut winsize = [0; 8];
    fds::ioctl_buffer(master, libc::TIOCGWINSZ, &mut winsize)?;
    let mut terminal = Terminal {
        index,
        node: (own(node.uid()), own(node.gid()), node.mode() & 0o7777),
        slave_gone: fds::hung_up(master)?,
        locked: tty::get_word(master, TIOCGPTLCK)? != 0,
        packet: tty::get_word(master, TIOCGPKT)? != 0,
        termios: tty::termios(master)?,
        winsize: std::array::from_fn(|i| u16::from_ne_bytes([winsize[2 * i], winsize[2 * i + 1]])),
        ..Terminal::default()
    };
    if tty::get_word(master, libc::TIOCGETD)? != 0 {
        return Err(std::io::Error::other("a line discipline of its own"));
    }
    if tty::get_word(master, TIOCGEXCL)? != 0 {
        return Err(std::io::Error::other("exclusive mode"));
    }
    contents(master, found.slave.as_ref().map(AsFd::as_fd), &mut terminal)?;
    Ok(terminal)
}

/// Packet mode would mix status bytes into the data, so it is off meanwhile.
fn contents(
    master: BorrowedFd,
    slave: Option<BorrowedFd>,
    terminal: &mut Terminal,
) -> std::io::Result<()> {
    if terminal.packet {
        tty::set_word(master, libc::TIOCPKT, 0)?;
    }
    let drained = tty::drain(master, slave, terminal);
    // the removed data is restored in any case
    let refilled = tty::refill(master, slave, terminal);
    if terminal.packet {
        tty::set_word(master, libc::TIOCPKT, 1)?;
    }
    drained.and(refilled)
}

/// A slave whose master is closed answers nothing any more.
fn orphan(found: &FoundTerminal, index: u32) -> std::io::Result<Terminal> {
    let slave = found.slave.as_ref().map(|slave| tty::termios(slave.as_fd()));
    match slave {
        Some(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
            Ok(Terminal { index, master_gone: true, ..Terminal::default() })
        }
        _ => Err(std::io::Error::other("its master is outside the machine")),
    }
}

/// Device number of a process's controlling terminal as its stat file has it.
fn controlling(process: &crate::freeze::FrozenProcess) -> u64 {
    process.stat.field(7).unwrap_or(0) as u32 as u64
}

fn stat_number(index: u32) -> u64 {
    u64::from(index & 0xff | SLAVES << 8 | (index & !0xff) << 12)
}

fn check_controlling(frozen: &Frozen, terminals: &Terminals) -> Result<()> {
    for process in frozen.processes.iter().filter(|process| process.live.is_some()) {
        let number = controlling(process);
        if number != 0 && !terminals.keys().any(|index| stat_number(*index) == number) {
            let what = "its controlling terminal is open nowhere in the machine";
            return Err(crate::capture::refuse(process, what));
        }
    }
    Ok(())
}

/// The session controlled by a terminal, from the processes' side.
fn sessions(frozen: &Frozen, terminal: &mut Terminal) {
    let number = stat_number(terminal.index);
    let sid = |process: &crate::freeze::FrozenProcess| process.status.innermost("NSsid");
    let leader = frozen
        .processes
        .iter()
        .find(|process| controlling(process) == number && sid(process) == Some(process.own_pid));
    let Some(leader) = leader else { return };
    terminal.session = leader.own_pid;
    // the host's number of the foreground group; its members know their own
    let group = leader.stat.field(8).unwrap_or(0) as i64;
    let member = frozen.processes.iter().find(|process| {
        process.live.is_some() && process.status.list("NSpgid").first() == Some(&group)
    });
    terminal.foreground = member.and_then(|member| member.status.innermost("NSpgid")).unwrap_or(0);
    terminal.without = frozen
        .processes
        .iter()
        .filter(|process| process.live.is_some() && sid(process) == Some(leader.own_pid))
        .filter(|process| controlling(process) != number)
        .map(|process| process.own_pid)
        .collect();
}
