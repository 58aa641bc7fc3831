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
    use crate::held::tests::{Named, add_template};
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

    /// What may happen to a machine's checkpoints.
    #[derive(Debug, Clone)]
    enum Event {
        Checkpoint,
        Label(usize),
        RollBack(usize),
        Branch(usize),
        Prune(Retention),
    }

    fn event() -> impl Strategy<Value = Event> {
        let rule = (prop::option::of(0u64..4), prop::option::of(0u64..20), any::<bool>());
        let rule = rule.prop_map(|(last, seconds, labelled)| Retention { last, seconds, labelled });
        prop_oneof![
            5 => Just(Event::Checkpoint),
            1 => any::<usize>().prop_map(Event::Label),
            2 => any::<usize>().prop_map(Event::RollBack),
            1 => any::<usize>().prop_map(Event::Branch),
            3 => rule.prop_map(Event::Prune),
        ]
    }

    /// A machine as a list of states, and what branches began with.
    struct Model {
        kept: Vec<Checkpoint>,
        head: (String, Option<u64>),
        next: u64,
        started: Vec<String>,
    }

    impl Model {
        fn pick(&self, number: usize) -> Option<usize> {
            (!self.kept.is_empty()).then(|| number % self.kept.len())
        }

        /// All that somebody can still get to.
        fn reachable(&self) -> std::collections::BTreeSet<String> {
            let kept = self.kept.iter().map(|one| one.image.clone());
            kept.chain(self.started.clone()).chain([self.head.0.clone()]).collect()
        }
    }

    fn record(name: &str) -> stasis_store::NewRecord {
        stasis_store::NewRecord {
            name: name.parse().expect("a name"),
            account: "a".into(),
            template: "t".into(),
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            tags: Default::default(),
            limits: Default::default(),
            env: Default::default(),
            durability: stasis_api::Durability::Memory,
            network: stasis_api::Network::None,
            parent: None,
            parent_id: None,
            reseed: false,
            retention: None,
        }
    }

    type Place<'a> = (&'a stasis_store::Store, stasis_store::MachineId);

    fn act((store, id): Place<'_>, model: &mut Model, now: Timestamp, event: &Event) {
        match event {
            Event::Checkpoint => {
                let seq = model.next;
                let one = Checkpoint { at: now, ..checkpoint(seq, 0, false) };
                let one = Checkpoint { image: format!("image {seq}"), ..one };
                let new = stasis_store::NewCheckpoint { seq, at: now, bytes: one.bytes };
                store.add_checkpoint(id, &Named(one.image.clone()), new).expect("added");
                model.next += 1;
                model.head = (one.image.clone(), Some(seq));
                model.kept.push(one);
            }
            Event::Label(number) => {
                if let Some(at) = model.pick(*number) {
                    let seq = model.kept[at].seq;
                    assert!(store.set_label(id, seq, Some("x")).expect("labelled"));
                    model.kept[at].label = Some("x".into());
                }
            }
            Event::RollBack(number) => {
                if let Some(at) = model.pick(*number) {
                    let (image, seq) = (model.kept[at].image.clone(), model.kept[at].seq);
                    store.roll_back(id, &Named(image.clone()), Some(seq)).expect("back");
                    model.kept.truncate(at + 1);
                    model.head = (image, Some(seq));
                }
            }
            Event::Branch(number) => {
                if let Some(at) = model.pick(*number) {
                    let image = model.kept[at].image.clone();
                    let name = format!("b-{}", model.started.len());
                    store.add_machine(record(&name), &Named(image.clone())).expect("branched");
                    model.started.push(image);
                }
            }
            Event::Prune(rule) => {
                let all = store.checkpoints(id).expect("checkpoints");
                let freed = to_free(&all, rule, now);
                store.drop_checkpoints(id, &freed).expect("dropped");
                let newest = model.kept.last().map(|one| one.seq);
                let (count, mut at) = (model.kept.len() as u64, 0);
                model.kept.retain(|one| {
                    at += 1;
                    let age = now.as_second() - one.at.as_second();
                    (rule.last.is_none() && rule.seconds.is_none())
                        || Some(one.seq) == newest
                        || rule.last.is_some_and(|last| count - at < last)
                        || rule.seconds.is_some_and(|most| (age as u64) < most)
                        || (rule.labelled && one.label.is_some())
                });
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// What a collection would keep is what can be reached: by a machine as it is, by its
        /// checkpoints that a rule keeps, and by what its branches began with.
        #[test]
        fn records_keep_what_is_reachable(events in prop::collection::vec(event(), 0..40)) {
            let dir = tempfile::tempdir().expect("a directory");
            let store = stasis_store::Store::open(dir.path()).expect("a store");
            add_template(&store, "t");
            let start = Named("start".into());
            let id = store.add_machine(record("m"), &start).expect("a machine").id;
            let head = ("start".to_owned(), None);
            let mut model =
                Model { kept: Vec::new(), head, next: 0, started: vec!["start".into()] };
            for (second, event) in events.iter().enumerate() {
                let now = Timestamp::from_second(1_000_000 + second as i64).expect("a time");
                act((&store, id), &mut model, now, event);
                let in_use = store.images_in_use().expect("images");
                prop_assert_eq!(in_use.into_iter().collect::<std::collections::BTreeSet<_>>(),
                    model.reachable());
                let left = store.checkpoints(id).expect("checkpoints");
                prop_assert_eq!(left, model.kept.clone());
                let machine = store.machine(id).expect("a record");
                prop_assert_eq!((machine.head_image, machine.head_seq), model.head.clone());
            }
        }
    }
}
