//! Epoll sets: their watches and pending events.
//!
//! An event that is reported only once (edge-triggered, one-shot) and that the program has received
//! must not come again in a copy. The kernel shows pending events only by removing them. The engine
//! therefore removes them and makes the source arm those watches again, which restores the events.

use super::OpenDescriptor;
use crate::error::{Error, ErrorContext, Result};
use crate::inject::Injector;
use crate::proc::after;
use stasis_image::model::*;
use stasis_sys::{fds, libc, process as sysprocess};
use std::os::fd::AsFd;

pub fn read(descriptor: &OpenDescriptor) -> Result<ObjectKind> {
    let watches = watches(descriptor);
    let mut watches =
        watches.ok_or_else(|| descriptor.refuse("the state of its eventpoll is unreadable"))?;
    if watches.iter().any(EpollWatch::is_told_once) && can_be_put_back(descriptor, &watches) {
        look_for_events(descriptor, &mut watches)?;
    }
    Ok(ObjectKind::Epoll { watches })
}

/// Until it is known better, an event counts as waiting: one too many is only a wake-up.
fn watches(descriptor: &OpenDescriptor) -> Option<Vec<EpollWatch>> {
    // "tfd:        5 events:       19 data:                5  pos:0 ino:..."
    let read = |line: &str| {
        Some(EpollWatch {
            fd: line.split_whitespace().next()?.parse().ok()?,
            events: u32::from_str_radix(after(line, "events:")?, 16).ok()?,
            data: u64::from_str_radix(after(line, "data:")?, 16).ok()?,
            due: true,
        })
    };
    descriptor.info.all("tfd").map(read).collect()
}

/// Whether every watch can be armed again by the number it has in this process.
fn can_be_put_back(descriptor: &OpenDescriptor, watches: &[EpollWatch]) -> bool {
    const EXCLUSIVE: u32 = 1 << 28;
    let (pid, set) = (descriptor.process.pid, descriptor.number);
    watches
        .iter()
        .all(|watch| watch.events & EXCLUSIVE == 0 && sysprocess::is_watched(pid, set, watch.fd))
}

fn look_for_events(descriptor: &OpenDescriptor, watches: &mut [EpollWatch]) -> Result<()> {
    let live = descriptor.process.live.as_ref().ok_or(Error::Gone)?;
    let doing = || format!("look at epoll set {}", descriptor.number);
    let copy = descriptor.copy().doing(doing)?;
    let mut injector = Injector::new(live.threads[0].tid, &live.memory, live.site)?;
    let taken = fds::epoll_take(copy.as_fd(), watches.len()).doing(doing)?;
    for watch in watches {
        // several may have been given the same data: then any of them may be meant
        watch.due = taken.iter().any(|(_, data)| *data == watch.data);
        if watch.due && watch.is_told_once() {
            let mut event = watch.events.to_ne_bytes().to_vec();
            event.extend(watch.data.to_ne_bytes());
            let at = injector.put(0, &event)?;
            let set = descriptor.number as u64;
            let args = [set, libc::EPOLL_CTL_MOD as u64, watch.fd as u64, at, 0, 0];
            injector.must("arm a watch again", libc::SYS_epoll_ctl, args)?;
        }
    }
    injector.finish()
}
