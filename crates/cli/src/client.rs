//! The way to a service: the keeper of a data directory on its socket, or one at an address.
//!
//!   command ─► Client ─┬─► <data>/stasis.sock ─► keeper (started when there is none)
//!                      └─► http(s)://...         with a token
//!
//! Both speak the same HTTP. A keeper that went away between two requests is started again: what
//! machines hold is on disk. A request that may have had an effect is not sent a second time
//! unless it carries an idempotency key.

mod events;
mod keeper;
mod lines;

pub use events::Events;
pub use keeper::Keeper;
pub use lines::Lines;

use crate::config::Config;
use crate::failure::{Exit, Failure, Result};
use crate::show::Transfer;
use futures_util::stream;
use reqwest::{Method, RequestBuilder, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use stasis_api::ErrorBody;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncReadExt;

/// How often a request is sent when the connection fails.
const TRIES: usize = 4;
/// How long a connection is kept without use: shorter than a service keeps it.
const KEPT: Duration = Duration::from_secs(10);
/// Of a file that is sent.
const PIECE: usize = 256 << 10;
/// An answer that is not a stream, at most.
const LONGEST_ERROR: usize = 64 << 10;

pub struct Client {
    runtime: tokio::runtime::Runtime,
    http: reqwest::Client,
    base: String,
    token: Option<String>,
    keeper: Option<Keeper>,
}

impl Client {
    pub fn open(config: &Config) -> Result<Client> {
        match config.text("url") {
            Some(url) => Client::remote(&url, config.text("token")),
            None => {
                let keeper = Keeper::of(config)?;
                let client = Client::local(keeper)?;
                client.block(client.ready())?;
                Ok(client)
            }
        }
    }

    /// A client of the keeper, which may not be there.
    pub fn local(keeper: Keeper) -> Result<Client> {
        // no certificates: nothing is read from disk for a socket
        let http = reqwest::Client::builder()
            .tls_certs_only(std::iter::empty())
            .no_proxy()
            .unix_socket(keeper.socket());
        Client::build(http, "http://stasis".into(), None, Some(keeper))
    }

    pub fn remote(url: &str, token: Option<String>) -> Result<Client> {
        if !url.starts_with("http://") && !url.starts_with("https://") {
            let hint = "write it as http://host:port or https://host";
            return Err(
                Failure::usage(format!("{url:?} is not an address of a service")).hint(hint)
            );
        }
        let http = reqwest::Client::builder().connect_timeout(Duration::from_secs(10));
        Client::build(http, url.trim_end_matches('/').to_owned(), token, None)
    }

    fn build(
        http: reqwest::ClientBuilder,
        base: String,
        token: Option<String>,
        keeper: Option<Keeper>,
    ) -> Result<Client> {
        let broken = |what: String| Failure::new("client.setup", what);
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| broken(error.to_string()))?;
        let agent = concat!("stasis/", env!("CARGO_PKG_VERSION"));
        let http = http.user_agent(agent).pool_idle_timeout(KEPT);
        let http = http.build().map_err(|error| broken(said(&error)))?;
        Ok(Client { runtime, http, base, token, keeper })
    }

    /// The way to the service's MCP at a path, for one who passes messages on.
    pub fn upstream(self: &Arc<Self>, path: &str) -> stasis_mcp::Upstream {
        // a name that the protocol's own check of hosts knows
        let base = if self.keeper.is_some() { "http://localhost" } else { &self.base };
        let url = format!("{base}{path}");
        let upstream = stasis_mcp::Upstream::new(self.http.clone(), url);
        let own = self.clone();
        upstream.with_token(self.token.clone()).with_revival(move || {
            let own = own.clone();
            async move { own.ready().await.is_ok() && own.keeper.is_some() }
        })
    }

    /// Does something and waits for it. Between two calls nobody listens to the connections that
    /// are kept: those that the service closed meanwhile must be found out before one is used.
    pub fn block<T>(&self, work: impl Future<Output = T>) -> T {
        self.runtime.block_on(async {
            // one turn for the news to come in, one for each connection to hear them
            for _ in 0..3 {
                tokio::task::yield_now().await;
            }
            work.await
        })
    }

    /// Where this client goes, in words.
    pub fn place(&self) -> String {
        match &self.keeper {
            Some(keeper) => keeper.data_dir().display().to_string(),
            None => self.base.clone(),
        }
    }

    /// Comes back once the keeper answers; starts it where there is none.
    async fn ready(&self) -> Result<()> {
        let Some(keeper) = &self.keeper else { return Ok(()) };
        if keeper.listens() {
            return Ok(());
        }
        let mut start = keeper.start()?;
        while !self.answers().await {
            start.go_on()?;
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    async fn answers(&self) -> bool {
        let listens = self.keeper.as_ref().is_none_or(Keeper::listens);
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
    ) -> Result<Lines> {
        let repeatable = method == Method::GET;
        Ok(Lines::new(self.send(method, path, body, repeatable).await?))
    }

    /// Sends a file as a request's body; not a second time, for it may be long.
    pub fn upload<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        file: std::fs::File,
        transfer: &Transfer,
    ) -> Result<T> {
        let length = file.metadata().map(|about| about.len()).ok();
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

    /// Sends until it arrives. What may be sent twice (`repeatable`) is sent again when the
    /// connection breaks before the answer begins. A keeper that is about to end takes nothing
    /// on: its successor does.
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
                    let again = error.is_connect() || (repeatable && self.keeper.is_some());
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

    /// Whether the keeper refused because it ends; waits until it is gone.
    fn is_leaving(&self, failure: &Failure) -> bool {
        let leaving = failure.code == "service.stopping";
        let keeper = self.keeper.as_ref().filter(|_| leaving);
        keeper.is_some_and(|keeper| keeper.running().is_none_or(|running| running.wait()))
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

    pub fn cut_off(&self, error: &reqwest::Error) -> Failure {
        let (code, what) = match error.is_connect() {
            true => ("service.unreachable", "nobody answers at"),
            false => ("service.cut_off", "the connection broke off:"),
        };
        let message = format!("{what} {}: {}", self.place(), said(error));
        let failure = Failure::new(code, message).exit(Exit::Unavailable);
        match &self.keeper {
            Some(keeper) => failure.hint(format!("see {}", keeper.log().display())),
            None => failure.hint("check --url, and that the service runs"),
        }
    }
}

/// A file as a request's body; what is sent of it is counted.
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

/// The innermost cause, without the address that was asked: it is said elsewhere.
fn said(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

/// The answer, or what it refuses with.
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
    Err(Failure::answered(status.as_u16(), body))
}

fn foreign(path: &str, what: &str) -> Failure {
    Failure::new("service.foreign", format!("the answer to {path} makes no sense: {what}"))
        .hint("is the service of the same version as this program?")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::sync::mpsc;

    /// A service that answers once on each connection and closes it when it is told to, without a
    /// word to the client.
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
