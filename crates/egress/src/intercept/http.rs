//! The requests on one connection: judged, given their secrets, and passed on.
//!
//!   machine ─► hyper's server ─► head ─► policy ─► secrets ─► hyper's client ─► the host outside
//!                                  └──────┴─ 403, and a report
//!
//! Each connection of a machine has one outside, of the same version of HTTP. Bodies pass as they
//! come: a side that is slow is waited for, and nothing is collected. When the host outside
//! ends its connection, the machine's is ended after the answer that is under way.

use super::InterceptedConnection;
use super::head::{self, ConnectionHost, HeadFault};
use super::ongoing::{OngoingRequest, OngoingRequests};
use super::secrets::Filled;
use crate::unguarded::EgressGuard;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, client, server};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;

/// Bounds of a head: bytes in total, and headers.
const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 128;
/// How long a head may take, and how long a connection waits for the next one.
const HEAD_TIME: Duration = Duration::from_secs(75);
/// Bytes of a body that are read ahead.
const BUFFER: usize = 128 << 10;
/// Of HTTP/2: streams at once, and what may be under way on one and on all of them.
const STREAMS: u32 = 100;
const STREAM_WINDOW: u32 = 512 << 10;
const WINDOW: u32 = 1 << 20;

/// A body that is passed on, or an answer of our own.
pub enum PassedBody {
    Passed {
        body: Incoming,
        /// Its request is under way until the body has passed.
        _ongoing: Option<OngoingRequest>,
    },
    Own(Option<Bytes>),
}

impl Body for PassedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        match self.get_mut() {
            PassedBody::Passed { body, .. } => Pin::new(body).poll_frame(context),
            PassedBody::Own(text) => Poll::Ready(text.take().map(|text| Ok(Frame::data(text)))),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            PassedBody::Passed { body, .. } => body.is_end_stream(),
            PassedBody::Own(text) => text.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            PassedBody::Passed { body, .. } => body.size_hint(),
            PassedBody::Own(text) => {
                SizeHint::with_exact(text.as_ref().map_or(0, |text| text.len() as u64))
            }
        }
    }
}

/// The connection outside.
enum Sender {
    Http1(Mutex<client::conn::http1::SendRequest<Incoming>>),
    Http2(client::conn::http2::SendRequest<Incoming>),
}

impl Sender {
    async fn send(&self, request: Request<Incoming>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(sender) => {
                let mut sender = sender.lock().await;
                sender.ready().await?;
                let answer = sender.send_request(request);
                drop(sender);
                answer.await
            }
            Sender::Http2(sender) => {
                let mut sender = sender.clone();
                sender.ready().await?;
                sender.send_request(request).await
            }
        }
    }
}

/// Serves the requests of a connection until one side ends.
pub async fn serve<I, O>(
    connection: Arc<InterceptedConnection>,
    inside: I,
    outside: O,
    is_http2: bool,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    O: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    match is_http2 {
        true => serve_http2(connection, inside, outside).await,
        false => serve_http1(connection, inside, outside).await,
    }
}

async fn serve_http1<I, O>(
    connection: Arc<InterceptedConnection>,
    inside: I,
    outside: O,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    O: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut client = client::conn::http1::Builder::new();
    client.preserve_header_case(true).max_headers(HEADERS).max_header_size(HEAD_BYTES);
    client.max_buf_size(BUFFER);
    let (sender, driver) = client.handshake(TokioIo::new(outside)).await?;
    let mut driver = pin!(driver.with_upgrades());
    let exchange = Arc::new(Exchange::new(connection, Sender::Http1(Mutex::new(sender))));
    let own = exchange.clone();
    let service = service_fn(move |request| answer(exchange.clone(), request));
    let served = http1_server().serve_connection(TokioIo::new(inside), service).with_upgrades();
    let mut served = pin!(served);
    tokio::select! {
        ended = &mut served => return ended,
        () = own.refused() => return Ok(()),
        // a connection that becomes a WebSocket is not one of HTTP any more
        _ = &mut driver => match own.switching.load(Ordering::Acquire) {
            true => {}
            false => served.as_mut().graceful_shutdown(),
        },
    }
    tokio::select! {
        ended = served => ended,
        () = own.refused() => Ok(()),
    }
}

/// How requests of machines are read.
pub fn http1_server() -> server::conn::http1::Builder {
    let mut server = server::conn::http1::Builder::new();
    server.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).auto_date_header(false);
    server.preserve_header_case(true).max_headers(HEADERS).max_header_size(HEAD_BYTES);
    server.max_buf_size(BUFFER);
    server
}

async fn serve_http2<I, O>(
    connection: Arc<InterceptedConnection>,
    inside: I,
    outside: O,
) -> hyper::Result<()>
where
    I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    O: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let mut client = client::conn::http2::Builder::new(TokioExecutor::new());
    client.max_header_list_size(HEAD_BYTES as u32).initial_max_send_streams(STREAMS as usize);
    client.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(WINDOW);
    client.max_send_buf_size(BUFFER).max_concurrent_streams(0);
    let (sender, driver) = client.handshake(TokioIo::new(outside)).await?;
    let mut driver = pin!(driver);
    let exchange = Arc::new(Exchange::new(connection, Sender::Http2(sender)));
    let own = exchange.clone();
    let service = service_fn(move |request| answer(exchange.clone(), request));
    let mut server = server::conn::http2::Builder::new(TokioExecutor::new());
    server.max_header_list_size(HEAD_BYTES as u32).max_concurrent_streams(STREAMS);
    server.initial_stream_window_size(STREAM_WINDOW).initial_connection_window_size(WINDOW);
    server.max_send_buf_size(BUFFER).auto_date_header(false).timer(TokioTimer::new());
    let served = server.serve_connection(TokioIo::new(inside), service);
    let mut served = pin!(served);
    tokio::select! {
        ended = &mut served => return ended,
        () = own.refused() => return Ok(()),
        _ = &mut driver => served.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        ended = served => ended,
        () = own.refused() => Ok(()),
    }
}

