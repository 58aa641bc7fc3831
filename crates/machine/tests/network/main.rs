//! Machines with a network, against a world outside that the test makes, and those without one.

mod clients;
#[cfg(debug_assertions)]
mod escapes;
mod limits;
mod policies;
mod quic;
mod secrets;
mod web;

use base64::Engine;
use libtest_mimic::{Arguments, Trial};
use stasis_api::{Exec, Network, NewMachine, Timeout};
use stasis_machine::{Branch, Machine};
use stasis_testbed::outside::OutsideNetwork;
use stasis_testbed::{TestHost, exec, lines, run, value};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, OnceLock};
use tempfile::TempDir;

struct World {
    bed: TestHost,
    outside: OutsideNetwork,
    /// Names the resolver out there.
    resolv_conf: PathBuf,
    _dir: TempDir,
}

impl World {
    /// One host and one world for all checks.
    fn make() -> World {
        let outside = OutsideNetwork::make();
        let dir = tempfile::tempdir().expect("a directory");
        let resolv_conf = dir.path().join("resolv.conf");
        std::fs::write(&resolv_conf, format!("nameserver {}\n", outside.there)).expect("write");
        let bed = TestHost::with(|settings| settings.resolv_conf = resolv_conf.clone());
        World { bed, outside, resolv_conf, _dir: dir }
    }
}

type Check = fn(&World);

const CHECKS: &[(&str, Check)] = &[
    ("pages_and_names_are_reached", pages_and_names_are_reached),
    ("the_host_itself_is_not_reached", the_host_itself_is_not_reached),
    ("the_interface_is_out_of_reach", the_interface_is_out_of_reach),
    ("without_a_network_nothing_is_reached", without_a_network_nothing_is_reached),
    ("much_arrives_whole_in_both_directions", much_arrives_whole_in_both_directions),
    ("connections_live_on_over_checkpoints", connections_live_on_over_checkpoints),
    ("connections_stay_with_the_source_of_a_branch", connections_stay_with_the_source_of_a_branch),
    ("connections_end_with_a_swap", connections_end_with_a_swap),
    ("too_many_connections_are_refused", too_many_connections_are_refused),
    ("packages_are_installed_from_an_index", packages_are_installed_from_an_index),
    ("allowed_names_are_reached_and_no_others", policies::allowed_names_are_reached_and_no_others),
    ("addresses_are_judged_as_addresses", policies::addresses_are_judged_as_addresses),
    ("tls_is_judged_by_its_name", policies::tls_is_judged_by_its_name),
    (
        "names_that_point_at_the_host_are_refused",
        policies::names_that_point_at_the_host_are_refused,
    ),
    ("names_with_ipv6_alone_are_reached", policies::names_with_ipv6_alone_are_reached),
    ("addresses_of_ipv6_are_refused_at_once", policies::addresses_of_ipv6_are_refused_at_once),
    ("datagrams_are_judged_too", policies::datagrams_are_judged_too),
    ("a_change_applies_to_running_machines", policies::a_change_applies_to_running_machines),
    (
        "policies_outlive_swap_branch_and_restart",
        policies::policies_outlive_swap_branch_and_restart,
    ),
    ("the_hosts_policy_holds_for_all", policies::the_hosts_policy_holds_for_all),
    ("node_is_held_to_its_policy", policies::node_is_held_to_its_policy),
    ("many_refusals_are_few_events", policies::many_refusals_are_few_events),
    ("keys_stay_outside_of_machines", secrets::keys_stay_outside_of_machines),
    ("tokens_are_got_once_and_renewed", secrets::tokens_are_got_once_and_renewed),
    ("python_clients_get_what_is_allowed", clients::python_clients_get_what_is_allowed),
    ("node_clients_get_what_is_allowed", clients::node_clients_get_what_is_allowed),
    ("quic_clients_fall_back", quic::quic_clients_fall_back),
    ("trust_comes_with_a_policy", clients::trust_comes_with_a_policy),
    ("traffic_is_limited", limits::traffic_is_limited),
    ("slow_machines_hold_servers_back", limits::slow_machines_hold_servers_back),
    ("totals_outlive_a_restart", limits::totals_outlive_a_restart),
    ("a_change_ends_downloads", limits::a_change_ends_downloads),
    #[cfg(debug_assertions)]
    ("attempts_to_get_out_fail", escapes::attempts_to_get_out_fail),
];

