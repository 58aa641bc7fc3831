//! Machines that are held to a policy, with real clients in them.

use crate::{World, slow, with_tools};
use stasis_api::{
    Event, EventKind, ExplainQuery, Name, Network, NewMachine, PolicyDocument, PolicyVerdict,
};
use stasis_machine::{Branch, EventSelector, Host, Machine};
use stasis_policy::document;
use stasis_testbed::{data_dir, data_dir_of, run, settings, until, value};
use std::sync::Arc;

fn name(text: &str) -> Name {
    text.parse().expect("a name")
}

fn policy(text: &str) -> PolicyDocument {
    document::parse(text).expect("a policy")
}

fn set(host: &Host, policy_name: &str, text: &str) -> Network {
    host.set_policy(name(policy_name), policy(text)).expect("set");
    Network::Policy(name(policy_name))
}

/// The refusals in a machine's events, oldest first.
fn refusals(host: &Host, machine: &Machine) -> Vec<Event> {
    let wanted = EventSelector {
        account: "test".into(),
        machine: Some(machine.name().to_string()),
        kind: Some("network.refused".into()),
        ..EventSelector::default()
    };
    host.events_after(0, &wanted, 1000).events
}

/// Whether a refusal was reported, with this access, reason and rule.
pub fn reported(host: &Host, machine: &Machine, access: &str, reason: &str, rule: Option<&str>) {
    let found = |event: &Event| {
        let refused = event.refused.as_ref().expect("what was refused");
        assert_eq!(event.kind, EventKind::NetworkRefused);
        refused.access.contains(access)
            && refused.reason.contains(reason)
            && refused.rule.as_deref() == rule
    };
    let all = refusals(host, machine);
    assert!(all.iter().any(found), "{access}, {reason}, {rule:?}: {all:#?}");
}

/// Names of the public address of the world outside.
fn public(world: &World, names: &[&str]) {
    let mut known = world.outside.names.lock().expect("no panic");
    known.extend(names.iter().map(|name| ((*name).to_owned(), world.outside.public)));
}

pub fn allowed_names_are_reached_and_no_others(world: &World) {
    let host = &world.bed.host;
    public(world, &["web.example", "a.wild.example", "b.a.wild.example", "wild.example"]);
    world.outside.pages.lock().unwrap().insert("/policy".into(), b"good day".to_vec());
    let text =
        "[network]\nallow = [\"web.example\", \"*.wild.example\"]\ndeny = [\"bad.wild.example\"]";
    let machine = with_tools(world, set(host, "names", text));
    for name in ["web.example", "a.wild.example", "b.a.wild.example", "WEB.example"] {
        let code = format!("get('http://{name}/policy')");
        assert_eq!(value(&machine, &code), "b'good day'", "{name}");
    }
    for name in ["other.example", "wild.example", "web.example.evil.example", "bad.wild.example"] {
        let code = format!("get('http://{name}/policy')");
        let end = run(&machine, &code);
        assert_eq!(stasis_testbed::error_name(&end), "URLError", "{name}");
    }
    // a port that the rule does not have
    assert_eq!(value(&machine, "attempt('web.example', 7)"), "'ECONNREFUSED'");
    reported(host, &machine, "resolve other.example", "no rule allows it", None);
    let rule = "network.deny \"bad.wild.example\"";
    reported(host, &machine, "resolve bad.wild.example", "a rule denies it", Some(rule));
    reported(host, &machine, "tcp web.example:7 (", "no rule allows it", None);
    // no other kind of question leaves the host either, nor one over TCP
    let code = "q = bytes.fromhex('00070100000100000000000005')\n\
                q += b'other\\x07example\\0\\0\\x10\\0\\x01'\n\
                u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(60)\n\
                u.sendto(q, ('192.0.0.1', 53)); u.recv(500)[3] & 15";
    assert_eq!(value(&machine, code), "3");
    assert_eq!(value(&machine, "attempt('192.0.0.1', 53)"), "'ECONNREFUSED'");
    let query = |url: &str| ExplainQuery { fetch: Some(url.into()), ..Default::default() };
    let said = host.explain(&machine, &query("https://a.wild.example/x")).expect("an answer");
    assert_eq!(said.verdict, PolicyVerdict::Allow);
    assert_eq!(said.rule.as_deref(), Some("network.allow \"*.wild.example\""));
    host.explain(&machine, &query("nonsense")).expect_err("not a URL");
}

