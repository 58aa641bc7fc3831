//! Which checkpoints stay. The rule is a pure function; acting on it forgets records, in one
//! transaction per machine, and the collector frees what nothing refers to any more. Killed
//! in between, the next collection finds the rest.

use crate::error::Result;
use crate::host::Host;
use stasis_api::{Retention, Timestamp};
use stasis_store::Checkpoint;
use std::sync::Arc;

impl Host {
    /// Forgets checkpoints that no rule keeps, on all machines; how many.
    pub fn prune(&self, now: Timestamp) -> Result<u64> {
        let mut dropped = 0;
        for machine in self.machines() {
            dropped += self.prune_machine(&machine, now)?;
        }
        Ok(dropped)
    }

    /// Forgets all checkpoints of a machine but the newest and those with labels.
    pub fn prune_all(&self, machine: &Arc<crate::Machine>) -> Result<u64> {
        let rule = Retention { last: Some(1), ..Retention::default() };
        self.prune_by(machine, &rule, Timestamp::now())
    }

    fn prune_machine(&self, machine: &Arc<crate::Machine>, now: Timestamp) -> Result<u64> {
        let rule = machine.record().made.retention.unwrap_or(self.inner().settings.retention);
        self.prune_by(machine, &rule, now)
    }

    fn prune_by(
        &self,
        machine: &Arc<crate::Machine>,
        rule: &Retention,
        now: Timestamp,
    ) -> Result<u64> {
        if rule.keeps_all() {
            return Ok(0);
        }
        let checkpoints = self.history(machine)?;
        let freed = to_free(&checkpoints, rule, now);
        if freed.is_empty() {
            return Ok(0);
        }
        let dropped = self.inner().store.drop_checkpoints(machine.id, &freed)?;
        let mut record = machine.record();
        record.freed_seq = record.freed_seq.max(freed.last().copied());
        Ok(dropped)
    }
}

/// Checkpoints, oldest first, that the rule does not keep. The newest is always kept.
pub fn to_free(checkpoints: &[Checkpoint], rule: &Retention, now: Timestamp) -> Vec<u64> {
    if rule.keeps_all() {
        return Vec::new();
    }
    let count = checkpoints.len();
    let keeps = |(at, one): (usize, &Checkpoint)| {
        let place = count - at;
        let age = now.as_second().saturating_sub(one.at.as_second());
        place == 1
            || rule.last.is_some_and(|last| place as u64 <= last)
            || rule.seconds.is_some_and(|most| u64::try_from(age).unwrap_or(0) < most)
            || (rule.labelled && one.label.is_some())
    };
    let gone = checkpoints.iter().enumerate().filter(|one| !keeps(*one));
    gone.map(|(_, one)| one.seq).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn checkpoint(seq: u64, age: i64, labelled: bool) -> Checkpoint {
        Checkpoint {
            seq,
            image: String::new(),
            at: Timestamp::from_second(1_000_000 - age).expect("a time"),
            bytes: 0,
            label: labelled.then(|| "x".to_owned()),
        }
    }

    proptest! {
        /// Against the words of the rule: the newest stays, and each other one exactly if one of
        /// the reasons to keep it holds.
        #[test]
        fn as_the_rule_says(
            ages in prop::collection::vec((0i64..100, any::<bool>()), 0..30),
            last: Option<u8>,
            seconds in prop::option::of(0u64..120),
            labelled: bool,
        ) {
            let now = Timestamp::from_second(1_000_000).expect("a time");
            let mut all: Vec<Checkpoint> = Vec::new();
            for (seq, (age, label)) in ages.iter().enumerate() {
                all.push(checkpoint(seq as u64 * 2, *age, *label));
            }
            let rule = Retention { last: last.map(u64::from), seconds, labelled };
            let freed = to_free(&all, &rule, now);
            for (at, one) in all.iter().enumerate() {
                let newer = (all.len() - 1 - at) as u64;
                let mut reasons = vec![newer == 0, rule.keeps_all()];
                reasons.push(rule.last.is_some_and(|last| newer < last));
                reasons.push(seconds.is_some_and(|most| (ages[at].0 as u64) < most));
                reasons.push(labelled && one.label.is_some());
                prop_assert_eq!(!freed.contains(&one.seq), reasons.contains(&true));
            }
            // what is left is left for good
            let kept: Vec<_> =
                all.into_iter().filter(|one| !freed.contains(&one.seq)).collect();
            prop_assert!(rule.last.is_none() || to_free(&kept, &rule, now).is_empty());
        }
    }
}