/// The world is made when the first check asks for it, and goes when the last is over.
fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let world: Arc<OnceLock<World>> = Arc::default();
    let trial = |(name, check): &(&'static str, Check)| {
        let (world, check) = (world.clone(), *check);
        Trial::test(*name, move || {
            check(world.get_or_init(World::make));
            Ok(())
        })
    };
    let conclusion = libtest_mimic::run(&arguments, CHECKS.iter().map(trial).collect());
    drop(world);
    conclusion.exit_code()
}

fn machine(world: &World, network: Network) -> Arc<Machine> {
    let new = NewMachine { network: Some(network), ..NewMachine::default() };
    world.bed.host.create("test", new).expect("make a machine")
}

/// The value of an expression that may take its time.
fn slow(machine: &Arc<Machine>, code: &str) -> String {
    let end = exec(machine, Exec { code: code.into(), timeout: Timeout::Never, ..Exec::default() });
    let outcome = end.outcome.unwrap_or_default();
    outcome.value.unwrap_or_else(|| panic!("{code}: {:?} {:?}", end.status, outcome.error))
}

const TOOLS: &str = "
import socket, urllib.request, hashlib, errno
def get(url): return urllib.request.urlopen(url, timeout=120).read()
def attempt(address, port):
    try:
        socket.create_connection((address, port), timeout=120).close()
        return 'connected'
    except OSError as error:
        return errno.errorcode.get(error.errno, type(error).__name__)
";

fn with_tools(world: &World, network: Network) -> Arc<Machine> {
    let machine = machine(world, network);
    run(&machine, TOOLS);
    machine
}

fn pages_and_names_are_reached(world: &World) {
    let there = world.outside.there;
    world.outside.pages.lock().unwrap().insert("/hello".into(), b"good day".to_vec());
    let machine = with_tools(world, Network::Open);
    assert_eq!(value(&machine, &format!("get('http://{there}/hello')")), "b'good day'");
    assert_eq!(value(&machine, "get('http://web.example/hello')"), "b'good day'");
    let lookup = "socket.gethostbyname('anything.example')";
    assert_eq!(value(&machine, lookup), format!("'{there}'"));
    let unknown = run(&machine, "socket.gethostbyname('nobody.invalid')");
    assert_eq!(stasis_testbed::error_name(&unknown), "gaierror");
    assert_eq!(value(&machine, "open('/etc/resolv.conf').read()"), "'nameserver 192.0.0.1\\n'");
    // a port without a listener looks like one
    assert_eq!(value(&machine, &format!("attempt('{there}', 9)")), "'ECONNREFUSED'");
    assert_eq!(machine.describe().network, Network::Open);
}

