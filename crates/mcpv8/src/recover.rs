//! Recovery after a kill: each unfinished run is followed to its end on
//! its machine, or reported as failed if it had not begun there or its machine was temporary.

use crate::V8;
use crate::documents::RUNNING;
use crate::error::{Error, Result};
use crate::executions::{RunStep, RunningExecution};
use crate::queue::WaitingRun;
use crate::run::{MADE_FOR, RecordedRun, RunOrigin};
use stasis_machine::Machine;
use std::sync::Arc;

impl V8 {
    pub(crate) fn recover(&self) {
        let left = self.host.documents_of_kind(RUNNING).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the unfinished runs");
            Vec::new()
        });
        for (account, id) in left {
            if let Err(error) = self.resume(&account, &id) {
                tracing::error!(%error, account, id, "cannot follow a run");
            }
        }
        self.shared.queue.lock().open();
        self.start_waiting();
    }

    fn resume(&self, account: &str, id: &str) -> Result<()> {
        // a run of this process is in memory before it is recorded, and until its record is removed
        if self.running(account, id).is_some() {
            return Ok(());
        }
        let Some(recorded) = self.read::<RecordedRun>(account, RUNNING, id)? else { return Ok(()) };
        let info = self.execution(account, id)?;
        let place = recorded.place.as_ref().and_then(|place| {
            let machine = self.heap_machine(account, &place.state).ok()?;
            Some((machine, place.state.seq, place.origin))
        });
        let own = Arc::new(RunningExecution::new(account, recorded.run, info));
        let key = (account.to_owned(), id.to_owned());
        self.shared.running.lock().insert(key, own.clone());
        let Some((machine, seq, origin)) = place else {
            self.remove_made_for(account, id);
            let said = "the service ended before this run did; run it again";
            self.settle(&own, None, Err(Error::new(503, said)));
            return Ok(());
        };
        let run = own.waiting();
        self.shared.queue.lock().began(&run);
        let v8 = self.clone();
        stasis_machine::hand_over(move || v8.follow(&own, &machine, seq, origin, &run));
        Ok(())
    }

    /// Removes a machine that was created for a run but never used.
    fn remove_made_for(&self, account: &str, id: &str) {
        let is_its = |machine: &Arc<Machine>| {
            machine.account() == account
                && machine.describe().tags.get(MADE_FOR).is_some_and(|own| own == id)
        };
        for machine in self.host.machines().into_iter().filter(is_its) {
            if let Err(error) = self.host.remove(&machine) {
                tracing::warn!(%error, machine = %machine.name(), "a machine without a run stays");
            }
        }
    }

    fn follow(
        &self,
        own: &Arc<RunningExecution>,
        machine: &Arc<Machine>,
        seq: u64,
        origin: RunOrigin,
        run: &WaitingRun,
    ) {
        let turn = self.turn(run);
        let taken = self.shared.queue.lock().take_machine(machine.number());
        own.placed(machine, seq);
        own.now(RunStep::Running);
        self.keep_watch();
        if let Err(error) = self.tools_before(&own.account, &own.run, machine) {
            tracing::warn!(%error, machine = %machine.name(), "a run has no upstream servers");
        }
        let end = machine.wait(seq).map_err(Error::from);
        self.settle(own, Some((machine, origin)), end);
        if taken {
            self.shared.queue.lock().free_machine(machine.number());
        }
        drop(turn);
    }
}
