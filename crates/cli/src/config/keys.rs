//! Every key of the configuration: its kind, its default, and what it is for.

use super::home;
use std::fmt;

/// What a value of a key looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Path,
    Text,
    /// Seconds, or `none`.
    Seconds,
    Count,
    Number,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    Text(String),
    Seconds(Option<f64>),
    Count(u64),
    Number(f64),
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Text(text) => f.write_str(text),
            Value::Seconds(None) => f.write_str("none"),
            Value::Seconds(Some(number)) | Value::Number(number) => number.fmt(f),
            Value::Count(count) => count.fmt(f),
        }
    }
}

impl Value {
    pub fn json(&self) -> serde_json::Value {
        match self {
            Value::Text(text) => text.as_str().into(),
            Value::Seconds(seconds) => (*seconds).into(),
            Value::Count(count) => (*count).into(),
            Value::Number(number) => (*number).into(),
        }
    }
}

pub struct Key {
    pub name: &'static str,
    pub kind: Kind,
    /// Whether it is shown only in part.
    pub secret: bool,
    pub flag: Option<&'static str>,
    pub default: fn() -> Option<Value>,
    pub about: &'static str,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

fn key(name: &'static str, kind: Kind, default: fn() -> Option<Value>, about: &'static str) -> Key {
    Key { name, kind, secret: false, flag: None, default, about }
}

fn data_dir() -> Option<Value> {
    let path = home("XDG_DATA_HOME", ".local/share").join("stasis");
    Some(Value::Text(path.to_string_lossy().into_owned()))
}

fn cpus() -> Option<Value> {
    Some(Value::Number(stasis_machine::Settings::default_cpus()))
}

pub static KEYS: std::sync::LazyLock<Vec<Key>> = std::sync::LazyLock::new(|| {
    use Kind::{Count, Number, Path, Seconds, Text};
    let flagged = |key: Key, flag| Key { flag: Some(flag), ..key };
    vec![
        flagged(key("data_dir", Path, data_dir, "where machines are kept"), "--data-dir"),
        flagged(key("url", Text, || None, "a service to use instead of this host"), "--url"),
        Key {
            secret: true,
            flag: Some("--token"),
            ..key("token", Text, || None, "what the service knows us by")
        },
        flagged(
            key(
                "listen",
                Text,
                || Some(Value::Text("127.0.0.1:7717".into())),
                "where `serve` listens",
            ),
            "--listen",
        ),
        key("timeout_seconds", Seconds, || secs(15.0), "how long an instruction may run"),
        key(
            "idle_swap_seconds",
            Seconds,
            || secs(600.0),
            "idle time until a machine leaves memory",
        ),
        key(
            "cold_seconds",
            Seconds,
            || secs(86400.0),
            "unused time until what is on disk is compressed",
        ),
        key("keep_free_mb", Count, || None, "memory of the host that machines leave free"),
        flagged(
            key("linger_seconds", Seconds, || secs(60.0), "unused time until the keeper ends"),
            "--linger",
        ),
        key("limits.memory_mb", Count, || Some(Value::Count(4096)), "memory of a machine"),
        key("limits.cpus", Number, cpus, "processors of a machine"),
        key("limits.pids", Count, || Some(Value::Count(512)), "processes of a machine"),
        key("limits.disk_mb", Count, || Some(Value::Count(8192)), "files of a machine"),
        key("retention.last", Count, || None, "checkpoints of a machine that stay"),
        key("retention.seconds", Count, || None, "age up to which checkpoints stay"),
        key(
            "max_artifact_mb",
            Count,
            || Some(Value::Count(256)),
            "what is kept of too large results",
        ),
        // for accounts other than the one that runs the service
        key("quota.machines", Count, || Some(Value::Count(1000)), "machines of an account"),
        key(
            "quota.memory_mb",
            Count,
            || Some(Value::Count(65536)),
            "memory limits of an account's machines that are in memory",
        ),
        key(
            "quota.instructions",
            Count,
            || Some(Value::Count(1000)),
            "instructions of an account that run or wait",
        ),
        key(
            "quota.disk_mb",
            Count,
            || Some(Value::Count(51200)),
            "store an account's machines take",
        ),
        flagged(
            key("otlp_endpoint", Text, || None, "a collector that `serve` sends traces to"),
            "--otlp-endpoint",
        ),
        key("jwt.jwks", Text, || None, "a file or address with keys of web tokens"),
        key("jwt.issuer", Text, || None, "who must have issued them"),
        key("jwt.audience", Text, || None, "for whom they must be"),
    ]
});

fn secs(seconds: f64) -> Option<Value> {
    Some(Value::Seconds(Some(seconds)))
}

impl Key {
    /// The environment's name for it.
    pub fn variable(&self) -> String {
        format!("STASIS_{}", self.name.to_uppercase().replace('.', "_"))
    }

    /// Reads what a flag or a variable says.
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match self.kind {
            Kind::Path => absolute(text),
            Kind::Text => Ok(Value::Text(text.to_owned())),
            Kind::Seconds if text == "none" => Ok(Value::Seconds(None)),
            Kind::Seconds => number(text.parse().ok()).map(|number| Value::Seconds(Some(number))),
            Kind::Number => number(text.parse().ok()).map(Value::Number),
            Kind::Count => text
                .parse()
                .map(Value::Count)
                .map_err(|_| format!("{text:?} is not a whole number")),
        }
    }

    /// Reads what the file says.
    pub fn read(&self, value: &toml::Value) -> Result<Value, String> {
        match (self.kind, value) {
            (Kind::Path | Kind::Text | Kind::Seconds, toml::Value::String(text)) => {
                self.parse(text)
            }
            (Kind::Seconds | Kind::Number | Kind::Count, toml::Value::Integer(number)) => {
                self.parse(&number.to_string())
            }
            (Kind::Seconds | Kind::Number, toml::Value::Float(number)) => {
                self.parse(&number.to_string())
            }
            (kind, value) => Err(format!("{value} is not {}", kind.wanted())),
        }
    }
}

impl Kind {
    fn wanted(self) -> &'static str {
        match self {
            Kind::Path => "a path",
            Kind::Text => "a text",
            Kind::Seconds => "a number of seconds or \"none\"",
            Kind::Count => "a whole number",
            Kind::Number => "a number",
        }
    }
}

fn number(number: Option<f64>) -> Result<f64, String> {
    // a billion seconds is thirty years; more is a mistake and would overflow times
    number
        .filter(|number| (0.0..=1e9).contains(number))
        .ok_or_else(|| "not a number from 0 to 1000000000".to_owned())
}

fn absolute(text: &str) -> Result<Value, String> {
    let path = std::path::absolute(text).map_err(|error| error.to_string())?;
    Ok(Value::Text(path.to_string_lossy().into_owned()))
}
