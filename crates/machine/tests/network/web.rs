//! A web server out there, with TLS, HTTP/1.1, HTTP/2 and WebSockets: pages, and answers that are
//! slow, endless, too large, or lead elsewhere.
//!
//!   /v1/ok  /v1/away…  /v1/slow  /v1/endless  /v1/bomb  /v1/socket  /v1/head  /v1/token
//!   and pages by path

use aws_lc_rs::digest;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full, combinators::BoxBody};
use hyper::body::{Body, Bytes, Frame, Incoming};
use hyper::{Request, Response, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use stasis_testbed::outside::OutsideNetwork;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// The port with TLS, and the one without.
pub const TLS: u16 = 8444;
pub const PLAIN: u16 = 8081;
const PIECE: usize = 64 << 10;

#[derive(Default)]
pub struct Web {
    pub pages: Mutex<HashMap<String, Vec<u8>>>,
    /// Bytes of endless answers that were taken.
    pub endless: AtomicU64,
    /// The kinds of grants that were asked for.
    pub grants: Mutex<Vec<String>>,
}

type Answer = Response<BoxBody<Bytes, Infallible>>;

impl Web {
    /// Serves in the namespace outside, by these names; the root to trust is written to a file.
    pub fn start(outside: &OutsideNetwork, names: &[&str], roots: &Path) -> Arc<Web> {
        let web = Arc::new(Web::default());
        let address = outside.public.to_string();
        let names = names.iter().map(|name| (*name).to_owned()).chain([address]).collect();
        let (tls, served) = (certificates(names, roots), web.clone());
        let (tell, told) = std::sync::mpsc::channel();
        outside.run(move || std::thread::spawn(move || serve(&served, &tls, &tell)));
        told.recv().expect("it listens");
        web
    }
}

/// A server's side of TLS for names and an address.
fn certificates(names: Vec<String>, file: &Path) -> TlsAcceptor {
    let authority = KeyPair::generate().expect("a key");
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // another name than the leaf has, which would pass for a certificate signed by itself
    params.distinguished_name.push(DnType::CommonName, "root of a test");
    let root = params.self_signed(&authority).expect("a root");
    let issuer = Issuer::new(params, authority);
    let key = KeyPair::generate().expect("a key");
    let leaf = CertificateParams::new(names).expect("names").signed_by(&key, &issuer);
    let leaf = leaf.expect("a certificate").der().clone();
    let body = STANDARD.encode(root.der());
    let lines: Vec<&str> =
        body.as_bytes().chunks(64).map(|line| std::str::from_utf8(line).expect("text")).collect();
    let text = lines.join("\n");
    let text = format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n");
    std::fs::write(file, text).expect("written");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![leaf], key.into());
    let mut config = config.expect("a config");
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

fn serve(web: &Arc<Web>, tls: &TlsAcceptor, ready: &std::sync::mpsc::Sender<()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(async {
        let listen = |port: u16| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port));
        let (secure, plain) = (listen(TLS).await.expect("a port"), listen(PLAIN).await);
        let plain = plain.expect("a port");
        ready.send(()).expect("somebody waits");
        loop {
            tokio::select! {
                Ok((stream, _)) = secure.accept() => {
                    tokio::spawn(secured(web.clone(), tls.clone(), stream));
                }
                Ok((stream, _)) = plain.accept() => {
                    tokio::spawn(http1(web.clone(), stream));
                }
            }
        }
    });
}

async fn secured(web: Arc<Web>, tls: TlsAcceptor, stream: TcpStream) {
    let Ok(stream) = tls.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
        return http1(web, stream).await;
    }
    let service = hyper::service::service_fn(move |request| answer(web.clone(), request));
    let served = server::conn::http2::Builder::new(TokioExecutor::new());
    let _ = served.serve_connection(TokioIo::new(stream), service).await;
}

async fn http1(web: Arc<Web>, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
    let service = hyper::service::service_fn(move |request| answer(web.clone(), request));
    let served = server::conn::http1::Builder::new();
    let _ = served.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
}

