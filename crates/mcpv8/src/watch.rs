//! The watchdog of runs: ends a run that does not end in time.
//!
//!   run under way ─► its time limit and a grace are over ─► recorded as failed, its turn ended
//!
//! Everything a run waits for has its own deadline: its code, a restore, a capture, an agent. This
//! covers everything else. The thread of such a run cleans up if it ever continues; the session
//! starts from its state before the run.

use crate::V8;
use crate::executions::RunningExecution;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Maximum time for everything around a run's code.
pub(crate) const GRACE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(250);

impl V8 {
    /// Watches runs as long as there are any.
    pub(crate) fn keep_watch(&self) {
        if !self.shared.is_watched.swap(true, Ordering::SeqCst) {
            let v8 = self.clone();
            stasis_machine::hand_over(move || v8.watch());
        }
    }

    fn watch(&self) {
        loop {
            std::thread::sleep(LOOK);
            let all: Vec<_> = self.shared.running.lock().values().cloned().collect();
            if all.is_empty() {
                self.shared.is_watched.store(false, Ordering::SeqCst);
                // a run that started since the check found a watchdog and started none
                let is_idle = self.shared.running.lock().is_empty();
                if is_idle || self.shared.is_watched.swap(true, Ordering::SeqCst) {
                    return;
                }
            }
            all.iter().filter(|own| self.is_overdue(own)).for_each(|own| self.end_overdue(own));
        }
    }

    fn is_overdue(&self, own: &RunningExecution) -> bool {
        let limit = Duration::from_secs(own.run.seconds.unsigned_abs()) + self.shared.grace;
        own.step().is_some_and(|(began, _)| Instant::now() > began + limit)
    }

    fn end_overdue(&self, own: &Arc<RunningExecution>) {
        let id = &own.info.execution_id;
        let step = own.step().map_or("it waited", |(_, step)| step.words());
        tracing::error!(id, step, "abandoning a run that did not end in time");
        let limit = self.shared.grace.as_secs();
        self.give_up(own, &format!(
            "the run did not end within {limit} s of its time limit, while {step}; nothing of it \
             is kept, and the session is as before it"
        ));
        self.shared.queue.lock().ended(&own.waiting());
        self.start_waiting();
        let place = own.place.lock().clone();
        if let Some((machine, seq)) = place {
            // stops whatever can still be stopped
            stasis_machine::hand_over(move || drop(machine.stop(seq)));
        }
    }
}
