//! How long decisions take, for `stasis bench`: with rules alone, and with Rego.
//!
//! Four levels of a hundred rules each, and a request that only the last rule of each allows. With
//! Rego, the machine's own level has rules of Rego instead, and these allow the request.

use crate::decide::{Access, Identity, Subject, decide};
use crate::document::{Policy, PolicyFault};
use crate::http::HttpRequest;
use crate::modules::ImportRule;
use stasis_api::{Name, Network, PolicyDocument, PolicyRules};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use std::time::{Duration, Instant};

const LEVELS: usize = 4;
const RULES: usize = 100;
const REGO: &str = r#"
package stasis

default allow := false

allow if {
    input.action == "request"
    input.object.host == "z.example"
    input.object.method in {"GET", "HEAD"}
    startswith(input.object.path, "/v1/")
}

deny contains "no credentials in queries" if {
    some word in ["token=", "key=", "secret="]
    contains(input.object.query, word)
}
"#;

/// Decisions by rules alone, and how long each took.
pub fn rules(count: usize) -> Result<Vec<Duration>, PolicyFault> {
    measure(count, None)
}

/// Decisions by Rego at the machine's own level.
pub fn rego(count: usize) -> Result<Vec<Duration>, PolicyFault> {
    measure(count, Some(REGO))
}

fn measure(count: usize, rego: Option<&str>) -> Result<Vec<Duration>, PolicyFault> {
    let level = |number: usize| {
        let mut http: Vec<String> =
            (1..RULES).map(|rule| format!("GET h{rule}.example/v1/*")).collect();
        let mut document = PolicyDocument::default();
        match rego.filter(|_| number + 1 == LEVELS) {
            Some(rego) => document.rego = Some(rego.to_owned()),
            None => http.push("GET,HEAD z.example/v1/*".to_owned()),
        }
        document.http = PolicyRules { allow: http, ..PolicyRules::default() };
        Policy::compile(name(number)?, &document).map(Arc::new)
    };
    let levels: Vec<Arc<Policy>> = (0..LEVELS).map(level).collect::<Result<_, _>>()?;
    let (who, network) = (Identity::default(), Network::Policy(name(LEVELS - 1)?));
    let imports = ImportRule::Network;
    let subject = Subject { who: &who, network: &network, levels: &levels, imports };
    let (method, path) = ("GET", "/v1/x");
    let what = HttpRequest { secure: true, method, path, headers: &[], http2: false };
    let address = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 443);
    let access = Access::Request { name: Some("z.example"), address, own: false, what };
    let mut took = Vec::with_capacity(count);
    for _ in 0..count {
        let begun = Instant::now();
        let decision = decide(&subject, &access);
        took.push(begun.elapsed());
        if !decision.is_allowed() {
            return Err(PolicyFault(format!("not allowed: {decision:?}")));
        }
    }
    Ok(took)
}

fn name(number: usize) -> Result<Name, PolicyFault> {
    format!("level-{number}").parse().map_err(|_| PolicyFault("no name".into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With `--nocapture`, it says what it measured.
    #[test]
    fn both_ways_decide() {
        for (what, took) in [("rules", rules(2000)), ("rego", rego(500))] {
            let mut took = took.expect("decisions");
            took.sort();
            let at = |share: usize| took[took.len() * share / 100].as_secs_f64() * 1e6;
            println!("{what}: p50 {:.1} us, p95 {:.1} us", at(50), at(95));
        }
    }
}