fn the_host_itself_is_not_reached(world: &World) {
    let (here, there) = (world.outside.here, world.outside.there);
    let listener = TcpListener::bind("0.0.0.0:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let machine = with_tools(world, Network::Open);
    // without the wall it is reached: from outside, and from the host
    let open = move || std::net::TcpStream::connect((here, port)).is_ok();
    assert!(world.outside.run(open) && open());
    let own = own_addresses();
    let always = [here.to_string(), "127.0.0.1".into(), "169.254.169.254".into(), "0.0.0.0".into()];
    for address in always.into_iter().chain(own.clone()) {
        let code = format!("attempt('{address}', {port})");
        let said = value(&machine, &code);
        // an interface that another test left behind goes at any time, and its address with it
        let known = own.contains(&address) && !own_addresses().contains(&address);
        assert!(said == "'ECONNREFUSED'" || known, "{address}: {said}");
    }
    // datagrams too
    let code = format!(
        "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); s.settimeout(120)\n\
         s.connect(('{here}', 53)); s.send(b'x')\n\
         try: s.recv(10)\n\
         except OSError as error: why = errno.errorcode[error.errno]\n\
         why"
    );
    assert_eq!(value(&machine, &code), "'ECONNREFUSED'");
    assert_eq!(value(&machine, &format!("attempt('{there}', 80)")), "'connected'");
}

/// Addresses of the host's other interfaces, as far as `ip` tells.
fn own_addresses() -> Vec<String> {
    let out = std::process::Command::new("ip").args(["-4", "-o", "addr"]).output().expect("ip");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let address = |line: &str| {
        let word = line.split_whitespace().nth(3)?;
        Some(word.split('/').next()?.to_owned())
    };
    text.lines().filter_map(address).collect()
}

/// A program can neither access nor change the device of its machine's packets.
fn the_interface_is_out_of_reach(world: &World) {
    let machine = with_tools(world, Network::Open);
    let code = "
import os, fcntl, struct
def refused(work):
    try: work()
    except OSError as error: return errno.errorcode[error.errno]
    return 'done'
def make_node(): os.mknod('/tmp/tun', 0o20666, os.makedev(10, 200))
def set_flags():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        fcntl.ioctl(s, 0x8914, struct.pack('16sh22x', b'tun0', 0))
def of_init(): os.listdir('/proc/1/fd')
[refused(work) for work in (lambda: open('/dev/net/tun'), make_node, set_flags, of_init)]";
    assert_eq!(value(&machine, code), "['ENOENT', 'EACCES', 'ENOTTY', 'ENOENT']");
    let about = value(&machine, "import os; oct(os.stat('/etc/resolv.conf').st_mode)");
    assert_eq!(about, "'0o100644'");
}

fn without_a_network_nothing_is_reached(world: &World) {
    let there = world.outside.there;
    let machine = with_tools(world, Network::None);
    assert_eq!(value(&machine, &format!("attempt('{there}', 80)")), "'ENETUNREACH'");
    let interfaces = value(&machine, "[name for _, name in socket.if_nameindex()]");
    assert_eq!(interfaces, "['lo']");
    let branch = Branch { names: vec![None], ..Branch::default() };
    let branches = world.bed.host.branch(&machine, branch).expect("branch");
    assert_eq!(value(&branches[0], &format!("attempt('{there}', 80)")), "'ENETUNREACH'");
}

fn much_arrives_whole_in_both_directions(world: &World) {
    const BYTES: usize = 20 << 20;
    let there = world.outside.there;
    let body: Vec<u8> =
        (0..BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
    world.outside.pages.lock().unwrap().insert("/much".into(), body);
    let machine = with_tools(world, Network::Open);
    let code = format!("data = get('http://{there}/much'); (len(data), sum(data))");
    assert_eq!(slow(&machine, &code), format!("({BYTES}, {sum})"));
    let code = format!("urllib.request.urlopen('http://{there}/sink', data=data).read()");
    assert_eq!(slow(&machine, &code), format!("b'{BYTES} {sum}'"));
    let order = "data == bytes((at * 2654435761 & 0xffffffff) >> 24 for at in range(len(data)))";
    assert_eq!(slow(&machine, order), "True");
}

/// A connection from a machine to the server that sends back what it gets.
fn connected(world: &World) -> Arc<Machine> {
    let machine = with_tools(world, Network::Open);
    let there = world.outside.there;
    run(&machine, &format!("c = socket.create_connection(('{there}', 7), timeout=120)"));
    machine
}

fn connections_live_on_over_checkpoints(world: &World) {
    let machine = connected(world);
    for round in 0..3 {
        machine.settle().expect("a checkpoint");
        let code = format!("c.send(b'{round}'); c.recv(9)");
        assert_eq!(value(&machine, &code), format!("b'{round}'"));
    }
}

fn connections_stay_with_the_source_of_a_branch(world: &World) {
    let machine = connected(world);
    let branch = Branch { names: vec![None, None], ..Branch::default() };
    for branch in world.bed.host.branch(&machine, branch).expect("branches") {
        let end = run(&branch, "c.recv(9)");
        assert_eq!(stasis_testbed::error_name(&end), "ConnectionResetError");
    }
    assert_eq!(value(&machine, "c.send(b'own'); c.recv(9)"), "b'own'");
}

fn connections_end_with_a_swap(world: &World) {
    let (host, there) = (&world.bed.host, world.outside.there);
    let machine = connected(world);
    host.swap(&machine).expect("swap");
    let end = run(&machine, "c.recv(9)");
    assert_eq!(stasis_testbed::error_name(&end), "ConnectionResetError");
    assert_eq!(value(&machine, &format!("attempt('{there}', 7)")), "'connected'");
    // sockets that only have an address are as they were, and names are found
    let ask = "u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(120)\n\
               u.connect(('192.0.0.1', 53))";
    run(&machine, ask);
    host.swap(&machine).expect("swap");
    let query = "00070100000100000000000003776562076578616d706c650000010001";
    let code = format!("u.send(bytes.fromhex('{query}')); u.recv(500)[:2]");
    assert_eq!(value(&machine, &code), "b'\\x00\\x07'");
    // a branch has what its machine has
    let branch = Branch { names: vec![None], ..Branch::default() };
    let branches = host.branch(&machine, branch).expect("branch");
    assert_eq!(branches[0].describe().network, Network::Open);
    assert_eq!(value(&branches[0], &format!("attempt('{there}', 7)")), "'connected'");
}

fn too_many_connections_are_refused(world: &World) {
    const MOST: usize = 256;
    let there = world.outside.there;
    let (machine, other) = (with_tools(world, Network::Open), with_tools(world, Network::Open));
    let code = format!(
        "held, refused = [], 0\n\
         for _ in range(300):\n\
         \x20   try: held.append(socket.create_connection(('{there}', 7), timeout=120))\n\
         \x20   except ConnectionRefusedError: refused += 1\n\
         (len(held), refused)"
    );
    assert_eq!(slow(&machine, &code), format!("({MOST}, {})", 300 - MOST));
    assert_eq!(value(&other, &format!("attempt('{there}', 7)")), "'connected'");
    let still = "held[0].send(b'a'); held[-1].send(b'b'); held[0].recv(1) + held[-1].recv(1)";
    assert_eq!(value(&machine, still), "b'ab'");
    run(&machine, "for one in held: one.close()");
    let again = format!(
        "import time\n\
         for _ in range(2000):\n\
         \x20   said = attempt('{there}', 7)\n\
         \x20   if said == 'connected': break\n\
         \x20   time.sleep(0.05)\n\
         said"
    );
    assert_eq!(slow(&machine, &again), "'connected'");
}

fn packages_are_installed_from_an_index(world: &World) {
    let there = world.outside.there;
    let machine = with_tools(world, Network::Open);
    let wheel = value(
        &machine,
        "import zipfile, io, base64\n\
         out = io.BytesIO()\n\
         with zipfile.ZipFile(out, 'w') as z:\n\
         \x20   z.writestr('stasis_probe.py', 'answer = 42\\n')\n\
         \x20   info = 'stasis_probe-1.0.dist-info/'\n\
         \x20   about = 'Metadata-Version: 2.1\\nName: stasis-probe\\nVersion: 1.0\\n'\n\
         \x20   z.writestr(info + 'METADATA', about)\n\
         \x20   about = 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n'\n\
         \x20   z.writestr(info + 'WHEEL', about)\n\
         \x20   z.writestr(info + 'RECORD', 'stasis_probe.py,,\\n')\n\
         base64.b64encode(out.getvalue()).decode()",
    );
    let standard = base64::engine::general_purpose::STANDARD;
    let wheel = standard.decode(wheel.trim_matches('\'')).expect("base64");
    let name = "stasis_probe-1.0-py3-none-any.whl";
    let page = format!("<a href=\"/files/{name}\">{name}</a>").into_bytes();
    let mut pages = world.outside.pages.lock().unwrap();
    pages.insert("/simple/stasis-probe/".into(), page);
    pages.insert(format!("/files/{name}"), wheel);
    drop(pages);
    let install = format!(
        "%pip install --index-url http://{there}/simple/ --trusted-host {there} stasis-probe"
    );
    let end = exec(&machine, Exec { code: install, timeout: Timeout::Never, ..Exec::default() });
    let said = lines(&machine, end.seq, None).join("\n");
    let end = run(&machine, "import stasis_probe; stasis_probe.answer");
    assert_eq!(end.outcome.unwrap_or_default().value.as_deref(), Some("42"), "{said}");
}
