//! Keys that machines use without having them: real clients in a real machine, a server with TLS
//! outside, and a search for the key in everything that is kept.

use crate::clients::bench;
use crate::web::TLS;
use crate::{World, slow};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use stasis_api::{Network, NewMachine, OauthClient, SetSecret};
use stasis_machine::{Branch, Export, Host, Machine};
use stasis_policy::document;
use stasis_testbed::outside::OutsideNetwork;
use stasis_testbed::{data_dir, run, settings, value};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

const KEY: &str = "kEy-0utside-0f-machines";
const PORT: u16 = 8443;

/// A server out there that answers with the head it was sent, and the root it is checked against.
fn serve(outside: &OutsideNetwork, roots: &Path) {
    let authority = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let root = params.self_signed(&authority).expect("a root");
    let issuer = Issuer::new(params, authority);
    let key = KeyPair::generate().expect("a key");
    let names = vec!["api.example".to_owned(), "other.example".to_owned()];
    let leaf = CertificateParams::new(names).expect("names").signed_by(&key, &issuer);
    let leaf = leaf.expect("a certificate").der().clone();
    let body = STANDARD.encode(root.der());
    let text = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    std::fs::write(roots, text).expect("written");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![leaf], key.into());
    let config = Arc::new(config.expect("a config"));
    outside.run(move || {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port");
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let config = config.clone();
                std::thread::spawn(move || answer(stream, config));
            }
        });
    });
}

fn answer(stream: TcpStream, config: Arc<ServerConfig>) -> std::io::Result<()> {
    let tls = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(tls, stream));
    let mut head = String::new();
    while reader.read_line(&mut head)? > 0 && !head.ends_with("\r\n\r\n") {}
    // a digest, not the key: what a server sends back a machine has
    let sent = [KEY, &STANDARD.encode(format!("me:{KEY}")), "stasis-placeholder-"];
    let found: Vec<bool> = sent.iter().map(|text| head.contains(text)).collect();
    let redirect = head.starts_with("GET /v1/away");
    let (status, more) = match redirect {
        true => ("302 Found", format!("Location: https://other.example:{PORT}/\r\n")),
        false => ("200 OK", String::new()),
    };
    let body = format!("{found:?}");
    let length = body.len();
    let stream = reader.get_mut();
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{more}\r\n{body}")?;
    stream.flush()
}

const CLIENT: &str = "
import os, socket, ssl, urllib.request, urllib.error, base64, subprocess, shutil
key = os.environ['STASIS_SECRET_KEY1']
def ask(path, method='GET', host='api.example', port=8443, **headers):
    request = urllib.request.Request(f'https://{host}:{port}{path}', method=method, headers=headers)
    try: return urllib.request.urlopen(request, timeout=120).read().decode()
    except urllib.error.HTTPError as error: return error.code
    except urllib.error.URLError as error: return type(error.reason).__name__
def front(named, claimed):
    with socket.create_connection(('api.example', 8443), timeout=120) as raw:
        try: tls = ssl.create_default_context().wrap_socket(raw, server_hostname=claimed)
        except OSError as error: return type(error).__name__
        tls.send(f'GET /v1/a HTTP/1.1\\r\\nHost: {named}\\r\\n\\r\\n'.encode())
        return tls.recv(12).decode()
";

fn check(machine: &Arc<Machine>) {
    let filled = "'[true, false, false]'";
    assert_eq!(value(machine, "ask('/v1/a', X=key)"), filled);
    assert_eq!(value(machine, "ask('/v1/a?k=' + key)"), filled, "in a query");
    let basic =
        "ask('/v1/a', Authorization='Basic ' + base64.b64encode(f'me:{key}'.encode()).decode())";
    assert_eq!(value(machine, basic), "'[false, true, false]'");
    for (code, expected) in [
        ("ask('/v1/a', 'DELETE', X=key)", "403"),
        ("ask('/v2/a', X=key)", "403"),
        ("ask('/v1/%2e%2e/v2', X=key)", "403"),
        // redirects are requests like others
        ("ask('/v1/away', X=key)", "'gaierror'"),
        ("ask('/', host='other.example', X=key)", "'gaierror'"),
        ("front('api.example:8443', 'api.example')", "'HTTP/1.1 200'"),
        ("front('other.example:8443', 'api.example')", "'HTTP/1.1 421'"),
        ("front('api.example:8443', 'other.example')", "'ConnectionResetError'"),
    ] {
        assert_eq!(value(machine, code), expected, "{code}");
    }
    let code = "shutil.which('curl') and subprocess.run(['curl', '-sS', '-H', f'X: {key}', \
                'https://api.example:8443/v1/a'], capture_output=True, text=True).stdout";
    let said = value(machine, code);
    assert!(said == filled || said == "None", "curl: {said}");
}

/// Whether any file below a directory has these bytes in it.
fn has_bytes(dir: &Path, bytes: &[u8]) -> Option<String> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(dir) = dirs.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                dirs.push(entry.path());
            } else if kind.is_file() {
                let mut text = Vec::new();
                let read = std::fs::File::open(entry.path()).map(|mut f| f.read_to_end(&mut text));
                if read.is_ok() && text.windows(bytes.len()).any(|window| window == bytes) {
                    return Some(entry.path().display().to_string());
                }
            }
        }
    }
    None
}

