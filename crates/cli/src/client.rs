//! The client: connects to the daemon of a data directory, or to a service at an address.
//!
//!   command ─► Client ─┬─► <data>/stasis.sock ─► daemon (started when there is none)
//!                      └─► http(s)://...         with a token
//!
//! Both speak the same HTTP. If the daemon exits between two requests, the client starts it again;
//! the machines' states are on disk. The client never repeats a request that may have had an
//! effect, unless it has an idempotency key.

mod daemon;
pub mod escape;
mod events;
mod lines;

pub use daemon::Daemon;
pub use events::EventStream;
pub use lines::LineStream;

use crate::config::Config;
use crate::failure::{CliFailure, Exit, Result};
use crate::show::Transfer;
use futures_util::stream;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stasis_api::ErrorBody;
use std::future::Future;
use std::io::Read;
use std::path::Path;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// Maximum attempts of a request when the connection fails.
const TRIES: usize = 4;
/// Maximum idle time of a connection: shorter than the service's.
const KEPT: Duration = Duration::from_secs(10);
/// Chunk size of a sent file.
const PIECE: usize = 256 << 10;
/// Maximum size of an answer that is not a stream.
const LONGEST_ERROR: usize = 64 << 10;
const LONGEST_TOKEN: u64 = 4096;

pub struct Client {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    daemon: Option<Daemon>,
}

impl Client {
    pub fn open(config: &Config) -> Result<Client> {
        match config.text("url") {
            Some(url) => {
                let token = config.text("token");
                let token = token.or_else(|| local_token(&url, &config.data_dir()));
                Client::remote(&url, token)
            }
            None => {
                let daemon = Daemon::of(config)?;
                let client = Client::local(daemon)?;
                client.block(client.ready())?;
                Ok(client)
            }
        }
    }

    /// A client of the daemon, which need not run.
    pub fn local(daemon: Daemon) -> Result<Client> {
        // no certificates: nothing is read from disk for a socket
        let http = reqwest::Client::builder()
            .tls_certs_only(std::iter::empty())
            .no_proxy()
            .unix_socket(daemon.socket());
        Client::build(http, "http://stasis".into(), None, Some(daemon))
    }

