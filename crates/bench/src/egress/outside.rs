//! A network namespace outside of the host, with the servers that machines are measured against.
//!
//!   machine ─► the host ─► 198.19.x.1 ═ veth ═ 198.19.x.2: greets, streams, streams with TLS
//!
//! It goes with the process: the kernel removes a namespace that no thread is in.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use stasis_command::failure::{CliFailure, Result};
use stasis_sys::{libc, namespace};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::{ServerConfig, ServerConnection, StreamOwned};

/// Sends one byte, and keeps the connection.
pub const GREETING: u16 = 7000;
/// Answers a request with as many bytes as its path says.
pub const STREAM: u16 = 7001;
pub const SECURE: u16 = 7002;
const PIECE: usize = 256 << 10;

pub struct Outside {
    pub address: Ipv4Addr,
    _work: mpsc::Sender<()>,
}

fn failed(what: &str) -> impl Fn(std::io::Error) -> CliFailure + '_ {
    move |error| CliFailure::new("bench.network", format!("{what}: {error}"))
}

fn ip(arguments: &str) -> std::io::Result<()> {
    let done = Command::new("ip").args(arguments.split_whitespace()).output()?;
    match done.status.success() {
        true => Ok(()),
        false => Err(std::io::Error::other(format!(
            "ip {arguments}: {}",
            String::from_utf8_lossy(&done.stderr).trim()
        ))),
    }
}

impl Outside {
    /// Makes it; the root of the server's certificate is written to a file.
    pub fn make(roots: &Path) -> Result<Outside> {
        let id = std::process::id();
        let net = |last: u8| Ipv4Addr::new(198, 19, (id % 254) as u8 + 1, last);
        let (here, address) = (net(1), net(2));
        let config = certificate(address, roots)?;
        let (near, far) = (format!("sb{id}"), format!("sc{id}"));
        let (work, wait) = mpsc::channel::<()>();
        let (tell, told) = mpsc::channel();
        let (up, is_up) = mpsc::channel::<()>();
        let (served, is_served) = mpsc::channel();
        let inner = far.clone();
        thread::spawn(move || {
            let made = namespace::unshare(libc::CLONE_NEWNET)
                .and_then(|()| std::fs::read_link("/proc/thread-self"));
            let known = made.is_ok();
            let _ = tell.send(made);
            if known && is_up.recv().is_ok() {
                let _ = served.send(serve(address, &inner, config));
                // until the bench ends
                let _ = wait.recv();
            }
        });
        let lost = |_| CliFailure::new("bench.network", "the namespace has ended".to_owned());
        let own = told.recv().map_err(lost)?.map_err(failed("make a network namespace"))?;
        let own = own.file_name().unwrap_or_default().to_string_lossy().into_owned();
        ip(&format!("link add {near} type veth peer name {far} netns {own}"))
            .and_then(|()| ip(&format!("addr add {here}/30 dev {near}")))
            .and_then(|()| ip(&format!("link set {near} up")))
            .map_err(failed("make a link"))?;
        let _ = up.send(());
        is_served.recv().map_err(lost)?.map_err(failed("serve outside"))?;
        Ok(Outside { address, _work: work })
    }
}

fn certificate(address: Ipv4Addr, roots: &Path) -> Result<Arc<ServerConfig>> {
    let wrong = |error: String| CliFailure::new("bench.network", error);
    let own = rcgen::generate_simple_self_signed(vec![address.to_string()]);
    let own = own.map_err(|error| wrong(error.to_string()))?;
    let body = STANDARD.encode(own.cert.der());
    let text = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
    std::fs::write(roots, text).map_err(failed("write a certificate"))?;
    let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions();
    let config = config.map_err(|error| wrong(error.to_string()))?.with_no_client_auth();
    let config = config.with_single_cert(vec![own.cert.der().clone()], key.into());
    Ok(Arc::new(config.map_err(|error| wrong(error.to_string()))?))
}

fn serve(address: Ipv4Addr, link: &str, config: Arc<ServerConfig>) -> std::io::Result<()> {
    ip(&format!("addr add {address}/30 dev {link}"))?;
    ip(&format!("link set {link} up"))?;
    let any = Ipv4Addr::UNSPECIFIED;
    let listener = TcpListener::bind((any, GREETING))?;
    thread::spawn(move || {
        // kept: an idle connection costs the server a descriptor, and no thread
        let mut kept = Vec::new();
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"k");
            kept.push(stream);
        }
    });
    let listener = TcpListener::bind((any, STREAM))?;
    each(listener, |stream| drop(stream_to(stream)));
    let listener = TcpListener::bind((any, SECURE))?;
    each(listener, move |stream| {
        if let Ok(tls) = ServerConnection::new(config.clone()) {
            drop(stream_to(StreamOwned::new(tls, stream)));
        }
    });
    Ok(())
}

fn each(listener: TcpListener, answer: impl Fn(TcpStream) + Send + Sync + 'static) {
    let answer = Arc::new(answer);
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            thread::spawn(move || answer(stream));
        }
    });
}

/// Answers a request for `/N` with N bytes.
fn stream_to(stream: impl Read + Write) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream);
    let mut head = String::new();
    while reader.read_line(&mut head)? > 0 && !head.ends_with("\r\n\r\n") {}
    let path = head.split_whitespace().nth(1).unwrap_or_default();
    let mut left: usize = path.trim_start_matches('/').parse().unwrap_or(0);
    let (stream, piece) = (reader.get_mut(), vec![7; PIECE]);
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n")?;
    while left > 0 {
        let now = left.min(PIECE);
        stream.write_all(&piece[..now])?;
        left -= now;
    }
    stream.flush()
}
