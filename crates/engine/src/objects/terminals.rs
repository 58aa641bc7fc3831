//! Pseudo-terminals: made by the machine's init under their old numbers, filled and set here.
//!
//! The session that a terminal controls takes it itself (`plan::terminals`).

use super::CreatedObjects;
use crate::error::{Error, ErrorContext, Result};
use crate::tty;
use stasis_image::model::*;
use stasis_spawner::protocol::ObjectSpec;
use stasis_sys::{fds, libc};
use std::os::fd::{AsFd, BorrowedFd};

/// The init's instructions to open one side of a terminal.
pub fn spec(manifest: &Manifest, pty: &Pty, flags: i32) -> Result<ObjectSpec> {
    let terminal = terminal(manifest, pty.terminal)?;
    Ok(match (pty.master, terminal.master_gone) {
        (true, _) => ObjectSpec::PtyMaster {
            index: terminal.index,
            flags,
            node: terminal.node,
            slave_gone: terminal.slave_gone,
        },
        (false, true) => ObjectSpec::HungUpPty { flags },
        (false, false) => {
            ObjectSpec::Open { path: format!("/dev/pts/{}", terminal.index), flags, offset: None }
        }
    })
}

fn terminal(manifest: &Manifest, index: u32) -> Result<&Terminal> {
    match manifest.objects.get(index as usize).map(|object| &object.kind) {
        Some(ObjectKind::Terminal(terminal)) => Ok(terminal),
        _ => Err(Error::Unfit("one side of a terminal that is not there".into())),
    }
}

/// Fills and sets every terminal, now that both sides are open.
pub fn bring_back(manifest: &Manifest, made: &CreatedObjects) -> Result<()> {
    for (index, object) in (0..).zip(&manifest.objects) {
        let ObjectKind::Terminal(terminal) = &object.kind else { continue };
        let side = |master: bool| side(manifest, made, Pty { terminal: index, master });
        let Some(master) = side(true) else { continue };
        set(master, side(false), terminal)
            .doing(|| format!("bring terminal {} back", terminal.index))?;
    }
    Ok(())
}

fn side<'a>(manifest: &Manifest, made: &'a CreatedObjects, pty: Pty) -> Option<BorrowedFd<'a>> {
    let wanted = ObjectKind::Pty(pty);
    let index = manifest.objects.iter().position(|object| object.kind == wanted)?;
    Some(made.fds.get(made.objects[index]?)?.as_fd())
}

fn set(master: BorrowedFd, slave: Option<BorrowedFd>, terminal: &Terminal) -> std::io::Result<()> {
    let mut winsize: Vec<u8> = terminal.winsize.iter().flat_map(|n| n.to_ne_bytes()).collect();
    fds::ioctl_buffer(master, libc::TIOCSWINSZ, &mut winsize)?;
    tty::refill(master, slave, terminal)?;
    tty::set_word(master, libc::TIOCPKT, terminal.packet.into())?;
    tty::set_word(master, libc::TIOCSPTLCK, terminal.locked.into())
}
