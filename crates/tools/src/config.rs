//! The servers of a host, as the operator writes them down.
//!
//! Two forms of JSON are read: an object `mcpServers`, as many MCP clients have it, and an array as
//! mcp-v8's `--mcp-config` has it. mcp-v8's `--mcp-server NAME=stdio:cmd:arg` is read as well.

use crate::auth_config::ServerAuth;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use url::Url;

/// Servers of one host.
const MOST: usize = 100;
const LONGEST_NAME: usize = 64;
/// How long a call may take unless the server says otherwise, and at most.
const TIMEOUT: u64 = 60;
const LONGEST_TIMEOUT: u64 = 600;

/// One upstream server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToolServer {
    pub name: String,
    pub transport: ServerTransport,
    /// How long one call may take.
    pub timeout: Duration,
    /// The accounts whose machines have its tools; those of all accounts, if empty.
    pub accounts: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ServerTransport {
    /// A child process, with nothing in its environment but what is written here and the search
    /// path, home and language of the service.
    Stdio {
        command: String,
        args: Vec<String>,
        env: BTreeMap<String, String>,
        /// Its working directory; `/`, if absent.
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP, or HTTP+SSE if the server knows only that.
    Http { url: String, headers: BTreeMap<String, String>, auth: Option<ServerAuth> },
}

/// A fault of a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigFault(pub(crate) String);

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Object(WrittenObject),
    List(Vec<NamedServer>),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenObject {
    #[serde(rename = "mcpServers", alias = "servers")]
    servers: BTreeMap<String, WrittenServer>,
}

#[derive(Deserialize)]
struct NamedServer {
    name: String,
    #[serde(flatten)]
    server: WrittenServer,
}

#[derive(Deserialize, Default)]
struct WrittenServer {
    #[serde(default, rename = "type", alias = "transport")]
    kind: Option<String>,
    #[serde(default)]
    command: Option<String>,
    #[serde(default)]
    args: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    cwd: Option<PathBuf>,
    #[serde(default)]
    url: Option<String>,
    #[serde(default)]
    headers: BTreeMap<String, String>,
    #[serde(default, alias = "timeout_seconds")]
    timeout: Option<u64>,
    #[serde(default)]
    accounts: Vec<String>,
    #[serde(default)]
    auth: Option<ServerAuth>,
    #[serde(default)]
    disabled: bool,
}

/// Whether a text can name a server: code writes it as a name.
pub fn is_server_name(name: &str) -> bool {
    let first = name.chars().next().is_some_and(|one| one.is_ascii_alphabetic());
    let rest = |one: char| one.is_ascii_alphanumeric() || one == '_' || one == '-';
    first && name.len() <= LONGEST_NAME && name.chars().all(rest) && !name.contains("__")
}

impl ToolServer {
    /// Reads a file. Values such as `${GITHUB_TOKEN}` are taken from `variable`.
    pub fn read(
        text: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Vec<ToolServer>, ConfigFault> {
        let written: Written = serde_json::from_str(text).map_err(|_| {
            let shape = "{\"mcpServers\": {\"NAME\": {\"command\": ...} or {\"url\": ...}}}";
            ConfigFault(format!(
                "not a list of tool servers: write {shape}; `auth` is {}",
                ServerAuth::SHAPE
            ))
        })?;
        let named = match written {
            Written::Object(object) => object.servers.into_iter().collect::<Vec<_>>(),
            Written::List(list) => list.into_iter().map(|one| (one.name, one.server)).collect(),
        };
        let enabled = named.into_iter().filter(|(_, server)| !server.disabled);
        let servers = enabled.map(|(name, server)| checked(name, server, &variable));
        let servers = servers.collect::<Result<Vec<_>, _>>()?;
        ToolServer::check_names(&servers)?;
        Ok(servers)
    }

    /// Checks servers that another process has read. Nothing is filled in any more.
    pub fn check(servers: &[ToolServer]) -> Result<(), ConfigFault> {
        for server in servers {
            let fault =
                |said: String| ConfigFault(format!("tool server `{}`: {said}", server.name));
            check_name(&server.name)?;
            check_timeout(server.timeout.as_secs()).map_err(fault)?;
            if let ServerTransport::Http { url, auth, .. } = &server.transport {
                let url = check_url(url).map_err(fault)?;
                auth.as_ref().map_or(Ok(()), |auth| auth.check(&url)).map_err(fault)?;
            }
        }
        ToolServer::check_names(servers)
    }

    /// No two servers have the same name, also as code writes it.
    pub fn check_names(servers: &[ToolServer]) -> Result<(), ConfigFault> {
        if servers.len() > MOST {
            return Err(ConfigFault(format!("a host has at most {MOST} tool servers")));
        }
        let mut known = std::collections::BTreeSet::new();
        for server in servers {
            if !known.insert(server.name.replace('-', "_")) {
                return Err(ConfigFault(format!("two tool servers are called `{}`", server.name)));
            }
        }
        Ok(())
    }

    /// Reads mcp-v8's short form: `NAME=stdio:cmd:arg...`, `NAME=http:URL` or `NAME=sse:URL`.
    pub fn short(text: &str) -> Result<ToolServer, ConfigFault> {
        let shape = || ConfigFault("write NAME=stdio:COMMAND:ARG..., or NAME=http:URL".into());
        let (name, rest) = text.split_once('=').ok_or_else(shape)?;
        let (kind, rest) = rest.split_once(':').ok_or_else(shape)?;
        let mut server = WrittenServer { kind: Some(kind.to_owned()), ..WrittenServer::default() };
        if kind == "stdio" {
            let mut words = rest.split(':').map(str::to_owned);
            server.command = words.next();
            server.args = words.collect();
        } else {
            server.url = Some(rest.to_owned());
        }
        checked(name.to_owned(), server, &|_| None)
    }

    pub fn is_for(&self, account: &str) -> bool {
        self.accounts.is_empty() || self.accounts.iter().any(|own| own == account)
    }
}

fn check_name(name: &str) -> Result<(), ConfigFault> {
    if is_server_name(name) {
        return Ok(());
    }
    Err(ConfigFault(format!(
        "tool server `{name}`: a name has at most 64 letters, digits, `-` and `_`, begins with a \
         letter, and has no `__`"
    )))
}

fn check_timeout(seconds: u64) -> Result<Duration, String> {
    match (1..=LONGEST_TIMEOUT).contains(&seconds) {
        true => Ok(Duration::from_secs(seconds)),
        false => Err(format!("`timeout` is 1 to {LONGEST_TIMEOUT} seconds")),
    }
}

fn check_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text).map_err(|error| format!("{text}: {error}"))?;
    match url.scheme() {
        "http" | "https" => Ok(url),
        _ => Err(format!("{text}: the address begins with http: or https:")),
    }
}

