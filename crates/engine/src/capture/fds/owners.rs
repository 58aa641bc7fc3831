//! Receivers of signals about a descriptor (F_SETOWN, F_SETSIG), in the machine's numbering.

use super::OpenDescriptor;
use crate::error::{ErrorContext, Result};
use crate::freeze::{Frozen, FrozenProcess};
use stasis_image::model::FdOwner;
use stasis_sys::{fds, libc};
use std::os::fd::AsFd;

pub fn read(descriptor: &OpenDescriptor, frozen: &Frozen) -> Result<Option<FdOwner>> {
    if descriptor.info.flags as i32 & libc::O_PATH != 0 {
        return Ok(None);
    }
    let doing = || format!("ask {} for its owner", descriptor.path());
    let fd = descriptor.copy().doing(doing)?;
    let (kind, host) = fds::owner(fd.as_fd()).doing(doing)?;
    let signal = fds::fcntl(fd.as_fd(), fds::F_GETSIG, 0).doing(doing)?;
    if host == 0 {
        return Ok((signal != 0).then_some(FdOwner { kind, pid: 0, signal }));
    }
    let pid = own_number(frozen, kind, host)
        .ok_or_else(|| descriptor.refuse(format!("its owner {host} is not of this machine")))?;
    Ok(Some(FdOwner { kind, pid, signal }))
}

fn own_number(frozen: &Frozen, kind: i32, host: i32) -> Option<i32> {
    let find = |matches: &dyn Fn(&&FrozenProcess) -> bool| frozen.processes.iter().find(matches);
    match kind {
        fds::F_OWNER_TID => frozen
            .processes
            .iter()
            .flat_map(|process| process.live.iter().flat_map(|live| &live.threads))
            .find(|thread| thread.tid == host)
            .map(|thread| thread.own_tid),
        fds::F_OWNER_PID => find(&|process| process.pid == host).map(|process| process.own_pid),
        fds::F_OWNER_PGRP => {
            let group = |process: &&FrozenProcess| {
                process.status.list("NSpgid").first() == Some(&i64::from(host))
            };
            find(&group)?.status.innermost("NSpgid")
        }
        _ => None,
    }
}
