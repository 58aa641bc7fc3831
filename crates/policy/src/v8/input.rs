//! mcp-v8's input documents.

use crate::http::HttpRequest;
use crate::modules::ImportSource;
use serde_json::{Map, Value, json};
use std::net::SocketAddrV4;
use url::Url;

/// A request that leaves a machine.
pub(super) struct SentRequest<'a> {
    pub name: Option<&'a str>,
    pub address: SocketAddrV4,
    pub what: HttpRequest<'a>,
}

impl SentRequest<'_> {
    fn header(&self, wanted: &str) -> Option<&str> {
        let mut all = self.what.headers.iter();
        all.find(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| *value)
    }

    pub fn is_websocket(&self) -> bool {
        self.header("upgrade").is_some_and(|value| value.eq_ignore_ascii_case("websocket"))
    }

    /// Its URL, with the scheme for plain and for TLS.
    pub fn url(&self, [plain, tls]: [&str; 2]) -> String {
        let (scheme, usual) = if self.what.secure { (tls, 443) } else { (plain, 80) };
        format!("{scheme}://{}{}", self.authority(usual), self.what.path)
    }

    fn authority(&self, usual: u16) -> String {
        let address = self.address.ip().to_string();
        let host = self.name.unwrap_or(&address);
        match self.address.port() == usual {
            true => host.to_owned(),
            false => format!("{host}:{}", self.address.port()),
        }
    }

    fn headers(&self) -> Value {
        let one = |(name, value): &(&str, &str)| (name.to_ascii_lowercase(), json!(value));
        Value::Object(self.what.headers.iter().map(one).collect::<Map<_, _>>())
    }

    pub fn fetch(&self) -> Value {
        let url = self.url(["http", "https"]);
        json!({ "operation": "fetch", "url": url, "method": self.what.method,
            "headers": self.headers(), "url_parsed": parsed(&url, true) })
    }

    pub fn websocket(&self) -> Value {
        let url = self.url(["ws", "wss"]);
        let protocols = self.header("sec-websocket-protocol").unwrap_or_default();
        let protocols: Vec<_> =
            protocols.split(',').map(str::trim).filter(|one| !one.is_empty()).collect();
        json!({ "operation": "connect", "url": url, "protocols": protocols,
            "headers": self.headers(), "url_parsed": parsed(&url, true) })
    }

    /// The connection of a request of HTTP/2, and the request.
    pub fn http2(&self) -> [Value; 2] {
        let scheme = if self.what.secure { "https" } else { "http" };
        let authority = self.authority(if self.what.secure { 443 } else { 80 });
        let url = format!("{scheme}://{authority}");
        let connect = json!({ "operation": "connect", "url": url,
            "url_parsed": parsed(&url, true) });
        let request = json!({ "operation": "request", "scheme": scheme, "authority": authority,
            "method": self.what.method, "path": self.what.path, "headers": self.headers() });
        [connect, request]
    }
}

/// The parts of a URL, as mcp-v8 names them.
pub(super) fn parsed(url: &str, whole: bool) -> Value {
    let Ok(url) = Url::parse(url) else { return Value::Null };
    let mut parts = json!({ "scheme": url.scheme(), "host": url.host_str().unwrap_or_default(),
        "path": url.path() });
    if whole && let Some(parts) = parts.as_object_mut() {
        parts.insert("port".into(), json!(url.port()));
        parts.insert("query".into(), json!(url.query().unwrap_or_default()));
    }
    parts
}

/// mcp-v8 imports packages from esm.sh, and its policies see that address.
pub(super) fn import(source: ImportSource, specifier: &str) -> Value {
    let rest = specifier.split_once(':').map_or(specifier, |(_, rest)| rest);
    let rest = rest.trim_start_matches('/');
    let (kind, url) = match source {
        ImportSource::Npm => ("npm", format!("https://esm.sh/{rest}")),
        ImportSource::Jsr => ("jsr", format!("https://esm.sh/jsr/{rest}")),
        ImportSource::Web => ("url", specifier.to_owned()),
    };
    json!({ "specifier": url, "specifier_type": kind, "resolved_url": url,
        "url_parsed": parsed(&url, false) })
}
