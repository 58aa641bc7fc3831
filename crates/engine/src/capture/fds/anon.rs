//! Descriptors without a file: event counters, signals, timers.

use super::{OpenDescriptor, epoll};
use crate::error::Result;
use crate::proc::{self, FdInfo};
use stasis_image::model::*;
use stasis_sys::fds;
use std::os::fd::AsFd;

pub fn read(descriptor: &OpenDescriptor, kind: &str) -> Result<ObjectKind> {
    let read = match kind {
        "eventfd" => eventfd(descriptor),
        "eventpoll" => return epoll::read(descriptor),
        "signalfd" => signalfd(descriptor),
        "timerfd" => timerfd(descriptor),
        other => return Err(descriptor.refuse(format!("{other} is not supported"))),
    };
    read.ok_or_else(|| descriptor.refuse(format!("the state of its {kind} is unreadable")))
}

fn eventfd(descriptor: &OpenDescriptor) -> Option<ObjectKind> {
    let semaphore = descriptor.info.text("eventfd-semaphore").is_some_and(|value| value == "1");
    Some(ObjectKind::Eventfd { count: descriptor.info.hex("eventfd-count")?, semaphore })
}

fn signalfd(descriptor: &OpenDescriptor) -> Option<ObjectKind> {
    Some(ObjectKind::Signalfd { mask: descriptor.info.hex("sigmask")? })
}

fn timerfd(descriptor: &OpenDescriptor) -> Option<ObjectKind> {
    let timer = self::timer(&descriptor.info)?;
    if timer.ticks == 0 || timer.left_ns != 0 || timer.interval_ns == 0 {
        return Some(ObjectKind::Timerfd(timer));
    }
    // An expired timer rests until it is read, and only then counts its missed expirations. A
    // reader sees no difference.
    descriptor.copy().and_then(|copy| fds::timerfd_catch_up(copy.as_fd())).ok()?;
    let path = format!("fdinfo/{}", descriptor.number);
    let text = proc::read_text(descriptor.process.pid, &path).ok()?;
    self::timer(&FdInfo::parse(&text)?).map(ObjectKind::Timerfd)
}

fn timer(info: &FdInfo) -> Option<Timerfd> {
    // "(seconds, nanoseconds)"
    let time = |key: &str| -> Option<u64> {
        let (seconds, nanoseconds) = info.text(key)?.trim_matches(['(', ')']).split_once(", ")?;
        Some(seconds.parse::<u64>().ok()? * 1_000_000_000 + nanoseconds.parse::<u64>().ok()?)
    };
    Some(Timerfd {
        clock: info.text("clockid")?.parse().ok()?,
        ticks: info.text("ticks")?.parse().ok()?,
        settime_flags: i32::from_str_radix(info.text("settime flags")?, 8).ok()?,
        left_ns: time("it_value")?,
        interval_ns: time("it_interval")?,
    })
}
