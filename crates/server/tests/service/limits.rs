//! A service that is set up in its own way: few connections, a given token, TLS.

use crate::client::{Client, PATIENCE};
use crate::server::{fresh_data, start};
use stasis_server::{Error, Listen, Options};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

const TOKEN: &str = "first.0123456789abcdef";

fn on_loopback() -> Options {
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    Options { listen, root_token: Some(TOKEN.to_owned()), ..Options::default() }
}

#[test]
fn one_connection_too_many_is_sent_away_and_comes_back_later() {
    let data = fresh_data("limits");
    let (bound, running) = start(&data, Options { max_connections: 1, ..on_loopback() });
    let client = Client::new(bound.tcp().expect("an address"), TOKEN);
    assert_eq!(client.get("/v1/whoami").good()["account"], "root");
    assert!(!data.join("token").exists(), "a token was given");
    let open = the_only_one(client.address);
    let away = client.get("/health");
    assert_eq!(away.status, 503);
    assert!(away.head.contains("retry-after"), "{}", away.head);
    assert_eq!(away.json()["code"], "service.overloaded");
    assert!(away.json()["hint"].as_str().is_some_and(|hint| hint.contains("retry-after")));
    drop(open);
    while client.get("/health").status != 200 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}

/// A connection that is served and stays; the one before it may take a moment to be gone.
fn the_only_one(address: SocketAddr) -> TcpStream {
    loop {
        let mut open = TcpStream::connect(address).expect("a connection");
        open.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        // one that is sent away may be closed before it has asked
        let asked = open.write_all(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n");
        let mut head = [0; 12];
        if asked.is_ok() && open.read_exact(&mut head).is_ok() && &head == b"HTTP/1.1 200" {
            return open;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Its handler does not look at the body, and has answered before it comes.
#[test]
fn an_unread_body_keeps_the_connection() {
    let mut open = TcpStream::connect(crate::server::shared().address).expect("a connection");
    for round in 0..3 {
        let head = b"GET /health HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\n";
        open.write_all(head).expect("sent");
        let mut answer = vec![0; 4096];
        let count = open.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..count]);
        assert!(answer.starts_with("HTTP/1.1 200"), "{round}: {answer}");
        assert!(!answer.contains("connection: close"), "{round}: {answer}");
        open.write_all(b"{}").expect("sent");
    }
}

#[test]
fn a_root_token_that_is_none_stops_the_start() {
    let data = fresh_data("root-token");
    for wrong in ["", "x", "id.short", ".0123456789abcdef", "a b.0123456789abcdef"] {
        let options = Options { root_token: Some(wrong.to_owned()), ..on_loopback() };
        let host = stasis_testbed::open(&data);
        let ended = stasis_server::serve(host.into(), options, |_| panic!("it serves"));
        assert!(matches!(ended, Err(Error::RootToken)), "{wrong:?} {ended:?}");
    }
}

#[test]
fn a_service_with_a_certificate() {
    let data = fresh_data("tls");
    let (chain, key) = (data.join("chain.pem"), data.join("key.pem"));
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"])
        .args(["-keyout".as_ref(), key.as_os_str(), "-out".as_ref(), chain.as_os_str()])
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let tls = Some((chain.clone(), key));
    let (bound, running) = start(&data, Options { tls, ..on_loopback() });
    let port = bound.tcp().expect("an address").port();
    assert_eq!(whoami(&chain, port), "{\"account\":\"root\"");
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}

/// The beginning of the answer, read by another program's TLS.
fn whoami(chain: &Path, port: u16) -> String {
    let code = format!(
        "import ssl, sys, urllib.request as r\n\
         q = r.Request('https://localhost:{port}/v1/whoami', \
         headers={{'authorization': 'Bearer {TOKEN}'}})\n\
         c = ssl.create_default_context(cafile=sys.argv[1])\n\
         print(r.urlopen(q, context=c).read(17).decode(), end='')"
    );
    let asked = Command::new("python3").args(["-c", &code]).arg(chain).output().expect("python3");
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8_lossy(&asked.stdout).into_owned()
}
