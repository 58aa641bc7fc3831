//! A bound on calls that block and know no timeout of their own, such as wait4(2).
//!
//! While an alarm is set, its thread gets a signal at the deadline and again every few
//! milliseconds, so that a call entered just as the first one arrived ends too. The handler does
//! nothing: the signal makes the call return EINTR.

use crate::check;
use std::io;
use std::sync::Once;
use std::time::{Duration, Instant};

const AGAIN: Duration = Duration::from_millis(5);

/// Interrupts the calls of the thread that set it, once its time is over.
pub struct Alarm {
    timer: libc::timer_t,
    end: Instant,
}

impl Alarm {
    pub fn set(limit: Duration) -> io::Result<Alarm> {
        static HANDLED: Once = Once::new();
        HANDLED.call_once(handle);
        // SAFETY: plain integers, for which all zeros is a value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal();
        // SAFETY: no arguments.
        event.sigev_notify_thread_id = unsafe { libc::gettid() };
        let mut timer = std::ptr::null_mut();
        let clock = libc::CLOCK_MONOTONIC;
        // SAFETY: both outlive the call.
        check(unsafe { libc::timer_create(clock, &raw mut event, &raw mut timer) }.into())?;
        let alarm = Alarm { timer, end: Instant::now() + limit };
        alarm.fire(limit, AGAIN)?;
        Ok(alarm)
    }

    pub fn is_over(&self) -> bool {
        Instant::now() >= self.end
    }

    /// Interrupts calls every `interval` too, while the returned value lives.
    pub fn ticking(&self, interval: Duration) -> io::Result<Ticking<'_>> {
        self.fire(interval.min(self.left()), interval)?;
        Ok(Ticking(self))
    }

    fn left(&self) -> Duration {
        self.end.saturating_duration_since(Instant::now())
    }

    fn fire(&self, first: Duration, interval: Duration) -> io::Result<()> {
        // a time of zero would switch the timer off
        let first = spec(first.max(Duration::from_nanos(1)));
        let times = libc::itimerspec { it_interval: spec(interval), it_value: first };
        let no_old = std::ptr::null_mut();
        // SAFETY: the timer lives as long as `self`; `times` outlives the call, no old value is
        // asked for.
        let set = unsafe { libc::timer_settime(self.timer, 0, &raw const times, no_old) };
        check(set.into()).map(drop)
    }
}

/// An alarm that also interrupts calls before its deadline.
pub struct Ticking<'a>(&'a Alarm);

impl Drop for Ticking<'_> {
    fn drop(&mut self) {
        // cannot fail: both times are valid
        let _ = self.0.fire(self.0.left(), AGAIN);
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: made in `set`, and deleted nowhere else.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// A signal that is not used otherwise in this process.
fn signal() -> i32 {
    libc::SIGRTMAX() - 3
}

fn handle() {
    extern "C" fn nothing(_: i32) {}
    // SAFETY: plain integers, for which all zeros is a value: no flags, so calls are not restarted.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
    // SAFETY: the handler touches nothing; `action` outlives the call.
    unsafe { libc::sigaction(signal(), &raw const action, std::ptr::null_mut()) };
}

fn spec(time: Duration) -> libc::timespec {
    libc::timespec { tv_sec: time.as_secs() as i64, tv_nsec: time.subsec_nanos().into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_would_last_for_ever_ends() {
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let alarm = Alarm::set(Duration::from_millis(20)).unwrap();
        let waited = crate::process::wait_until(child.id() as i32, 0, &alarm);
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(waited.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }
}
