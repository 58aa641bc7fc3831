//! Limits of a machine's traffic, and the memory of the service while peers are slow.

use crate::clients::{Bench, bench};
use crate::policies::reported;
use crate::web::{PLAIN, TLS};
use crate::{World, slow};
use stasis_api::{Name, Network, NewMachine};
use stasis_machine::{Branch, Host, Machine};
use stasis_policy::document;
use stasis_testbed::{data_dir, error_name, run, settings, until, value};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const TOOLS: &str = "
import errno, socket, ssl, time
def attempt(address, port):
    try: return socket.create_connection((address, port), timeout=120)
    except OSError as error: return errno.errorcode.get(error.errno, type(error).__name__)
def ask(address, port, path, secure=False):
    one = socket.create_connection((address, port), timeout=120)
    if secure:
        one = ssl.create_default_context().wrap_socket(one, server_hostname=address,
            suppress_ragged_eofs=False)
    one.sendall(f'GET {path} HTTP/1.1\\r\\nHost: {address}:{port}\\r\\n\\r\\n'.encode())
    return one
def read(one, most):
    count = 0
    try:
        while count < most:
            piece = one.recv(65536)
            if not piece: break
            count += len(piece)
    except OSError as error: return count, errno.errorcode.get(error.errno)
    return count, None
";

fn set(bench: &Bench, name: &str, text: &str) -> Network {
    let name: Name = name.parse().expect("a name");
    bench.host.set_policy(name.clone(), document::parse(text).expect("a policy")).expect("set");
    Network::Policy(name)
}

fn machine(bench: &Bench, name: &str, text: &str) -> Arc<Machine> {
    let network = Some(set(bench, name, text));
    let new = NewMachine { network, ..NewMachine::default() };
    let machine = bench.host.create("test", new).expect("a machine");
    run(&machine, TOOLS);
    machine
}

pub fn traffic_is_limited(world: &World) {
    let bench = bench(world);
    let rules = format!("[network]\nallow = [\"pass.example:{PLAIN}\"]\n[traffic]\n");
    let limited = machine(bench, "few", &format!("{rules}connections = 3"));
    let code = format!(
        "all = [attempt('pass.example', {PLAIN}) for _ in range(5)]\n\
                        [one if isinstance(one, str) else 'open' for one in all]"
    );
    let said = value(&limited, &code);
    assert_eq!(said, "['open', 'open', 'open', 'ECONNREFUSED', 'ECONNREFUSED']");
    let rule = Some("traffic.connections");
    reported(&bench.host, &limited, &format!(":{PLAIN}"), "at most 3 connections", rule);
    // the rate: 1 MiB at half of that per second, of which a tenth of a second comes at once
    let slowed = machine(bench, "slow", &format!("{rules}kib_per_s = 512"));
    let code = format!(
        "began = time.monotonic()\n\
         got = read(ask('pass.example', {PLAIN}, '/v1/endless'), 1 << 20)[0]\n\
         (got >= 1 << 20, time.monotonic() - began > 1.5)"
    );
    assert_eq!(slow(&slowed, &code), "(True, True)");
    totals(bench, &rules);
}

/// The total: of a machine, over swaps, and of its branches.
fn totals(bench: &Bench, rules: &str) {
    let machine = machine(bench, "much", &format!("{rules}total_mib = 1"));
    let code = format!("read(ask('pass.example', {PLAIN}, '/v1/endless'), 9 << 20)");
    let said =
        slow(&machine, &format!("got = {code}\n(got[0] > 900 << 10, got[0] <= 1 << 20, got[1])"));
    assert_eq!(said, "(True, True, 'ECONNRESET')");
    let rule = Some("traffic.total_mib");
    reported(&bench.host, &machine, "open connections", "1 MiB is used up", rule);
    let again = format!("attempt('pass.example', {PLAIN})");
    assert_eq!(value(&machine, &again), "'ECONNREFUSED'");
    bench.host.swap(&machine).expect("swapped");
    assert_eq!(value(&machine, &again), "'ECONNREFUSED'", "after a swap");
    let branch = Branch { names: vec![None], ..Branch::default() };
    for branch in bench.host.branch(&machine, branch).expect("a branch") {
        assert_eq!(value(&branch, &again), "'ECONNREFUSED'", "a branch");
    }
    // a change applies at once
    set(bench, "much", &format!("{rules}total_mib = 3"));
    assert_eq!(error_name(&run(&machine, &format!("{again}.close()"))), "");
    set(bench, "much", &format!("{rules}total_mib = 0"));
    assert_eq!(value(&machine, &again), "'ECONNREFUSED'");
}

/// Memory of this process, which is the service and the server, in bytes.
fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("our memory");
    let pages: u64 = text.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a number");
    pages * 4096
}