pub fn addresses_are_judged_as_addresses(world: &World) {
    let (host, there, open) = (&world.bed.host, world.outside.there, world.outside.public);
    public(world, &["web.example"]);
    let machine = with_tools(world, set(host, "raw", "[network]\nallow = [\"web.example\"]"));
    assert_eq!(value(&machine, &format!("attempt('{open}', 80)")), "'ECONNREFUSED'");
    reported(host, &machine, &format!("tcp {open}:80"), "no rule allows it", None);
    // once it was resolved from an allowed name, it is known by that name
    assert_eq!(value(&machine, "attempt('web.example', 80)"), "'connected'");
    assert_eq!(value(&machine, &format!("attempt('{open}', 80)")), "'connected'");
    // a name alone does not open a private address, a rule that names the address does
    let text = "[network]\nallow = [\"inner.example\", \"0.0.0.0/0\", \"*\"]";
    let machine = with_tools(world, set(host, "private", text));
    assert_eq!(value(&machine, "attempt('inner.example', 80)"), "'ECONNREFUSED'");
    reported(host, &machine, "tcp inner.example:80", "a private address", None);
    let text = format!("[network]\nallow = [\"{there}:80\"]");
    let machine = with_tools(world, set(host, "inner", &text));
    assert_eq!(value(&machine, &format!("attempt('{there}', 80)")), "'connected'");
    assert_eq!(value(&machine, &format!("attempt('{there}', 7)")), "'ECONNREFUSED'");
    // no rule opens the floor
    let here = world.outside.here;
    let text = format!("[network]\nallow = [\"{here}:*\", \"127.0.0.0/8:*\", \"*:*\"]");
    let machine = with_tools(world, set(host, "floor", &text));
    for (address, why) in [(here.to_string(), "the host"), ("169.254.169.254".into(), "link-local")]
    {
        assert_eq!(value(&machine, &format!("attempt('{address}', 80)")), "'ECONNREFUSED'");
        reported(host, &machine, &address, why, None);
    }
}

/// The server echoes: a hello that gets there comes back, and is no answer to one.
const TLS: &str = "
import ssl
def tls(host, claimed, port=443):
    context = ssl.create_default_context(); context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=60) as raw:
            context.wrap_socket(raw, server_hostname=claimed)
    except ssl.SSLError: return 'arrived'
    except OSError as error: return type(error).__name__
def raw(host, data, port=443):
    with socket.create_connection((host, port), timeout=60) as s:
        for piece in data: s.send(piece)
        try: return s.recv(100)
        except OSError as error: return type(error).__name__
";

pub fn tls_is_judged_by_its_name(world: &World) {
    let host = &world.bed.host;
    public(world, &["web.example", "cdn.example"]);
    let text = "[network]\nallow = [\"web.example\", \"cdn.example\"]\ndeny = [\"evil.example\"]";
    let machine = with_tools(world, set(host, "tls", text));
    run(&machine, TLS);
    assert_eq!(value(&machine, "tls('web.example', 'web.example')"), "'arrived'");
    assert_eq!(value(&machine, "tls('web.example', 'cdn.example')"), "'arrived'");
    assert_eq!(value(&machine, "tls('web.example', None)"), "'arrived'");
    for forged in ["evil.example", "other.example"] {
        let code = format!("tls('web.example', '{forged}')");
        assert_eq!(value(&machine, &code), "'ConnectionResetError'", "{forged}");
    }
    let rule = "network.deny \"evil.example\"";
    reported(host, &machine, "tcp evil.example:443", "a rule denies it", Some(rule));
    reported(host, &machine, "tcp other.example:443", "no rule allows it", None);
    // what is not TLS passes, in pieces too; what begins like it and is none does not
    assert_eq!(value(&machine, "raw('web.example', [b'hello'])"), "b'hello'");
    let bad = "raw('web.example', [b'\\x16\\x03\\x01\\x00\\x00'])";
    assert_eq!(value(&machine, bad), "'ConnectionResetError'");
    reported(host, &machine, "tcp web.example:443", "begins like TLS", None);
    // a hello that is never whole is not passed on, and does not keep the thread busy
    let held = "s = socket.create_connection(('web.example', 443), timeout=1)\n\
                s.send(b'\\x16\\x03\\x01')\n\
                try: got = s.recv(1)\n\
                except TimeoutError: got = 'nothing'\n\
                got";
    assert_eq!(value(&machine, held), "'nothing'");
    // a name that is encrypted is refused
    let hello = stasis_egress::fuzzing::hello::hello(
        &[stasis_egress::fuzzing::hello::named("web.example"), (0xfe0d, vec![0; 40])],
        1 << 14,
    );
    let code = format!("raw('web.example', [bytes({hello:?})])");
    assert_eq!(value(&machine, &code), "'ConnectionResetError'");
    reported(host, &machine, "tcp web.example:443", "encrypted (ECH)", None);
}

