//! Refuses requests for foreign host names (DNS rebinding) and from pages of other origins.

use crate::failure::{HttpFailure, Result};
use axum::http::{HeaderMap, header};
use stasis_api::Problem;
use std::net::IpAddr;

pub struct OriginGuard {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl OriginGuard {
    /// Loopback, the listening addresses, and further allowed names.
    pub fn new(
        listen: impl Iterator<Item = IpAddr>,
        hosts: &[String],
        origins: &[String],
    ) -> OriginGuard {
        let own = ["localhost", "127.0.0.1", "[::1]"].map(str::to_owned);
        let listen = listen.filter(|ip| !ip.is_unspecified()).map(|ip| match ip {
            IpAddr::V4(ip) => ip.to_string(),
            IpAddr::V6(ip) => format!("[{ip}]"),
        });
        let given = hosts.iter().map(|host| host.to_ascii_lowercase());
        let hosts = own.into_iter().chain(listen).chain(given).collect();
        OriginGuard { hosts, origins: origins.to_vec() }
    }

    pub fn hosts(&self) -> &[String] {
        &self.hosts
    }

    pub fn origins(&self) -> &[String] {
        &self.origins
    }

    pub fn check(&self, headers: &HeaderMap) -> Result<()> {
        let host = text(headers, header::HOST).unwrap_or_default().to_ascii_lowercase();
        if !self.hosts.iter().any(|own| *own == host || own == without_port(&host)) {
            let said = format!("{host:?} is not a name of this service");
            let failure = HttpFailure::about(Problem::Forbidden, "request.host", said);
            return Err(failure.hint("add a name with `--allow-host`"));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let origin = origin.to_str().unwrap_or_default();
        let own = ["http://", "https://"].iter().any(|scheme| {
            origin.strip_prefix(scheme).is_some_and(|rest| rest.eq_ignore_ascii_case(&host))
        });
        if own || self.origins.iter().any(|allowed| allowed == origin) {
            return Ok(());
        }
        let said = format!("pages of {origin:?} may not use this service");
        let failure = HttpFailure::about(Problem::Forbidden, "request.origin", said);
        Err(failure.hint("allow an origin with `--allow-origin`"))
    }
}

fn text(headers: &HeaderMap, name: header::HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(host: &str, origin: Option<&str>) -> Option<String> {
        let listen = [IpAddr::from([10, 0, 0, 7]), IpAddr::from([0, 0, 0, 0])];
        let names = ["Box.example".to_owned()];
        let guard =
            OriginGuard::new(listen.into_iter(), &names, &["https://app.example".to_owned()]);
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, host.parse().expect("a header"));
        if let Some(origin) = origin {
            headers.insert(header::ORIGIN, origin.parse().expect("a header"));
        }
        guard.check(&headers).err().map(|failure| failure.code.into_owned())
    }

    #[test]
    fn hosts() {
        for host in ["localhost", "LOCALHOST:7717", "127.0.0.1:1", "[::1]", "[::1]:80"] {
            assert_eq!(verdict(host, None), None, "{host}");
        }
        for host in ["10.0.0.7:7717", "box.example", "box.example:443"] {
            assert_eq!(verdict(host, None), None, "{host}");
        }
        for host in ["", "evil.example", "0.0.0.0", "localhost.evil.example", "localhost:80:80"] {
            assert_eq!(verdict(host, None).as_deref(), Some("request.host"), "{host}");
        }
    }

    #[test]
    fn origins() {
        assert_eq!(verdict("localhost:7717", Some("http://localhost:7717")), None);
        assert_eq!(verdict("localhost", Some("https://app.example")), None);
        for origin in ["null", "http://localhost:1", "https://evil.example", "file://"] {
            let said = verdict("localhost:7717", Some(origin));
            assert_eq!(said.as_deref(), Some("request.origin"), "{origin}");
        }
    }
}
