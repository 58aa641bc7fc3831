//! Invariants of every policy and every access.

use proptest::prelude::*;
use serde_json::{Value, json};
use stasis_api::{Limits, Name, Network, PolicyDocument, PolicyRules, PolicyVerdict};
use stasis_policy::commands::CommandText;
use stasis_policy::decide::{Access, Decision, Identity, Subject, decide};
use stasis_policy::document::{Policy, needs_interception};
use stasis_policy::files::{FileOperation, FileUse};
use stasis_policy::http::HttpRequest;
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

/// Rules of the other sections.
fn one_of(texts: &'static [&'static str]) -> impl Strategy<Value = PolicyRules> {
    let list = |most| {
        let rule = prop::sample::select(texts.to_vec()).prop_map(str::to_owned);
        prop::collection::vec(rule, 0..most)
    };
    (list(4), list(2), list(2)).prop_map(|(allow, ask, deny)| PolicyRules { allow, ask, deny })
}

fn document() -> impl Strategy<Value = PolicyDocument> {
    let http = one_of(&[
        "a.example",
        "GET a.example",
        "GET,POST *.example/v1/*",
        "DELETE *",
        "* 0.0.0.0/0:*",
        "10.0.0.0/8/v1/*",
        "127.0.0.0/8:*",
        "b.a.example:22/x",
    ]);
    let secrets = one_of(&["*", "KEY", "KEY@a.example", "*@*.example:*", "OTHER@10.0.0.0/8"]);
    let tools = one_of(&["*", "git.*", "git.make", "git.make repo=a/*", "git.* n=1", "x.y"]);
    let modules = one_of(&["npm:a", "npm:*", "jsr:@a/b"]);
    let machines = prop::option::of(one_of(&["*", "python", "py*", "node"]));
    let files = prop::option::of(one_of(&["*", "read *", "/v1/*", "write /v1/a", "/*/a"]));
    let commands = prop::option::of(one_of(&["*", "git *", "git log", "rm *", "g* log"]));
    let optional = (machines, files, commands);
    let all = (rules(), http, secrets, tools, modules, optional);
    all.prop_map(|(network, http, secrets, tools, modules, (machines, files, commands))| {
        PolicyDocument {
            network,
            http,
            secrets,
            tools,
            modules,
            machines,
            files,
            commands,
            ..PolicyDocument::default()
        }
    })
}

/// The rules of each section; none of those that are absent.
fn lists(document: &mut PolicyDocument) -> [Option<&mut PolicyRules>; 8] {
    let PolicyDocument { network, http, secrets, tools, modules, .. } = document;
    let PolicyDocument { machines, files, commands, .. } = document;
    let (machines, files, commands) = (machines.as_mut(), files.as_mut(), commands.as_mut());
    [
        Some(network),
        Some(http),
        Some(secrets),
        Some(tools),
        Some(modules),
        machines,
        files,
        commands,
    ]
}