fn checked(
    name: String,
    server: WrittenServer,
    variable: &impl Fn(&str) -> Option<String>,
) -> Result<ToolServer, ConfigFault> {
    let fault = |said: String| ConfigFault(format!("tool server `{name}`: {said}"));
    check_name(&name)?;
    let filled = |all: BTreeMap<String, String>| {
        let one = |(key, text): (String, String)| Ok((key, fill(&text, variable).map_err(&fault)?));
        all.into_iter().map(one).collect::<Result<BTreeMap<_, _>, ConfigFault>>()
    };
    let transport = match (server.kind.as_deref(), server.command, server.url) {
        (None | Some("stdio"), Some(command), None) if !command.is_empty() => {
            if server.auth.is_some() {
                return Err(fault("`auth` is for servers with a `url`; use `env`".into()));
            }
            let (args, cwd) = (server.args, server.cwd);
            ServerTransport::Stdio { command, args, env: filled(server.env)?, cwd }
        }
        (None | Some("http" | "sse" | "streamable-http"), None, Some(url)) => {
            let parsed = check_url(&url).map_err(fault)?;
            let auth = server.auth.map(|auth| auth.filled(|text| fill(text, variable)));
            let auth = auth.transpose().map_err(fault)?;
            auth.as_ref().map_or(Ok(()), |auth| auth.check(&parsed)).map_err(fault)?;
            ServerTransport::Http { url, headers: filled(server.headers)?, auth }
        }
        _ => return Err(fault("write either `command` or `url`".into())),
    };
    let timeout = check_timeout(server.timeout.unwrap_or(TIMEOUT)).map_err(fault)?;
    Ok(ToolServer { name, transport, timeout, accounts: server.accounts })
}

