//! Machines by name. Each account has its own names, so a lookup never depends on another account.

use crate::machine::Machine;
use stasis_api::Name;
use std::collections::HashMap;
use std::sync::Arc;

#[derive(Default)]
pub(crate) struct MachineRegistry(HashMap<String, HashMap<Name, Arc<Machine>>>);

impl MachineRegistry {
    pub fn get(&self, account: &str, name: &Name) -> Option<&Arc<Machine>> {
        self.0.get(account)?.get(name)
    }

    /// The oldest machine of that name in any account.
    pub fn any(&self, name: &Name) -> Option<&Arc<Machine>> {
        let named = self.0.values().filter_map(|names| names.get(name));
        named.min_by_key(|machine| machine.id)
    }

    /// Under its recorded name.
    pub fn insert(&mut self, machine: &Arc<Machine>) {
        let names = self.0.entry(machine.account()).or_default();
        names.insert(machine.name(), machine.clone());
    }

    pub fn remove(&mut self, machine: &Machine) {
        let account = machine.account();
        let Some(names) = self.0.get_mut(&account) else { return };
        names.retain(|_, own| own.id != machine.id);
        if names.is_empty() {
            self.0.remove(&account);
        }
    }

    /// Whether a lookup of its name finds that machine.
    pub fn has(&self, machine: &Machine) -> bool {
        let found = self.get(&machine.account(), &machine.name());
        found.is_some_and(|own| own.id == machine.id)
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Machine>> {
        self.0.values().flat_map(HashMap::values)
    }
}
