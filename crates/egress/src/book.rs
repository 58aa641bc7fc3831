//! The policies of a host, as the threads that carry traffic read them.
//!
//! A change is in force for every decision after it. Connections that are open are judged again
//! when their thread sees another version.

use parking_lot::RwLock;
use stasis_api::{Name, Network};
use stasis_policy::document::Policy;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub struct PolicyBook {
    policies: RwLock<HashMap<Name, Arc<Policy>>>,
    /// The policy that every machine is held to.
    host: Option<Name>,
    version: AtomicU64,
}

impl PolicyBook {
    pub fn new(host: Option<Name>) -> PolicyBook {
        PolicyBook { host, ..PolicyBook::default() }
    }

    pub fn put(&self, policy: Policy) {
        self.policies.write().insert(policy.name.clone(), Arc::new(policy));
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn remove(&self, name: &Name) {
        self.policies.write().remove(name);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn has(&self, name: &Name) -> bool {
        self.policies.read().contains_key(name)
    }

    pub fn host(&self) -> Option<&Name> {
        self.host.as_ref()
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The policies that a machine with this network is held to, from the host's down. A policy of
    /// the host that does not exist allows nothing.
    pub fn levels(&self, network: &Network) -> Vec<Arc<Policy>> {
        let policies = self.policies.read();
        let host = self.host.as_ref().map(|name| match policies.get(name) {
            Some(policy) => policy.clone(),
            None => Arc::new(Policy::nothing(name.clone())),
        });
        let own = match network {
            Network::Policy(name) => policies.get(name).cloned(),
            Network::None | Network::Open => None,
        };
        host.into_iter().chain(own).collect()
    }

    /// Whether connections of such a machine are judged by name.
    pub fn is_named(&self, network: &Network) -> bool {
        self.host.is_some() || matches!(network, Network::Policy(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_api::PolicyDocument;

    fn name(text: &str) -> Name {
        text.parse().expect("a name")
    }

    #[test]
    fn levels_are_those_of_the_host_and_of_the_machine() {
        let book = PolicyBook::new(Some(name("all")));
        let own = Network::Policy(name("web"));
        let levels = |network: &Network| -> Vec<String> {
            book.levels(network).iter().map(|level| level.name.to_string()).collect()
        };
        assert_eq!(levels(&own), ["all"]);
        let web = Policy::compile(name("web"), &PolicyDocument::default()).expect("a policy");
        let before = book.version();
        book.put(web);
        assert_eq!(levels(&own), ["all", "web"]);
        assert_eq!(levels(&Network::Open), ["all"]);
        book.remove(&name("web"));
        assert_eq!((levels(&own).len(), book.version()), (1, before + 2));
        assert!(book.is_named(&Network::Open) && !PolicyBook::default().is_named(&Network::Open));
    }
}