pub fn names_that_point_at_the_host_are_refused(world: &World) {
    let host = &world.bed.host;
    let bad =
        ["127.0.0.1".parse().unwrap(), "169.254.169.254".parse().unwrap(), world.outside.here];
    let names = ["loop.bound.example", "meta.bound.example", "host.bound.example"];
    let known = names.iter().map(|name| (*name).to_owned()).zip(bad);
    world.outside.names.lock().expect("no panic").extend(known);
    let machine =
        with_tools(world, set(host, "bound", "[network]\nallow = [\"*.bound.example:*\"]"));
    for name in names {
        let end = run(&machine, &format!("socket.gethostbyname('{name}')"));
        assert_eq!(stasis_testbed::error_name(&end), "gaierror", "{name}");
        reported(host, &machine, &format!("resolve {name} ("), "no policy allows it", None);
    }
    // the second answer to a name is judged like the first
    public(world, &["turns.bound.example"]);
    assert_eq!(value(&machine, "attempt('turns.bound.example', 80)"), "'connected'");
    let turned = [("turns.bound.example".to_owned(), bad[0])];
    world.outside.names.lock().expect("no panic").extend(turned);
    let end = run(&machine, "socket.gethostbyname('turns.bound.example')");
    assert_eq!(stasis_testbed::error_name(&end), "gaierror");
}

/// Names that have IPv6 only, on a host that has it too.
pub fn names_with_ipv6_alone_are_reached(world: &World) {
    let (host, outside) = (&world.bed.host, &world.outside);
    let [here, there] = outside
        .six
        .unwrap_or(["2001:db8::1", "2001:db8::2"].map(|six| six.parse().expect("an address")));
    let known = [
        ("six.example", there),
        ("denied.six.example", there),
        ("host.six.example", here),
        ("loop.six.example", "::1".parse().unwrap()),
        ("meta.six.example", "fd00:ec2::254".parse().unwrap()),
        ("mapped.six.example", "::ffff:127.0.0.1".parse().unwrap()),
    ];
    let known = known.map(|(name, six)| (name.to_owned(), six));
    outside.names_v6.lock().expect("no panic").extend(known);
    outside.pages.lock().unwrap().insert("/six".into(), b"good day".to_vec());
    let text = "[network]\nallow = [\"six.example\", \"six.example:123/udp\", \
                \"*.six.example:*\"]\ndeny = [\"denied.six.example\"]";
    let machine = with_tools(world, set(host, "six", text));
    let refused = |name: &str| {
        let end = run(&machine, &format!("socket.gethostbyname('{name}')"));
        assert_eq!(stasis_testbed::error_name(&end), "gaierror", "{name}");
    };
    let bad = ["host.six.example", "loop.six.example", "meta.six.example", "mapped.six.example"];
    bad.iter().chain(&["denied.six.example"]).for_each(|name| refused(name));
    if outside.six.is_none() {
        return refused("six.example");
    }
    assert_eq!(value(&machine, "get('http://six.example/six')"), "b'good day'");
    // the address that stands for it is that of its name, and of nothing else
    let address = value(&machine, "socket.gethostbyname('six.example')");
    assert_eq!(value(&machine, &format!("attempt({address}, 80)")), "'connected'");
    assert_eq!(value(&machine, &format!("attempt({address}, 7)")), "'ECONNREFUSED'");
    assert_eq!(value(&machine, "attempt('192.88.99.200', 80)"), "'ECONNREFUSED'");
    let datagram = "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(60)\n\
                    u.connect(('six.example', 123)); u.send(b'now'); u.recv(10)";
    assert_eq!(value(&machine, datagram), "b'now'");
    reported(host, &machine, "resolve loop.six.example (::1)", "no policy allows it", None);
    reported(host, &machine, "resolve host.six.example", "an address of the host", None);
    let other = with_tools(world, set(host, "not-six", "[network]\nallow = [\"other.example\"]"));
    assert_eq!(
        value(&other, &format!("attempt({address}, 80)")),
        "'ECONNREFUSED'",
        "its own table"
    );
}

