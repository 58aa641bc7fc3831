//! What holds for every policy and every access.

use proptest::prelude::*;
use stasis_api::{Name, Network, PolicyDocument, PolicyRules, PolicyVerdict};
use stasis_policy::decide::{Access, Decision, Subject, decide};
use stasis_policy::document::Policy;
use stasis_policy::modules::{ImportRule, ImportSource};
use stasis_policy::reach::{self, Protocol};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;

/// Rules and names from so few words that they often meet.
fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("*".to_owned()),
        Just("a.example".to_owned()),
        Just("b.a.example".to_owned()),
        Just("*.example".to_owned()),
        Just("*.a.example".to_owned()),
        Just("0.0.0.0/0".to_owned()),
        Just("10.0.0.0/8".to_owned()),
        Just("127.0.0.0/8".to_owned()),
        Just("169.254.169.254".to_owned()),
        Just("203.0.113.0/24".to_owned()),
    ]
}

fn rule() -> impl Strategy<Value = String> {
    let ports = prop_oneof![Just(""), Just(":443"), Just(":22"), Just(":*"), Just(":1-65535/udp")];
    (host(), ports).prop_map(|(host, ports)| format!("{host}{ports}"))
}

fn rules() -> impl Strategy<Value = PolicyRules> {
    let list = |most| prop::collection::vec(rule(), 0..most);
    (list(5), list(2), list(2)).prop_map(|(allow, ask, deny)| PolicyRules { allow, ask, deny })
}

fn policy(name: &str, network: PolicyRules) -> Arc<Policy> {
    let modules = PolicyRules { allow: vec!["npm:a".into()], ..PolicyRules::default() };
    let document = PolicyDocument { network, modules, ..PolicyDocument::default() };
    Arc::new(Policy::compile(name.parse().expect("a name"), &document).expect("a policy"))
}

fn address() -> impl Strategy<Value = SocketAddrV4> {
    let ip = prop_oneof![
        any::<u32>().prop_map(Ipv4Addr::from),
        (0u8..4).prop_map(|last| Ipv4Addr::new(203, 0, 113, last)),
        (0u8..4).prop_map(|last| Ipv4Addr::new(10, 0, 0, last)),
        Just(Ipv4Addr::LOCALHOST),
        Just(Ipv4Addr::new(169, 254, 169, 254)),
        Just(reach::MACHINE),
        Just(reach::RESOLVER),
    ];
    let port = prop_oneof![Just(443u16), Just(80), Just(22), Just(53), any::<u16>()];
    (ip, port).prop_map(|(ip, port)| SocketAddrV4::new(ip, port))
}

#[derive(Debug, Clone)]
struct Asked {
    name: Option<&'static str>,
    address: SocketAddrV4,
    udp: bool,
    own: bool,
    kind: u8,
}

fn asked() -> impl Strategy<Value = Asked> {
    let names = [None, Some("a.example"), Some("b.a.example"), Some("c.example"), Some("x.y")];
    let name = prop::sample::select(names.to_vec());
    (name, address(), any::<bool>(), any::<bool>(), 0u8..4)
        .prop_map(|(name, address, udp, own, kind)| Asked { name, address, udp, own, kind })
}

impl Asked {
    fn access(&self) -> Access<'_> {
        match self.kind {
            0 => Access::Resolve { name: self.name.unwrap_or("a.example") },
            1 => Access::Import { source: ImportSource::Npm, specifier: "npm:a@1" },
            _ => Access::Connect {
                name: self.name,
                address: self.address,
                protocol: if self.udp { Protocol::Udp } else { Protocol::Tcp },
                own: self.own,
            },
        }
    }
}

fn answer(network: &Network, levels: &[Arc<Policy>], asked: &Asked) -> Decision {
    let subject = Subject { network, levels, imports: ImportRule::Network };
    decide(&subject, &asked.access())
}

