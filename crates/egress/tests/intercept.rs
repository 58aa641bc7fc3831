//! Requests that are read, with real clients and servers on both sides: HTTP/1.1, HTTP/2,
//! WebSockets, and what is not allowed.
//!
//!   client ═ TLS ═► intercepted connection ═ TLS ═► server that answers with what it was sent

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, StatusCode, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo};
use parking_lot::Mutex;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use serde_json::{Value, json};
use stasis_api::{Network, RefusedAccess};
use stasis_egress::{
    EgressRules, InterceptedConnection, InterceptedMachine, Interception, MachineRules, PolicyBook,
    TrustedRoots,
};
use stasis_policy::decide::Identity;
use stasis_policy::document::{self, Policy};
use stasis_policy::v8::{ScriptAnswer, ScriptStep, V8Outside, V8Policies, V8Script};
use stasis_secrets::{HeaderRule, MasterKey, SecretBook, SecretContent, SecretText};
use std::convert::Infallible;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector};

const VALUE: &str = "s3cret-value";
const WEB: &str = "web";
const POLICY: &str = r#"
    [http]
    allow = ["GET,POST api.example:443/v1/*", "GET api.example:80/v1/*", "GET other.example"]
    [secrets]
    allow = ["KEY"]
"#;

/// One machine with a policy and a secret, and a server outside.
struct Bed {
    rules: Arc<MachineRules>,
    machine: Arc<InterceptedMachine>,
    refused: Arc<Mutex<Vec<RefusedAccess>>>,
    book: Arc<PolicyBook>,
    placeholder: String,
    tls: TlsAcceptor,
    _dir: tempfile::TempDir,
}

/// A server's side of TLS for two names, and the root that it is to be checked against.
fn certificates(file: &Path, protocols: &[&str]) -> TlsAcceptor {
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
    std::fs::write(file, text).expect("written");
    let key = PrivatePkcs8KeyDer::from(key.serialize_der());
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()));
    let config = config.with_safe_default_protocol_versions().expect("versions");
    let config = config.with_no_client_auth().with_single_cert(vec![leaf], key.into());
    let mut config = config.expect("a config");
    config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
    TlsAcceptor::from(Arc::new(config))
}

fn bed(protocols: &[&str]) -> Bed {
    let policy = document::parse(POLICY).expect("a policy");
    bed_of(protocols, Policy::compile(WEB.parse().expect("a name"), &policy).expect("a policy"))
}

/// mcp-v8's policies, with rules that add headers.
fn bed_with_headers(rego: &str, rules: &[&str]) -> Bed {
    let config = json!({ "fetch": { "policies":
        [{ "modules": [{ "name": "a.rego", "text": format!("package mcp.fetch\n{rego}") }] }] } });
    let rules: Vec<_> = rules.iter().map(|text| HeaderRule::short(text).expect(text)).collect();
    let scopes = rules.iter().map(|rule| rule.scope().expect("a scope")).collect();
    let v8 = V8Policies::read(&config, Arc::new(Nobody)).expect("policies");
    let v8 = v8.with_headers(scopes).expect("policies");
    let bed = bed_of(&["http/1.1"], Policy::of_v8(WEB.parse().expect("a name"), v8));
    bed.machine.shared.secrets.lend_headers(WEB, &rules).expect("lent");
    bed
}

/// Without servers and scripts.
struct Nobody;

impl V8Outside for Nobody {
    fn post(&self, _: &str, _: &Value, _: Duration) -> Result<Value, String> {
        Err("no server".into())
    }

    fn script(&self, _: &V8Script, _: ScriptStep<'_>) -> Result<ScriptAnswer, String> {
        Err("no script".into())
    }
}

