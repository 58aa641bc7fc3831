//! The state that two others came from.
//!
//!   m@0 ── m@1 ── m@2      base of b@0 and m@2: m@1
//!            └── b@0

use super::place::Place;
use crate::error::Result;
use crate::host::Host;
use crate::live::parse_image;
use crate::machine::Machine;
use std::sync::Arc;

/// A machine on the way to the first of its line, where the line left it, and the image of that.
struct Step {
    machine: Arc<Machine>,
    seq: Option<u64>,
    image: String,
}

impl Host {
    /// The youngest state that both have in their past, if they are related.
    pub(crate) fn base(&self, left: &Place, right: &Place) -> Result<Option<Place>> {
        let (left, right) = (self.line(left), self.line(right));
        let meet = |step: &Step| right.iter().find(|other| other.machine.id == step.machine.id);
        let Some((own, other)) = left.iter().find_map(|step| Some((step, meet(step)?))) else {
            return Ok(None);
        };
        let older = if own.seq <= other.seq { own } else { other };
        let (seq, image) = self.still_there(older)?;
        let image = self.inner().engine.store().read_image(parse_image(&image)?)?;
        Ok(Some(Place { machine: older.machine.clone(), seq, image }))
    }

    /// A step, or what came before it, if its instruction was taken back since.
    fn still_there(&self, step: &Step) -> Result<(Option<u64>, String)> {
        let undone = |seq: u64| step.machine.instruction(seq).is_ok_and(|ran| ran.rolled_back);
        if !step.seq.is_some_and(undone) {
            return Ok((step.seq, step.image.clone()));
        }
        let kept = self.history(&step.machine)?;
        let before = kept.iter().rev().find(|one| Some(one.seq) <= step.seq);
        let start = || (None, step.machine.record().made.image.clone());
        Ok(before.map_or_else(start, |one| (Some(one.seq), one.image.clone())))
    }

    /// From a state over the machines it branched from to the first one that is still there.
    fn line(&self, place: &Place) -> Vec<Step> {
        let mut line = vec![Step {
            machine: place.machine.clone(),
            seq: place.seq,
            image: place.image.id.to_string(),
        }];
        let mut made = place.machine.record().made.clone();
        while let Some(machine) = made.parent_id.and_then(|id| self.by_number(id)) {
            let next = machine.record().made.clone();
            let seq = made.parent.and_then(|parent| parent.seq);
            line.push(Step { machine, seq, image: made.image });
            made = next;
        }
        line
    }
}
