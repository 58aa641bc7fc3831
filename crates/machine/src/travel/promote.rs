//! Promoting: a branch takes another machine's name, which gets the branch's. Who asks for the
//! name meets the one machine before, and the other from then on; nothing else changes on either.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::EventKind;
use stasis_engine::fault;
use std::sync::Arc;

impl Host {
    /// A branch takes the name of `onto`, or of its parent. Gives the machine that had the name.
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
            return Err(Error::Invalid("a machine cannot take its own name".into()));
        }
        // held throughout: nobody finds one of the two by its old name and the other by its new
        let mut machines = self.write();
        let (name, old) = (branch.name(), other.name());
        let here = |one: &Machine| machines.has(one) && !one.is_removed();
        if let Some(gone) = [branch, &other].into_iter().find(|one| !here(one)) {
            return Err(gone.removed());
        }
        fault::point("promote.decided")?;
        self.inner().store.swap_names(branch.id, other.id)?;
        fault::point("promote.recorded")?;
        branch.record().made.name = old;
        other.record().made.name = name;
        machines.insert(branch);
        machines.insert(&other);
        drop(machines);
        branch.event_at(EventKind::MachineUpdated, None);
        other.event_at(EventKind::MachineUpdated, None);
        Ok(other)
    }

    /// The machine that another is a branch of.
    pub fn parent_of(&self, branch: &Arc<Machine>) -> Result<Arc<Machine>> {
        let record = branch.record().clone();
        let found = record.made.parent_id.and_then(|id| self.by_number(id));
        let missing = || match &record.made.parent {
            Some(parent) => Error::NoMachine(parent.machine.to_string()),
            None => Error::Invalid(format!("`{}` is no branch", record.made.name)),
        };
        found.ok_or_else(missing)
    }

    pub(crate) fn by_number(&self, id: stasis_store::MachineId) -> Option<Arc<Machine>> {
        self.machines().into_iter().find(|machine| machine.id == id)
    }
}
