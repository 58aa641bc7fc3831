//! Rules about HTTP requests, and about the secrets in them.
//!
//! ```text
//!   api.example.com                 every request to this host
//!   GET,HEAD api.example.com/v1/*   these methods, on paths that begin so
//!   api.example.com/a/*/c           a `*` before the end stands for one part of the path
//!   GITHUB@api.github.com           a secret, for one host
//!   GITHUB                          a secret, for every host that it is bound to
//! ```
//!
//! A server may read a path in more ways than one: `/a/../b`, `/a%2fb`, `/a//b`. No rule with a
//! path allows such a path, and every rule with a path that denies or asks covers it.

use crate::glob::Glob;
use crate::pattern::{NetworkPattern, RuleKind};
use crate::reach::Protocol;
use std::net::{Ipv4Addr, SocketAddrV4};

const LONGEST_METHOD: usize = 32;
const LONGEST_PATH: usize = 1024;

/// A rule about requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpPattern {
    /// None means every method.
    methods: Vec<String>,
    host: NetworkPattern,
    path: Option<Glob>,
}

/// A request as policies see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpRequest<'a> {
    /// Whether it came over TLS.
    pub secure: bool,
    pub method: &'a str,
    /// With its query; rules are about what comes before it.
    pub path: &'a str,
    /// Names in lower case, with their values. Only Rego reads them.
    pub headers: &'a [(&'a str, &'a str)],
    /// Whether it came over HTTP/2.
    pub http2: bool,
}

impl HttpPattern {
    pub fn parse(text: &str, kind: RuleKind) -> Result<HttpPattern, String> {
        let shown: String = text.chars().take(80).collect();
        let wrong = |hint: &str| format!("{shown:?}: {hint}");
        if text.contains("://") {
            return Err(wrong("write the host and the path without a scheme"));
        }
        let (methods, rest) = match text.split_once(' ') {
            Some((methods, rest)) => (methods, rest.trim_start()),
            None => ("*", text),
        };
        let named = |name: &str| {
            let plain = name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'-');
            (plain && !name.is_empty() && name.len() <= LONGEST_METHOD).then(|| name.to_owned())
        };
        let methods = match methods {
            "*" => Some(Vec::new()),
            methods => methods.split(',').map(named).collect(),
        };
        let methods = methods.ok_or_else(|| wrong("write methods as `GET,POST`, then a space"))?;
        let (host, path) = match rest.split_once('/') {
            Some((host, path)) => (host, Some(format!("/{path}"))),
            None => (rest, None),
        };
        let bad = |path: &String| {
            path.len() > LONGEST_PATH || path.contains(['%', '?']) || plain_path(path).is_none()
        };
        if path.as_ref().is_some_and(bad) {
            return Err(wrong("write a plain path: no query, no `%`, no `..` and no `//`"));
        }
        let host = NetworkPattern::parse(host, kind)?.over(Protocol::Tcp);
        Ok(HttpPattern { methods, host, path: path.map(Glob::new) })
    }

    /// Whether it concerns a host: then its requests must be read.
    pub fn is_about(&self, name: Option<&str>, to: SocketAddrV4) -> bool {
        self.host.covers(name, to, Protocol::Tcp)
    }

    /// Whether some request to a host is allowed.
    pub fn opens(&self, name: Option<&str>, to: SocketAddrV4) -> bool {
        self.host.allows(name, to, Protocol::Tcp)
    }

    pub fn fits_name(&self, name: &str) -> bool {
        self.host.fits_name(name)
    }

    /// Whether it allows a request.
    pub fn allows(&self, name: Option<&str>, to: SocketAddrV4, what: HttpRequest<'_>) -> bool {
        let path = || match &self.path {
            Some(own) => plain_path(what.path).is_some_and(|path| own.fits(&path)),
            None => true,
        };
        self.opens(name, to) && self.names_method(what.method) && path()
    }

    /// Whether it denies, or asks about, a request.
    pub fn covers(&self, name: Option<&str>, to: SocketAddrV4, what: HttpRequest<'_>) -> bool {
        let path = || match &self.path {
            Some(own) => plain_path(what.path).is_none_or(|path| own.fits(&path)),
            None => true,
        };
        self.is_about(name, to) && self.has_method(what.method) && path()
    }

    /// To allow: as servers read it, `get` and `GET` are two methods.
    fn names_method(&self, method: &str) -> bool {
        let is_method =
            |own: &String| own.bytes().map(|b| b.to_ascii_uppercase()).eq(method.bytes());
        self.methods.is_empty() || self.methods.iter().any(is_method)
    }

    /// To deny: a server may read `get` as `GET`.
    fn has_method(&self, method: &str) -> bool {
        self.methods.is_empty() || self.methods.iter().any(|own| own.eq_ignore_ascii_case(method))
    }
}

/// A path that every server reads alike, with its escapes of plain characters resolved.
fn plain_path(path: &str) -> Option<String> {
    let path = path.split_once('?').map_or(path, |(path, _)| path);
    let mut out = String::with_capacity(path.len());
    let mut rest = path.chars();
    while let Some(c) = rest.next() {
        let c = match c {
            '%' => {
                let (high, low) = (rest.next()?.to_digit(16)?, rest.next()?.to_digit(16)?);
                let byte = char::from_u32(high * 16 + low).filter(char::is_ascii)?;
                // an escaped character is not part of the structure
                if byte.is_ascii_control() || "/\\%.;?#*".contains(byte) {
                    return None;
                }
                byte
            }
            '\\' | ';' | '#' => return None,
            c if c.is_control() => return None,
            c => c,
        };
        out.push(c);
    }
    let dots = |part: &str| part == "." || part == "..";
    let whole = out.starts_with('/') && !out.contains("//") && !out.split('/').any(dots);
    whole.then_some(out)
}

