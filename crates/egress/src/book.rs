//! The policies of a host, as read by the relay threads.
//!
//! A change is in force for every decision after it. Connections that are open are judged again
//! when their thread sees another version.

use crate::traffic::TrafficMeter;
use parking_lot::{Mutex, RwLock};
use stasis_api::{Name, Network};
use stasis_policy::decide::Identity;
use stasis_policy::document::Policy;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Meters beyond which unused ones are dropped.
const METERS: usize = 10_000;

#[derive(Debug, Default)]
pub struct PolicyBook {
    pages: RwLock<PolicyPages>,
    /// The policy that every machine is held to.
    host: Option<Name>,
    version: AtomicU64,
    /// Bytes that lines of machines have sent and received, by account and first machine.
    meters: Mutex<HashMap<(String, i64), Arc<TrafficMeter>>>,
    /// The same for accounts.
    account_meters: Mutex<HashMap<String, Arc<TrafficMeter>>>,
}

/// Bytes of a line of machines, or of an account, that are not recorded yet.
pub struct UnrecordedTraffic {
    pub account: String,
    pub line: Option<i64>,
    pub bytes: u64,
    meter: Arc<TrafficMeter>,
}

impl UnrecordedTraffic {
    pub fn set_recorded(&self) {
        self.meter.set_recorded(self.bytes);
    }
}

/// All policies, and those of accounts and templates, by name.
#[derive(Debug, Default)]
struct PolicyPages {
    policies: HashMap<Name, Arc<Policy>>,
    accounts: HashMap<String, Vec<Arc<Policy>>>,
    templates: HashMap<String, Vec<Arc<Policy>>>,
    /// Whether one of them has a budget, and whether one limits the bytes in total.
    has_budgets: bool,
    has_totals: bool,
}

impl PolicyPages {
    fn sort(&mut self) {
        (self.accounts, self.templates) = (HashMap::new(), HashMap::new());
        self.has_budgets = self.policies.values().any(|policy| policy.has_budget());
        self.has_totals = self.policies.values().any(|policy| policy.has_traffic_total());
        let mut all: Vec<_> = self.policies.values().collect();
        all.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        for policy in all {
            for account in policy.accounts() {
                self.accounts.entry(account.clone()).or_default().push(policy.clone());
            }
            for template in policy.templates() {
                self.templates.entry(template.clone()).or_default().push(policy.clone());
            }
        }
    }

    fn of<'a>(&'a self, who: &Identity) -> impl Iterator<Item = &'a Arc<Policy>> + use<'a> {
        let account = self.accounts.get(&who.account).into_iter().flatten();
        account.chain(self.templates.get(&who.template).into_iter().flatten())
    }
}

impl PolicyBook {
    pub fn new(host: Option<Name>) -> PolicyBook {
        PolicyBook { host, ..PolicyBook::default() }
    }

    /// Bytes that a line of machines has sent and received.
    pub fn meter(&self, account: &str, lineage: i64) -> Arc<TrafficMeter> {
        let mut meters = self.meters.lock();
        if meters.len() >= METERS {
            // those that are not in use and have counted nothing are new again
            meters.retain(|_, meter| Arc::strong_count(meter) > 1 || meter.bytes() > 0);
        }
        let line = || Arc::new(TrafficMeter::of(self.account_meter(account)));
        meters.entry((account.to_owned(), lineage)).or_insert_with(line).clone()
    }

    fn account_meter(&self, account: &str) -> Arc<TrafficMeter> {
        self.account_meters.lock().entry(account.to_owned()).or_default().clone()
    }

    /// Takes over bytes that were recorded before a restart: of a line, or of an account.
    pub fn restore_traffic(&self, account: &str, line: Option<i64>, bytes: u64) {
        match line {
            Some(line) => self.meter(account, line).restore(bytes),
            None => self.account_meter(account).restore(bytes),
        }
    }

    /// Counts that are not recorded yet; none, while no policy limits a total.
    pub fn unrecorded_traffic(&self) -> Vec<UnrecordedTraffic> {
        if !self.pages.read().has_totals {
            return Vec::new();
        }
        let count = |account: &str, line, meter: &Arc<TrafficMeter>| {
            let (account, meter) = (account.to_owned(), meter.clone());
            meter.unrecorded().map(|bytes| UnrecordedTraffic { account, line, bytes, meter })
        };
        let lines = self.meters.lock();
        let lines =
            lines.iter().filter_map(|((name, line), meter)| count(name, Some(*line), meter));
        let mut all: Vec<_> = lines.collect();
        let accounts = self.account_meters.lock();
        all.extend(accounts.iter().filter_map(|(name, meter)| count(name, None, meter)));
        all
    }

