//! The common ancestor of two states.
//!
//!   m@0 ── m@1 ── m@2      base of b@0 and m@2: m@1
//!            └── b@0

use super::state_ref::StateRef;
use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use stasis_engine::ImageId;
use stasis_records::MachineId;
use std::collections::HashMap;
use std::sync::Arc;

/// A machine on the path to its first ancestor, the state where the path leaves it, and that
/// state's image.
struct Step {
    machine: Arc<Machine>,
    seq: Option<u64>,
    image: ImageId,
}

impl Host {
    /// The youngest state that both have in their past, if they are related.
    pub(crate) fn base(&self, left: &StateRef, right: &StateRef) -> Result<Option<StateRef>> {
        let all: HashMap<MachineId, Arc<Machine>> =
            self.machines().into_iter().map(|machine| (machine.id, machine)).collect();
        let (left, right) = (line(&all, left), line(&all, right));
        let steps: HashMap<MachineId, &Step> =
            right.iter().map(|step| (step.machine.id, step)).collect();
        let meet = |step: &Step| steps.get(&step.machine.id).copied();
        let Some((own, other)) = left.iter().find_map(|step| Some((step, meet(step)?))) else {
            return Ok(None);
        };
        let older = if own.seq <= other.seq { own } else { other };
        let (seq, image) = self.still_there(older)?;
        let held = self.inner().hold(image, || older.machine.removed())?;
        let image = self.inner().look_into(&held)?;
        Ok(Some(StateRef { machine: older.machine.clone(), seq, image }))
    }

    /// A step, or the one before it if its instruction was undone since.
    fn still_there(&self, step: &Step) -> Result<(Option<u64>, ImageId)> {
        let undone = |seq: u64| step.machine.instruction(seq).is_ok_and(|ran| ran.rolled_back);
        if !step.seq.is_some_and(undone) {
            return Ok((step.seq, step.image));
        }
        let kept = self.history(&step.machine)?;
        let before = kept.iter().rev().find(|one| Some(one.seq) <= step.seq);
        let start = || (None, step.machine.record().start_image);
        Ok(before.map_or_else(start, |one| (Some(one.seq), one.image)))
    }
}

/// From a state through its ancestors to the first one that still exists. A parent has a smaller
/// number than its branch, so this ends.
fn line(all: &HashMap<MachineId, Arc<Machine>>, place: &StateRef) -> Vec<Step> {
    let image = place.image.id;
    let mut line = vec![Step { machine: place.machine.clone(), seq: place.seq, image }];
    let mut record = place.machine.record().clone();
    let parent = |id: MachineId, of: MachineId| all.get(&id).filter(|_| id < of).cloned();
    while let Some(machine) = record.made.parent_id.and_then(|id| parent(id, record.id)) {
        let next = machine.record().clone();
        let seq = record.made.parent.and_then(|parent| parent.seq);
        line.push(Step { machine, seq, image: record.start_image });
        record = next;
    }
    line
}
