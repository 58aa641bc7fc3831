//! Headers that the service adds to requests (`--fetch-header`): to which hosts and methods. Pure.
//!
//!   request ─► the rules of its host and method ─► names of headers ─► policies see marks
//!                                                                  └─► egress adds the values
//!
//! The values are secrets, and are not here. Policies, servers that are asked and hooks see a mark
//! in their place: the scheme of the value, if it has one, and `stasis-placeholder`.

use crate::document::PolicyFault;
use crate::pattern::normal_name;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;
use url::Url;

const MARK: &str = "stasis-placeholder";
/// The rules of a setup, and the headers of a rule.
const MOST_RULES: usize = 100;
const MOST_HEADERS: usize = 32;
const LONGEST_NAME: usize = 100;
/// Headers of a connection, of the length of a body, and of the host that a request names.
const NOT_ADDED: [&str; 14] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "via",
];

/// A header that a rule adds, with what policies see of its value.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ScopedHeader {
    name: String,
    seen: String,
}

/// Where a rule adds headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeaderScope {
    host: String,
    /// Every name below the host, too.
    below: bool,
    /// All methods, if there are none.
    methods: Vec<String>,
    headers: Vec<ScopedHeader>,
    /// Whether a header of the request is replaced.
    overrides: bool,
}

/// A header of a request, and the rule that has its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddedHeader {
    pub name: String,
    pub rule: usize,
    seen: String,
}

fn wrong(said: &str) -> PolicyFault {
    PolicyFault(format!("a header rule: {said}"))
}

/// The host of a rule: a name, an address, or `*.` and a name.
fn host(text: &str) -> Option<(String, bool)> {
    let (below, name) = match text.strip_prefix("*.") {
        Some(name) => (true, name),
        None => (false, text),
    };
    let address = || name.parse::<Ipv4Addr>().ok().filter(|_| !below);
    let named = normal_name(name).or_else(|| address().map(|address| address.to_string()));
    named.map(|name| (name, below))
}

fn is_token(text: &str) -> bool {
    let special = |byte: u8| b"!#$%&'*+-.^_`|~".contains(&byte);
    let fits = (1..=LONGEST_NAME).contains(&text.len());
    fits && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || special(byte))
}

impl HeaderScope {
    /// Checks a rule. Each header comes with the scheme of its value (`Bearer`), or with nothing.
    pub fn new<'a>(
        pattern: &str,
        methods: &[String],
        headers: impl Iterator<Item = (&'a str, Option<&'a str>)>,
        overrides: bool,
    ) -> Result<HeaderScope, PolicyFault> {
        let shown: String = pattern.chars().take(80).collect();
        let known = host(pattern);
        let (host, below) = known.ok_or_else(|| {
            wrong(&format!("{shown:?} is no host: write api.example or *.example"))
        })?;
        if !methods.iter().all(|method| is_token(method)) || methods.len() > MOST_HEADERS {
            return Err(wrong("`methods` are names such as GET"));
        }
        let one = |(name, scheme): (&str, Option<&str>)| {
            let name = name.to_ascii_lowercase();
            if !is_token(&name) || NOT_ADDED.contains(&name.as_str()) {
                let shown: String = name.chars().take(80).collect();
                return Err(wrong(&format!("header {shown:?} cannot be added")));
            }
            let scheme = scheme.map(|scheme| format!("{scheme} ")).unwrap_or_default();
            Ok(ScopedHeader { name, seen: format!("{scheme}{MARK}") })
        };
        let headers = headers.map(one).collect::<Result<Vec<_>, _>>()?;
        if headers.is_empty() || headers.len() > MOST_HEADERS {
            return Err(wrong(&format!("it adds 1 to {MOST_HEADERS} headers")));
        }
        let methods = methods.iter().map(|method| method.to_ascii_uppercase()).collect();
        Ok(HeaderScope { host, below, methods, headers, overrides })
    }

    fn covers(&self, name: &str, method: &str) -> bool {
        let name = normal_name(name).unwrap_or_else(|| name.to_owned());
        let below = || name.strip_suffix(&self.host).is_some_and(|rest| rest.ends_with('.'));
        let own = name == self.host || (self.below && below());
        own && (self.methods.is_empty() || self.methods.iter().any(|own| own == method))
    }
}

/// Checks how many rules there are.
pub(super) fn check(scopes: &[HeaderScope]) -> Result<(), PolicyFault> {
    match scopes.len() <= MOST_RULES {
        true => Ok(()),
        false => Err(wrong(&format!("there are at most {MOST_RULES}"))),
    }
}

/// The headers that rules add to a request, by name. Of two rules for a header the later one
/// decides; a rule that does not override leaves what is there.
pub(super) fn added(
    scopes: &[HeaderScope],
    (host, method): (&str, &str),
    has: impl Fn(&str) -> bool,
) -> Vec<AddedHeader> {
    let mut all: BTreeMap<&str, AddedHeader> = BTreeMap::new();
    for (rule, scope) in scopes.iter().enumerate().filter(|(_, own)| own.covers(host, method)) {
        for ScopedHeader { name, seen } in &scope.headers {
            if scope.overrides || !(has(name) || all.contains_key(name.as_str())) {
                let added = AddedHeader { name: name.clone(), rule, seen: seen.clone() };
                all.insert(name, added);
            }
        }
    }
    all.into_values().collect()
}