fn bed_of(protocols: &[&str], policy: Policy) -> Bed {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("roots.pem");
    let tls = certificates(&file, protocols);
    let secrets = SecretBook::new(Ok(MasterKey::new([7; 32])));
    let value = SecretContent::Value(SecretText::new(VALUE.into()).expect("a value"));
    let hosts = ["api.example".to_owned(), "api.example:80".to_owned()];
    let sealed = secrets.seal("a", "KEY", &hosts, &value, 1).expect("sealed");
    secrets.put("a", "KEY", sealed);
    let secrets = Arc::new(secrets);
    let granted = secrets.granted("a", 1, |_, _| true);
    let placeholder = granted[0].placeholder.to_string();
    let roots = TrustedRoots::read(Some(&file)).expect("roots");
    let shared = Arc::new(Interception::new(roots, secrets, dir.path().join("none")));
    let machine = Arc::new(InterceptedMachine::new(shared, "a".into(), 1));
    let (name, book) = (policy.name.clone(), Arc::<PolicyBook>::default());
    book.put(policy);
    let refused = Arc::<Mutex<Vec<RefusedAccess>>>::default();
    let told = refused.clone();
    let rules = Arc::new(MachineRules::new(EgressRules {
        who: Identity { account: "a".into(), template: "t".into(), machine: "m".into() },
        network: Network::Policy(name),
        book: book.clone(),
        refused: Box::new(move |one| told.lock().push(one)),
        intercept: machine.clone(),
        meter: Arc::default(),
    }));
    Bed { rules, machine, refused, book, placeholder, tls, _dir: dir }
}

impl Bed {
    /// A connection of the machine to a host: what it would send its first bytes into.
    async fn open(&self, host: &str, is_tls: bool) -> UnixStream {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let outside = std::net::TcpStream::connect(address).expect("connected");
        let (stream, _) = listener.accept().await.expect("a connection");
        tokio::spawn(serve(stream, is_tls.then(|| self.tls.clone())));
        let port = if is_tls { 443 } else { 80 };
        let connection = InterceptedConnection {
            machine: self.machine.clone(),
            rules: self.rules.clone(),
            name: Some(host.to_owned()),
            to: format!("203.0.113.7:{port}").parse().expect("an address"),
            is_tls,
            is_revoked: Arc::default(),
        };
        let inside = connection.begin(outside).expect("begun");
        UnixStream::from_std(inside).expect("a stream")
    }

    async fn open_tls(&self, host: &str, protocols: &[&str]) -> std::io::Result<Tls> {
        let mut roots = RootCertStore::empty();
        let pem = self.machine.authority().expect("an authority").pem();
        let own = CertificateDer::from_pem_slice(pem.as_bytes()).expect("a certificate");
        roots.add(own).expect("a root");
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().expect("versions");
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.as_bytes().to_vec()).collect();
        let name = ServerName::try_from(host.to_owned()).expect("a name");
        let stream = self.open(host, true).await;
        TlsConnector::from(Arc::new(config)).connect(name, stream).await
    }

    async fn http1(&self, host: &str) -> Sender {
        sender(self.open_tls(host, &[]).await.expect("TLS")).await
    }

    /// Replaces the policy.
    fn change(&self, text: &str) {
        let policy = document::parse(text).expect("a policy");
        self.book.put(Policy::compile(WEB.parse().expect("a name"), &policy).expect("a policy"));
    }

    fn was_refused(&self, access: &str, reason: &str) {
        let all = self.refused.lock();
        let found =
            |one: &RefusedAccess| one.access.contains(access) && one.reason.contains(reason);
        assert!(all.iter().any(found), "{access}, {reason}: {all:#?}");
    }
}

type Tls = tokio_rustls::client::TlsStream<UnixStream>;
type Sender = client::conn::http1::SendRequest<Full<Bytes>>;

/// Answers with what it was sent; a WebSocket echoes.
async fn serve(stream: TcpStream, tls: Option<TlsAcceptor>) {
    let service = hyper::service::service_fn(echo);
    let Some(tls) = tls else {
        let served = server::conn::http1::Builder::new();
        let _ = served.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
        return;
    };
    let Ok(stream) = tls.accept(stream).await else { return };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        let served = server::conn::http2::Builder::new(TokioExecutor::new());
        let _ = served.serve_connection(TokioIo::new(stream), service).await;
    } else {
        let served = server::conn::http1::Builder::new();
        let _ = served.serve_connection(TokioIo::new(stream), service).with_upgrades().await;
    }
}

