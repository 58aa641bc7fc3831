//! Descriptors of processes. fdinfo names the process in every namespace from ours inwards.

use super::OpenDescriptor;
use crate::error::Result;
use stasis_image::model::ObjectKind;
use stasis_sys::libc;

pub fn read(descriptor: &OpenDescriptor) -> Result<ObjectKind> {
    let unreadable = || descriptor.refuse("its pidfd is unreadable");
    if descriptor.info.flags as i32 & libc::O_EXCL != 0 {
        return Err(descriptor.refuse("a pidfd of a thread is not supported"));
    }
    let host = descriptor.info.text("Pid").ok_or_else(unreadable)?;
    if host == "-1" {
        return Ok(ObjectKind::Pidfd { pid: 0 });
    }
    let numbers = descriptor.info.text("NSpid").ok_or_else(unreadable)?;
    let inner = numbers.split_whitespace().nth(1).and_then(|pid| pid.parse().ok());
    match inner {
        Some(pid) => Ok(ObjectKind::Pidfd { pid }),
        None => Err(descriptor.refuse(format!("a pidfd of {host}, outside the machine"))),
    }
}
