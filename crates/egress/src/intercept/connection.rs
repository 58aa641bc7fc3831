//! One connection whose requests are read: TLS on both sides, then HTTP.
//!
//!   hello of the machine ─► the host outside, same protocols ─► answered with what it chose
//!
//! The connection to the host outside comes first. The machine is offered the protocol which that
//! host chooses, HTTP/2 or HTTP/1.1. If its certificate is not valid for the name, the machine's
//! handshake ends with an alert and a report says why.

use super::{InterceptedConnection, InterceptedEnds, http};
use stasis_policy::pattern::normal_name;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::{LazyConfigAcceptor, StartHandshake, TlsConnector, client};

/// How long each handshake may take.
const HANDSHAKE: Duration = Duration::from_secs(30);
const HTTP2: &[u8] = b"h2";
const HTTP1: &[u8] = b"http/1.1";
/// The largest part of what is to be sent that waits for the socket, in each direction.
const TLS_BUFFER: usize = 64 << 10;

pub async fn carry(connection: Arc<InterceptedConnection>, ends: InterceptedEnds) {
    let InterceptedEnds { inside, outside, _room } = ends;
    let streams =
        UnixStream::from_std(inside).and_then(|inside| Ok((inside, TcpStream::from_std(outside)?)));
    let ended = match streams {
        Ok((inside, outside)) if connection.is_tls => tls(connection, inside, outside).await,
        Ok((inside, outside)) => {
            http::serve(connection, inside, outside, false).await.map_err(io::Error::other)
        }
        Err(error) => Err(error),
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection whose requests are read has ended");
    }
}

async fn tls(
    connection: Arc<InterceptedConnection>,
    inside: UnixStream,
    outside: TcpStream,
) -> io::Result<()> {
    let acceptor = LazyConfigAcceptor::new(Acceptor::default(), inside);
    let start = timeout(HANDSHAKE, acceptor).await??;
    let host = connection.host();
    let claimed = start.client_hello().server_name().and_then(normal_name);
    if claimed.is_some_and(|claimed| claimed != host) {
        // two readers of one hello differ: it was made to be read in two ways
        connection.rules.report_plain(&connection.access(), "its hello names two hosts");
        return Ok(());
    }
    let protocols = protocols(&start);
    if protocols.is_empty() {
        let reason = "it offers neither HTTP/1.1 nor HTTP/2";
        connection.rules.report_plain(&connection.access(), reason);
        return Ok(());
    }
    let outside = match timeout(HANDSHAKE, connect(&connection, &host, outside, protocols)).await? {
        Ok(outside) => outside,
        Err(error) => {
            let reason = format!("the server's TLS is not accepted: {error}");
            connection.rules.report_plain(&connection.access(), &reason);
            return Err(error);
        }
    };
    let chosen = outside.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let is_http2 = chosen.as_deref() == Some(HTTP2);
    let authority = connection.machine.authority().map_err(io::Error::other)?;
    let config = authority.server_config(&host, chosen.as_deref()).map_err(io::Error::other)?;
    let limit = |tls: &mut tokio_rustls::rustls::ServerConnection| {
        tls.set_buffer_limit(Some(TLS_BUFFER));
    };
    let inside = timeout(HANDSHAKE, start.into_stream_with(config, limit)).await??;
    http::serve(connection, inside, outside, is_http2).await.map_err(io::Error::other)
}

/// The protocols that the machine offers, as far as they are known here. A client that offers none
/// speaks HTTP/1.1.
fn protocols(start: &StartHandshake<UnixStream>) -> Vec<Vec<u8>> {
    let hello = start.client_hello();
    match hello.alpn() {
        None => Vec::from([HTTP1.to_vec()]),
        Some(offered) => {
            let known = offered.filter(|name| *name == HTTP2 || *name == HTTP1);
            known.take(2).map(<[u8]>::to_vec).collect()
        }
    }
}

/// TLS with the host outside, whose certificate has to be valid for its name.
async fn connect(
    connection: &InterceptedConnection,
    host: &str,
    outside: TcpStream,
    protocols: Vec<Vec<u8>>,
) -> io::Result<client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
    let connector = TlsConnector::from(connection.machine.shared.roots.config.clone());
    let limit = |tls: &mut tokio_rustls::rustls::ClientConnection| {
        tls.set_buffer_limit(Some(TLS_BUFFER));
    };
    connector.with_alpn(protocols).connect_with(name, outside, limit).await
}
