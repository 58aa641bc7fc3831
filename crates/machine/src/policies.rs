//! The named policies of a host: recorded, and in force for running machines at once.
//!
//!   set, remove ─► records ─► book ─► egress of every machine, imports
//!
//! A policy that a machine has cannot be removed. A machine whose policy does not exist reaches
//! nothing.

use crate::error::{Error, Result};
use crate::events::EventDetail;
use crate::host::{Host, HostInner};
use crate::machine::Machine;
use crate::template::name_of;
use stasis_api::{
    EventKind, ExplainQuery, Explanation, Limits, Name, Network, PolicyDocument, PolicyInfo,
    RefusedAccess, Timestamp,
};
use stasis_egress::{PolicyBook, RefusalSink};
use stasis_policy::decide::{Access, Decision, Denial, Identity, Subject, decide};
use stasis_policy::document::Policy;
use stasis_policy::request::AccessRequest;
use stasis_records::{MachineRecord, Records};
use std::sync::Arc;

/// Policies of a host.
const MOST: usize = 1000;

/// Reads the recorded policies. An unreadable policy allows nothing.
pub(crate) fn load(records: &Records, host: Option<Name>) -> Result<Arc<PolicyBook>> {
    let book = PolicyBook::new(host);
    for info in records.policies()? {
        match Policy::compile(info.name.clone(), &info.document) {
            Ok(policy) => book.put(policy),
            Err(fault) => {
                tracing::error!(policy = %info.name, %fault, "a policy cannot be read");
                book.put(Policy::unreadable(info.name, &info.document));
            }
        }
    }
    Ok(Arc::new(book))
}

impl Host {
    /// Adds a policy, or replaces the one of that name.
    pub fn set_policy(&self, name: Name, document: PolicyDocument) -> Result<PolicyInfo> {
        let policy = Policy::compile(name.clone(), &document)?;
        let inner = self.inner();
        // as exact as it is recorded
        let now = Timestamp::now().as_millisecond();
        let changed_at = Timestamp::from_millisecond(now).unwrap_or_default();
        let info = PolicyInfo { name: name.clone(), changed_at, document };
        // records and book have the same order
        let changing = inner.changing_policies.lock();
        if !inner.policies.has(&name) && inner.records.policies()?.len() >= MOST {
            let said = format!("a host has at most {MOST} policies; remove one first");
            return Err(Error::Invalid(said));
        }
        inner.records.set_policy(&info)?;
        inner.policies.put(policy);
        drop(changing);
        inner.tell_all(EventKind::PolicyChanged, name.to_string());
        Ok(info)
    }

    /// Puts a policy in force that is not on record: one of a surface, which does so again after a
    /// restart. Until then, machines that are held to it reach nothing.
    pub fn lend_policy(&self, policy: Policy) {
        self.inner().policies.put(policy);
    }

    pub fn end_lent_policy(&self, name: &Name) {
        self.inner().policies.remove(name);
        self.inner().secrets.end_lent_headers(name.as_str());
    }

    /// A policy that is in force.
    pub fn policy_in_force(&self, name: &Name) -> Option<Arc<Policy>> {
        self.inner().policies.get(name)
    }

    /// Whether a policy is in force.
    pub fn has_policy(&self, name: &Name) -> bool {
        self.inner().policies.has(name)
    }

    /// All policies, by name.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>> {
        Ok(self.inner().records.policies()?)
    }

    pub fn policy(&self, name: &str) -> Result<PolicyInfo> {
        let found = self.policies()?.into_iter().find(|info| info.name.as_str() == name);
        found.ok_or_else(|| Error::NoPolicy(name.to_owned()))
    }

    /// Removes a policy that no machine has, and that the host does not hold machines to.
    pub fn remove_policy(&self, name: &str) -> Result<()> {
        let (inner, name) = (self.inner(), self.policy(name)?.name);
        if inner.policies.host() == Some(&name) {
            return Err(Error::PolicyOfHost(name.to_string()));
        }
        let _changing = inner.changing_policies.lock();
        match inner.records.remove_policy(&name)? {
            0 => inner.policies.remove(&name),
            machines => return Err(Error::PolicyInUse(name.to_string(), machines)),
        }
        inner.tell_all(EventKind::PolicyRemoved, name.to_string());
        Ok(())
    }

    /// The answer of a machine's policies to a request.
    pub fn explain(&self, machine: &Machine, query: &ExplainQuery) -> Result<Explanation> {
        Ok(machine.decide(&AccessRequest::of(query)?.access()).explain())
    }
}

