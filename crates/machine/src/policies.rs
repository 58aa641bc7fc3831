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
use stasis_api::{
    EventKind, ExplainQuery, Explanation, Name, PolicyDocument, PolicyInfo, RefusedAccess,
    Timestamp,
};
use stasis_egress::{PolicyBook, RefusalSink};
use stasis_policy::decide::{Access, Decision, Subject, decide};
use stasis_policy::document::{AccessRequest, Policy};
use stasis_records::Records;
use std::sync::Arc;

/// Policies of a host.
const MOST: usize = 1000;

/// Reads what is recorded. A policy that cannot be read allows nothing.
pub(crate) fn load(records: &Records, host: Option<Name>) -> Result<Arc<PolicyBook>> {
    let book = PolicyBook::new(host);
    for info in records.policies()? {
        match Policy::compile(info.name.clone(), &info.document) {
            Ok(policy) => book.put(policy),
            Err(fault) => {
                tracing::error!(policy = %info.name, %fault, "a policy cannot be read");
                book.put(Policy::nothing(info.name));
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

    /// What a machine's policies answer to a request.
    pub fn explain(&self, machine: &Machine, query: &ExplainQuery) -> Result<Explanation> {
        Ok(machine.decide(&AccessRequest::of(query)?.access()).explain())
    }
}

impl HostInner {
    fn decide(&self, network: &stasis_api::Network, access: &Access<'_>) -> Decision {
        let levels = self.policies.levels(network);
        decide(&Subject { network, levels: &levels, imports: self.settings.imports }, access)
    }
}

impl Machine {
    pub(crate) fn decide(&self, access: &Access<'_>) -> Decision {
        let network = self.record().made.network.clone();
        self.host.decide(&network, access)
    }

    pub(crate) fn tell_refused(&self, refused: RefusedAccess) {
        let about = Some(format!("{}: {}", refused.access, refused.reason));
        let refused = Some(refused);
        self.event(
            EventKind::NetworkRefused,
            EventDetail { about, refused, ..EventDetail::default() },
        );
    }

    /// Makes events of what the machine's egress refuses.
    pub(crate) fn refusal_sink(self: &Arc<Self>) -> RefusalSink {
        let machine = Arc::downgrade(self);
        Box::new(move |refused| {
            if let Some(machine) = machine.upgrade() {
                machine.tell_refused(refused);
            }
        })
    }
}