/// Puts variables in the place of `${NAME}`.
fn fill(text: &str, variable: impl Fn(&str) -> Option<String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let (name, after) = after.split_once('}').ok_or("`${` without `}`")?;
        out += before;
        out += &variable(name).ok_or_else(|| format!("the variable {name} is not set"))?;
        rest = after;
    }
    Ok(out + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<ToolServer>, ConfigFault> {
        ToolServer::read(text, |name| (name == "TOKEN").then(|| "secret".into()))
    }

    #[test]
    fn both_forms_are_read() {
        let object = r#"{"mcpServers": {
            "files": {"command": "mcp-files", "args": ["/srv"], "env": {"KEY": "a${TOKEN}b"}},
            "web": {"type": "http", "url": "https://tools.example/mcp", "timeout": 5,
                    "headers": {"authorization": "Bearer ${TOKEN}"}, "accounts": ["a"]},
            "off": {"command": "x", "disabled": true}}}"#;
        let servers = read(object).expect("servers");
        let [files, web] = servers.as_slice() else { panic!("two") };
        let ServerTransport::Stdio { command, args, env, .. } = &files.transport else { panic!() };
        assert_eq!(
            (command.as_str(), args.len(), env["KEY"].as_str()),
            ("mcp-files", 1, "asecretb")
        );
        assert_eq!(web.timeout, Duration::from_secs(5));
        assert!(web.is_for("a") && !web.is_for("b") && files.is_for("b"));
        let list = r#"[{"name": "files", "transport": "stdio", "command": "mcp-files"}]"#;
        assert_eq!(read(list).expect("servers")[0].name, "files");
        let short = ToolServer::short("files=stdio:mcp-files:-v:/srv").expect("a server");
        let ServerTransport::Stdio { args, .. } = short.transport else { panic!() };
        assert_eq!(args, ["-v", "/srv"]);
        let short = ToolServer::short("web=sse:http://127.0.0.1:1/mcp").expect("a server");
        assert!(matches!(short.transport, ServerTransport::Http { .. }));
    }

    #[test]
    fn faults_name_the_server() {
        let of = |server: &str| {
            let text = format!("{{\"mcpServers\": {{\"one\": {server}}}}}");
            read(&text).expect_err("a fault").to_string()
        };
        assert!(of("{}").contains("`one`: write either"));
        assert!(of(r#"{"url": "file:///etc"}"#).contains("http"));
        assert!(of(r#"{"command": "a", "env": {"A": "${NONE}"}}"#).contains("NONE is not set"));
        assert!(of(r#"{"command": "a", "timeout": 0}"#).contains("timeout"));
        assert!(of(r#"{"url": "http://a", "auth": {}}"#).contains("oauth_browser"));
        for name in ["", "1a", "a.b", "__proto__", "a b", "a__b"] {
            let text = format!("{{\"mcpServers\": {{\"{name}\": {{\"command\": \"x\"}}}}}}");
            assert!(read(&text).is_err(), "{name}");
        }
        let twice = r#"{"mcpServers": {"a-b": {"command": "x"}, "a_b": {"command": "x"}}}"#;
        assert!(read(twice).expect_err("a fault").to_string().contains("two tool servers"));
        assert!(read("[").is_err());
    }
}