/// An input document as policies see it: with the marks of what is added.
pub(super) fn marked(scopes: &[HeaderScope], mut input: Value) -> Value {
    let host = input["url_parsed"]["host"].as_str().map(str::to_owned).or_else(|| {
        let url = Url::parse(&format!("http://{}", input["authority"].as_str()?)).ok()?;
        url.host_str().map(str::to_owned)
    });
    let (Some(host), false) = (host, scopes.is_empty()) else { return input };
    // the handshake of a WebSocket is a GET
    let method = input["method"].as_str().unwrap_or("GET").to_ascii_uppercase();
    let present = |name: &str| {
        let headers = input["headers"].as_object();
        headers.is_some_and(|own| own.keys().any(|key| key.eq_ignore_ascii_case(name)))
    };
    let all = added(scopes, (&host, &method), present);
    if input["headers"].is_null() && !all.is_empty() {
        input["headers"] = json!({});
    }
    if let Some(headers) = input["headers"].as_object_mut() {
        for one in all {
            headers.retain(|key, _| !key.eq_ignore_ascii_case(&one.name));
            headers.insert(one.name, json!(one.seen));
        }
    }
    input
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scope(host: &str, methods: &[&str], names: &[&str], overrides: bool) -> HeaderScope {
        let methods: Vec<_> = methods.iter().map(|one| (*one).to_owned()).collect();
        let headers = names.iter().map(|name| (*name, Some("Bearer")));
        HeaderScope::new(host, &methods, headers, overrides).expect("a rule")
    }

    fn names(scopes: &[HeaderScope], host: &str, method: &str, has: &[&str]) -> Vec<String> {
        let all = added(scopes, (host, method), |name| has.contains(&name));
        all.into_iter().map(|one| format!("{} {}", one.name, one.rule)).collect()
    }

    #[test]
    fn rules_add_headers_to_their_hosts_and_methods() {
        let rules = [
            scope("API.example", &["get", "POST"], &["Authorization"], true),
            scope("*.b.example", &[], &["X-A", "x-b"], false),
            scope("203.0.113.7", &[], &["x-a"], true),
        ];
        assert_eq!(names(&rules, "api.example", "GET", &["authorization"]), ["authorization 0"]);
        assert_eq!(names(&rules, "api.example.", "POST", &[]), ["authorization 0"]);
        assert_eq!(names(&rules, "api.example", "PUT", &[]), [""; 0]);
        assert_eq!(names(&rules, "x.api.example", "GET", &[]), [""; 0]);
        assert_eq!(names(&rules, "evilapi.example", "GET", &[]), [""; 0]);
        assert_eq!(names(&rules, "b.example", "GET", &["x-a"]), ["x-b 1"], "the bare name too");
        assert_eq!(names(&rules, "c.a.b.example", "PUT", &[]), ["x-a 1", "x-b 1"]);
        assert_eq!(names(&rules, "evilb.example", "GET", &[]), [""; 0]);
        assert_eq!(names(&rules, "203.0.113.7", "GET", &["x-a"]), ["x-a 2"]);
        let twice = [
            scope("a.example", &[], &["x"], true),
            scope("a.example", &[], &["x"], false),
            scope("*.a.example", &[], &["x"], true),
        ];
        assert_eq!(names(&twice[..2], "a.example", "GET", &[]), ["x 0"]);
        assert_eq!(names(&twice, "a.example", "GET", &[]), ["x 2"]);
    }

    #[test]
    fn policies_see_marks() {
        let rules = [scope("api.example", &[], &["authorization"], true)];
        let seen = |input: Value| marked(&rules, input)["headers"]["authorization"].clone();
        let own = json!({ "url_parsed": { "host": "api.example" }, "method": "GET",
            "headers": { "Authorization": "mine" } });
        assert_eq!(seen(own), json!("Bearer stasis-placeholder"));
        assert_eq!(seen(json!({ "authority": "api.example:443" })), "Bearer stasis-placeholder");
        assert_eq!(seen(json!({ "authority": "other.example" })), Value::Null);
        assert_eq!(marked(&rules, json!("x")), json!("x"));
    }

    #[test]
    fn what_cannot_be_added_is_refused() {
        let new = |host: &str, name: &str| {
            HeaderScope::new(host, &[], [(name, None)].into_iter(), true).map(drop)
        };
        new("a.example", "x-key").expect("good");
        for host in ["", "*", "*.", "a b", "*.10.0.0.1", "https://a"] {
            new(host, "x").expect_err(host);
        }
        for name in ["", "a b", "Host", "content-length", "Transfer-Encoding", "a:b", "a\n"] {
            new("a.example", name).expect_err(name);
        }
        HeaderScope::new("a.example", &[], std::iter::empty(), true).expect_err("no header");
        HeaderScope::new("a.example", &["A B".into()], [("x", None)].into_iter(), true)
            .expect_err("no method");
    }
}