    pub fn put(&self, policy: Policy) {
        self.change(|policies| {
            policies.insert(policy.name.clone(), Arc::new(policy));
        });
    }

    pub fn remove(&self, name: &Name) {
        self.change(|policies| {
            policies.remove(name);
        });
    }

    fn change(&self, act: impl FnOnce(&mut HashMap<Name, Arc<Policy>>)) {
        let mut pages = self.pages.write();
        act(&mut pages.policies);
        pages.sort();
        drop(pages);
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn get(&self, name: &Name) -> Option<Arc<Policy>> {
        self.pages.read().policies.get(name).cloned()
    }

    pub fn has(&self, name: &Name) -> bool {
        self.pages.read().policies.contains_key(name)
    }

    /// Whether any policy limits what machines use up.
    pub fn has_budgets(&self) -> bool {
        self.pages.read().has_budgets
    }

    pub fn host(&self) -> Option<&Name> {
        self.host.as_ref()
    }

    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// The policies that a machine is held to: the host's, those of its account, those of its
    /// template, its own. A policy of the host that does not exist allows nothing.
    pub fn levels(&self, who: &Identity, network: &Network) -> Vec<Arc<Policy>> {
        let pages = self.pages.read();
        let host = self.host.as_ref().map(|name| match pages.policies.get(name) {
            Some(policy) => policy.clone(),
            None => Arc::new(Policy::nothing(name.clone())),
        });
        let own = match network {
            Network::Policy(name) => pages.policies.get(name).cloned(),
            Network::None | Network::Open => None,
        };
        let all = host.into_iter().chain(pages.of(who).cloned()).chain(own);
        let mut levels: Vec<Arc<Policy>> = Vec::with_capacity(4);
        for level in all {
            if !levels.iter().any(|known| known.name == level.name) {
                levels.push(level);
            }
        }
        levels
    }

    /// Whether connections of such a machine are judged by name.
    pub fn is_named(&self, who: &Identity, network: &Network) -> bool {
        self.host.is_some()
            || matches!(network, Network::Policy(_))
            || self.pages.read().of(who).next().is_some()
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
        let who = Identity { account: "a".into(), template: "t".into(), machine: "m".into() };
        let levels = |network: &Network| -> Vec<String> {
            book.levels(&who, network).iter().map(|level| level.name.to_string()).collect()
        };
        assert_eq!(levels(&own), ["all"]);
        let web = Policy::compile(name("web"), &PolicyDocument::default()).expect("a policy");
        let before = book.version();
        book.put(web);
        assert_eq!(levels(&own), ["all", "web"]);
        assert_eq!(levels(&Network::Open), ["all"]);
        book.remove(&name("web"));
        assert_eq!((levels(&own).len(), book.version()), (1, before + 2));
        assert!(book.is_named(&who, &Network::Open));
        assert!(!PolicyBook::default().is_named(&who, &Network::Open));
    }

    #[test]
    fn accounts_and_templates_have_policies_of_their_own() {
        let book = PolicyBook::default();
        let put = |named: &str, accounts: &[&str], templates: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
            let (accounts, templates) = (texts(accounts), texts(templates));
            let document = PolicyDocument { accounts, templates, ..PolicyDocument::default() };
            book.put(Policy::compile(name(named), &document).expect("a policy"));
        };
        put("b", &["red"], &["slim"]);
        put("a", &[], &["slim"]);
        put("own", &[], &[]);
        let levels = |account: &str, template: &str, network: &Network| -> Vec<String> {
            let (account, template) = (account.to_owned(), template.to_owned());
            let who = Identity { account, template, machine: "m".into() };
            let levels = book.levels(&who, network);
            assert_eq!(book.is_named(&who, network), !levels.is_empty());
            levels.iter().map(|level| level.name.to_string()).collect()
        };
        assert_eq!(levels("blue", "full", &Network::Open), [""; 0]);
        assert_eq!(levels("red", "full", &Network::Open), ["b"]);
        let own = Network::Policy(name("own"));
        assert_eq!(levels("red", "slim", &own), ["b", "a", "own"]);
        put("b", &[], &[]);
        assert_eq!(levels("red", "slim", &own), ["a", "own"]);
    }
}
