//! Streamable HTTP to an upstream server, with bounds that rmcp's own client does not have: an
//! answer is read piece by piece, and one that is too large is dropped.

use crate::bounds::{EventScan, LONGEST, MessageScan};
use crate::tokens::TokenSource;
use futures_util::StreamExt;
use futures_util::stream::BoxStream;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Client, RequestBuilder, Response, StatusCode};
use rmcp::model::{ClientJsonRpcMessage, JsonRpcMessage, ServerJsonRpcMessage};
use rmcp::transport::streamable_http_client::{
    SseError, StreamableHttpClient, StreamableHttpError, StreamableHttpPostResponse,
};
use sse_stream::{Sse, SseStream};
use std::collections::{BTreeMap, HashMap};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::Duration;
use url::Url;

const EVENTS: &str = "text/event-stream";
const JSON: &str = "application/json";
const SESSION: &str = "mcp-session-id";
const LAST_EVENT: &str = "last-event-id";
/// Bytes of an error page that are told.
const TOLD: usize = 300;

type HttpError = StreamableHttpError<io::Error>;
pub type Events = BoxStream<'static, Result<Sse, SseError>>;

/// A client for one server, which sends its headers and its token with every request.
#[derive(Clone)]
pub struct BoundedHttp {
    client: Client,
    headers: HeaderMap,
    tokens: Option<Arc<TokenSource>>,
    /// The status of the latest answer to a message.
    status: Arc<AtomicU16>,
}

impl BoundedHttp {
    pub fn new(
        headers: &BTreeMap<String, String>,
        tokens: Option<Arc<TokenSource>>,
    ) -> Result<BoundedHttp, String> {
        let mut all = HeaderMap::new();
        for (name, value) in headers {
            let bad = |_| format!("`{name}` is no header");
            let parsed = HeaderName::try_from(name.as_str()).map_err(|_| bad(()))?;
            let mut value = HeaderValue::try_from(value.as_str()).map_err(|_| bad(()))?;
            value.set_sensitive(true);
            all.insert(parsed, value);
        }
        Ok(BoundedHttp { client: plain_client()?, headers: all, tokens, status: Arc::default() })
    }

    /// Whether the server refused a message as one that knows only HTTP+SSE does.
    pub fn is_older(&self) -> bool {
        matches!(self.status.load(Ordering::Relaxed), 400 | 404 | 405)
    }

    /// The stream of events of a server that knows only HTTP+SSE.
    pub async fn open_events(&self, url: &str) -> io::Result<Events> {
        let sent = self.send(self.client.get(url), None, HashMap::new()).await;
        let response = sent.map_err(io::Error::other)?;
        let status = response.status();
        match status.is_success() && kind(&response).is_some_and(|kind| kind.starts_with(EVENTS)) {
            true => Ok(events(response)),
            false => Err(io::Error::other(format!("HTTP {status}, and no stream of events"))),
        }
    }

    /// Posts a message there; its answer comes over the stream.
    pub async fn post_older<M: serde::Serialize>(&self, url: Url, message: &M) -> io::Result<()> {
        let sent = self.send(self.client.post(url).json(message), None, HashMap::new()).await;
        let status = sent.map_err(io::Error::other)?.status();
        match status.is_success() {
            true => Ok(()),
            false => Err(io::Error::other(format!("HTTP {status}"))),
        }
    }

    async fn send(
        &self,
        request: RequestBuilder,
        session: Option<Arc<str>>,
        more: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Response, HttpError> {
        let mut request = request.header(ACCEPT, format!("{EVENTS}, {JSON}"));
        if let Some(session) = session {
            request = request.header(SESSION, session.as_ref());
        }
        request =
            more.into_iter().fold(request, |request, (name, value)| request.header(name, value));
        // the operator's, over all others
        let request = request.headers(self.headers.clone());
        let Some(tokens) = &self.tokens else { return sent(request).await };
        let again = request.try_clone();
        let token = tokens.token().await.map_err(refused)?;
        let response = sent(request.bearer_auth(&*token)).await?;
        match again.filter(|_| response.status() == StatusCode::UNAUTHORIZED) {
            // the server did nothing: a newer token may do
            Some(again) => {
                tokens.reject(&token).await;
                let token = tokens.token().await.map_err(refused)?;
                sent(again.bearer_auth(&*token)).await
            }
            None => Ok(response),
        }
    }
}

/// A client that follows no redirect, which could lead headers elsewhere.
pub fn plain_client() -> Result<Client, String> {
    Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .connect_timeout(Duration::from_secs(10))
        .build()
        .map_err(|error| error.to_string())
}

async fn sent(request: RequestBuilder) -> Result<Response, HttpError> {
    // without the address, which may hold a key
    request.send().await.map_err(|error| client(error.without_url()))
}

fn refused(why: String) -> HttpError {
    StreamableHttpError::Client(io::Error::other(why))
}

fn client(error: impl std::error::Error) -> HttpError {
    let mut said = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        said += &format!(": {cause}");
        source = cause.source();
    }
    StreamableHttpError::Client(io::Error::other(said))
}

