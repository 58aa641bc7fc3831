//! Every key of the configuration: its kind, default and meaning.

use super::home;
use std::fmt;

/// The form of a key's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueKind {
    Path,
    Text,
    /// Seconds, or `none`.
    Seconds,
    Count,
    Number,
    /// `true` or `false`.
    Switch,
    /// One of several words.
    Word(&'static [&'static str]),
    /// `none`, `open` or `policy:NAME`.
    Network,
    /// A name, like those of machines and policies.
    Name,
}

#[derive(Debug, Clone, PartialEq)]
pub enum SettingValue {
    Switch(bool),
    Text(String),
    Seconds(Option<f64>),
    Count(u64),
    Number(f64),
}

impl fmt::Display for SettingValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SettingValue::Text(text) => f.write_str(text),
            SettingValue::Seconds(None) => f.write_str("none"),
            SettingValue::Seconds(Some(number)) | SettingValue::Number(number) => number.fmt(f),
            SettingValue::Count(count) => count.fmt(f),
            SettingValue::Switch(on) => on.fmt(f),
        }
    }
}

impl SettingValue {
    pub fn json(&self) -> serde_json::Value {
        match self {
            SettingValue::Text(text) => text.as_str().into(),
            SettingValue::Seconds(seconds) => (*seconds).into(),
            SettingValue::Count(count) => (*count).into(),
            SettingValue::Number(number) => (*number).into(),
            SettingValue::Switch(on) => (*on).into(),
        }
    }
}

pub struct Key {
    pub name: &'static str,
    pub kind: ValueKind,
    /// Whether its value is masked.
    pub secret: bool,
    pub flag: Option<&'static str>,
    pub default: fn() -> Option<SettingValue>,
    pub about: &'static str,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn key(
    name: &'static str,
    kind: ValueKind,
    default: fn() -> Option<SettingValue>,
    about: &'static str,
) -> Key {
    Key { name, kind, secret: false, flag: None, default, about }
}

fn data_dir() -> Option<SettingValue> {
    let path = home("XDG_DATA_HOME", ".local/share").join("stasis");
    Some(SettingValue::Text(path.to_string_lossy().into_owned()))
}

fn cpus() -> Option<SettingValue> {
    Some(SettingValue::Number(stasis_machine::Settings::default_cpus()))
}

pub static KEYS: std::sync::LazyLock<Vec<Key>> = std::sync::LazyLock::new(|| {
    use ValueKind::{Count, Number, Path, Seconds, Switch, Text, Word};
    let flagged = |key: Key, flag| Key { flag: Some(flag), ..key };
    vec![
        flagged(key("data_dir", Path, data_dir, "directory that holds the machines"), "--data-dir"),
        flagged(key("url", Text, || None, "service to use instead of this host"), "--url"),
        Key {
            secret: true,
            flag: Some("--token"),
            ..key("token", Text, || None, "token for the service")
        },
        flagged(
            key(
                "listen",
                Text,
                || Some(SettingValue::Text("127.0.0.1:7717".into())),
                "address that `serve` listens on",
            ),
            "--listen",
        ),
        flagged(
            key(
                "plain_http",
                Switch,
                || Some(SettingValue::Switch(false)),
                "let `serve` listen beyond this host without TLS",
            ),
            "--plain-http",
        ),
        key(
            "network",
            ValueKind::Network,
            || Some(SettingValue::Text("none".into())),
            "network of machines created without the option: none, open or policy:NAME",
        ),
        key(
            "policy",
            ValueKind::Name,
            || None,
            "policy that every machine with a network is held to, besides its own",
        ),
        key(
            "imports",
            Word(&["network", "packages", "all"]),
            || Some(SettingValue::Text("network".into())),
            "modules that machines without a network may import through the host",
        ),
        key(
            "tools",
            Path,
            || None,
            "JSON file that names the MCP servers whose tools machines call",
        ),
        key("timeout_seconds", Seconds, || secs(15.0), "time limit of an instruction"),
        key(
            "idle_swap_seconds",
            Seconds,
            || secs(600.0),
            "idle time before a machine leaves memory",
        ),
        key(
            "cold_seconds",
            Seconds,
            || secs(86400.0),
            "unused time before data on disk is compressed",
        ),
        key("keep_free_mb", Count, || None, "host memory that machines leave free"),
        flagged(
            key("linger_seconds", Seconds, || secs(60.0), "idle time before the daemon exits"),
            "--linger",
        ),
        key(
            "limits.memory_mb",
            Count,
            || Some(SettingValue::Count(4096)),
            "memory limit of a machine",
        ),
        key("limits.cpus", Number, cpus, "processor limit of a machine"),
        key(
            "limits.pids",
            Count,
            || Some(SettingValue::Count(512)),
            "limit of processes of a machine",
        ),
        key("limits.disk_mb", Count, || Some(SettingValue::Count(8192)), "disk limit of a machine"),
        key(
            "retention.last",
            Count,
            || Some(SettingValue::Count(200)),
            "newest checkpoints kept per machine",
        ),
        key(
            "retention.seconds",
            Count,
            || Some(SettingValue::Count(86400)),
            "age up to which checkpoints are kept",
        ),
        key(
            "retention.older",
            Word(&["thinned", "removed", "all"]),
            || Some(SettingValue::Text("thinned".into())),
            "rule for older checkpoints",
        ),
        key(
            "max_artifact_mb",
            Count,
            || Some(SettingValue::Count(256)),
            "limit of artifacts per instruction",
        ),
        // for accounts other than the service's own
        key("quota.machines", Count, || Some(SettingValue::Count(1000)), "machines of an account"),
        key(
            "quota.memory_mb",
            Count,
            || Some(SettingValue::Count(65536)),
            "sum of the memory limits of an account's machines in memory",
        ),
        key(
            "quota.instructions",
            Count,
            || Some(SettingValue::Count(1000)),
            "running and waiting instructions of an account",
        ),
        key(
            "quota.disk_mb",
            Count,
            || Some(SettingValue::Count(51200)),
            "disk used by an account's machines",
        ),
        flagged(
            key(
                "otlp_endpoint",
                Text,
                || None,
                "OpenTelemetry collector for the traces of `serve`",
            ),
            "--otlp-endpoint",
        ),
        flagged(
            key("log", Text, || None, "log filter of `serve`, such as `warn,stasis_machine=debug`"),
            "--log",
        ),
        flagged(
            key(
                "log_format",
                Word(&crate::logging::FORMATS),
                || Some(SettingValue::Text("text".into())),
                "log format of `serve`",
            ),
            "--log-format",
        ),
        key("jwt.jwks", Text, || None, "file or address with the keys of web tokens"),
        key("jwt.issuer", Text, || None, "required issuer of web tokens"),
        key("jwt.audience", Text, || None, "required audience of web tokens"),
    ]
});