    pub fn remote(url: &str, token: Option<String>) -> Result<Client> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let hint = "write it as http://host:port or https://host";
            return Err(
                CliFailure::usage(format!("{url:?} is not the address of a service")).hint(hint)
            );
        }
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
        Client::build(http, url.trim_end_matches('/').to_owned(), token, None)
    }

    fn build(
        http: reqwest::ClientBuilder,
        base: String,
        token: Option<String>,
        daemon: Option<Daemon>,
    ) -> Result<Client> {
        let broken = |what: String| CliFailure::new("client.setup", what);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| broken(error.to_string()))?;
        let agent = concat!("stasis/", env!("CARGO_PKG_VERSION"));
        let http = http.user_agent(agent).pool_idle_timeout(KEPT);
        let http = http.build().map_err(|error| broken(said(&error)))?;
        Ok(Client { runtime, http, base, token, daemon })
    }

    /// The client for the service's MCP at a path, for a proxy.
    pub fn upstream(self: &Arc<Self>, path: &str) -> stasis_mcp::Upstream {
        let url = self.public_url(path);
        let upstream = stasis_mcp::Upstream::new(self.http.clone(), url);
        let own = self.clone();
        upstream.with_token(self.token.clone()).with_revival(move || {
            let own = own.clone();
            async move { own.is_back().await }
        })
    }

    /// A path with a host name that passes the service's host check.
    fn public_url(&self, path: &str) -> String {
        let base = if self.daemon.is_some() { "http://localhost" } else { &self.base };
        format!("{base}{path}")
    }

    /// A request to be forwarded.
    pub fn forward(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, self.public_url(path));
        match &self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        }
    }

    /// Whether the daemon answers now; it is started if there is none. A service elsewhere is not
    /// ours to start.
    pub async fn is_back(&self) -> bool {
        self.ready().await.is_ok() && self.daemon.is_some()
    }

    /// Runs a future to its end. Between two calls no task reads the kept connections, so those
    /// that the service closed meanwhile are detected here, before one is used.
    pub fn block<T>(&self, work: impl Future<Output = T>) -> T {
        let mut result = None;
        self.run(pin!(async { result = Some(work.await) }));
        result.expect("it ran to its end")
    }

    /// Not generic: the runtime would be compiled once for every kind of request.
    fn run(&self, work: Pin<&mut dyn Future<Output = ()>>) {
        self.runtime.block_on(async {
            // one poll to receive the close events, one for each connection to handle them
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            work.await
        });
    }

    /// The target of this client, for messages.
    pub fn place(&self) -> String {
        match &self.daemon {
            Some(daemon) => daemon.data_dir().display().to_string(),
            None => self.base.clone(),
        }
    }

    /// Returns once the daemon answers; starts it if none runs.
    async fn ready(&self) -> Result<()> {
        let Some(daemon) = &self.daemon else { return Ok(()) };
        if daemon.listens() {
            return Ok(());
        }
        let mut start = daemon.start()?;
        while !self.answers().await {
            start.go_on()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn answers(&self) -> bool {
        let listens = self.daemon.as_ref().is_none_or(Daemon::listens);
        let ask = || self.http.get(format!("{}/health", self.base)).send();
        listens && ask().await.is_ok_and(|answer| answer.status().is_success())
    }

    pub fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        self.block(self.call(Method::GET, path, None::<&Value>))
    }

    pub fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.block(self.call(Method::POST, path, Some(body)))
    }

    pub fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.block(self.call(Method::PATCH, path, Some(body)))
    }

    pub fn put<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T> {
        self.block(self.call(Method::PUT, path, Some(body)))
    }

    pub fn delete(&self, path: &str) -> Result<Value> {
        self.block(self.call(Method::DELETE, path, None::<&Value>))
    }

    /// One request and its whole answer.
    pub async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let repeatable = method == Method::GET;
        let answer = self.send(method, path, body, repeatable).await?;
        let text = answer.bytes().await.map_err(|error| self.cut_off(&error))?;
        serde_json::from_slice(&text).map_err(|error| foreign(path, &error.to_string()))
    }

    /// One request and its answer line by line.
    pub async fn lines(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<LineStream> {
        let repeatable = method == Method::GET;
        Ok(LineStream::new(self.send(method, path, body, repeatable).await?))
    }

    /// Sends a file as a request's body; never twice, because it may be long.
    pub fn upload<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        file: std::fs::File,
        transfer: &Transfer,
    ) -> Result<T> {
        // the length of a stream is unknown
        let about = file.metadata().ok().filter(std::fs::Metadata::is_file);
        let length = about.map(|about| about.len());
        self.block(async {
            let request = self.request(method, path, None::<&Value>);
            let request = match length {
                Some(length) => request.header("content-length", length),
                None => request,
            };
            let sent = request.body(body(file, transfer)).send().await;
            let answer = refusal(sent.map_err(|error| self.cut_off(&error))?).await?;
            let text = answer.bytes().await.map_err(|error| self.cut_off(&error))?;
            serde_json::from_slice(&text).map_err(|error| foreign(path, &error.to_string()))
        })
    }

    /// Sends a request until it arrives. A `repeatable` request is sent again if the connection
    /// breaks before the answer begins. A daemon that is exiting accepts nothing: its successor
    /// does.
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
        repeatable: bool,
    ) -> Result<Response> {
        let mut tries = 1;
        loop {
            let sent = self.request(method.clone(), path, body).send().await;
            let (failure, again) = match sent {
                Ok(answer) => match refusal(answer).await {
                    Err(failure) if self.is_leaving(&failure) => (failure, true),
                    other => return other,
                },
                Err(error) => {
                    let again = error.is_connect() || (repeatable && self.daemon.is_some());
                    (self.cut_off(&error), again)
                }
            };
            if tries == TRIES || !again {
                return Err(failure);
            }
            tries += 1;
            self.ready().await?;
        }
    }

    /// Whether the daemon refused because it is exiting; waits until it has exited.
    fn is_leaving(&self, failure: &CliFailure) -> bool {
        let leaving = failure.code == "service.stopping";
        let daemon = self.daemon.as_ref().filter(|_| leaving);
        daemon.is_some_and(|daemon| daemon.running().is_none_or(|running| running.wait()))
    }

    fn request(&self, method: Method, path: &str, body: Option<&impl Serialize>) -> RequestBuilder {
        let mut request = self.http.request(method, format!("{}{path}", self.base));
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        match body {
            Some(body) => request.json(body),
            None => request,
        }
    }

    pub fn cut_off(&self, error: &reqwest::Error) -> CliFailure {
        let said = said(error);
        let untrusted = said.starts_with("invalid peer certificate");
        let (code, what) = match error.is_connect() {
            true if untrusted => ("service.certificate", "cannot trust the certificate of"),
            true => ("service.unreachable", "no service answers at"),
            false => ("service.cut_off", "the connection broke off:"),
        };
        let message = format!("{what} {}: {said}", self.place());
        let failure = CliFailure::new(code, message).exit(Exit::Unavailable);
        match &self.daemon {
            Some(daemon) => failure.hint(format!("see {}", daemon.log().display())),
            None if untrusted => {
                failure.hint("if you trust it, set SSL_CERT_FILE to a file with its certificates")
            }
            None => failure.hint("check --url and whether the service runs"),
        }
    }
}

