//! Guards that tests remove from one machine, to show that each of them is needed.
//!
//! A release build has no such switch: `is_removed` is constant there.

use stasis_policy::decide::{Access, Decision, Denial};

/// The rule that keeps a machine from an address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressGuard {
    /// The addresses that no policy opens.
    Floor,
    /// Private addresses need a rule that names them.
    Private,
    /// Connections need a rule.
    Connect,
    /// Names need a rule before they are resolved.
    Lookup,
    /// Answers of resolvers lose addresses of the floor.
    Answers,
    /// The name in TLS is judged.
    ServerName,
    /// An encrypted name is refused.
    HiddenName,
    /// Data that only begins as TLS is refused.
    BadHello,
    Quic,
    /// A request names the host of its connection, and has no method that leads elsewhere.
    Head,
    /// Methods and paths are judged.
    Request,
    /// A secret goes to the hosts that it is bound to.
    Binding,
    /// A secret needs a rule.
    Grant,
}

impl EgressGuard {
    /// The guard that denied an access.
    fn of(access: &Access<'_>, denial: &Denial) -> Option<EgressGuard> {
        match (denial, access) {
            (Denial::Floor(_), _) => Some(EgressGuard::Floor),
            (Denial::Private, _) => Some(EgressGuard::Private),
            (Denial::Quic, _) => Some(EgressGuard::Quic),
            (Denial::HiddenName, _) => Some(EgressGuard::HiddenName),
            (Denial::BadHello, _) => Some(EgressGuard::BadHello),
            (_, Access::Resolve { .. }) => Some(EgressGuard::Lookup),
            (_, Access::Connect { .. }) => Some(EgressGuard::Connect),
            (_, Access::Request { .. }) => Some(EgressGuard::Request),
            (_, Access::Secret { .. }) => Some(EgressGuard::Grant),
            _ => None,
        }
    }
}

/// A decision, as it is without the guards that were removed from a machine.
pub fn judged(machine: &str, access: &Access<'_>, decision: Decision) -> Decision {
    match &decision {
        Decision::Deny(denial, _)
            if EgressGuard::of(access, denial).is_some_and(|guard| is_removed(machine, guard)) =>
        {
            Decision::Allow(None)
        }
        _ => decision,
    }
}

#[cfg(debug_assertions)]
mod switch {
    use super::EgressGuard;
    use parking_lot::RwLock;
    use std::collections::BTreeMap;

    static REMOVED: RwLock<BTreeMap<String, Vec<EgressGuard>>> = RwLock::new(BTreeMap::new());

    /// Removes guards from the machines of a name.
    pub fn remove(machine: &str, guards: &[EgressGuard]) {
        REMOVED.write().insert(machine.to_owned(), guards.to_vec());
    }

    pub fn is_removed(machine: &str, guard: EgressGuard) -> bool {
        REMOVED.read().get(machine).is_some_and(|removed| removed.contains(&guard))
    }
}

#[cfg(debug_assertions)]
pub use switch::{is_removed, remove};

#[cfg(not(debug_assertions))]
pub const fn is_removed(_: &str, _: EgressGuard) -> bool {
    false
}