fn too_large(what: &str) -> io::Error {
    io::Error::other(format!("the server sent a message with {what}"))
}

fn kind(response: &Response) -> Option<&str> {
    response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok())
}

/// The body, if it is not too large.
async fn body(mut response: Response) -> Result<Vec<u8>, HttpError> {
    let mut all = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(|error| client(error.without_url()))? {
        if all.len() + piece.len() > LONGEST {
            return Err(StreamableHttpError::Client(too_large("more than 8 MiB")));
        }
        all.extend_from_slice(&piece);
    }
    MessageScan::check(&all).map_err(|what| StreamableHttpError::Client(too_large(what)))?;
    Ok(all)
}

fn events(response: Response) -> Events {
    let mut scan = EventScan::default();
    let pieces = response.bytes_stream().map(move |piece| {
        let piece = piece.map_err(|error| io::Error::other(error.without_url()))?;
        scan.take(&piece).map(|()| piece).map_err(too_large)
    });
    let checked = SseStream::from_bytes_stream(pieces).map(|event| {
        let event = event?;
        let data = event.data.as_deref().unwrap_or_default();
        let fits = MessageScan::check(data.as_bytes());
        fits.map(|()| event).map_err(|what| SseError::Body(Box::new(too_large(what))))
    });
    checked.boxed()
}

impl StreamableHttpClient for BoundedHttp {
    type Error = io::Error;

    async fn post_message(
        &self,
        uri: Arc<str>,
        message: ClientJsonRpcMessage,
        session: Option<Arc<str>>,
        _auth: Option<String>,
        more: HashMap<HeaderName, HeaderValue>,
    ) -> Result<StreamableHttpPostResponse, HttpError> {
        let in_session = session.is_some();
        let request = self.client.post(uri.as_ref()).json(&message);
        let response = self.send(request, session, more).await?;
        let status = response.status();
        self.status.store(status.as_u16(), Ordering::Relaxed);
        if matches!(status, StatusCode::ACCEPTED | StatusCode::NO_CONTENT) {
            return Ok(StreamableHttpPostResponse::Accepted);
        }
        if status == StatusCode::NOT_FOUND && in_session {
            return Err(StreamableHttpError::SessionExpired);
        }
        let id = response.headers().get(SESSION).and_then(|id| id.to_str().ok());
        let id = id.map(str::to_owned);
        let kind = kind(&response).map(str::to_owned);
        let is = |wanted: &str| kind.as_deref().is_some_and(|kind| kind.starts_with(wanted));
        if status.is_success() && is(EVENTS) {
            return Ok(StreamableHttpPostResponse::Sse(events(response), id));
        }
        let (is_json, wants_answer) = (is(JSON), matches!(message, JsonRpcMessage::Request(_)));
        let body = body(response).await?;
        let parsed = serde_json::from_slice::<ServerJsonRpcMessage>(&body);
        match parsed {
            Ok(parsed) if is_json && status.is_success() => {
                Ok(StreamableHttpPostResponse::Json(parsed, id))
            }
            Ok(parsed @ JsonRpcMessage::Error(_)) if is_json => {
                Ok(StreamableHttpPostResponse::Json(parsed, id))
            }
            _ if status.is_success() && !wants_answer => Ok(StreamableHttpPostResponse::Accepted),
            _ => {
                let text = String::from_utf8_lossy(&body[..body.len().min(TOLD)]).into_owned();
                let said = format!("HTTP {status}: {text}");
                Err(StreamableHttpError::UnexpectedServerResponse(said.into()))
            }
        }
    }

    async fn delete_session(
        &self,
        uri: Arc<str>,
        session: Arc<str>,
        _auth: Option<String>,
        more: HashMap<HeaderName, HeaderValue>,
    ) -> Result<(), HttpError> {
        self.send(self.client.delete(uri.as_ref()), Some(session), more).await.map(drop)
    }

    async fn get_stream(
        &self,
        uri: Arc<str>,
        session: Option<Arc<str>>,
        last_event: Option<String>,
        _auth: Option<String>,
        more: HashMap<HeaderName, HeaderValue>,
    ) -> Result<Events, HttpError> {
        let mut request = self.client.get(uri.as_ref());
        if let Some(id) = last_event {
            request = request.header(LAST_EVENT, id);
        }
        let response = self.send(request, session, more).await?;
        let is_events = kind(&response).is_some_and(|kind| kind.starts_with(EVENTS));
        match response.status().is_success() && is_events {
            true => Ok(events(response)),
            false => Err(StreamableHttpError::ServerDoesNotSupportSse),
        }
    }
}
