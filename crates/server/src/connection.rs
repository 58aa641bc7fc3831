//! Connections: accepted, counted, bounded and served.
//!
//! Past the bound a connection gets 503 and is closed. A connection is also closed if its request
//! head arrives too slowly, or if the peer reads nothing for minutes or disappears. Connections
//! without a valid token have their own bounds (`unproven`).

use crate::app::{App, Phase};
use crate::body::WholeBody;
use crate::listen::Listener;
use crate::unproven::{ConnectionRegister, Ticket};
use axum::Router;
use axum::body::Body;
use axum::http::{Request, Uri};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tower_service::Service;

const HEAD_IN_TIME: Duration = Duration::from_secs(30);
const HANDSHAKE_IN_TIME: Duration = Duration::from_secs(10);
/// Time for a refused client to read the reason.
const FAREWELL: Duration = Duration::from_secs(1);
/// Maximum time a peer may leave data unacknowledged, and the keep-alive interval of a silent one:
/// every stream ends some time after its reader did.
const UNTAKEN: Duration = Duration::from_secs(120);
const ALIVE: Duration = Duration::from_secs(60);
const BUFFER: usize = 64 << 10;
const FULL: &str = "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\n\
                    retry-after: 1\r\nconnection: close\r\ncontent-length: 120\r\n\r\n\
                    {\"code\":\"service.overloaded\",\"message\":\"too many connections\",\
                    \"hint\":\"ask again after `retry-after`; nothing was begun\"}";

/// The origin of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Peer {
    Tcp(SocketAddr),
    /// A process of the same user.
    Private,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Peer::Tcp(address) => address.fmt(f),
            Peer::Private => f.write_str("private"),
        }
    }
}

/// Everything needed to serve a connection.
#[derive(Clone)]
pub struct ConnectionContext {
    pub app: App,
    pub router: Router,
    pub tls: Option<TlsAcceptor>,
    pub room: Arc<Semaphore>,
    pub register: Arc<ConnectionRegister>,
    /// The user whose processes may use the private socket.
    pub user: u32,
}

impl ConnectionContext {
    /// Accepts connections until the service stops.
    pub async fn receive(self, listener: Listener) {
        loop {
            let taken = tokio::select! {
                taken = self.accept(&listener) => taken,
                () = self.app.reached(Phase::Stopping) => break,
            };
            if let Err(error) = taken {
                // for example no descriptors left: connections without a token are closed
                tracing::warn!(%error, "cannot accept a connection");
                self.register.make_room();
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
        if let Listener::Unix(_, path) = &listener {
            let _ = std::fs::remove_file(path);
        }
    }

    async fn accept(&self, listener: &Listener) -> std::io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                // the task that serves the connection notices a disconnected peer
                let _ = stream.set_nodelay(true).and_then(|()| bound_silence(&stream));
                self.admit(stream, Peer::Tcp(address));
            }
            Listener::Unix(listener, _) => {
                let (stream, _) = listener.accept().await?;
                let user = stream.peer_cred()?.uid();
                match user == self.user {
                    true => self.admit(stream, Peer::Private),
                    false => tracing::warn!(user, "another user's process at the private socket"),
                }
            }
        }
        Ok(())
    }

    fn admit<S>(&self, mut stream: S, peer: Peer)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let ticket = self.register.enter(peer);
        let Ok(room) = self.room.clone().try_acquire_owned() else {
            tokio::spawn(tokio::time::timeout(FAREWELL, async move {
                let _ = stream.write_all(FULL.as_bytes()).await;
                let _ = stream.shutdown().await;
            }));
            return;
        };
        let own = self.clone();
        own.app.instruments.metrics().connections.inc();
        tokio::spawn(async move {
            match (&own.tls, peer) {
                (Some(tls), Peer::Tcp(_)) => {
                    let shaken = tokio::time::timeout(HANDSHAKE_IN_TIME, tls.accept(stream)).await;
                    if let Ok(Ok(stream)) = shaken {
                        own.serve(stream, peer, &ticket).await;
                    }
                }
                _ => own.serve(stream, peer, &ticket).await,
            }
            own.app.instruments.metrics().connections.dec();
            drop(room);
        });
    }

    async fn serve<S>(&self, stream: S, peer: Peer, ticket: &Arc<Ticket>)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (router, own) = (self.router.clone(), ticket.clone());
        let service = hyper::service::service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(|body| Body::new(WholeBody::new(body)));
            request.extensions_mut().insert(peer);
            request.extensions_mut().insert(own.clone());
            straighten(request.uri_mut());
            router.clone().call(request)
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_IN_TIME)
            .max_buf_size(BUFFER)
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        tokio::pin!(connection);
        tokio::select! {
            _ = connection.as_mut() => return,
            () = ticket.over() => return,
            () = self.app.reached(Phase::Stopping) => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
}

fn bound_silence(stream: &tokio::net::TcpStream) -> std::io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    socket.set_tcp_user_timeout(Some(UNTAKEN))?;
    let probes = socket2::TcpKeepalive::new().with_time(ALIVE).with_interval(ALIVE / 4);
    socket.set_tcp_keepalive(&probes)
}

/// A base address that ends in a slash produces paths that begin with two.
fn straighten(uri: &mut Uri) {
    let Some(rest) = uri.path().strip_prefix("//") else { return };
    let path = format!("/{}", rest.trim_start_matches('/'));
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    if let Ok(straight) = format!("{path}{query}").parse() {
        *uri = straight;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_slashes_are_one() {
        for (given, straight) in
            [("//v1/whoami?a=b", "/v1/whoami?a=b"), ("/v1//x", "/v1//x"), ("////", "/")]
        {
            let mut uri: Uri = given.parse().expect("an address");
            straighten(&mut uri);
            assert_eq!(uri.to_string(), straight);
        }
    }

    #[test]
    fn the_word_for_no_room_has_the_length_it_says() {
        let (_, body) = FULL.split_once("\r\n\r\n").expect("a head");
        assert!(FULL.contains(&format!("content-length: {}\r\n", body.len())));
    }
}
