//! The head of a request: which host it names, what is passed on of it. Pure.
//!
//!   head ─► names the host of its connection? ─► no CONNECT, no TRACE ─► without hop headers
//!
//! A connection belongs to the host it was made for. A request on it that names another one is
//! refused, so a host that is allowed is no front for one that is not.

use hyper::Uri;
use hyper::header::{
    CONNECTION, EXPECT, HOST, HeaderMap, HeaderName, HeaderValue, PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION, TE, TRANSFER_ENCODING, UPGRADE,
};
use hyper::http::request::Parts;
use hyper::http::uri::{Authority, PathAndQuery, Scheme};
use hyper::{Method, Version};
use stasis_policy::pattern::normal_name;
use std::net::Ipv4Addr;

/// Headers that concern one connection only.
const HOP: [HeaderName; 6] =
    [CONNECTION, EXPECT, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, UPGRADE];
const HOP_NAMES: [&str; 3] = ["keep-alive", "proxy-connection", "http2-settings"];

/// Why the head of a request is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadFault {
    /// It names no host, or more than one.
    NoHost,
    /// It names another host than its connection is made for.
    OtherHost,
    /// CONNECT and TRACE: one leads elsewhere, the other answers with what was sent.
    Method,
    /// An upgrade to something that cannot be read, other than a WebSocket.
    Upgrade,
    Malformed,
}

impl HeadFault {
    pub fn reason(self) -> &'static str {
        match self {
            HeadFault::NoHost => "the request names no host, or several",
            HeadFault::OtherHost => "the request names another host than its connection",
            HeadFault::Method => "CONNECT and TRACE are refused where requests are read",
            HeadFault::Upgrade => "an upgrade to another protocol than WebSocket",
            HeadFault::Malformed => "the request cannot be passed on",
        }
    }
}

/// The host that a connection was made for: a name, or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConnectionHost<'a> {
    pub name: &'a str,
    pub port: u16,
    pub is_tls: bool,
}

impl ConnectionHost<'_> {
    fn is_named_by(&self, authority: &Authority) -> bool {
        let port = authority.port_u16().unwrap_or(if self.is_tls { 443 } else { 80 });
        let host = authority.host();
        let plain = !authority.as_str().contains('@');
        let same = match host.parse::<Ipv4Addr>() {
            Ok(address) => address.to_string() == self.name,
            Err(_) => normal_name(host).as_deref() == Some(self.name),
        };
        // a port that is written down but is no number is none at all
        let said = authority.port().is_some() || !authority.as_str().contains(':');
        plain && same && said && port == self.port
    }
}

/// Whether a request is one of its connection's host.
pub fn check(parts: &Parts, host: &ConnectionHost<'_>) -> Result<(), HeadFault> {
    if parts.method == Method::CONNECT || parts.method == Method::TRACE {
        return Err(HeadFault::Method);
    }
    let mut named = parts.headers.get_all(HOST).iter();
    let (first, more) = (named.next(), named.next());
    let parse = |value: &HeaderValue| value.to_str().ok()?.parse::<Authority>().ok();
    let first = match first {
        Some(value) => Some(parse(value).ok_or(HeadFault::NoHost)?),
        None => None,
    };
    if more.is_some() || (first.is_none() && parts.uri.authority().is_none()) {
        return Err(HeadFault::NoHost);
    }
    let all = first.iter().chain(parts.uri.authority());
    if !all.into_iter().all(|authority| host.is_named_by(authority)) {
        return Err(HeadFault::OtherHost);
    }
    let scheme = if host.is_tls { Scheme::HTTPS } else { Scheme::HTTP };
    if parts.uri.scheme().is_some_and(|own| *own != scheme) {
        return Err(HeadFault::OtherHost);
    }
    match upgrade(&parts.headers) {
        _ if parts.version == Version::HTTP_2 => Ok(()),
        Some(protocol) if !protocol.eq_ignore_ascii_case("websocket") => Err(HeadFault::Upgrade),
        _ => Ok(()),
    }
}

/// The protocol that a head asks to be upgraded to, if it does.
fn upgrade(headers: &HeaderMap) -> Option<String> {
    let text = |value: &HeaderValue| String::from_utf8_lossy(value.as_bytes()).trim().to_owned();
    let all: Vec<String> = headers.get_all(UPGRADE).iter().map(text).collect();
    (!all.is_empty()).then(|| all.join(", "))
}

/// Whether it asks for a WebSocket, in the old version of HTTP.
pub fn is_websocket(parts: &Parts) -> bool {
    let wanted = upgrade(&parts.headers).is_some_and(|own| own.eq_ignore_ascii_case("websocket"));
    wanted && parts.version == Version::HTTP_11 && parts.method == Method::GET
}

/// Removes the headers of this hop, and those that they name. `TE: trailers` stays, and so does an
/// upgrade that is wanted.
pub fn remove_hop(headers: &mut HeaderMap, keep_upgrade: bool) {
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).unwrap_or_default();
    let named: Vec<String> = headers.get_all(CONNECTION).iter().map(text).collect();
    let named = named.iter().flat_map(|list| list.split(',')).map(str::trim);
    let named: Vec<HeaderName> = named.filter_map(|name| name.parse().ok()).collect();
    let trailers = headers.get_all(TE).iter().any(|te| text(te).contains("trailers"));
    let upgraded = headers.get(UPGRADE).cloned().filter(|_| keep_upgrade);
    // how a body is framed is said anew for the next hop
    for name in named.iter().filter(|name| **name != HOST).chain(&HOP).chain([&TRANSFER_ENCODING]) {
        headers.remove(name);
    }
    HOP_NAMES.iter().for_each(|name| drop(headers.remove(*name)));
    if trailers {
        headers.insert(TE, HeaderValue::from_static("trailers"));
    }
    if let Some(protocol) = upgraded {
        headers.insert(UPGRADE, protocol);
        headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    }
}