fn named(name: &str) -> Network {
    Network::Policy(name.parse::<Name>().expect("a name"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_policy_lifts_the_floor(rules in rules(), asked in asked()) {
        let levels = [policy("web", rules)];
        for (network, levels) in [(named("web"), &levels[..]), (Network::Open, &[])] {
            let decision = answer(&network, levels, &asked);
            if let Access::Connect { address, own, .. } = asked.access()
                && decision.verdict() != PolicyVerdict::Deny
            {
                let ip = address.ip();
                prop_assert!(reach::floor(address, own).is_none());
                prop_assert!(!own && !ip.is_loopback() && !ip.is_link_local());
                prop_assert!(!ip.is_multicast() && !ip.is_unspecified() && !ip.is_broadcast());
            }
        }
    }

    #[test]
    fn a_child_is_never_wider(parent in rules(), child in rules(), asked in asked()) {
        let (parent, child) = (policy("parent", parent), policy("child", child));
        let rank = |decision: Decision| match decision.verdict() {
            PolicyVerdict::Allow => 0,
            PolicyVerdict::Ask => 1,
            PolicyVerdict::Deny => 2,
        };
        let both = [parent.clone(), child.clone()];
        let under = rank(answer(&named("child"), &both, &asked));
        prop_assert!(under >= rank(answer(&named("parent"), &both[..1], &asked)));
        prop_assert!(under >= rank(answer(&named("child"), &both[1..], &asked)));
        let open = [parent];
        let held = rank(answer(&Network::Open, &open, &asked));
        prop_assert!(held >= rank(answer(&Network::Open, &[], &asked)));
        prop_assert!(held >= rank(answer(&named("parent"), &open, &asked)));
        prop_assert!(under >= rank(answer(&Network::Open, &[], &asked)));
    }

    #[test]
    fn order_does_not_matter(rules in rules(), asked in asked(), by in 0usize..5) {
        let mut turned = rules.clone();
        for list in [&mut turned.allow, &mut turned.ask, &mut turned.deny] {
            list.reverse();
            let by = by.min(list.len());
            list.rotate_left(by);
        }
        let (one, other) = (policy("web", rules), policy("web", turned));
        let network = named("web");
        let answers = [one, other].map(|level| answer(&network, &[level], &asked));
        prop_assert_eq!(&answers[0], &answers[1]);
    }

    #[test]
    fn adding_a_denial_never_widens(rules in rules(), more in rule(), asked in asked()) {
        let mut narrowed = rules.clone();
        narrowed.deny.push(more);
        let [before, after] = [rules, narrowed]
            .map(|rules| answer(&named("web"), &[policy("web", rules)], &asked));
        prop_assert!(!after.is_allowed() || before.is_allowed());
    }

    #[test]
    fn a_policy_denies_by_default(asked in asked()) {
        let empty = Policy::compile("web".parse().expect("a name"), &PolicyDocument::default());
        let levels = [Arc::new(empty.expect("a policy"))];
        prop_assert_eq!(answer(&named("web"), &levels, &asked).verdict(), PolicyVerdict::Deny);
        // nor is a policy that does not exist one that allows
        prop_assert_eq!(answer(&named("gone"), &levels, &asked).verdict(), PolicyVerdict::Deny);
        prop_assert_eq!(answer(&Network::None, &[], &asked).verdict(), PolicyVerdict::Deny);
    }
}

#[test]
fn quic_is_refused_whatever_is_allowed() {
    let all = PolicyRules { allow: vec!["*:1-65535/udp".into()], ..PolicyRules::default() };
    let levels = [policy("web", all)];
    let to = |port| Asked {
        name: Some("a.example"),
        address: SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), port),
        udp: true,
        own: false,
        kind: 2,
    };
    assert!(!answer(&named("web"), &levels, &to(443)).is_allowed());
    assert!(answer(&named("web"), &levels, &to(123)).is_allowed());
}
