//! Retention of checkpoints. The rule is a pure function. Applying it deletes records, in one
//! transaction per machine, and the collector frees unreferenced data. If the process is killed in
//! between, the next collection frees the rest.

use crate::error::Result;
use crate::host::Host;
use stasis_api::{OlderCheckpoints, Retention, Timestamp};
use stasis_records::Checkpoint;
use std::collections::BTreeSet;
use std::sync::Arc;

const HOUR: i64 = 3600;
const DAY: i64 = 24 * HOUR;
/// Thinned checkpoints are an hour apart up to this age, and then a day.
const HOURLY: i64 = 7 * DAY;

impl Host {
    /// Removes checkpoints that no rule keeps, on all machines; returns how many.
    pub fn prune(&self, now: Timestamp) -> Result<u64> {
        let mut dropped = 0;
        for machine in self.machines() {
            dropped += self.prune_machine(&machine, now)?;
        }
        Ok(dropped)
    }

    /// Removes all checkpoints of a machine except the newest and the labelled ones.
    pub fn prune_all(&self, machine: &Arc<crate::Machine>) -> Result<u64> {
        let rule = Retention { last: Some(1), ..Retention::default() };
        self.prune_by(machine, &rule, Timestamp::now())
    }

    fn prune_machine(&self, machine: &Arc<crate::Machine>, now: Timestamp) -> Result<u64> {
        self.prune_by(machine, &self.retention(machine), now)
    }

    /// The rule for a machine's checkpoints: its own, or the host's.
    pub(crate) fn retention(&self, machine: &Arc<crate::Machine>) -> Retention {
        machine.record().made.retention.unwrap_or(self.inner().settings.retention)
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
        let branched = self.inner().records.branch_points(machine.id)?;
        let freed = to_free(&checkpoints, &branched, rule, now);
        if freed.is_empty() {
            return Ok(0);
        }
        let dropped = self.inner().records.free(machine.id, &freed)?;
        let mut record = machine.record();
        record.freed_seq = record.freed_seq.max(freed.last().copied());
        Ok(dropped)
    }
}

/// The checkpoints, of a list from oldest to newest, that the rule does not keep. The newest is
/// always kept, and so is one that a branch started from.
pub fn to_free(
    checkpoints: &[Checkpoint],
    branched: &BTreeSet<u64>,
    rule: &Retention,
    now: Timestamp,
) -> Vec<u64> {
    if rule.keeps_all() {
        return Vec::new();
    }
    let count = checkpoints.len();
    let keeps = |(at, one): (usize, &Checkpoint)| {
        let place = count - at;
        let age = now.as_second().saturating_sub(one.at.as_second());
        place == 1
            || branched.contains(&one.seq)
            || rule.last.is_some_and(|last| place as u64 <= last)
            || rule.seconds.is_some_and(|most| u64::try_from(age).unwrap_or(0) < most)
            || (rule.labelled && one.label.is_some())
            || (rule.older == OlderCheckpoints::Thinned && ends_a_span(&checkpoints[at..], now))
    };
    let gone = checkpoints.iter().enumerate().filter(|one| !keeps(*one));
    gone.map(|(_, one)| one.seq).collect()
}