async fn answer(web: Arc<Web>, mut request: Request<Incoming>) -> Result<Answer, Infallible> {
    let mut head = format!("{} {}\n", request.method(), request.uri());
    for (name, value) in request.headers() {
        head += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    if request.headers().contains_key("upgrade") {
        return Ok(socket(&mut request));
    }
    let (path, to) = (request.uri().path().to_owned(), request.uri().query().map(str::to_owned));
    let body = request.into_body().collect().await.map(|body| body.to_bytes());
    let page = web.pages.lock().expect("no panic").get(&path).cloned();
    Ok(match path.as_str() {
        _ if page.is_some() => {
            let mut answer = text(200, page.unwrap_or_default());
            let kind = hyper::header::HeaderValue::from_static("text/html");
            answer.headers_mut().insert("content-type", kind);
            answer
        }
        "/v1/ok" => text(200, "good day"),
        "/v1/head" => text(200, head),
        "/v1/token" => token(&web, &body.unwrap_or_default()).await,
        "/v1/slow" => Response::new(BoxBody::new(Slow::new())),
        "/v1/endless" => Response::new(BoxBody::new(Endless(web))),
        "/v1/bomb" => bomb(),
        "/v1/to" => away(&to.unwrap_or_default()),
        _ if path.starts_with("/v1/away") => away(&format!("https://denied.example:{TLS}/v1/ok")),
        _ => text(404, "no such page"),
    })
}

fn text(status: u16, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(BoxBody::new(Full::new(body.into())));
    *answer.status_mut() = status.try_into().expect("a status");
    answer
}

/// A token, after a while. The second one ends at once, and can be renewed.
async fn token(web: &Web, asked: &[u8]) -> Answer {
    let asked = String::from_utf8_lossy(asked).into_owned();
    let kind = asked.split('&').find_map(|field| field.strip_prefix("grant_type="));
    let count = {
        let mut grants = web.grants.lock().expect("no panic");
        grants.push(kind.unwrap_or_default().to_owned());
        grants.len()
    };
    tokio::time::sleep(Duration::from_millis(500)).await;
    let seconds = if count == 2 { 1 } else { 3600 };
    let refresh = if count == 2 { ", \"refresh_token\": \"r3fresh-t0ken\"" } else { "" };
    let body =
        format!("{{\"access_token\": \"t0ken-{count}\", \"expires_in\": {seconds}{refresh}}}");
    text(200, body)
}

fn away(to: &str) -> Answer {
    let mut answer = text(302, "");
    answer.headers_mut().insert("location", to.parse().expect("a header"));
    answer
}

/// A head of 400 KiB.
fn bomb() -> Answer {
    let mut answer = text(200, "good day");
    for number in 0..100 {
        let name: hyper::header::HeaderName = format!("x-{number}").parse().expect("a name");
        answer.headers_mut().insert(name, "y".repeat(4096).parse().expect("a value"));
    }
    answer
}

/// Answers on a WebSocket with the first frame that it gets, as it came but for its mask.
fn socket(request: &mut Request<Incoming>) -> Answer {
    let key = request.headers().get("sec-websocket-key").map(|key| key.as_bytes().to_vec());
    let known = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
    let both = [key.unwrap_or_default(), known.to_vec()].concat();
    let digest = digest::digest(&digest::SHA1_FOR_LEGACY_USE_ONLY, &both);
    let upgraded = hyper::upgrade::on(request);
    tokio::spawn(async move {
        let Ok(stream) = upgraded.await else { return };
        let (mut stream, mut head) = (TokioIo::new(stream), [0; 6]);
        if stream.read_exact(&mut head).await.is_err() {
            return;
        }
        let mut body = vec![0; usize::from(head[1] & 127)];
        if stream.read_exact(&mut body).await.is_err() {
            return;
        }
        body.iter_mut().enumerate().for_each(|(at, byte)| *byte ^= head[2 + at % 4]);
        let _ = stream.write_all(&[&[head[0], body.len() as u8][..], &body].concat()).await;
        let _ = stream.read(&mut head).await;
    });
    let answer = Response::builder().status(101).header("upgrade", "websocket");
    let answer = answer.header("connection", "upgrade");
    let answer = answer.header("sec-websocket-accept", STANDARD.encode(digest));
    answer.body(BoxBody::new(Full::default())).expect("an answer")
}

/// Ten pieces with a pause before each.
struct Slow {
    left: usize,
    pause: Pin<Box<tokio::time::Sleep>>,
}

const PAUSE: Duration = Duration::from_millis(60);

impl Slow {
    fn new() -> Slow {
        Slow { left: 10, pause: Box::pin(tokio::time::sleep(PAUSE)) }
    }
}

impl Body for Slow {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        std::task::ready!(self.pause.as_mut().poll(context));
        self.left -= 1;
        self.pause = Box::pin(tokio::time::sleep(PAUSE));
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"slow")))))
    }
}

/// An answer that goes on for as long as it is read.
struct Endless(Arc<Web>);

impl Body for Endless {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        static BYTES: [u8; PIECE] = [b'e'; PIECE];
        self.0.endless.fetch_add(PIECE as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(&BYTES)))))
    }
}
