//! Requests that people write down, in tests of policies and to have them explained.

use crate::commands::CommandText;
use crate::decide::{Access, Decision, Identity, Subject, decide};
use crate::document::{Policy, PolicyFault};
use crate::files::{self, FileOperation, FileUse};
use crate::http::{HttpRequest, PUBLIC};
use crate::modules::{ImportRule, ImportSource};
use crate::pattern::normal_name;
use crate::reach::Protocol;
use serde_json::{Map, Value};
use stasis_api::{ExplainQuery, Limits, Name, Network, PolicyCase, PolicyDocument, PolicyVerdict};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Arc;
use url::{Host, Url};

const HTTPS: u16 = 443;
const LONGEST_TEMPLATE: usize = 256;

/// A written request: of a test, or to explain.
#[derive(Debug, Clone, PartialEq)]
pub enum AccessRequest {
    Connect { target: FetchTarget, protocol: Protocol },
    Http { target: FetchTarget, secure: bool, method: String, path: String },
    Import { source: ImportSource, specifier: String },
    Secret { secret: String, host: String, port: u16 },
    Tool { server: String, tool: String, arguments: Value },
    Create { template: String, limits: Limits },
    File { operation: FileOperation, path: String },
    Command { text: String },
}

/// The host of a URL. An address that it does not name is taken to be public.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FetchTarget {
    name: Option<String>,
    address: SocketAddrV4,
}

impl AccessRequest {
    pub fn of(query: &ExplainQuery) -> Result<AccessRequest, PolicyFault> {
        let ExplainQuery { fetch, method, import, secret, tool, arguments, create, .. } = query;
        if method.is_some() && fetch.is_none() || arguments.is_some() && tool.is_none() {
            return Err(PolicyFault(
                "`method` belongs to `fetch`, and `arguments` to `tool`".into(),
            ));
        }
        let ExplainQuery { file, command, .. } = query;
        let asked = [fetch, import, secret, tool, create, file, command];
        if asked.into_iter().flatten().count() != 1 {
            return Err(PolicyFault(
                "write one of `fetch`, `import`, `secret`, `tool`, `create`, `file` and `command`"
                    .into(),
            ));
        }
        match asked {
            [Some(url), ..] => {
                let method = method.as_deref().unwrap_or("GET");
                AccessRequest::fetch(url, method).map_err(PolicyFault)
            }
            [_, Some(specifier), ..] => {
                let source = ImportSource::of(specifier).ok_or_else(|| {
                    PolicyFault("`import` is a module: npm:, jsr: or https:".into())
                })?;
                Ok(AccessRequest::Import { source, specifier: specifier.clone() })
            }
            [_, _, Some(secret), ..] => AccessRequest::secret(secret),
            [_, _, _, Some(tool), ..] => AccessRequest::tool(tool, arguments.as_deref()),
            [_, _, _, _, Some(template), ..] => {
                let template = template.chars().take(LONGEST_TEMPLATE).collect();
                Ok(AccessRequest::Create { template, limits: Limits::default() })
            }
            [.., Some(file), _] => AccessRequest::file(file),
            [.., command] => {
                let text = command.clone().unwrap_or_default();
                Ok(AccessRequest::Command { text })
            }
        }
    }

    fn file(text: &str) -> Result<AccessRequest, PolicyFault> {
        let (word, path) = text.split_once(' ').unwrap_or_default();
        match FileOperation::named(word) {
            Some(operation) if files::is_plain(path) => {
                Ok(AccessRequest::File { operation, path: path.to_owned() })
            }
            _ => Err(PolicyFault("`file` is `read PATH` or `write PATH`, from the root".into())),
        }
    }

    pub fn of_case(case: &PolicyCase) -> Result<AccessRequest, PolicyFault> {
        AccessRequest::of(&query(case))
    }

    fn secret(text: &str) -> Result<AccessRequest, PolicyFault> {
        let wrong = || PolicyFault("`secret` is NAME@HOST or NAME@HOST:PORT".into());
        let (secret, host) = text.split_once('@').ok_or_else(wrong)?;
        let (host, port) = match host.split_once(':') {
            Some((host, port)) => (host, port.parse().map_err(|_| wrong())?),
            None => (host, HTTPS),
        };
        let address = host.parse::<Ipv4Addr>().ok().map(|address| address.to_string());
        let host = address.or_else(|| normal_name(host)).ok_or_else(wrong)?;
        Ok(AccessRequest::Secret { secret: secret.to_owned(), host, port })
    }

    fn tool(text: &str, arguments: Option<&str>) -> Result<AccessRequest, PolicyFault> {
        let wrong = || PolicyFault("`tool` is SERVER.TOOL".into());
        let (server, tool) = text.split_once('.').ok_or_else(wrong)?;
        let arguments = match arguments {
            Some(text) => serde_json::from_str::<Map<String, Value>>(text)
                .map_err(|_| PolicyFault("`arguments` is the text of a JSON object".into()))?,
            None => Map::new(),
        };
        let (server, tool) = (server.to_owned(), tool.to_owned());
        Ok(AccessRequest::Tool { server, tool, arguments: Value::Object(arguments) })
    }