/// Whether the first of these checkpoints is the last one of its hour, or of its day if it is old.
/// Hours and days follow the calendar, so the result does not depend on when this runs.
fn ends_a_span(checkpoints: &[Checkpoint], now: Timestamp) -> bool {
    let [one, next, ..] = checkpoints else { return true };
    let (at, after) = (one.at.as_second(), next.at.as_second());
    let span = if now.as_second() - at < HOURLY { HOUR } else { DAY };
    at.div_euclid(span) != after.div_euclid(span)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinned::tests::{NamedImage, add_template, image};
    use proptest::prelude::*;
    use stasis_engine::ImageId;
    use stasis_records::SyncTime;

    const BEHIND: SyncTime = SyncTime::Behind;

    fn checkpoint(seq: u64, age: i64, labelled: bool) -> Checkpoint {
        Checkpoint {
            seq,
            image: image(""),
            at: Timestamp::from_second(1_000_000 - age).expect("a time"),
            bytes: 0,
            label: labelled.then(|| "x".to_owned()),
        }
    }

    proptest! {
        /// Against the rule's definition: the newest stays, and any other exactly if a reason to
        /// keep it holds.
        #[test]
        fn as_the_rule_says(
            ages in prop::collection::vec((0i64..100, any::<bool>()), 0..30),
            last: Option<u8>,
            seconds in prop::option::of(0u64..120),
            labelled: bool,
            branched in prop::collection::btree_set(0u64..60, 0..4),
        ) {
            let now = Timestamp::from_second(1_000_000).expect("a time");
            let mut all: Vec<Checkpoint> = Vec::new();
            for (seq, (age, label)) in ages.iter().enumerate() {
                all.push(checkpoint(seq as u64 * 2, *age, *label));
            }
            let older = OlderCheckpoints::Removed;
            let rule = Retention { last: last.map(u64::from), seconds, labelled, older };
            let freed = to_free(&all, &branched, &rule, now);
            for (at, one) in all.iter().enumerate() {
                let newer = (all.len() - 1 - at) as u64;
                let mut reasons = vec![newer == 0, rule.keeps_all()];
                reasons.push(rule.last.is_some_and(|last| newer < last));
                reasons.push(seconds.is_some_and(|most| (ages[at].0 as u64) < most));
                reasons.push(labelled && one.label.is_some());
                reasons.push(branched.contains(&one.seq));
                prop_assert_eq!(!freed.contains(&one.seq), reasons.contains(&true));
            }
            // a second run removes nothing more
            let kept: Vec<_> =
                all.into_iter().filter(|one| !freed.contains(&one.seq)).collect();
            prop_assert!(rule.last.is_none() || to_free(&kept, &branched, &rule, now).is_empty());
        }

        /// Of a long history, one checkpoint of each hour stays for a week and then one of each
        /// day, however often the rule ran.
        #[test]
        fn older_ones_are_thinned(
            gaps in prop::collection::vec(0i64..2 * DAY, 1..60),
            looks in prop::collection::vec(0i64..DAY, 0..4),
        ) {
            let rule = Retention {
                last: Some(3),
                older: OlderCheckpoints::Thinned,
                ..Retention::default()
            };
            let mut now: i64 = 1_000_000;
            let mut all = Vec::new();
            for (seq, gap) in gaps.iter().enumerate() {
                now += gap;
                let at = Timestamp::from_second(now).expect("a time");
                all.push(Checkpoint { at, ..checkpoint(seq as u64, 0, false) });
            }
            let end = now + looks.iter().sum::<i64>();
            let mut kept = all.clone();
            for look in looks.into_iter().chain([0]) {
                now += look;
                let at = Timestamp::from_second(now).expect("a time");
                let freed = to_free(&kept, &BTreeSet::new(), &rule, at);
                kept.retain(|one| !freed.contains(&one.seq));
            }
            let time = |one: &Checkpoint| one.at.as_second();
            let newest = all.len().saturating_sub(3);
            for (at, one) in all.iter().enumerate() {
                let span = if end - time(one) < HOURLY { HOUR } else { DAY };
                let same = |other: &&Checkpoint| time(other) / span == time(one) / span;
                let last = all.iter().rfind(same).expect("itself").seq;
                prop_assert_eq!(kept.contains(one), at >= newest || last == one.seq);
            }
        }
    }

    /// Random changes to a machine's checkpoints.
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
        let rule = rule.prop_map(|(last, seconds, labelled)| {
            let older = OlderCheckpoints::Removed;
            Retention { last, seconds, labelled, older }
        });
        prop_oneof![
            5 => Just(Event::Checkpoint),
            1 => any::<usize>().prop_map(Event::Label),
            2 => any::<usize>().prop_map(Event::RollBack),
            1 => any::<usize>().prop_map(Event::Branch),
            3 => rule.prop_map(Event::Prune),
        ]
    }

    /// A machine as a list of states, and the first states of its branches.
    struct Model {
        kept: Vec<Checkpoint>,
        head: (ImageId, Option<u64>),
        next: u64,
        started: Vec<ImageId>,
        /// First states of branches.
        branched: BTreeSet<u64>,
        /// States that were rolled back, until something new runs.
        undone: Vec<ImageId>,
    }

    impl Model {
        fn pick(&self, number: usize) -> Option<usize> {
            (!self.kept.is_empty()).then(|| number % self.kept.len())
        }

        /// All images that are still reachable.
        fn reachable(&self) -> std::collections::BTreeSet<ImageId> {
            let kept = self.kept.iter().map(|one| one.image);
            let others = self.started.iter().chain(&self.undone).copied();
            kept.chain(others).chain([self.head.0]).collect()
        }
    }

    fn record(name: &str) -> stasis_records::NewRecord {
        stasis_records::NewRecord {
            name: name.parse().expect("a name"),
            account: "a".into(),
            template: "t".into(),
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            tags: Default::default(),
            limits: Default::default(),
            env: Default::default(),
            durability: stasis_api::Durability::Memory,
            checkpoints: stasis_api::Checkpoints::Exact,
            network: stasis_api::Network::None,
            parent: None,
            parent_id: None,
            reseed: false,
            retention: None,
        }
    }

    fn branch(
        name: &str,
        source: stasis_records::MachineId,
        seq: u64,
    ) -> stasis_records::NewRecord {
        let machine = "m".parse().expect("a name");
        let parent = Some(stasis_api::Parent { machine, seq: Some(seq) });
        stasis_records::NewRecord { parent, parent_id: Some(source), ..record(name) }
    }

    type Place<'a> = (&'a stasis_records::Records, stasis_records::MachineId);

    fn act((store, id): Place<'_>, model: &mut Model, now: Timestamp, event: &Event) {
        match event {
            Event::Checkpoint => {
                let seq = model.next;
                let (exec, status) = (Default::default(), stasis_api::Status::Running);
                let new = stasis_records::NewInstruction { seq, exec, status, at: now };
                store.accept(id, new).wait().expect("accepted");
                model.undone.clear();
                let one = Checkpoint { at: now, ..checkpoint(seq, 0, false) };
                let one = Checkpoint { image: image(&format!("image {seq}")), ..one };
                let new = stasis_records::NewCheckpoint { seq, at: now, bytes: one.bytes };
                store.checkpoint(id, &NamedImage(one.image), new).expect("added");
                model.next += 1;
                model.head = (one.image, Some(seq));
                model.kept.push(one);
            }
            Event::Label(number) => {
                if let Some(at) = model.pick(*number) {
                    let seq = model.kept[at].seq;
                    assert!(store.label(id, seq, Some("x")).expect("labelled"));
                    model.kept[at].label = Some("x".into());
                }
            }
            Event::RollBack(number) => {
                if let Some(at) = model.pick(*number) {
                    let (image, seq) = (model.kept[at].image, model.kept[at].seq);
                    store.roll_back(id, &NamedImage(image), Some(seq), BEHIND).expect("back");
                    let undone = model.kept.split_off(at + 1);
                    model.undone.extend(undone.iter().map(|one| one.image));
                    model.head = (image, Some(seq));
                }
            }
            Event::Branch(number) => {
                if let Some(at) = model.pick(*number) {
                    let (image, seq) = (model.kept[at].image, model.kept[at].seq);
                    let name = format!("b-{}", model.started.len());
                    store.create(branch(&name, id, seq), &NamedImage(image)).expect("branched");
                    model.started.push(image);
                    model.branched.insert(seq);
                }
            }
            Event::Prune(rule) => {
                let all = store.checkpoints(id).expect("checkpoints");
                let freed = to_free(&all, &store.branch_points(id).expect("read"), rule, now);
                store.free(id, &freed).expect("dropped");
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
                        || model.branched.contains(&one.seq)
                });
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// A collection keeps exactly the reachable images: of a machine's current state, of its
        /// kept checkpoints, and of its branches' first states.
        #[test]
        fn records_keep_what_is_reachable(events in prop::collection::vec(event(), 0..40)) {
            let dir = tempfile::tempdir().expect("a directory");
            let store = stasis_records::Records::open(dir.path()).expect("a store");
            add_template(&store, "t");
            let start = NamedImage(image("start"));
            let id = store.create(record("m"), &start).expect("a machine").id;
            let head = (image("start"), None);
            let started = vec![image("start")];
            let mut model = Model {
                kept: Vec::new(),
                head,
                next: 0,
                started,
                branched: BTreeSet::new(),
                undone: Vec::new(),
            };
            for (second, event) in events.iter().enumerate() {
                let now = Timestamp::from_second(1_000_000 + second as i64).expect("a time");
                act((&store, id), &mut model, now, event);
                let in_use = store.images_in_use().expect("images");
                prop_assert_eq!(in_use.into_iter().collect::<std::collections::BTreeSet<_>>(),
                    model.reachable());
                let left = store.checkpoints(id).expect("checkpoints");
                prop_assert_eq!(left, model.kept.clone());
                let machine = store.machine(id).expect("a record");
                prop_assert_eq!((machine.head_image, machine.head_seq), model.head);
            }
        }
    }
}
