//! The limits of a machine.
//!
//!   asked for ──► else the template's ──► else the host's default
//!        └── at most what the host has ──┴── at most what the account may have
//!
//! A requested limit beyond the account's quota is not lowered: the machine is refused where it
//! would exceed the quota (`quota`), with the reason.

use stasis_api::Limits;

/// The limits a machine may get.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct LimitBounds {
    /// Defaults of machines.
    pub default: Limits,
    /// The host's resources.
    pub host: Limits,
    /// The account's quota.
    pub account: Limits,
}

/// The limits of a new machine, to be recorded with it; an absent one is the host's default, also
/// when that changes.
pub fn granted(asked: Limits, template: Limits, bounds: &LimitBounds) -> Limits {
    let given = least(template, bounds.account);
    // a default that the account cannot have is no default for it
    let lowered = below(bounds.account, bounds.default);
    least(asked.or(given).or(lowered), bounds.host)
}

/// The limits of a machine after a change.
pub fn changed(asked: Limits, before: Limits, bounds: &LimitBounds) -> Limits {
    least(asked.or(before), bounds.host)
}

/// The first limit that is wider than that of another machine, by its name.
pub fn wider(asked: &Limits, most: &Limits) -> Option<&'static str> {
    fn wider<T: PartialOrd>(asked: Option<T>, most: Option<T>) -> bool {
        matches!((asked, most), (Some(asked), Some(most)) if asked > most)
    }
    let all = [
        ("memory_mb", wider(asked.memory_mb, most.memory_mb)),
        ("cpus", wider(asked.cpus, most.cpus)),
        ("pids", wider(asked.pids, most.pids)),
        ("disk_mb", wider(asked.disk_mb, most.disk_mb)),
    ];
    all.into_iter().find(|(_, wider)| *wider).map(|(name, _)| name)
}

/// Each limit, but at most the other; absent limits stay absent.
fn least(one: Limits, most: Limits) -> Limits {
    fn pick<T: PartialOrd + Copy>(one: Option<T>, most: Option<T>) -> Option<T> {
        match (one, most) {
            (Some(one), Some(most)) if one > most => Some(most),
            (one, _) => one,
        }
    }
    Limits {
        memory_mb: pick(one.memory_mb, most.memory_mb),
        cpus: pick(one.cpus, most.cpus),
        pids: pick(one.pids, most.pids),
        disk_mb: pick(one.disk_mb, most.disk_mb),
    }
}

/// Where the first is lower than the second, or the second is absent.
fn below(one: Limits, other: Limits) -> Limits {
    fn pick<T: PartialOrd + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
        one.filter(|one| other.is_none_or(|other| *one < other))
    }
    Limits {
        memory_mb: pick(one.memory_mb, other.memory_mb),
        cpus: pick(one.cpus, other.cpus),
        pids: pick(one.pids, other.pids),
        disk_mb: pick(one.disk_mb, other.disk_mb),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn memory(mb: u64) -> Limits {
        Limits { memory_mb: Some(mb), ..Limits::default() }
    }

    const NONE: Limits = Limits { memory_mb: None, cpus: None, pids: None, disk_mb: None };

    #[test]
    fn who_says_what_a_machine_gets() {
        let default = memory(4096);
        let bounds = LimitBounds { default, ..LimitBounds::default() };
        assert_eq!(granted(memory(100), memory(200), &bounds), memory(100));
        assert_eq!(granted(NONE, memory(200), &bounds), memory(200));
        assert_eq!(granted(NONE, NONE, &bounds), NONE, "the default, whatever it will be");
        let host = LimitBounds { host: memory(1000), ..bounds };
        assert_eq!(granted(memory(2000), NONE, &host), memory(1000));
        assert_eq!(granted(NONE, memory(2000), &host), memory(1000));
        let account = LimitBounds { account: memory(512), ..bounds };
        assert_eq!(granted(NONE, memory(2000), &account), memory(512));
        assert_eq!(granted(NONE, NONE, &account), memory(512));
        assert_eq!(granted(memory(2000), NONE, &account), memory(2000), "refused later, by name");
    }

    #[test]
    fn limits_are_never_wider() {
        let most = memory(512);
        assert_eq!(wider(&memory(512), &most), None);
        assert_eq!(wider(&memory(513), &most), Some("memory_mb"));
        assert_eq!(wider(&Limits { pids: Some(9), ..NONE }, &most), None);
    }

    fn limits() -> impl Strategy<Value = Limits> {
        let mb = || prop::option::of(1u64..1000);
        (mb(), prop::option::of(0.1f64..64.0), mb(), mb())
            .prop_map(|(memory_mb, cpus, pids, disk_mb)| Limits { memory_mb, cpus, pids, disk_mb })
    }

    proptest! {
        /// No limit exceeds the host's resources; an omitted limit is within the quota, and a
        /// requested one is granted unless the host has less.
        #[test]
        fn bounds_hold(
            asked in limits(), template in limits(), default in limits(),
            host in limits(), account in limits(),
        ) {
            let bounds = LimitBounds { default, host, account };
            let given = granted(asked, template, &bounds);
            prop_assert_eq!(wider(&given, &host), None);
            if asked.memory_mb.is_none() {
                let in_force = given.or(default);
                prop_assert_eq!(wider(&memory_of(in_force), &memory_of(account)), None);
            } else {
                prop_assert_eq!(given.memory_mb, asked.memory_mb.min(Some(
                    host.memory_mb.unwrap_or(u64::MAX))));
            }
            prop_assert_eq!(changed(given, given, &bounds), given);
        }
    }

    fn memory_of(limits: Limits) -> Limits {
        Limits { memory_mb: limits.memory_mb, ..NONE }
    }
}
