//! Promote: a branch and another machine exchange names, atomically. Nothing else changes on
//! either.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::EventKind;
use stasis_engine::fault;
use std::sync::Arc;

impl Host {
    /// A branch gets the name of `onto`, or of its parent. Returns the machine that had the name.
    pub fn promote(
        &self,
        branch: &Arc<Machine>,
        onto: Option<&Arc<Machine>>,
    ) -> Result<Arc<Machine>> {
        let other = match onto {
            Some(other) => other.clone(),
            None => self.parent_of(branch)?,
        };
        if other.account() != branch.account() {
            return Err(Error::NoMachine(other.name().to_string()));
        }
        if other.id == branch.id {
            return Err(Error::State("a machine cannot replace itself".into()));
        }
        // only other exchanges of names wait for this
        let promoting = self.promoting();
        let here = |one: &Machine| self.read().has(one) && !one.is_removed();
        if let Some(gone) = [branch, &other].into_iter().find(|one| !here(one)) {
            return Err(gone.removed());
        }
        fault::point("promote.decided")?;
        self.inner().records.promote(branch.id, other.id)?;
        self.exchange_names(branch, &other);
        drop(promoting);
        fault::point("promote.recorded")?;
        branch.event_at(EventKind::MachineUpdated, None);
        other.event_at(EventKind::MachineUpdated, None);
        Ok(other)
    }

    /// Atomic: no lookup finds one machine by its old name and the other by its new name.
    fn exchange_names(&self, one: &Arc<Machine>, other: &Arc<Machine>) {
        let mut machines = self.write();
        // a machine removed meanwhile cannot be found by name
        let here: Vec<_> = [one, other].into_iter().filter(|own| machines.has(own)).collect();
        let (first, second) = (one.name(), other.name());
        here.iter().for_each(|own| machines.remove(own));
        one.record().made.name = second;
        other.record().made.name = first;
        here.into_iter().for_each(|own| machines.insert(own));
    }

    /// Removes the machine whose name a branch took, if the branch contains all its instructions;
    /// whether it was removed.
    pub fn retire(&self, former: &Arc<Machine>, branch: &Arc<Machine>) -> Result<bool> {
        let made = branch.record().made.clone();
        let ran = former.work().last_ran;
        let moved_on = former.pending() > 0 || ran != made.parent.and_then(|parent| parent.seq);
        if made.parent_id != Some(former.id) || moved_on {
            return Ok(false);
        }
        self.clear_away(former)?;
        Ok(true)
    }

    /// The parent of a branch.
    pub fn parent_of(&self, branch: &Arc<Machine>) -> Result<Arc<Machine>> {
        let record = branch.record().clone();
        let found = record.made.parent_id.and_then(|id| self.by_number(id));
        let missing = || match &record.made.parent {
            Some(parent) => Error::NoMachine(parent.machine.to_string()),
            None => Error::State(format!("`{}` is not a branch", record.made.name)),
        };
        found.ok_or_else(missing)
    }

    pub(crate) fn by_number(&self, id: stasis_records::MachineId) -> Option<Arc<Machine>> {
        self.machines().into_iter().find(|machine| machine.id == id)
    }
}