/// The address that the next hop is asked for: a path, or in HTTP/2 all of it.
pub fn target(
    parts: &Parts,
    host: &ConnectionHost<'_>,
    query: Option<&str>,
) -> Result<Uri, HeadFault> {
    let path = parts.uri.path();
    let written = match query.or(parts.uri.query()) {
        Some(query) => format!("{path}?{query}").parse::<PathAndQuery>(),
        None => path.parse::<PathAndQuery>(),
    };
    let mut uri = hyper::http::uri::Parts::default();
    uri.path_and_query = Some(written.map_err(|_| HeadFault::Malformed)?);
    if parts.version == Version::HTTP_2 {
        uri.scheme = Some(if host.is_tls { Scheme::HTTPS } else { Scheme::HTTP });
        let from_host = || parts.headers.get(HOST)?.to_str().ok()?.parse::<Authority>().ok();
        uri.authority = parts.uri.authority().cloned().or_else(from_host);
    }
    Uri::from_parts(uri).map_err(|_| HeadFault::Malformed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::Request;

    const API: ConnectionHost<'static> =
        ConnectionHost { name: "api.example", port: 443, is_tls: true };

    fn parts(method: &str, uri: &str, headers: &[(&str, &str)]) -> Parts {
        let mut request = Request::builder().method(method).uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn a_request_names_the_host_of_its_connection() {
        for (uri, headers) in [
            ("/a", vec![("host", "api.example")]),
            ("/a", vec![("host", "API.example:443")]),
            ("https://api.example/a", vec![]),
            ("https://api.example/a", vec![("host", "api.example")]),
        ] {
            assert_eq!(check(&parts("GET", uri, &headers), &API), Ok(()), "{uri} {headers:?}");
        }
        use HeadFault::{Method, NoHost, OtherHost, Upgrade};
        for (method, uri, headers, fault) in [
            ("GET", "/", vec![], NoHost),
            ("GET", "/", vec![("host", "api.example"), ("host", "api.example")], NoHost),
            ("GET", "/", vec![("host", "")], NoHost),
            ("GET", "/", vec![("host", "other.example")], OtherHost),
            ("GET", "/", vec![("host", "api.example:8443")], OtherHost),
            ("GET", "/", vec![("host", "api.example:")], OtherHost),
            ("GET", "/", vec![("host", "x@api.example")], OtherHost),
            ("GET", "https://other.example/", vec![("host", "api.example")], OtherHost),
            ("GET", "http://api.example:443/", vec![("host", "api.example")], OtherHost),
            ("CONNECT", "api.example:443", vec![], Method),
            ("TRACE", "/", vec![("host", "api.example")], Method),
            ("GET", "/", vec![("host", "api.example"), ("upgrade", "h2c")], Upgrade),
            ("GET", "/", vec![("host", "api.example"), ("upgrade", "h2c, websocket")], Upgrade),
        ] {
            let found = check(&parts(method, uri, &headers), &API);
            assert_eq!(found, Err(fault), "{method} {uri} {headers:?}");
        }
        let address = ConnectionHost { name: "203.0.113.7", port: 80, is_tls: false };
        assert_eq!(check(&parts("GET", "/", &[("host", "203.0.113.7")]), &address), Ok(()));
    }

    #[test]
    fn headers_of_this_hop_stay_here() {
        let mut headers = parts(
            "GET",
            "/",
            &[
                ("host", "a"),
                ("connection", "close, X-Secret, host"),
                ("x-secret", "1"),
                ("keep-alive", "5"),
                ("transfer-encoding", "chunked"),
                ("te", "gzip, trailers"),
                ("upgrade", "websocket"),
                ("accept", "*/*"),
            ],
        )
        .headers;
        let mut kept = headers.clone();
        remove_hop(&mut headers, false);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(
            (left, &headers["te"]),
            (vec!["accept", "host", "te"], &"trailers".parse().unwrap())
        );
        remove_hop(&mut kept, true);
        assert_eq!(
            (&kept["upgrade"], &kept["connection"]),
            (&"websocket".parse().unwrap(), &"upgrade".parse().unwrap())
        );
    }

    #[test]
    fn the_next_hop_is_asked_for_a_path() {
        let asked = parts("GET", "https://api.example/a/b?c=1", &[]);
        assert_eq!(target(&asked, &API, None).expect("good").to_string(), "/a/b?c=1");
        let filled = target(&asked, &API, Some("c=s3cret")).expect("good");
        assert_eq!(filled.to_string(), "/a/b?c=s3cret");
        let mut asked = asked;
        asked.version = Version::HTTP_2;
        let whole = target(&asked, &API, None).expect("good");
        assert_eq!(whole.to_string(), "https://api.example/a/b?c=1");
    }
}
