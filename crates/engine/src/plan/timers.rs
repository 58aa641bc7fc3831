//! A process's timers: descriptors, interval timers and those of timer_create(2).

use super::builder::Builder;
use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_sys::libc;

const TFD_IOC_SET_TICKS: u64 = 0x4008_5400;

impl Builder<'_> {
    pub(super) fn arm(&mut self, fd: i32, timer: &Timerfd) {
        let (flags, value) = self.deadline(timer);
        let spec = self.timespecs(&[timer.interval_ns, value]);
        let args = [fd as u64, flags as u64, spec, 0];
        self.program.must("arm a timer descriptor", libc::SYS_timerfd_settime, &args);
        if timer.ticks > 0 {
            let ticks = self.program.words(&[timer.ticks]);
            let args = [fd as u64, TFD_IOC_SET_TICKS, ticks];
            self.program.must("set a timer's ticks", libc::SYS_ioctl, &args);
        }
    }

    /// How a timer is set. A deadline by the wall clock stays. Any other wait has its time left, by
    /// the tree's own clock where that is known: the clock has started when timers are set, a
    /// moment ago or, on a busy host, a while.
    fn deadline(&self, timer: &Timerfd) -> (i32, u64) {
        let clocks = &self.prepared.manifest.meta.clocks;
        let left = timer.left_ns;
        let absolute = timer.settime_flags & libc::TFD_TIMER_ABSTIME != 0
            && timer.clock == libc::CLOCK_REALTIME;
        match self.own_clock(timer.clock) {
            // an expired timer that was not read yet shows no time left, and continues when read
            _ if left == 0 && timer.ticks > 0 && timer.interval_ns > 0 => (0, 1),
            _ if left == 0 => (0, 0),
            _ if absolute => {
                (timer.settime_flags, (clocks.realtime_ns as u64).saturating_add(left))
            }
            Some(now) => (libc::TFD_TIMER_ABSTIME, now.saturating_add(left)),
            None => (0, left),
        }
    }

    /// The reading of one of the tree's own clocks at the capture.
    fn own_clock(&self, clock: i32) -> Option<u64> {
        let clocks = &self.prepared.manifest.meta.clocks;
        match clock {
            libc::CLOCK_MONOTONIC => Some(clocks.monotonic_ns as u64),
            libc::CLOCK_BOOTTIME => Some(clocks.boottime_ns as u64),
            _ => None,
        }
    }

    fn timespecs(&mut self, times: &[u64]) -> u64 {
        let words: Vec<u64> =
            times.iter().flat_map(|ns| [ns / 1_000_000_000, ns % 1_000_000_000]).collect();
        self.program.words(&words)
    }

    pub(super) fn timers(&mut self, live: &LiveProcess) -> Result<()> {
        for (which, timer) in live.itimers.iter().enumerate() {
            if timer.left_us == 0 && timer.interval_us == 0 {
                continue;
            }
            let micro = |us: u64| [us / 1_000_000, us % 1_000_000];
            // one that went off, and whose signal was not taken yet, shows no time left
            let left = timer.left_us.max(1);
            let words = [micro(timer.interval_us), micro(left)].concat();
            let at = self.program.words(&words);
            self.program.must("set an interval timer", libc::SYS_setitimer, &[which as u64, at, 0]);
        }
        if !live.timers.is_empty() {
            self.posix_timers(&live.timers)?;
        }
        Ok(())
    }

    fn posix_timers(&mut self, timers: &[PosixTimer]) -> Result<()> {
        const PR_TIMER_CREATE_RESTORE_IDS: u64 = 77;
        const MOST_WITHOUT_IDS: i32 = 1024;
        let direct = self.prepared.timer_ids;
        let last = timers.iter().map(|timer| timer.id).max().unwrap_or(0);
        if direct {
            let args = [PR_TIMER_CREATE_RESTORE_IDS, 1, 0, 0, 0];
            self.program.must("choose timer numbers", libc::SYS_prctl, &args);
        } else if last > MOST_WITHOUT_IDS {
            return Err(Error::Unfit(format!(
                "timer {last} needs a kernel that lets timer numbers be chosen (6.15)"
            )));
        }
        if direct {
            timers.iter().for_each(|timer| self.posix_timer(timer));
            let args = [PR_TIMER_CREATE_RESTORE_IDS, 0, 0, 0, 0];
            self.program.must("stop choosing timer numbers", libc::SYS_prctl, &args);
            return Ok(());
        }
        // without that, numbers are given out from 0 on: the gaps are made and deleted
        for id in 0..=last {
            match timers.iter().find(|timer| timer.id == id) {
                Some(timer) => self.posix_timer(timer),
                None => self.timer_gap(id),
            }
        }
        Ok(())
    }

    fn posix_timer(&mut self, timer: &PosixTimer) {
        let event = self.program.words(&[
            timer.value,
            timer.signal as u32 as u64 | (timer.notify as u64) << 32,
            timer.tid as u64,
            0,
            0,
            0,
            0,
            0,
        ]);
        let id = self.program.words(&[timer.id as u64]);
        let args = [timer.clock as u64, event, id];
        self.program.must("make a timer", libc::SYS_timer_create, &args);
        let (flags, value) = match self.own_clock(timer.clock).filter(|_| timer.left_ns > 0) {
            Some(now) => (libc::TIMER_ABSTIME, now.saturating_add(timer.left_ns)),
            None => (0, timer.left_ns),
        };
        let spec = self.timespecs(&[timer.interval_ns, value]);
        let args = [timer.id as u64, flags as u64, spec, 0];
        self.program.must("arm a timer", libc::SYS_timer_settime, &args);
    }

    fn timer_gap(&mut self, id: i32) {
        let at = self.program.words(&[id as u64]);
        let args = [libc::CLOCK_MONOTONIC as u64, 0, at];
        self.program.must("pass over a timer number", libc::SYS_timer_create, &args);
        self.program.must("pass over a timer number", libc::SYS_timer_delete, &[id as u64]);
    }
}