/// A machine has no IPv6, whatever its policy: a program is told so at once, by its own kernel, and
/// takes the next address. A rule about such an address is refused when it is written.
pub fn addresses_of_ipv6_are_refused_at_once(world: &World) {
    let host = &world.bed.host;
    let policy = set(host, "four", "[network]\nallow = [\"*\", \"0.0.0.0/0:*\"]");
    let address =
        world.outside.six.map_or("2001:db8::2".to_owned(), |[_, there]| there.to_string());
    for network in [Network::Open, policy] {
        let machine = with_tools(world, network);
        let code = "import time
def quickly(address, kind=socket.SOCK_STREAM):
    began = time.monotonic()
    with socket.socket(socket.AF_INET6, kind) as own:
        own.settimeout(60)
        try: own.connect((address, 80))
        except OSError as error:
            return errno.errorcode.get(error.errno), time.monotonic() - began < 20
    return 'connected'";
        run(&machine, code);
        for address in [address.as_str(), "2606:4700::1111", "fd00:ec2::254"] {
            for kind in ["socket.SOCK_STREAM", "socket.SOCK_DGRAM"] {
                let said = value(&machine, &format!("quickly('{address}', {kind})"));
                assert_eq!(said, "('ENETUNREACH', True)", "{address} {kind}");
            }
        }
    }
    let query = ExplainQuery { fetch: Some("http://[2001:db8::2]/".into()), ..Default::default() };
    let machine = with_tools(world, Network::Open);
    let said = host.explain(&machine, &query).expect_err("no such address").to_string();
    assert!(said.contains("machines reach hosts of IPv6 by name alone"), "{said}");
}

pub fn datagrams_are_judged_too(world: &World) {
    let host = &world.bed.host;
    public(world, &["time.example"]);
    let text = "[network]\nallow = [\"time.example:123,443/udp\", \"time.example\"]";
    let machine = with_tools(world, set(host, "times", text));
    let code = |port: u16| {
        format!(
            "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(60)\n\
             u.connect(('time.example', {port})); u.send(b'now')\n\
             try: got = u.recv(10)\n\
             except OSError as error: got = errno.errorcode[error.errno]\n\
             got"
        )
    };
    assert_eq!(value(&machine, &code(123)), "b'now'");
    assert_eq!(value(&machine, &code(443)), "'ECONNREFUSED'", "QUIC");
    reported(host, &machine, "udp time.example:443", "QUIC", None);
    assert_eq!(value(&machine, &code(9)), "'ECONNREFUSED'");
}

pub fn a_change_applies_to_running_machines(world: &World) {
    let host = &world.bed.host;
    public(world, &["web.example", "late.example"]);
    let before = "[network]\nallow = [\"web.example:7,80\"]";
    let machine = with_tools(world, set(host, "moves", before));
    run(&machine, "c = socket.create_connection(('web.example', 7), timeout=60)");
    assert_eq!(value(&machine, "c.send(b'a'); c.recv(9)"), "b'a'");
    assert_eq!(value(&machine, "attempt('late.example', 80)"), "'gaierror'");
    set(host, "moves", "[network]\nallow = [\"late.example\"]");
    // the open connection ends
    let end = run(&machine, "c.send(b'b'); c.recv(9)");
    assert_eq!(stasis_testbed::error_name(&end), "ConnectionResetError");
    assert_eq!(value(&machine, "attempt('late.example', 80)"), "'connected'");
    assert_eq!(value(&machine, "attempt('web.example', 80)"), "'gaierror'");
    reported(host, &machine, "tcp web.example:7", "no rule allows it", None);
    host.remove_policy("moves").expect_err("a machine has it");
    host.set_policy(name("unused"), PolicyDocument::default()).expect("set");
    host.remove_policy("unused").expect("removed");
    let gone =
        NewMachine { network: Some(Network::Policy(name("unused"))), ..NewMachine::default() };
    let refused = host.create("test", gone).err().expect("refused");
    assert_eq!(refused.code(), "policy.not_found");
}

