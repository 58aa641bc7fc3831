//! The watch over runs: one that does not come to its end in time is given one.
//!
//!   run under way ─► its time limit and a grace are over ─► recorded as failed, its turn ended
//!
//! Everything a run waits for has a deadline of its own: its code, a restore, a capture, an agent.
//! This is for what none of them covers. The thread of such a run tidies up if it ever gets on; the
//! session starts from where it was before the run.

use crate::V8;
use crate::executions::RunningExecution;
use crate::queue::WaitingRun;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long everything around a run's code may take.
pub(crate) const GRACE: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(250);

impl V8 {
    /// Has runs watched as long as there are any.
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
                // one that came since the look found a watch and began none
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
        tracing::error!(id, step, "a run did not end in time and is given up");
        let limit = self.shared.grace.as_secs();
        self.give_up(own, &format!(
            "the run did not end within {limit} s of its time limit, while {step}; nothing of it \
             is kept, and the session is as before it"
        ));
        let session = own.run.session.clone();
        let run = WaitingRun { account: own.account.clone(), id: id.clone(), session };
        self.shared.queue.lock().ended(&run);
        self.start_waiting();
        let place = own.place.lock().clone();
        if let Some((machine, seq)) = place {
            // whatever of it can still be stopped
            stasis_machine::hand_over(move || drop(machine.stop(seq)));
        }
    }
}