/// A rule about secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SecretPattern {
    secret: Glob,
    /// None means every host that the secret is bound to.
    host: Option<NetworkPattern>,
}

/// Any public address: where only a name is known, rules about addresses do not fit.
pub(crate) const PUBLIC: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

impl SecretPattern {
    pub fn parse(text: &str, kind: RuleKind) -> Result<SecretPattern, String> {
        let (secret, host) = match text.split_once('@') {
            Some((secret, host)) => (secret, Some(host)),
            None => (text, None),
        };
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-.*".contains(&byte);
        if secret.is_empty() || secret.len() > 128 || !secret.bytes().all(plain) {
            let shown: String = text.chars().take(80).collect();
            return Err(format!(
                "{shown:?} is not a secret: write NAME, or NAME@HOST, with letters, digits, `_`, \
                 `-` and `.`"
            ));
        }
        let host = host.map(|host| NetworkPattern::parse(host, kind)).transpose()?;
        Ok(SecretPattern { secret: Glob::new(secret), host })
    }

    pub fn fits(&self, secret: &str, host: &str, port: u16) -> bool {
        let address = host.parse::<Ipv4Addr>();
        let name = if address.is_ok() { None } else { Some(host) };
        let to = SocketAddrV4::new(address.unwrap_or(PUBLIC), port);
        let bound = |own: &NetworkPattern| own.covers(name, to, Protocol::Tcp);
        self.secret.fits(secret) && self.host.as_ref().is_none_or(bound)
    }

    /// Whether it is about a secret at all.
    pub fn is_for(&self, secret: &str) -> bool {
        self.secret.fits(secret)
    }

    /// Whether it names a host, so that requests to it may carry a secret.
    pub fn is_about(&self, name: Option<&str>, to: SocketAddrV4) -> bool {
        self.host.as_ref().is_some_and(|own| own.covers(name, to, Protocol::Tcp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: SocketAddrV4 = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 443);

    fn rule(text: &str, kind: RuleKind) -> HttpPattern {
        HttpPattern::parse(text, kind).expect(text)
    }

    fn request<'a>(method: &'a str, path: &'a str) -> HttpRequest<'a> {
        HttpRequest { secure: true, method, path, headers: &[], http2: false }
    }

    #[test]
    fn methods_and_paths() {
        let allows = |text: &str, method: &str, path: &str| {
            rule(text, RuleKind::Allow).allows(Some("a.example"), TO, request(method, path))
        };
        assert!(allows("a.example", "DELETE", "/x?y=1"));
        assert!(allows("GET,HEAD a.example/v1/*", "HEAD", "/v1/a/b?c"));
        assert!(allows("GET a.example/v1/*", "GET", "/v1/%61"));
        assert!(allows("* a.example/r/*/i", "PUT", "/r/x/i"));
        assert!(!allows("GET a.example", "POST", "/"));
        assert!(!allows("GET b.example", "GET", "/"));
        assert!(!allows("GET a.example:8443", "GET", "/"));
        assert!(!allows("GET a.example/v1/*", "GET", "/v2/"));
    }

    #[test]
    fn a_path_of_two_readings_is_never_allowed_and_always_denied() {
        let name = Some("a.example");
        for path in [
            "/v1/../admin",
            "/v1/%2e%2e/admin",
            "/v1/%2E./admin",
            "/v1/..%2fadmin",
            "/v1//admin",
            "/v1/a\\..\\admin",
            "/v1/a;b",
            "/v1/%00",
            "/v1/%zz",
            "/v1/%c3%bc",
            "/v1/%25",
            "/v1/a%3fb",
            "v1/",
            "",
        ] {
            let what = request("GET", path);
            assert!(!rule("a.example/v1/*", RuleKind::Allow).allows(name, TO, what), "{path}");
            assert!(rule("a.example/other", RuleKind::Deny).covers(name, TO, what), "{path}");
            assert!(rule("a.example", RuleKind::Allow).allows(name, TO, what), "{path}");
        }
    }

    #[test]
    fn faults_say_what_to_write() {
        for (text, hint) in [
            ("https://a.example/", "without a scheme"),
            ("get a.example", "GET,POST"),
            ("GET, POST a.example", "GET,POST"),
            ("GET a.example/a/../b", "plain path"),
            ("GET a.example/%41", "plain path"),
            ("GET", "not a host"),
            ("GET  ", "not a host"),
            ("GET a b", "not a host"),
        ] {
            // `GET` alone is the name of a host, as far as anyone can tell
            let Err(said) = HttpPattern::parse(text, RuleKind::Allow) else {
                assert_eq!(text, "GET");
                continue;
            };
            assert!(said.contains(hint), "{text}: {said}");
        }
        for text in ["", "a b", "@a.example", "A@", "A@b c"] {
            assert!(SecretPattern::parse(text, RuleKind::Allow).is_err(), "{text}");
        }
    }

    #[test]
    fn secrets_belong_to_hosts() {
        let fits = |rule: &str, host: &str, port| {
            let rule = SecretPattern::parse(rule, RuleKind::Allow).expect(rule);
            rule.fits("GITHUB", host, port)
        };
        assert!(fits("GITHUB@api.example", "api.example", 443));
        assert!(fits("GITHUB", "anything.example", 443) && fits("GIT*@*.example", "a.example", 80));
        assert!(fits("GITHUB@203.0.113.0/24", "203.0.113.9", 443));
        assert!(!fits("GITHUB@api.example", "evil.example", 443));
        assert!(!fits("GITHUB@api.example", "api.example", 8443));
        assert!(!fits("OTHER@api.example", "api.example", 443));
        assert!(!fits("GITHUB@192.0.2.0/24:1", "api.example", 443));
    }
}