async fn echo(mut request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.headers().contains_key("upgrade") {
        let key = request.headers().get("x-key").cloned();
        let upgraded = hyper::upgrade::on(&mut request);
        tokio::spawn(async move {
            let mut stream = TokioIo::new(upgraded.await.expect("upgraded"));
            let mut buffer = [0; 5];
            while stream.read_exact(&mut buffer).await.is_ok() {
                stream.write_all(&buffer).await.expect("written");
            }
        });
        let mut answer = Response::builder().status(101).header("upgrade", "websocket");
        if let Some(key) = key {
            answer = answer.header("x-seen", key);
        }
        let answer = answer.header("connection", "upgrade").body(Full::default());
        return Ok(answer.expect("an answer"));
    }
    let path = request.uri().path_and_query().map_or("", |path| path.as_str());
    let mut text = format!("{} {path}\n", request.method());
    for (name, value) in request.headers() {
        text += &format!("{name}: {}\n", String::from_utf8_lossy(value.as_bytes()));
    }
    let body = request.into_body().collect().await.map(|body| body.to_bytes().len());
    text += &format!("body: {}\n", body.unwrap_or_default());
    Ok(Response::new(Full::from(text)))
}

async fn text(answer: Response<Incoming>) -> (u16, String) {
    let status = answer.status().as_u16();
    let body = answer.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8_lossy(&body).into_owned())
}

