//! The lineage of machines. Links use ids, so they survive exchanged names. A removed machine is
//! still named in its place, and its branches become separate families.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{Ancestor, Lineage, Relative};
use stasis_records::{MachineId, MachineRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum generations of one tree; deeper ones are omitted. JSON readers limit the depth:
/// serde_json to 128 brackets, and each generation has two. `ancestors` has all of them.
const DEEPEST: usize = 60;

impl Host {
    /// A machine's ancestors, branches, and whole family.
    pub fn lineage(&self, machine: &Arc<Machine>) -> Result<Lineage> {
        let removed = || Error::Removed(machine.name().to_string());
        family(self.records(), machine.id).ok_or_else(removed)
    }

    /// All families, oldest first; only those of one account, if given.
    pub fn families(&self, account: Option<&str>) -> Vec<Relative> {
        let mine =
            |record: &MachineRecord| account.is_none_or(|account| record.made.account == account);
        families(self.records().into_iter().filter(mine).collect())
    }

    fn records(&self) -> Vec<MachineRecord> {
        self.machines().iter().map(|machine| machine.record().clone()).collect()
    }
}

fn families(records: Vec<MachineRecord>) -> Vec<Relative> {
    let family = Family::of(records);
    let roots = family.members.keys().filter(|id| family.parent(**id).is_none());
    roots.filter_map(|id| family.tree(*id)).collect()
}

/// The data of all machines.
struct Family {
    members: BTreeMap<MachineId, MachineRecord>,
    children: BTreeMap<MachineId, Vec<MachineId>>,
}

/// The lineage of one machine among others.
fn family(records: Vec<MachineRecord>, own: MachineId) -> Option<Lineage> {
    let family = Family::of(records);
    let ancestors = family.ancestors(own);
    let mut root = own;
    while let Some(parent) = family.parent(root) {
        root = parent;
    }
    let tree = family.tree(root)?;
    let children = family.tree(own)?.children;
    Some(Lineage { ancestors, children, tree })
}

impl Family {
    fn of(records: Vec<MachineRecord>) -> Family {
        let mut children: BTreeMap<MachineId, Vec<MachineId>> = BTreeMap::new();
        for record in &records {
            // a parent is older than its branch, so no path downwards is a circle
            if let Some(parent) = record.made.parent_id.filter(|parent| *parent < record.id) {
                children.entry(parent).or_default().push(record.id);
            }
        }
        let members = records.into_iter().map(|record| (record.id, record)).collect();
        Family { members, children }
    }

    /// A parent that still exists. It is older than its branch, so this ends.
    fn parent(&self, id: MachineId) -> Option<MachineId> {
        let parent = self.members.get(&id)?.made.parent_id?;
        (parent < id && self.members.contains_key(&parent)).then_some(parent)
    }

    fn ancestors(&self, own: MachineId) -> Vec<Ancestor> {
        let mut found = Vec::new();
        let mut at = Some(own);
        while let Some(record) = at.and_then(|id| self.members.get(&id))
            && let Some(parent) = &record.made.parent
        {
            let there = self.parent(record.id);
            let name = there.and_then(|id| self.members.get(&id)).map(|one| &one.made.name);
            found.push(Ancestor {
                machine: name.unwrap_or(&parent.machine).clone(),
                seq: parent.seq,
                removed: there.is_none(),
            });
            at = there;
        }
        found
    }

    /// A machine with all its descendants. Clients control the depth, so this does not recurse: it
    /// goes down by generation, and back up.
    fn tree(&self, root: MachineId) -> Option<Relative> {
        let mut found = vec![(root, 0)];
        let mut next = 0;
        while let Some((id, depth)) = found.get(next).copied() {
            next += 1;
            let below = self.children.get(&id).filter(|_| depth < DEEPEST).into_iter().flatten();
            found.extend(below.map(|child| (*child, depth + 1)));
        }
        let mut grown: BTreeMap<MachineId, Vec<Relative>> = BTreeMap::new();
        for (id, _) in found.into_iter().skip(1).rev() {
            let Some(one) = self.relative(id, grown.remove(&id)) else { continue };
            let parent = self.members.get(&id).and_then(|record| record.made.parent_id);
            grown.entry(parent?).or_default().push(one);
        }
        self.relative(root, grown.remove(&root))
    }

    /// `children` are in reverse order of discovery.
    fn relative(&self, id: MachineId, children: Option<Vec<Relative>>) -> Option<Relative> {
        let record = self.members.get(&id)?;
        Some(Relative {
            machine: record.made.name.clone(),
            from: record.made.parent.as_ref().and_then(|parent| parent.seq),
            seq: record.head_seq,
            children: children.into_iter().flatten().rev().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pinned::tests::{NamedImage, add_template, image};
    use proptest::prelude::*;
    use stasis_api::{Checkpoints, Durability, Limits, Name, Network, Parent, Timestamp};
    use stasis_records::{NewRecord, Records};

    /// Random changes to machines; numbers select among the existing ones.
    #[derive(Debug, Clone)]
    enum Event {
        Create,
        Branch(usize, u8),
        Remove(usize),
        Exchange(usize, usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        prop_oneof![
            1 => Just(Event::Create),
            4 => (any::<usize>(), any::<u8>()).prop_map(|(of, seq)| Event::Branch(of, seq)),
            2 => any::<usize>().prop_map(Event::Remove),
            2 => (any::<usize>(), any::<usize>()).prop_map(|(a, b)| Event::Exchange(a, b)),
        ]
    }

    /// A machine in the model, which has no tables: a list with the parent of each.
    struct Node {
        id: MachineId,
        name: String,
        parent: Option<usize>,
        /// The parent's name when it was branched, and the state.
        said: Option<(String, u64)>,
        there: bool,
    }

    #[derive(Default)]
    struct Model(Vec<Node>);

    impl Model {
        fn there(&self) -> Vec<usize> {
            (0..self.0.len()).filter(|at| self.0[*at].there).collect()
        }

        fn pick(&self, number: usize) -> Option<usize> {
            let there = self.there();
            (!there.is_empty()).then(|| there[number % there.len()])
        }

        fn parent(&self, at: usize) -> Option<usize> {
            self.0[at].parent.filter(|parent| self.0[*parent].there)
        }

        fn ancestors(&self, at: usize) -> Vec<(String, u64, bool)> {
            let Some((said, seq)) = self.0[at].said.clone() else { return Vec::new() };
            match self.parent(at) {
                None => vec![(said, seq, true)],
                Some(parent) => {
                    let mut all = vec![(self.0[parent].name.clone(), seq, false)];
                    all.extend(self.ancestors(parent));
                    all
                }
            }
        }

        fn children(&self, at: usize) -> Vec<String> {
            let own = |child: &usize| self.0[*child].parent == Some(at);
            self.there().into_iter().filter(own).map(|child| self.0[child].name.clone()).collect()
        }

        fn top(&self, at: usize) -> usize {
            self.parent(at).map_or(at, |parent| self.top(parent))
        }
    }

    fn made(name: &str, parent: Option<(&Node, u64)>) -> NewRecord {
        let name: Name = name.parse().expect("a name");
        let told = |(node, seq): (&Node, u64)| Parent {
            machine: node.name.parse().expect("a name"),
            seq: Some(seq),
        };
        NewRecord {
            name,
            account: "a".into(),
            template: "t".into(),
            created_at: Timestamp::UNIX_EPOCH,
            expires_at: None,
            tags: BTreeMap::new(),
            limits: Limits::default(),
            env: BTreeMap::new(),
            durability: Durability::Memory,
            checkpoints: Checkpoints::Exact,
            network: Network::None,
            parent: parent.map(told),
            parent_id: parent.map(|(node, _)| node.id),
            reseed: false,
            retention: None,
        }
    }

    fn add(store: &Records, model: &mut Model, parent: Option<(usize, u64)>) {
        let name = format!("m-{}", model.0.len());
        let from = parent.map(|(at, seq)| (&model.0[at], seq));
        let said = from.map(|(node, seq)| (node.name.clone(), seq));
        let id = store.create(made(&name, from), &NamedImage(image("image"))).expect("added").id;
        let parent = parent.map(|(at, _)| at);
        model.0.push(Node { id, name, parent, said, there: true });
    }

    fn act(store: &Records, model: &mut Model, event: &Event) {
        match *event {
            Event::Create => add(store, model, None),
            Event::Branch(of, seq) => {
                if let Some(at) = model.pick(of) {
                    add(store, model, Some((at, seq.into())));
                }
            }
            Event::Remove(of) => {
                if let Some(at) = model.pick(of) {
                    store.delete(model.0[at].id).expect("removed");
                    model.0[at].there = false;
                }
            }
            Event::Exchange(of, with) => {
                if let (Some(one), Some(other)) = (model.pick(of), model.pick(with))
                    && one != other
                {
                    store.promote(model.0[one].id, model.0[other].id).expect("exchanged");
                    let name = model.0[one].name.clone();
                    model.0[one].name = std::mem::replace(&mut model.0[other].name, name);
                }
            }
        }
    }

    fn count(relative: &Relative) -> usize {
        1 + relative.children.iter().map(count).sum::<usize>()
    }

    fn member(id: i64, parent: Option<i64>) -> MachineRecord {
        let mut made = made(&format!("m-{id}"), None);
        made.parent_id = parent.map(MachineId);
        let machine = format!("m-{}", parent.unwrap_or_default()).parse().expect("a name");
        made.parent = parent.map(|_| Parent { machine, seq: Some(0) });
        MachineRecord {
            id: MachineId(id),
            made,
            next_seq: 0,
            start_image: image("image"),
            head_image: image("image"),
            head_seq: None,
            freed_seq: None,
            lost_start: false,
            lineage: MachineId(1),
        }
    }

    /// Runs on a small stack, which a recursive walk would overflow.
    #[test]
    fn a_line_of_ten_thousand_branches() {
        let look = || {
            let line: Vec<_> =
                (1..=10_000).map(|id| member(id, (id > 1).then_some(id - 1))).collect();
            let found = family(line.clone(), MachineId(10_000)).expect("a family");
            assert_eq!((found.ancestors.len(), found.children.len()), (9_999, 0));
            assert_eq!(count(&found.tree), DEEPEST + 1);
            let found = family(line.clone(), MachineId(5_000)).expect("a family");
            assert_eq!(found.children.iter().map(count).sum::<usize>(), DEEPEST);
            assert_eq!(families(line).len(), 1);
        };
        let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(look);
        thread.expect("a thread").join().expect("no failure");
    }

    /// As an older program could have written them.
    #[test]
    fn machines_that_are_their_own_ancestors() {
        let records = || vec![member(1, Some(1)), member(2, Some(3)), member(3, Some(2))];
        for id in 1..=3 {
            let found = family(records(), MachineId(id)).expect("a family");
            assert!(count(&found.tree) <= 2 && found.ancestors.len() <= 2, "{found:?}");
        }
        assert_eq!(families(records()).iter().map(count).sum::<usize>(), 3);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        /// After any sequence of creations, branches, removals and renames, ancestors and branches
        /// match the model, and every machine is in exactly one family.
        #[test]
        fn as_the_model_says(events in prop::collection::vec(event(), 0..40)) {
            let dir = tempfile::tempdir().expect("a directory");
            let store = Records::open(dir.path()).expect("a store");
            add_template(&store, "t");
            let mut model = Model::default();
            events.iter().for_each(|event| act(&store, &mut model, event));
            let records = store.machines().expect("records");
            for at in model.there() {
                let node = &model.0[at];
                let found = family(records.clone(), node.id).expect("a family");
                let ancestors: Vec<_> = found
                    .ancestors
                    .iter()
                    .map(|one| (one.machine.to_string(), one.seq.expect("a number"), one.removed))
                    .collect();
                prop_assert_eq!(ancestors, model.ancestors(at));
                let children: Vec<_> =
                    found.children.iter().map(|child| child.machine.to_string()).collect();
                prop_assert_eq!(children, model.children(at));
                prop_assert_eq!(found.tree.machine.as_str(), &model.0[model.top(at)].name);
            }
            let families = families(records);
            prop_assert_eq!(families.iter().map(count).sum::<usize>(), model.there().len());
        }
    }
}