/// Endless answers that a machine does not read: the server is not read either, and no memory
/// grows.
pub fn slow_machines_hold_servers_back(world: &World) {
    const CONNECTIONS: u64 = 60;
    let bench = bench(world);
    let rules = format!(
        "[network]\nallow = [\"pass.example:{PLAIN},{TLS}\"]\n\
         [http]\nallow = [\"GET api.example:{PLAIN},{TLS}/v1/*\"]"
    );
    let machine = machine(bench, "hoard", &rules);
    let before = resident();
    let sent = || bench.web.endless.load(Ordering::Relaxed);
    let ask = format!(
        "held = []\n\
         for _ in range({}):\n\
         \x20   for host in ('pass.example', 'api.example'):\n\
         \x20       held.append(ask(host, {TLS}, '/v1/endless', True))\n\
         \x20       held.append(ask(host, {PLAIN}, '/v1/endless'))\n\
         [one.recv(1) for one in held].count(b'H')",
        CONNECTIONS / 4
    );
    assert_eq!(slow(&machine, &ask), CONNECTIONS.to_string());
    until("servers wait", || {
        let before = sent();
        std::thread::sleep(Duration::from_secs(2));
        sent() == before
    });
    let grown = resident().saturating_sub(before);
    // buffers of the relay, of the reader and of the server, none of which is larger than 256 KiB
    assert!(grown < CONNECTIONS * (2 << 20), "{} KiB per connection", (grown / CONNECTIONS) >> 10);
    let read = "sum(read(one, 1 << 20)[0] >= 1 << 20 for one in held)";
    assert_eq!(slow(&machine, read), CONNECTIONS.to_string(), "and go on");
}

/// The total is that of the records, also when the service starts again.
pub fn totals_outlive_a_restart(world: &World) {
    let dir = data_dir();
    let mut own = settings(dir.path());
    own.resolv_conf = world.resolv_conf.clone();
    let known = [("total.example".to_owned(), world.outside.public)];
    world.outside.names.lock().expect("no panic").extend(known);
    world.outside.pages.lock().expect("no panic").insert("/total".into(), vec![7; 2 << 20]);
    let policy = |host: &Host, most: u32| {
        let text = format!("[network]\nallow = [\"total.example\"]\n[traffic]\ntotal_mib = {most}");
        let name: Name = "total".parse().expect("a name");
        host.set_policy(name.clone(), document::parse(&text).expect("a policy")).expect("set");
        Network::Policy(name)
    };
    let host = Host::open(own.clone()).expect("a host");
    let new = NewMachine { network: Some(policy(&host, 1)), ..NewMachine::default() };
    let machine = host.create("test", new).expect("a machine");
    run(&machine, TOOLS);
    let pull = "read(ask('total.example', 80, '/total'), 9 << 20)[1]";
    assert_eq!(slow(&machine, pull), "'ECONNRESET'");
    let attempt = "attempt('total.example', 80)";
    assert_eq!(value(&machine, attempt), "'ECONNREFUSED'");
    let name = machine.name();
    drop(machine);
    assert!(host.close().is_empty());
    drop(host);
    let host = Host::open(own).expect("the same host");
    let machine = host.machine(name.as_str()).expect("the machine");
    assert_eq!(value(&machine, attempt), "'ECONNREFUSED'", "after a restart");
    policy(&host, 9);
    assert_eq!(error_name(&run(&machine, &format!("{attempt}.close()"))), "");
}

/// A download is ended by a policy that no longer allows it: one whose requests are read by its
/// path, and one that passes through by its host. The client sees an error, not an end.
pub fn a_change_ends_downloads(world: &World) {
    let bench = bench(world);
    let rules = |path: &str, passed: &str| {
        format!(
            "[network]\nallow = [\"{passed}.example:{TLS}\"]\n\
             [http]\nallow = [\"GET api.example:{PLAIN},{TLS}{path}\"]"
        )
    };
    let machine = machine(bench, "revoked", &rules("/v1/*", "pass"));
    let ask = format!(
        "held = [ask('api.example', {TLS}, '/v1/endless', True),\n\
         \x20   ask('api.example', {PLAIN}, '/v1/endless'),\n\
         \x20   ask('pass.example', {TLS}, '/v1/endless', True)]\n\
         [read(one, 1 << 20)[0] >= 1 << 20 for one in held]"
    );
    assert_eq!(slow(&machine, &ask), "[True, True, True]");
    set(bench, "revoked", &rules("/v1/endless", "pass"));
    let read = "[read(one, 1 << 20)[0] >= 1 << 20 for one in held]";
    assert_eq!(slow(&machine, read), "[True, True, True]", "a change that still allows them");
    set(bench, "revoked", &rules("/v1/ok", "rebind"));
    // Python names a reset within TLS an end without a farewell
    let end = "def ended(one):\n\
               \x20   try:\n\
               \x20       while one.recv(65536): pass\n\
               \x20   except OSError as error: return type(error).__name__\n\
               [ended(one) for one in held]";
    assert_eq!(slow(&machine, end), "['SSLEOFError', 'ConnectionResetError', 'SSLEOFError']");
    reported(&bench.host, &machine, "GET api.example", "no rule allows it", None);
    reported(&bench.host, &machine, "tcp pass.example", "no rule allows it", None);
}