/// A file as a request's body; counts the bytes sent.
fn body(file: std::fs::File, transfer: &Transfer) -> reqwest::Body {
    let count = Arc::new(transfer.counter());
    let pieces = stream::try_unfold(tokio::fs::File::from_std(file), move |mut file| {
        let count = count.clone();
        async move {
            let mut piece = vec![0; PIECE];
            let len = file.read(&mut piece).await?;
            piece.truncate(len);
            count(len);
            Ok::<_, std::io::Error>((len > 0).then_some((piece, file)))
        }
    });
    reqwest::Body::wrap_stream(pieces)
}

/// The first token of a service on this host, from its data directory; the SDKs find it too. Other
/// hosts never get it.
fn local_token(url: &str, data_dir: &Path) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    if !["localhost", "127.0.0.1", "[::1]"].contains(&url.host_str()?) {
        return None;
    }
    let mut text = String::new();
    let file = std::fs::File::open(data_dir.join("token")).ok()?;
    file.take(LONGEST_TOKEN).read_to_string(&mut text).ok()?;
    Some(text.trim().to_owned()).filter(|token| !token.is_empty())
}

/// The innermost cause, without the address, which the message already contains.
fn said(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The answer, or its refusal.
async fn refusal(mut answer: Response) -> Result<Response> {
    let status = answer.status();
    if status.is_success() {
        return Ok(answer);
    }
    let mut text = Vec::new();
    while let Ok(Some(part)) = answer.chunk().await {
        text.extend_from_slice(&part);
        if text.len() > LONGEST_ERROR {
            break;
        }
    }
    let body = serde_json::from_slice::<ErrorBody>(&text).unwrap_or_else(|_| ErrorBody {
        code: format!("http.{}", status.as_u16()),
        message: format!("the service answered {status}"),
        hint: None,
        id: None,
    });
    Err(CliFailure::answered(status.as_u16(), body))
}

fn foreign(path: &str, what: &str) -> CliFailure {
    CliFailure::new("service.foreign", format!("the answer to {path} is malformed: {what}"))
        .hint("check that the service and this program have the same version")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    /// A service that answers once per connection and closes it on command, without notifying the
    /// client.
    fn curt(listener: TcpListener, close: mpsc::Receiver<()>, closed: mpsc::Sender<()>) {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let mut head = [0; 4096];
            assert!(stream.read(&mut head).expect("a request") > 0);
            stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\n7").expect("answer");
            let told = close.recv();
            drop(stream);
            if told.and_then(|()| closed.send(()).map_err(|_| mpsc::RecvError)).is_err() {
                return;
            }
        }
    }

    #[test]
    fn a_connection_that_was_closed_meanwhile_is_not_used() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("its address"));
        let (tell_close, close) = mpsc::channel();
        let (tell_closed, closed) = mpsc::channel();
        std::thread::spawn(move || curt(listener, close, tell_closed));
        let client = Client::remote(&url, None).expect("a client");
        for _ in 0..3 {
            assert_eq!(client.post::<u64>("/", &0).expect("an answer"), 7);
            tell_close.send(()).expect("a service");
            closed.recv().expect("closed");
        }
    }
}