pub fn policies_outlive_swap_branch_and_restart(world: &World) {
    let host = &world.bed.host;
    public(world, &["web.example"]);
    let network = set(host, "stays", "[network]\nallow = [\"web.example\"]");
    let machine = with_tools(world, network.clone());
    let open = world.outside.public;
    let check = |machine: &Arc<Machine>| {
        assert_eq!(value(machine, &format!("attempt('{open}', 80)")), "'ECONNREFUSED'");
        assert_eq!(value(machine, "attempt('web.example', 80)"), "'connected'");
        assert_eq!(value(machine, "attempt('other.example', 80)"), "'gaierror'");
        assert_eq!(machine.describe().network, network);
    };
    check(&machine);
    host.swap(&machine).expect("swap");
    check(&machine);
    let branch = Branch { names: vec![None], ..Branch::default() };
    for branch in host.branch(&machine, branch).expect("a branch") {
        check(&branch);
    }
    // a host of its own that is opened a second time
    let dir = data_dir();
    let mut own = settings(dir.path());
    own.resolv_conf = world.resolv_conf.clone();
    let first = Host::open(own.clone()).expect("a host");
    set(&first, "stays", "[network]\nallow = [\"web.example\"]");
    let new = NewMachine { network: Some(network.clone()), ..NewMachine::default() };
    let made = first.create("test", new).expect("a machine");
    run(&made, crate::TOOLS);
    let name_of_made = made.name().to_string();
    drop(made);
    assert!(first.close().is_empty());
    drop(first);
    let second = Host::open(own).expect("the same host");
    assert_eq!(second.policies().expect("a list").len(), 1);
    check(&second.machine(&name_of_made).expect("the machine"));
}

pub fn the_hosts_policy_holds_for_all(world: &World) {
    public(world, &["web.example", "inner.web.example"]);
    let dir = data_dir();
    let mut own = settings(dir.path());
    own.resolv_conf = world.resolv_conf.clone();
    own.policy = Some(name("all"));
    let host = Host::open(own).expect("a host");
    let new = |network| NewMachine { network: Some(network), ..NewMachine::default() };
    let machine = host.create("test", new(Network::Open)).expect("a machine");
    run(&machine, crate::TOOLS);
    // until the policy exists, nothing is reached
    assert_eq!(value(&machine, "attempt('web.example', 80)"), "'gaierror'");
    set(&host, "all", "[network]\nallow = [\"web.example\"]");
    assert_eq!(value(&machine, "attempt('web.example', 80)"), "'connected'");
    assert_eq!(value(&machine, "attempt('other.example', 80)"), "'gaierror'");
    // a machine's own policy is not wider
    let wide = set(&host, "wide", "[network]\nallow = [\"*\"]");
    let machine = host.create("test", new(wide)).expect("a machine");
    run(&machine, crate::TOOLS);
    assert_eq!(value(&machine, "attempt('web.example', 80)"), "'connected'");
    assert_eq!(value(&machine, "attempt('other.example', 80)"), "'gaierror'");
    let refused = host.remove_policy("all").expect_err("it holds");
    assert_eq!(refused.code(), "policy.in_use");
}

pub fn node_is_held_to_its_policy(world: &World) {
    public(world, &["web.example"]);
    world.outside.pages.lock().unwrap().insert("/node".into(), b"good day".to_vec());
    let dir = data_dir_of("javascript");
    let mut own = settings(dir.path());
    own.resolv_conf = world.resolv_conf.clone();
    let host = Host::open(own).expect("a host");
    let text = "[network]\nallow = [\"web.example\"]\n[modules]\nallow = [\"npm:allowed\"]";
    let network = set(&host, "node", text);
    let template = Some("javascript".to_owned());
    let new = NewMachine { network: Some(network), template, ..NewMachine::default() };
    let machine = host.create("test", new).expect("a machine");
    let fetch = |url: &str| {
        format!("await fetch('{url}').then(r => r.text(), e => e.cause?.code ?? String(e.cause))")
    };
    assert_eq!(slow(&machine, &fetch("http://web.example/node")), "'good day'");
    assert_eq!(slow(&machine, &fetch("http://other.example/node")), "'ENOTFOUND'");
    let raw = format!("http://{}:8080/", world.outside.public);
    assert_eq!(slow(&machine, &fetch(&raw)), "'ECONNREFUSED'");
    let import = "await import('npm:denied').then(() => 'imported', e => e.message)";
    let said = slow(&machine, import);
    assert!(said.contains("policy `node` refuses the import"), "{said}");
    reported(&host, &machine, "import npm:denied", "no rule allows it", None);
}

pub fn many_refusals_are_few_events(world: &World) {
    let host = &world.bed.host;
    let machine = with_tools(world, set(host, "flood", "[network]\nallow = [\"web.example\"]"));
    let code = "for n in range(300): attempt(f'198.51.100.{n % 250}', 1000 + n)";
    slow(&machine, &format!("{code}\n0"));
    until("refusals are reported", || refusals(host, &machine).len() >= 30);
    let all = refusals(host, &machine);
    assert!(all.len() < 100, "{}", all.len());
}