impl HostInner {
    /// A machine as policies know it.
    pub(crate) fn identity(&self, record: &MachineRecord) -> Result<Identity> {
        let found = self.records.template(&record.made.template)?;
        let digest = || record.made.template.clone();
        Ok(Identity {
            account: record.made.account.clone(),
            template: found.map_or_else(digest, name_of),
            machine: record.made.name.to_string(),
        })
    }

    /// Whether an account may create a machine from a template.
    pub(crate) fn may_create(
        &self,
        account: &str,
        (template, limits): (&str, &Limits),
        network: &Network,
    ) -> Result<()> {
        let machine = String::new();
        let who = Identity { account: account.to_owned(), template: template.to_owned(), machine };
        let levels = self.policies.levels(&who, network);
        let imports = self.settings.imports;
        let subject = Subject { who: &who, network, levels: &levels, imports };
        let decision = decide(&subject, &Access::Create { template, limits });
        if decision.is_allowed() {
            return Ok(());
        }
        let explained = decision.explain();
        Err(Error::PolicyRefuses {
            policy: explained.policy.unwrap_or_default(),
            what: format!("a machine from template `{template}`"),
            reason: explained.reason,
        })
    }

    /// Whether a machine may be branched or changed so: the question that its creation asked.
    pub(crate) fn may_become(&self, record: &MachineRecord, network: &Network) -> Result<()> {
        // it reaches nothing, and its policy comes back with its next run
        if matches!(network, Network::Policy(name) if !self.policies.has(name)) {
            return Ok(());
        }
        let who = self.identity(record)?;
        let limits = &record.made.limits;
        self.may_create(&record.made.account, (&who.template, limits), network)
    }

    fn decide(&self, record: &MachineRecord, access: &Access<'_>) -> Decision {
        let Ok(who) = self.identity(record) else {
            return Decision::Deny(Denial::Unidentified, None);
        };
        let network = &record.made.network;
        let levels = self.policies.levels(&who, network);
        let imports = self.settings.imports;
        decide(&Subject { who: &who, network, levels: &levels, imports }, access)
    }
}

impl Machine {
    /// The policies that the machine is held to; none, if its template cannot be read.
    pub(crate) fn policy_levels(&self) -> Vec<Arc<Policy>> {
        let record = self.record().clone();
        let who = self.host.identity(&record);
        who.map(|who| self.host.policies.levels(&who, &record.made.network)).unwrap_or_default()
    }

    pub(crate) fn decide(&self, access: &Access<'_>) -> Decision {
        let record = self.record().clone();
        self.host.decide(&record, access)
    }

    /// The answer about what clients do inside the machine. A policy that is not in force is a lent
    /// one, which comes back with the machine's next run and has no rules about that.
    pub(crate) fn decide_inside(&self, access: &Access<'_>) -> Decision {
        let mut record = self.record().clone();
        if matches!(&record.made.network, Network::Policy(name) if !self.host.policies.has(name)) {
            record.made.network = Network::None;
        }
        self.host.decide(&record, access)
    }

    pub(crate) fn tell_refused(&self, refused: RefusedAccess) {
        let about = Some(format!("{}: {}", refused.access, refused.reason));
        let refused = Some(refused);
        self.event(
            EventKind::NetworkRefused,
            EventDetail { about, refused, ..EventDetail::default() },
        );
    }

    /// Turns refusals of the machine's egress into events.
    pub(crate) fn refusal_sink(self: &Arc<Self>) -> RefusalSink {
        let machine = Arc::downgrade(self);
        Box::new(move |refused| {
            if let Some(machine) = machine.upgrade() {
                machine.tell_refused(refused);
            }
        })
    }
}