/// A connection of the machine, and the one outside.
struct Exchange {
    connection: Arc<InterceptedConnection>,
    sender: Sender,
    ongoing: Arc<OngoingRequests>,
    /// A request to become a WebSocket is under way.
    switching: AtomicBool,
}

/// A request that is refused: what the machine is told, with which status.
struct Refused {
    status: StatusCode,
    reason: String,
}

type Answer = Response<PassedBody>;

/// Answers a request. An error ends the connection: that of the host outside is gone.
async fn answer(
    exchange: Arc<Exchange>,
    request: Request<Incoming>,
) -> Result<Answer, hyper::Error> {
    match exchange.pass(request).await {
        Ok(answer) => answer,
        Err(refused) => Ok(own_answer(&refused)),
    }
}

fn own_answer(refused: &Refused) -> Answer {
    let text = format!("stasis refused this request: {}\n", refused.reason);
    let mut answer = Response::new(PassedBody::Own(Some(Bytes::from(text))));
    *answer.status_mut() = refused.status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    answer.headers_mut().insert(CONTENT_TYPE, plain);
    answer.headers_mut().insert("x-stasis-refused", HeaderValue::from_static("policy"));
    answer
}

impl Exchange {
    fn new(connection: Arc<InterceptedConnection>, sender: Sender) -> Exchange {
        let (ongoing, switching) = Default::default();
        Exchange { connection, sender, ongoing, switching }
    }

    /// Waits until a request under way is not allowed any more.
    async fn refused(&self) {
        self.ongoing.refused(&self.connection).await;
    }

    async fn pass(
        self: &Arc<Self>,
        mut request: Request<Incoming>,
    ) -> Result<Result<Answer, hyper::Error>, Refused> {
        let (websocket, ongoing) = {
            let upgraded = hyper::upgrade::on(&mut request);
            let (parts, body) = request.into_parts();
            let upgraded = head::is_websocket(&parts).then_some(upgraded);
            let (parts, ongoing) = self.judged(parts, upgraded.is_some()).await?;
            request = Request::from_parts(parts, body);
            (upgraded, ongoing)
        };
        self.switching.store(websocket.is_some(), Ordering::Release);
        let mut answer = match self.sender.send(request).await {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let switches = answer.status() == StatusCode::SWITCHING_PROTOCOLS;
        let ongoing = match websocket {
            Some(inside) if switches => {
                let outside = hyper::upgrade::on(&mut answer);
                let exchange = self.clone();
                tokio::spawn(async move {
                    tokio::select! {
                        () = join(inside, outside) => {}
                        () = exchange.refused() => {}
                    }
                    drop(ongoing);
                });
                None
            }
            _ if switches => {
                let reason = "the server switched to another protocol".to_owned();
                return Err(Refused { status: StatusCode::BAD_GATEWAY, reason });
            }
            _ => Some(ongoing),
        };
        head::remove_hop(answer.headers_mut(), switches);
        Ok(Ok(answer.map(|body| PassedBody::Passed { body, _ongoing: ongoing })))
    }

    /// The head of a request as it is passed on, if it may be.
    async fn judged(
        &self,
        mut parts: Parts,
        is_upgrade: bool,
    ) -> Result<(Parts, OngoingRequest), Refused> {
        let connection = &self.connection;
        let host = connection.host();
        let named =
            ConnectionHost { name: &host, port: connection.to.port(), is_tls: connection.is_tls };
        match head::check(&parts, &named) {
            Err(fault) if !connection.rules.is_removed(EgressGuard::Head) => {
                return Err(self.misdirected(&parts, fault));
            }
            _ => {}
        }
        let version = connection.rules.version();
        let allowed = connection.judge(&parts).await;
        allowed.map_err(|reason| Refused { status: StatusCode::FORBIDDEN, reason })?;
        let ongoing = self.ongoing.begin(&parts, version);
        let filled = Filled::of(connection, &parts).await;
        let filled =
            filled.map_err(|reason| Refused { status: StatusCode::BAD_GATEWAY, reason })?;
        let query = filled.query(parts.uri.query());
        let uri = head::target(&parts, &named, query.as_deref().map(String::as_str));
        parts.uri = uri.map_err(|fault| self.misdirected(&parts, fault))?;
        head::remove_hop(&mut parts.headers, is_upgrade);
        filled.headers(&mut parts.headers);
        Ok((parts, ongoing))
    }

    fn misdirected(&self, parts: &Parts, fault: HeadFault) -> Refused {
        let reason = fault.reason().to_owned();
        self.connection.report(parts.method.as_str(), parts.uri.path(), &reason);
        let status = match fault {
            HeadFault::OtherHost => StatusCode::MISDIRECTED_REQUEST,
            HeadFault::Method => StatusCode::METHOD_NOT_ALLOWED,
            HeadFault::NoHost | HeadFault::Malformed => StatusCode::BAD_REQUEST,
            HeadFault::Upgrade => StatusCode::FORBIDDEN,
        };
        Refused { status, reason }
    }
}

/// Passes the bytes of a WebSocket both ways.
async fn join(inside: hyper::upgrade::OnUpgrade, outside: hyper::upgrade::OnUpgrade) {
    if let (Ok(inside), Ok(outside)) = tokio::join!(inside, outside) {
        let (mut inside, mut outside) = (TokioIo::new(inside), TokioIo::new(outside));
        let _ = tokio::io::copy_bidirectional(&mut inside, &mut outside).await;
    }
}