    fn fetch(text: &str, method: &str) -> Result<AccessRequest, String> {
        let shown: String = text.chars().take(80).collect();
        let wrong = |said: &str| format!("{shown:?}: {said}");
        let url = Url::parse(text).map_err(|error| wrong(&format!("not a URL: {error}")))?;
        let protocol = match url.scheme() {
            "http" | "https" | "ws" | "wss" | "tcp" => Protocol::Tcp,
            "udp" => Protocol::Udp,
            _ => return Err(wrong("the scheme is http, https, ws, wss, tcp or udp")),
        };
        let port = url.port_or_known_default().ok_or_else(|| wrong("it needs a port"))?;
        let host = url.host().ok_or_else(|| wrong("it has no host"))?;
        let (name, ip) = match host {
            Host::Ipv6(_) => {
                return Err(wrong("machines reach hosts of IPv6 by name alone: write the name"));
            }
            Host::Ipv4(ip) => (None, ip),
            // other schemes are not parsed as far
            Host::Domain(name) => match name.parse::<Ipv4Addr>() {
                Ok(ip) => (None, ip),
                Err(_) => {
                    let name = normal_name(name).ok_or_else(|| wrong("its host is no name"))?;
                    (Some(name), PUBLIC)
                }
            },
        };
        let target = FetchTarget { name, address: SocketAddrV4::new(ip, port) };
        Ok(match url.scheme() {
            "tcp" | "udp" => AccessRequest::Connect { target, protocol },
            _ => {
                let (method, path) = (method.to_owned(), written_path(text).to_owned());
                let secure = matches!(url.scheme(), "https" | "wss");
                AccessRequest::Http { target, secure, method, path }
            }
        })
    }

    /// Its access. No address counts as the host's own.
    pub fn access(&self) -> Access<'_> {
        match self {
            AccessRequest::Connect { target, protocol } => Access::Connect {
                name: target.name.as_deref(),
                address: target.address,
                protocol: *protocol,
                own: false,
            },
            AccessRequest::Http { target, secure, method, path } => Access::Request {
                name: target.name.as_deref(),
                address: target.address,
                own: false,
                what: HttpRequest { secure: *secure, method, path, headers: &[], http2: false },
            },
            AccessRequest::Import { source, specifier } => {
                Access::Import { source: *source, specifier }
            }
            AccessRequest::Secret { secret, host, port } => {
                Access::Secret { secret, host, port: *port }
            }
            AccessRequest::Tool { server, tool, arguments } => {
                Access::Tool { server, tool, arguments }
            }
            AccessRequest::Create { template, limits } => Access::Create { template, limits },
            AccessRequest::File { operation, path } => {
                Access::File(FileUse { operation: *operation, path, below: false })
            }
            AccessRequest::Command { text } => Access::Command(CommandText::Shell(text)),
        }
    }
}

/// The path as written: parsing would resolve ambiguous parts.
fn written_path(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let rest = rest.split_once('#').map_or(rest, |(rest, _)| rest);
    match rest.find(['/', '?']) {
        Some(at) if rest[at..].starts_with('/') => &rest[at..],
        _ => "/",
    }
}

fn query(case: &PolicyCase) -> ExplainQuery {
    let PolicyCase { fetch, method, import, secret, tool, arguments, create, .. } = case.clone();
    let PolicyCase { file, command, .. } = case.clone();
    ExplainQuery { fetch, method, import, secret, tool, arguments, create, file, command }
}

/// A description of a test.
fn told(case: &PolicyCase) -> String {
    let PolicyCase { fetch, method, import, secret, tool, arguments, create, .. } = case;
    let PolicyCase { file, command, .. } = case;
    let words = [method, fetch, import, secret, tool, arguments, create, file, command];
    words.into_iter().flatten().map(String::as_str).collect::<Vec<_>>().join(" ")
}

/// A test of a policy that does not hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedCase {
    pub index: usize,
    pub request: String,
    pub expected: PolicyVerdict,
    pub decision: Decision,
}

/// Runs the tests of a document against its policy alone. How many there are, and which failed.
pub fn test(document: &PolicyDocument) -> Result<(usize, Vec<FailedCase>), PolicyFault> {
    let name: Name = "tested".parse().map_err(|_| PolicyFault("no name".into()))?;
    let policy = Arc::new(Policy::compile(name.clone(), document)?);
    let (network, levels) = (Network::Policy(name), [policy]);
    let who = Identity::default();
    let imports = ImportRule::Network;
    let subject = Subject { who: &who, network: &network, levels: &levels, imports };
    let mut failed = Vec::new();
    for (index, case) in document.test.iter().enumerate() {
        let decision = decide(&subject, &AccessRequest::of_case(case)?.access());
        if decision.verdict() != case.expect {
            let request = told(case);
            failed.push(FailedCase { index, request, expected: case.expect, decision });
        }
    }
    Ok((document.test.len(), failed))
}