pub fn keys_stay_outside_of_machines(world: &World) {
    let (dir, roots) = (data_dir(), tempfile::tempdir().expect("a directory"));
    let file = roots.path().join("roots.pem");
    serve(&world.outside, &file);
    let known = [("api.example".to_owned(), world.outside.public)];
    world.outside.names.lock().expect("no panic").extend(known);
    let mut own = settings(dir.path());
    own.resolv_conf = world.resolv_conf.clone();
    own.trusted_roots = Some(file);
    let host = Host::open(own).expect("a host");
    let secret = SetSecret {
        value: Some(KEY.into()),
        hosts: vec![format!("api.example:{PORT}")],
        ..SetSecret::default()
    };
    host.set_secret("test", "KEY1", secret).expect("set");
    let text =
        format!("[http]\nallow = [\"GET api.example:{PORT}/v1/*\"]\n[secrets]\nallow = [\"KEY1\"]");
    let policy = document::parse(&text).expect("a policy");
    host.set_policy("api".parse().expect("a name"), policy).expect("set");
    let network = Some(Network::Policy("api".parse().expect("a name")));
    let new = NewMachine { network, ..NewMachine::default() };
    let machine = host.create("test", new).expect("a machine");
    run(&machine, CLIENT);
    let placeholder = value(&machine, "key");
    assert!(placeholder.starts_with("'stasis-placeholder-"), "{placeholder}");
    assert_eq!(host.machine_secrets(&machine).expect("a list").len(), 1);
    check(&machine);
    host.swap(&machine).expect("swapped");
    check(&machine);
    let branch = Branch { names: vec![None], ..Branch::default() };
    for branch in host.branch(&machine, branch).expect("a branch") {
        // what its memory has is what it may use
        assert_eq!(value(&branch, "os.environ['STASIS_SECRET_KEY1']"), placeholder);
        check(&branch);
    }
    let out = roots.path().join("export");
    let mut sink = std::fs::File::create(&out).expect("a file");
    let what = Export { history: true, root: false };
    host.export(&machine, what, &mut sink).expect("an export");
    host.remove_secret("test", "KEY1").expect("removed");
    assert_eq!(value(&machine, "ask('/v1/a', X=key)"), "'[false, false, true]'", "not any more");
    assert!(host.close().is_empty());
    drop(host);
    for place in [dir.path(), roots.path()] {
        assert_eq!(has_bytes(place, KEY.as_bytes()), None, "the key is kept");
        assert_eq!(has_bytes(place, STANDARD.encode(format!("me:{KEY}")).as_bytes()), None);
    }
    // the search finds what is there
    let written = placeholder.trim_matches('\'').as_bytes();
    assert!(
        has_bytes(dir.path(), written).is_some()
            && has_bytes(&dir.path().join("none"), written).is_none()
    );
}

const ASK: &str = "
import os, urllib.request
from concurrent.futures import ThreadPoolExecutor
def ask(_=0):
    request = urllib.request.Request('https://api.example:PORT/v1/head')
    request.add_header('X-Key', 'Bearer ' + os.environ['STASIS_SECRET_CRM'])
    answer = urllib.request.urlopen(request, timeout=120).read().decode()
    return answer.split('x-key: Bearer ')[1].split('\\n')[0]
def many(): return sorted(set(ThreadPoolExecutor(8).map(ask, range(8))))
";

/// Requests that need a token at once wait for one exchange. A token that ends is renewed, and
/// neither it nor the client's secret is kept.
pub fn tokens_are_got_once_and_renewed(world: &World) {
    const SECRET: &str = "cl1ent-s3cret";
    let bench = bench(world);
    let set = || {
        let oauth = OauthClient {
            token_url: format!("https://api.example:{TLS}/v1/token"),
            client_id: "app".into(),
            client_secret: SECRET.into(),
            scope: None,
            refresh_buffer_secs: None,
        };
        let hosts = vec![format!("api.example:{TLS}")];
        let secret = SetSecret { oauth: Some(oauth), hosts, ..SetSecret::default() };
        bench.host.set_secret("test", "CRM", secret).expect("set");
    };
    set();
    let text =
        format!("[http]\nallow = [\"GET api.example:{TLS}/v1/*\"]\n[secrets]\nallow = [\"CRM\"]");
    let policy = document::parse(&text).expect("a policy");
    bench.host.set_policy("crm".parse().expect("a name"), policy).expect("set");
    let network = Some(Network::Policy("crm".parse().expect("a name")));
    let new = NewMachine { network, ..NewMachine::default() };
    let machine = bench.host.create("test", new).expect("a machine");
    run(&machine, &ASK.replace("PORT", &TLS.to_string()));
    let grants = || bench.web.grants.lock().expect("no panic").clone();
    assert_eq!(slow(&machine, "many()"), "['t0ken-1']");
    assert_eq!(grants(), ["client_credentials"], "one exchange for all");
    assert_eq!(slow(&machine, "ask()"), "'t0ken-1'");
    // one that is set anew has no token yet, and the second token ends at once
    set();
    assert_eq!(slow(&machine, "ask()"), "'t0ken-2'");
    assert_eq!(slow(&machine, "ask()"), "'t0ken-3'");
    assert_eq!(slow(&machine, "many()"), "['t0ken-3']");
    assert_eq!(grants(), ["client_credentials", "client_credentials", "refresh_token"]);
    bench.host.swap(&machine).expect("swapped");
    for kept in [SECRET, "r3fresh-t0ken"] {
        assert_eq!(has_bytes(bench.host.data_dir(), kept.as_bytes()), None, "{kept}");
    }
    bench.host.remove_secret("test", "CRM").expect("removed");
}
