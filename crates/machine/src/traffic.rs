//! Counts the machines that a caller waits for.
//!
//! Callers come first: while many machines are being woken or used at once, checkpoints of the
//! others are delayed for a moment (`queue`).

use parking_lot::{Mutex, MutexGuard};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Machines entering memory, from this many on: a single wake must not delay checkpoints.
const ARRIVING: usize = 4;
/// Machines used within the last one or two windows, from this many on.
const ASKED: u64 = 8;
const WINDOW: Duration = Duration::from_millis(100);

pub struct Traffic {
    arriving: AtomicUsize,
    begun: Instant,
    asked: Mutex<Windows>,
}

/// Number of machines used in this window and in the one before.
#[derive(Default)]
struct Windows {
    number: u64,
    now: u64,
    before: u64,
}

/// The window in which a machine was last used, so that it counts once in each.
#[derive(Default)]
pub struct LastRequestWindow(Option<u64>);

/// Counts a machine as entering memory until dropped.
pub struct ArrivalGuard<'a>(&'a Traffic);

impl Default for Traffic {
    fn default() -> Traffic {
        let (arriving, asked) = (AtomicUsize::default(), Mutex::default());
        Traffic { arriving, begun: Instant::now(), asked }
    }
}

impl Traffic {
    pub fn arrive(&self) -> ArrivalGuard<'_> {
        self.arriving.fetch_add(1, Ordering::Relaxed);
        ArrivalGuard(self)
    }

    /// A machine got work.
    pub fn ask(&self, last: &mut LastRequestWindow, now: Instant) {
        let mut windows = self.windows(now);
        if last.0.replace(windows.number) != Some(windows.number) {
            windows.now += 1;
        }
    }

    /// Whether many machines are entering memory.
    pub fn is_arriving(&self) -> bool {
        self.arriving.load(Ordering::Relaxed) >= ARRIVING
    }

    /// Whether clients wait for many machines.
    pub fn is_crowded(&self, now: Instant) -> bool {
        let windows = self.windows(now);
        self.is_arriving() || windows.now.max(windows.before) >= ASKED
    }

    /// The current windows.
    fn windows(&self, now: Instant) -> MutexGuard<'_, Windows> {
        let number =
            (now.saturating_duration_since(self.begun).as_millis() / WINDOW.as_millis()) as u64;
        let mut windows = self.asked.lock();
        if number > windows.number {
            let before = if number == windows.number + 1 { windows.now } else { 0 };
            *windows = Windows { number, now: 0, before };
        }
        windows
    }
}

impl Drop for ArrivalGuard<'_> {
    fn drop(&mut self) {
        self.0.arriving.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_is_one_while_it_is_on_its_way() {
        let traffic = Traffic::default();
        let mut all: Vec<ArrivalGuard> = (0..ARRIVING).map(|_| traffic.arrive()).collect();
        assert!(traffic.is_crowded(traffic.begun));
        all.pop();
        assert!(!traffic.is_crowded(traffic.begun));
    }

    #[test]
    fn many_machines_are_a_crowd_and_one_that_is_asked_often_is_not() {
        let traffic = Traffic::default();
        let now = traffic.begun + WINDOW / 2;
        let mut machines: Vec<LastRequestWindow> =
            (0..ASKED).map(|_| LastRequestWindow::default()).collect();
        (0..100).for_each(|_| traffic.ask(&mut machines[0], now));
        assert!(!traffic.is_crowded(now));
        machines.iter_mut().for_each(|machine| traffic.ask(machine, now));
        assert!(traffic.is_crowded(now) && traffic.is_crowded(now + WINDOW));
        assert!(!traffic.is_crowded(now + WINDOW * 2));
        traffic.ask(&mut machines[0], now + WINDOW * 3);
        assert!(!traffic.is_crowded(now + WINDOW * 3));
    }
}
