//! Heads of requests as a machine sends them, through the reader that real connections have, for
//! fuzzing.

use super::head::{self, ConnectionHost};
use super::http::http1_server;
use hyper::body::Incoming;
use hyper::header::{CONNECTION, EXPECT, HOST, TRANSFER_ENCODING, UPGRADE};
use hyper::service::service_fn;
use hyper::{Method, Request, Response};
use hyper_util::rt::TokioIo;
use stasis_policy::pattern::normal_name;
use std::convert::Infallible;
use tokio::io::AsyncWriteExt;
use tokio::runtime::{Builder, Runtime};

const API: ConnectionHost<'static> =
    ConnectionHost { name: "api.example", port: 80, is_tls: false };
/// More than a head may have.
const LONGEST: usize = 256 << 10;

pub fn seeds() -> Vec<Vec<u8>> {
    [
        "GET /v1/a?b=c HTTP/1.1\r\nHost: api.example\r\nAccept: */*\r\n\r\n",
        "GET http://api.example/ HTTP/1.1\r\nHost: API.example:80\r\nConnection: x-a, close\r\n\
         X-A: 1\r\nTE: trailers\r\n\r\n",
        "POST /v1 HTTP/1.1\r\nHost: api.example\r\nContent-Length: 3\r\n\r\nabc\
         GET /v2 HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "POST /v1 HTTP/1.1\r\nHost: api.example\r\nTransfer-Encoding: chunked\r\n\r\n\
         3\r\nabc\r\n0\r\n\r\n",
        "GET /v1 HTTP/1.1\r\nHost: api.example\r\nUpgrade: websocket\r\n\
         Connection: upgrade\r\n\r\n",
        "CONNECT other.example:443 HTTP/1.1\r\nHost: other.example\r\n\r\n",
        "GET /v1 HTTP/1.0\r\n\r\n",
    ]
    .map(|text| text.as_bytes().to_vec())
    .to_vec()
}

/// Reads bytes as the requests on one connection. A head that passes names this host and no other,
/// and what is passed on of it is what was judged.
pub fn run(bytes: &[u8]) {
    thread_local! {
        static RUNTIME: Runtime =
            Builder::new_current_thread().enable_all().build().expect("a runtime");
    }
    let bytes = &bytes[..bytes.len().min(LONGEST)];
    RUNTIME.with(|runtime| {
        runtime.block_on(async {
            let (mut machine, here) = tokio::io::duplex(2 * LONGEST);
            machine.write_all(bytes).await.expect("there is room");
            machine.shutdown().await.expect("it ends");
            let served = http1_server().serve_connection(TokioIo::new(here), service_fn(answer));
            let _ = served.await;
        });
    });
}

async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    let (mut parts, _) = request.into_parts();
    if head::check(&parts, &API).is_err() {
        return Ok(Response::new(String::new()));
    }
    assert!(parts.method != Method::CONNECT && parts.method != Method::TRACE);
    let hosts: Vec<_> = parts.headers.get_all(HOST).iter().collect();
    assert!(hosts.len() <= 1, "{hosts:?}");
    for host in hosts {
        let text = host.to_str().expect("text");
        let name = text.split_once(':').map_or(text, |(name, port)| {
            assert_eq!(port, "80");
            name
        });
        assert_eq!(normal_name(name).as_deref(), Some("api.example"), "{text}");
    }
    let judged = parts.uri.path_and_query().map_or("/", |path| path.as_str()).to_owned();
    let is_websocket = head::is_websocket(&parts);
    if let Ok(target) = head::target(&parts, &API, None) {
        let passed = target.path_and_query().map_or("", |path| path.as_str());
        assert!(target.authority().is_none() && passed == judged, "{passed}, {judged}");
    }
    head::remove_hop(&mut parts.headers, is_websocket);
    for name in [EXPECT, TRANSFER_ENCODING] {
        assert!(!parts.headers.contains_key(name));
    }
    for name in [CONNECTION, UPGRADE] {
        assert!(is_websocket || !parts.headers.contains_key(name));
    }
    Ok(Response::new(String::new()))
}

#[cfg(test)]
mod tests {
    #[test]
    fn seeds_are_read() {
        super::seeds().iter().for_each(|seed| super::run(seed));
        super::run(b"");
    }
}