async fn sender(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Sender {
    let (sender, driver) =
        client::conn::http1::handshake(TokioIo::new(stream)).await.expect("HTTP");
    tokio::spawn(driver.with_upgrades());
    sender
}

fn request(method: &str, uri: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
    let mut request = Request::builder().method(method).uri(uri);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    request.body(Full::default()).expect("a request")
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_are_filled_in_headers_basic_authentication_and_queries() {
    let bed = bed(&["http/1.1"]);
    let mut sender = bed.http1("api.example").await;
    let one = &bed.placeholder;
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{one}")));
    let headers = [("host", "api.example"), ("x-key", one), ("authorization", &basic)];
    let asked = request("GET", &format!("/v1/a?key={one}"), &headers);
    let (status, said) = text(sender.send_request(asked).await.expect("an answer")).await;
    assert_eq!(status, 200, "{said}");
    let filled = STANDARD.encode(format!("me:{VALUE}"));
    for part in ["GET /v1/a?key=s3cret-value\n", "x-key: s3cret-value\n", &filled] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains(one.as_str()), "{said}");
    // a second request on the same connection, with a body
    let mut asked = request("POST", "/v1/b", &[("host", "api.example")]);
    *asked.body_mut() = Full::from(vec![7; 3 << 20]);
    let (status, said) = text(sender.send_request(asked).await.expect("an answer")).await;
    assert_eq!((status, said.contains("body: 3145728")), (200, true), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_placeholder_is_worth_nothing_elsewhere() {
    let bed = bed(&["http/1.1"]);
    let mut sender = bed.http1("other.example").await;
    let headers = [("host", "other.example"), ("x-key", bed.placeholder.as_str())];
    let answer = sender.send_request(request("GET", "/", &headers)).await.expect("an answer");
    let (status, said) = text(answer).await;
    assert_eq!(status, 200, "{said}");
    assert!(said.contains(&bed.placeholder) && !said.contains(VALUE), "{said}");
    bed.was_refused("secret KEY for other.example:443", "not bound");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_are_judged_one_by_one() {
    let bed = bed(&["http/1.1"]);
    for (method, uri, host, expected) in [
        ("GET", "/v1/a", "api.example", 200),
        ("DELETE", "/v1/a", "api.example", 403),
        ("GET", "/v2/a", "api.example", 403),
        ("GET", "/v1/../v2", "api.example", 403),
        ("GET", "/v1/%2e%2e/v2", "api.example", 403),
        ("GET", "/v1/a", "other.example", 421),
        ("GET", "/v1/a", "api.example:8443", 421),
        ("TRACE", "/v1/a", "api.example", 405),
    ] {
        let mut sender = bed.http1("api.example").await;
        let asked = request(method, uri, &[("host", host)]);
        let (status, said) = text(sender.send_request(asked).await.expect("an answer")).await;
        assert_eq!(status, expected, "{method} {uri} {host}: {said}");
    }
    bed.was_refused("DELETE api.example:443/v1/a", "no rule allows it");
    bed.was_refused("GET api.example:443/v1/a", "another host");
    bed.was_refused("TRACE", "CONNECT and TRACE");
    let upgrade = [("host", "api.example"), ("connection", "upgrade"), ("upgrade", "h2c")];
    let mut sender = bed.http1("api.example").await;
    let asked = request("GET", "/v1/a", &upgrade);
    let answer = sender.send_request(asked).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test(flavor = "multi_thread")]
async fn http2_is_read_too() {
    let bed = bed(&["h2", "http/1.1"]);
    let stream = bed.open_tls("api.example", &["h2", "http/1.1"]).await.expect("TLS");
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    let builder = client::conn::http2::Builder::new(TokioExecutor::new());
    let handshake = builder.handshake::<_, Full<Bytes>>(TokioIo::new(stream));
    let (sender, driver) = handshake.await.expect("HTTP/2");
    tokio::spawn(driver);
    let key = [("x-key", bed.placeholder.as_str())];
    let send = |method: &'static str, uri: &'static str| {
        let (mut sender, asked) = (sender.clone(), request(method, uri, &key));
        async move { text(sender.send_request(asked).await.expect("an answer")).await }
    };
    let (allowed, denied, fronted) = tokio::join!(
        send("GET", "https://api.example/v1/a"),
        send("DELETE", "https://api.example/v1/a"),
        send("GET", "https://other.example/"),
    );
    assert_eq!(allowed.0, 200, "{}", allowed.1);
    assert!(allowed.1.contains("x-key: s3cret-value"), "{}", allowed.1);
    assert_eq!((denied.0, fronted.0), (403, 421));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_http_has_the_same_rules() {
    let bed = bed(&[]);
    let mut plain = sender(bed.open("api.example", false).await).await;
    let headers = [("host", "api.example"), ("x-key", bed.placeholder.as_str())];
    let answer = plain.send_request(request("GET", "/v1/a", &headers)).await.expect("an answer");
    assert!(text(answer).await.1.contains(VALUE), "its port was written down");
    plain.ready().await.expect("another request can be sent");
    let answer = plain.send_request(request("POST", "/v1/a", &headers)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
    // HTTP/2 without TLS cannot be read
    let mut raw = bed.open("api.example", false).await;
    raw.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").await.expect("written");
    let mut said = Vec::new();
    let _ = raw.read_to_end(&mut said).await;
    assert!(said.is_empty() || said.starts_with(b"HTTP/1.1 4"), "{said:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_websocket_passes() {
    let bed = bed(&["http/1.1"]);
    let mut sender = bed.http1("api.example").await;
    let headers = [
        ("host", "api.example"),
        ("connection", "Upgrade"),
        ("upgrade", "websocket"),
        ("x-key", bed.placeholder.as_str()),
    ];
    let asked = request("GET", "/v1/ws", &headers);
    let mut answer = sender.send_request(asked).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.expect("upgraded"));
    stream.write_all(b"hello").await.expect("written");
    let mut buffer = [0; 5];
    stream.read_exact(&mut buffer).await.expect("read");
    assert_eq!(&buffer, b"hello");
}

/// A policy that no longer allows a request ends it while it is under way, and another one that
/// still does leaves it alone.
#[tokio::test(flavor = "multi_thread")]
async fn a_change_ends_requests_under_way() {
    const PATIENCE: Duration = Duration::from_secs(60);
    let still = POLICY.replace("GET other.example", "GET third.example");
    let other = POLICY.replace("/v1/*", "/v2/*");
    for (host, protocol) in [("api.example", "http/1.1"), ("api.example", "h2")] {
        let bed = bed(&[protocol]);
        let stream = bed.open_tls(host, &[protocol]).await.expect("TLS");
        // an upload without an end
        let (to, body) = tokio::io::duplex(1 << 16);
        let scheme = if protocol == "h2" { "https://api.example" } else { "" };
        let asked = Request::post(format!("{scheme}/v1/up")).header("host", host);
        let asked = asked.body(Upload(body)).expect("a request");
        let answer = match protocol {
            "h2" => {
                let made =
                    client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
                let (mut sender, driver) = made.await.expect("HTTP/2");
                tokio::spawn(driver);
                tokio::spawn(async move { sender.send_request(asked).await.map(drop) })
            }
            _ => {
                let made = client::conn::http1::handshake(TokioIo::new(stream)).await;
                let (mut sender, driver) = made.expect("HTTP");
                tokio::spawn(driver);
                tokio::spawn(async move { sender.send_request(asked).await.map(drop) })
            }
        };
        let mut to = to;
        to.write_all(b"hello").await.expect("taken");
        bed.change(&still);
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!answer.is_finished(), "{protocol}: a change that still allows it");
        bed.change(&other);
        let ended = tokio::time::timeout(PATIENCE, answer).await.expect("it ends");
        ended.expect("no panic").expect_err("without an answer");
        bed.was_refused("POST api.example:443/v1/up", "no rule allows it");
    }
    let bed = bed(&["http/1.1"]);
    let mut sender = bed.http1("api.example").await;
    let headers = [("host", "api.example"), ("connection", "Upgrade"), ("upgrade", "websocket")];
    let asked = request("GET", "/v1/ws", &headers);
    let mut answer = sender.send_request(asked).await.expect("an answer");
    let mut stream = TokioIo::new(hyper::upgrade::on(&mut answer).await.expect("upgraded"));
    let mut buffer = [0; 5];
    for policy in [None, Some(&still)] {
        policy.into_iter().for_each(|policy| bed.change(policy));
        tokio::time::sleep(Duration::from_secs(1)).await;
        stream.write_all(b"hello").await.expect("written");
        stream.read_exact(&mut buffer).await.expect("read");
    }
    bed.change(&other);
    let ended = tokio::time::timeout(PATIENCE, stream.read_exact(&mut buffer)).await;
    ended.expect("it ends").expect_err("nothing more");
    bed.was_refused("GET api.example:443/v1/ws", "no rule allows it");
}

/// A body as long as its other end is open.
struct Upload(tokio::io::DuplexStream);

impl hyper::body::Body for Upload {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<std::io::Result<hyper::body::Frame<Bytes>>>> {
        let mut room = [0; 64];
        let mut room = tokio::io::ReadBuf::new(&mut room);
        let read = std::pin::Pin::new(&mut self.0).poll_read(context, &mut room);
        read.map(|read| match (read, room.filled()) {
            (Err(error), _) => Some(Err(error)),
            (Ok(()), []) => None,
            (Ok(()), some) => Some(Ok(hyper::body::Frame::data(Bytes::copy_from_slice(some)))),
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_the_one_it_claims_to_be_is_refused() {
    let bed = bed(&["http/1.1"]);
    bed.open_tls("third.example", &[]).await.expect_err("its certificate has other names");
    bed.was_refused("third.example:443", "TLS is not accepted");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_have_a_size_and_refusals_do_not_wait_for_bodies() {
    let bed = bed(&["http/1.1"]);
    let many: String = (0..500).map(|n| format!("x{n}: y\r\n")).collect();
    for rest in [format!("x: {}", "y".repeat(1 << 20)), format!("{many}\r\n")] {
        let mut raw = bed.open("api.example", false).await;
        let bomb = format!("GET /v1/a HTTP/1.1\r\nhost: api.example\r\n{rest}");
        // it is ended before all of it was sent, or right after
        let _ = raw.write_all(bomb.as_bytes()).await;
        let mut said = Vec::new();
        let ended = tokio::time::timeout(Duration::from_secs(60), raw.read_to_end(&mut said));
        assert!(ended.await.is_ok(), "a head without an end is read for ever");
        let said = String::from_utf8_lossy(&said);
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 431"), "{said}");
    }
    let mut raw = bed.open("api.example", false).await;
    let head = "POST /v1/x HTTP/1.1\r\nhost: api.example\r\ntransfer-encoding: chunked\r\n\r\n";
    raw.write_all(head.as_bytes()).await.expect("written");
    let mut first = [0; 12];
    raw.read_exact(&mut first).await.expect("an answer without the body");
    assert_eq!(&first, b"HTTP/1.1 403");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_added_and_policies_do_not_see_them() {
    let allow = "allow if input.headers.authorization == \"Bearer stasis-placeholder\"";
    let rules = [
        "host=api.example,header=Authorization,value=Bearer k3y-one,methods=GET;PUT",
        "host=*.example,header=X-More,value=k3y-two,override=false",
    ];
    let bed = bed_with_headers(allow, &rules);
    let ask = async |host: &str, method: &str, more: &[(&str, &str)]| {
        let mut sender = bed.http1(host).await;
        let headers = [&[("host", host)][..], more].concat();
        let asked = request(method, "/v1/a", &headers);
        text(sender.send_request(asked).await.expect("an answer")).await
    };
    let (status, said) = ask("api.example", "GET", &[("authorization", "mine")]).await;
    assert_eq!(status, 200, "{said}");
    assert!(said.contains("authorization: Bearer k3y-one\n"), "it overrides: {said}");
    assert!(said.contains("x-more: k3y-two\n") && !said.contains("mine"), "{said}");
    let (_, said) = ask("api.example", "PUT", &[("X-More", "mine")]).await;
    assert!(said.contains("x-more: mine\n") && !said.contains("k3y-two"), "it fills: {said}");
    // another method or host has no mark, so the policy denies
    assert_eq!(ask("api.example", "POST", &[]).await.0, 403);
    let (status, said) = ask("other.example", "GET", &[]).await;
    assert_eq!((status, said.contains("k3y")), (403, false), "{said}");
    // a header that the machine says belongs to the connection is added all the same
    let named = [("connection", "authorization"), ("authorization", "mine")];
    let (_, said) = ask("api.example", "GET", &named).await;
    assert!(said.contains("authorization: Bearer k3y-one\n"), "{said}");
    // what is not lent any more is not replaced by nothing
    bed.machine.shared.secrets.end_lent_headers(WEB);
    let (status, said) = ask("api.example", "GET", &[]).await;
    assert_eq!((status, said.contains("k3y")), (502, false), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn headers_are_added_to_websockets_too() {
    let config = json!({ "websocket": { "policies": [] } });
    let rule = HeaderRule::short("host=api.example,header=X-Key,value=k3y").expect("a rule");
    let v8 = V8Policies::read(&config, Arc::new(Nobody)).expect("policies");
    let v8 = v8.with_headers(vec![rule.scope().expect("a scope")]).expect("policies");
    let bed = bed_of(&["http/1.1"], Policy::of_v8(WEB.parse().expect("a name"), v8));
    let shake = [("host", "api.example"), ("connection", "Upgrade"), ("upgrade", "websocket")];
    let mut sender = bed.http1("api.example").await;
    let answer = sender.send_request(request("GET", "/ws", &shake)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY, "its value is not there yet");
    bed.machine.shared.secrets.lend_headers(WEB, &[rule]).expect("lent");
    let mut sender = bed.http1("api.example").await;
    let answer = sender.send_request(request("GET", "/ws", &shake)).await.expect("an answer");
    assert_eq!(answer.status(), StatusCode::SWITCHING_PROTOCOLS);
    assert_eq!(answer.headers()["x-seen"], "k3y");
}