fn policy(name: &str, document: &PolicyDocument) -> Arc<Policy> {
    Arc::new(Policy::compile(name.parse().expect("a name"), document).expect("a policy"))
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

const LIMITS: Limits = Limits { memory_mb: Some(64), cpus: None, pids: None, disk_mb: None };

#[derive(Debug, Clone)]
struct Asked {
    name: Option<&'static str>,
    address: SocketAddrV4,
    udp: bool,
    own: bool,
    kind: u8,
    method: &'static str,
    path: &'static str,
    arguments: Value,
    command: &'static str,
}

fn request<'a>(method: &'a str, path: &'a str) -> HttpRequest<'a> {
    HttpRequest { secure: true, method, path, headers: &[], http2: false }
}

fn asked() -> impl Strategy<Value = Asked> {
    let names = [None, Some("a.example"), Some("b.a.example"), Some("c.example"), Some("x.y")];
    let name = prop::sample::select(names.to_vec());
    let method = prop::sample::select(vec!["GET", "POST", "DELETE", "get"]);
    let path = prop::sample::select(vec!["/", "/v1/a", "/v1/../x", "/x", "/v1/%2e%2e/x", ""]);
    let arguments = prop::sample::select(vec![
        json!({}),
        json!({ "repo": "a/b", "n": 1 }),
        json!({ "repo": ["a/b"], "n": 2 }),
        Value::Null,
    ]);
    let command = prop::sample::select(vec!["git log", "git", "/bin/rm x", "git log; ls", ""]);
    let rest = (method, path, arguments, command);
    (name, address(), any::<bool>(), any::<bool>(), 0u8..13, rest).prop_map(
        |(name, address, udp, own, kind, (method, path, arguments, command))| Asked {
            name,
            address,
            udp,
            own,
            kind,
            method,
            path,
            arguments,
            command,
        },
    )
}

impl Asked {
    fn access(&self) -> Access<'_> {
        match self.kind {
            0 => Access::Resolve { name: self.name.unwrap_or("a.example") },
            1 => Access::Import { source: ImportSource::Npm, specifier: "npm:a@1" },
            2 | 3 => Access::Request {
                name: self.name,
                address: self.address,
                own: self.own,
                what: request(self.method, self.path),
            },
            4 => Access::Secret {
                secret: "KEY",
                host: self.name.unwrap_or("10.0.0.1"),
                port: self.address.port(),
            },
            6 => Access::Create { template: "python", limits: &LIMITS },
            7 => Access::Command(CommandText::Shell(self.command)),
            8 => Access::File(FileUse {
                operation: if self.own { FileOperation::Read } else { FileOperation::Write },
                path: self.path,
                below: self.udp,
            }),
            5 => Access::Tool { server: "git", tool: "make", arguments: &self.arguments },
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
    let who = Identity::default();
    let subject = Subject { who: &who, network, levels, imports: ImportRule::Network };
    decide(&subject, &asked.access())
}

fn named(name: &str) -> Network {
    Network::Policy(name.parse::<Name>().expect("a name"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn no_policy_lifts_the_floor(document in document(), asked in asked()) {
        let levels = [policy("web", &document)];
        for (network, levels) in [(named("web"), &levels[..]), (Network::Open, &[])] {
            let decision = answer(&network, levels, &asked);
            if let Access::Connect { address, own, .. } | Access::Request { address, own, .. }
                = asked.access()
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
    fn a_child_is_never_wider(parent in document(), child in document(), asked in asked()) {
        let (parent, child) = (policy("parent", &parent), policy("child", &child));
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
        // nor does the order of levels matter
        let turned = [both[1].clone(), both[0].clone()];
        prop_assert_eq!(under, rank(answer(&named("child"), &turned, &asked)));
    }

    #[test]
    fn order_does_not_matter(document in document(), asked in asked(), by in 0usize..5) {
        let mut turned = document.clone();
        for rules in lists(&mut turned).into_iter().flatten() {
            for list in [&mut rules.allow, &mut rules.ask, &mut rules.deny] {
                list.reverse();
                let by = by.min(list.len());
                list.rotate_left(by);
            }
        }
        let (one, other) = (policy("web", &document), policy("web", &turned));
        let network = named("web");
        let answers = [one, other].map(|level| answer(&network, &[level], &asked));
        prop_assert_eq!(&answers[0], &answers[1]);
    }

    #[test]
    fn adding_a_denial_never_widens(
        document in document(), more in document(), asked in asked(),
    ) {
        let (mut narrowed, mut more) = (document.clone(), more);
        for (own, more) in lists(&mut narrowed).into_iter().zip(lists(&mut more)) {
            if let (Some(own), Some(more)) = (own, more) {
                own.deny.append(&mut more.deny);
            }
        }
        let [before, after] = [document, narrowed]
            .map(|document| answer(&named("web"), &[policy("web", &document)], &asked));
        prop_assert!(!after.is_allowed() || before.is_allowed());
    }

    /// A request is never allowed on a connection that is not, and where a connection is allowed
    /// by rules about requests alone, its requests have to be read.
    #[test]
    fn requests_and_connections_agree(document in document(), asked in asked()) {
        let levels = [policy("web", &document)];
        let (who, network) = (Identity::default(), named("web"));
        let subject = Subject {
            who: &who, network: &network, levels: &levels, imports: ImportRule::Network,
        };
        let Asked { name, address, own, method, path, .. } = asked;
        let connect = decide(&subject, &Access::Connect {
            name, address, protocol: Protocol::Tcp, own,
        });
        let what = request(method, path);
        let request = decide(&subject, &Access::Request { name, address, own, what });
        prop_assert!(connect.is_allowed() || !request.is_allowed());
        if connect.is_allowed() && !request.is_allowed() {
            prop_assert!(needs_interception(&levels, name, address));
        }
    }

    #[test]
    fn a_policy_denies_by_default(asked in asked()) {
        let empty = Policy::compile("web".parse().expect("a name"), &PolicyDocument::default());
        let levels = [Arc::new(empty.expect("a policy"))];
        // sections that restrict nothing while they are absent
        let is_open = matches!(
            asked.access(),
            Access::Create { .. } | Access::File(_) | Access::Command(_)
        );
        if !is_open {
            prop_assert_eq!(answer(&named("web"), &levels, &asked).verdict(), PolicyVerdict::Deny);
        }
        // nor is a policy that does not exist one that allows
        prop_assert_eq!(answer(&named("gone"), &levels, &asked).verdict(), PolicyVerdict::Deny);
        if !is_open && !matches!(asked.access(), Access::Tool { .. }) {
            prop_assert_eq!(answer(&Network::None, &[], &asked).verdict(), PolicyVerdict::Deny);
        }
    }
}

#[test]
fn a_section_without_rules_allows_nothing() {
    let sections = PolicyDocument {
        files: Some(PolicyRules::default()),
        commands: Some(PolicyRules::default()),
        ..PolicyDocument::default()
    };
    let levels = [policy("own", &sections)];
    let who = Identity::default();
    let file = FileUse { operation: FileOperation::Read, path: "/x", below: false };
    for access in [Access::File(file), Access::Command(CommandText::Shell("ls"))] {
        for (levels, allowed) in [(&levels[..], false), (&[], true)] {
            let imports = ImportRule::Network;
            let subject = Subject { who: &who, network: &Network::None, levels, imports };
            assert_eq!(decide(&subject, &access).is_allowed(), allowed);
        }
    }
}

#[test]
fn quic_is_refused_whatever_is_allowed() {
    let network = PolicyRules { allow: vec!["*:1-65535/udp".into()], ..PolicyRules::default() };
    let levels = [policy("web", &PolicyDocument { network, ..PolicyDocument::default() })];
    let (who, network) = (Identity::default(), named("web"));
    let imports = ImportRule::Network;
    let subject = Subject { who: &who, network: &network, levels: &levels, imports };
    let allowed = |port| {
        let address = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 1), port);
        let name = Some("a.example");
        let access = Access::Connect { name, address, protocol: Protocol::Udp, own: false };
        decide(&subject, &access).is_allowed()
    };
    assert!(!allowed(443) && allowed(123));
}
