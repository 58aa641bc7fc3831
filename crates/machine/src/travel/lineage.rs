//! Who branched from whom. Links go by number, so they hold when names are exchanged; a machine
//! that was removed is still named where it stood, with its branches as families of their own.

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{Ancestor, Lineage, Relative};
use stasis_store::{MachineId, MachineRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Generations that are followed; deeper ones are left out.
const DEEPEST: usize = 4096;

impl Host {
    /// A machine's ancestors, branches, and whole family.
    pub fn lineage(&self, machine: &Arc<Machine>) -> Result<Lineage> {
        let removed = || Error::Removed(machine.name().to_string());
        family(self.records(), machine.id).ok_or_else(removed)
    }

    /// All families, oldest first; only those of an account, if one is given.
    pub fn families(&self, account: Option<&str>) -> Vec<Relative> {
        let mine =
            |record: &MachineRecord| account.is_none_or(|account| record.made.account == account);
        let records: Vec<_> = self.records().into_iter().filter(mine).collect();
        let family = Family::of(records);
        let roots: Vec<MachineId> =
            family.members.keys().copied().filter(|id| family.parent(*id).is_none()).collect();
        roots.into_iter().filter_map(|id| family.relative(id, 0)).collect()
    }

    fn records(&self) -> Vec<MachineRecord> {
        self.machines().iter().map(|machine| machine.record().clone()).collect()
    }
}

/// What is known of all machines.
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
    let tree = family.relative(root, 0)?;
    let children = family.relative(own, 0)?.children;
    Some(Lineage { ancestors, children, tree })
}

impl Family {
    fn of(records: Vec<MachineRecord>) -> Family {
        let mut children: BTreeMap<MachineId, Vec<MachineId>> = BTreeMap::new();
        for record in &records {
            if let Some(parent) = record.made.parent_id {
                children.entry(parent).or_default().push(record.id);
            }
        }
        let members = records.into_iter().map(|record| (record.id, record)).collect();
        Family { members, children }
    }

    /// A parent that is still there. It is older than its branch, so this comes to an end.
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

    fn relative(&self, id: MachineId, depth: usize) -> Option<Relative> {
        let record = self.members.get(&id)?;
        let below = self.children.get(&id).filter(|_| depth < DEEPEST).into_iter().flatten();
        let children = below.filter_map(|child| self.relative(*child, depth + 1)).collect();
        Some(Relative {
            machine: record.made.name.clone(),
            from: record.made.parent.as_ref().and_then(|parent| parent.seq),
            seq: record.head_seq,
            children,
        })
    }
}