fn secs(seconds: f64) -> Option<SettingValue> {
    Some(SettingValue::Seconds(Some(seconds)))
}

impl Key {
    /// Its environment variable.
    pub fn variable(&self) -> String {
        format!("STASIS_{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// Parses the value of a flag or a variable.
    pub fn parse(&self, text: &str) -> Result<SettingValue, String> {
        let text = text.trim();
        match self.kind {
            ValueKind::Path => absolute(text),
            ValueKind::Text => Ok(SettingValue::Text(text.to_owned())),
            ValueKind::Seconds if text == "none" => Ok(SettingValue::Seconds(None)),
            ValueKind::Seconds => {
                number(text.parse().ok()).map(|number| SettingValue::Seconds(Some(number)))
            }
            ValueKind::Number => number(text.parse().ok()).map(SettingValue::Number),
            ValueKind::Switch => text
                .parse()
                .map(SettingValue::Switch)
                .map_err(|_| format!("{text:?} is not true or false")),
            ValueKind::Word(words) if words.contains(&text) => {
                Ok(SettingValue::Text(text.to_owned()))
            }
            ValueKind::Word(words) => Err(format!("{text:?} is not {}", words.join(" or "))),
            ValueKind::Network => checked::<stasis_api::Network>(text),
            ValueKind::Name => checked::<stasis_api::Name>(text),
            ValueKind::Count => text
                .parse()
                .map(SettingValue::Count)
                .map_err(|_| format!("{text:?} is not a whole number")),
        }
    }

    /// Parses the value in the file.
    pub fn read(&self, value: &toml::Value) -> Result<SettingValue, String> {
        match (self.kind, value) {
            (
                ValueKind::Path
                | ValueKind::Text
                | ValueKind::Seconds
                | ValueKind::Word(_)
                | ValueKind::Network
                | ValueKind::Name,
                toml::Value::String(text),
            ) => self.parse(text),
            (ValueKind::Switch, toml::Value::Boolean(on)) => Ok(SettingValue::Switch(*on)),
            (
                ValueKind::Seconds | ValueKind::Number | ValueKind::Count,
                toml::Value::Integer(number),
            ) => self.parse(&number.to_string()),
            (ValueKind::Seconds | ValueKind::Number, toml::Value::Float(number)) => {
                self.parse(&number.to_string())
            }
            (kind, value) => Err(format!("{value} is not {}", kind.wanted())),
        }
    }
}

impl ValueKind {
    fn wanted(self) -> &'static str {
        match self {
            ValueKind::Path => "a path",
            ValueKind::Text => "a text",
            ValueKind::Seconds => "a number of seconds or \"none\"",
            ValueKind::Count => "a whole number",
            ValueKind::Number => "a number",
            ValueKind::Switch => "true or false",
            ValueKind::Word(_) => "a word",
            ValueKind::Network => "a network",
            ValueKind::Name => "a name",
        }
    }
}

fn number(number: Option<f64>) -> Result<f64, String> {
    // a billion seconds is thirty years; more is a mistake and would overflow times
    number
        .filter(|number| (0.0..=1e9).contains(number))
        .ok_or_else(|| "not a number from 0 to 1000000000".to_owned())
}

/// A text that parses as a given type.
fn checked<T: std::str::FromStr>(text: &str) -> Result<SettingValue, String>
where
    T::Err: fmt::Display,
{
    let read = text.parse::<T>().map_err(|error| error.to_string());
    read.map(|_| SettingValue::Text(text.to_owned()))
}

fn absolute(text: &str) -> Result<SettingValue, String> {
    let path = std::path::absolute(text).map_err(|error| error.to_string())?;
    Ok(SettingValue::Text(path.to_string_lossy().into_owned()))
}
