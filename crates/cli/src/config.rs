//! The configuration: every value, and its source.
//!
//!   flag ─► environment ─► file ─► login ─► default          the first value wins
//!
//! `stasis login` stores a service and its token; the token is sent to that service only.
//!
//! One TOML file; keys below a table such as `[limits]` are written `limits.memory_mb` here. An
//! unknown key, or a value of the wrong type, is an error: a typo must not silently select a
//! default.

mod keys;
mod login;

pub use keys::{KEYS, Key, SettingValue};
pub use login::Login;

use crate::failure::{CliFailure, Exit, PathContext, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ValueSource {
    Flag(&'static str),
    Environment(String),
    File(PathBuf),
    /// The stored login.
    Login(PathBuf),
    Default,
}

impl ValueSource {
    pub fn kind(&self) -> &'static str {
        match self {
            ValueSource::Flag(_) => "flag",
            ValueSource::Environment(_) => "env",
            ValueSource::File(_) => "file",
            ValueSource::Login(_) => "login",
            ValueSource::Default => "default",
        }
    }

    pub fn what(&self) -> String {
        match self {
            ValueSource::Flag(flag) => (*flag).to_owned(),
            ValueSource::Environment(name) => name.clone(),
            ValueSource::File(path) | ValueSource::Login(path) => path.display().to_string(),
            ValueSource::Default => String::new(),
        }
    }
}

#[derive(Debug, Clone)]
pub struct Setting {
    pub key: &'static Key,
    /// Absent: nothing is set, and there is no default.
    pub value: Option<SettingValue>,
    pub source: ValueSource,
}

#[derive(Debug, Clone)]
pub struct Config {
    pub settings: Vec<Setting>,
    /// The file that was read, if any.
    pub file: Option<PathBuf>,
}

/// Values from the command line, by key.
pub type Flags = BTreeMap<&'static str, String>;

impl Config {
    /// Reads the file and the environment of this process.
    pub fn load(flags: &Flags, file: Option<PathBuf>) -> Result<Config> {
        let env = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let asked = file.or_else(|| env("STASIS_CONFIG").map(PathBuf::from));
        let (path, must) = match asked {
            Some(path) => (path, true),
            None => (home("XDG_CONFIG_HOME", ".config").join("stasis/config.toml"), false),
        };
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound && !must => None,
            Err(error) => return Err(error).at("read", &path),
        };
        resolve(flags, env, text.as_deref().map(|text| (path.as_path(), text)))
    }

    /// Applies the stored login, unless this host or another service is selected.
    pub fn sign_in(&mut self, login: &Login) {
        let here = self.source("data_dir");
        let is_here = matches!(here, Some(ValueSource::Flag(_) | ValueSource::Environment(_)));
        let url = self.text("url");
        if url.is_none() && !is_here {
            self.keep("url", &login.url);
        }
        let same = self.text("url").is_some_and(|url| url.trim_end_matches('/') == login.url);
        if same && self.text("token").is_none() {
            self.keep("token", &login.token);
        }
    }

    fn keep(&mut self, name: &str, text: &str) {
        let setting = self.settings.iter_mut().find(|setting| setting.key.name == name);
        if let Some(setting) = setting {
            setting.value = Some(SettingValue::Text(text.to_owned()));
            setting.source = ValueSource::Login(Login::path());
        }
    }

    /// The source of a value.
    pub fn source(&self, key: &str) -> Option<&ValueSource> {
        let found = self.settings.iter().find(|setting| setting.key.name == key);
        found.map(|setting| &setting.source)
    }

    /// Overrides a value by a command's flag.
    pub fn flag(&mut self, name: &str, text: &str) -> Result<()> {
        let Some(setting) = self.settings.iter_mut().find(|setting| setting.key.name == name)
        else {
            return Err(bad(format!("there is no key `{name}`")));
        };
        let flag = setting.key.flag.unwrap_or(setting.key.name);
        let value = setting.key.parse(text).map_err(|what| bad(format!("{flag}: {what}")))?;
        (setting.value, setting.source) = (Some(value), ValueSource::Flag(flag));
        Ok(())
    }

    pub fn value(&self, key: &str) -> Option<&SettingValue> {
        self.settings.iter().find(|setting| setting.key.name == key)?.value.as_ref()
    }

    pub fn text(&self, key: &str) -> Option<String> {
        self.value(key).map(SettingValue::to_string)
    }

    pub fn is_set(&self, key: &str) -> bool {
        matches!(self.value(key), Some(SettingValue::Switch(true)))
    }

    pub fn data_dir(&self) -> PathBuf {
        PathBuf::from(self.text("data_dir").unwrap_or_default())
    }

    /// A time; absent when it is `none`.
    pub fn seconds(&self, key: &str) -> Option<Duration> {
        match self.value(key) {
            Some(SettingValue::Seconds(seconds)) => seconds.map(Duration::from_secs_f64),
            _ => None,
        }
    }

    pub fn count(&self, key: &str) -> Option<u64> {
        match self.value(key) {
            Some(SettingValue::Count(count)) => Some(*count),
            _ => None,
        }
    }

    /// Retention of machines without a rule of their own.
    pub fn retention(&self) -> stasis_api::Retention {
        stasis_api::Retention {
            last: self.count("retention.last"),
            seconds: self.count("retention.seconds"),
            older: self.text("retention.older").map_or_else(Default::default, |text| older(&text)),
            ..stasis_api::Retention::default()
        }
    }

    pub fn limits(&self) -> stasis_api::Limits {
        let count = |key| self.count(key);
        let cpus = match self.value("limits.cpus") {
            Some(SettingValue::Number(number)) => Some(*number),
            _ => None,
        };
        stasis_api::Limits {
            memory_mb: count("limits.memory_mb"),
            cpus,
            pids: count("limits.pids"),
            disk_mb: count("limits.disk_mb"),
        }
    }
}

/// The rule for older checkpoints; the key allows only these words.
fn older(word: &str) -> stasis_api::OlderCheckpoints {
    serde_json::from_value(word.into()).unwrap_or_default()
}

/// A directory of the XDG convention.
pub fn home(variable: &str, below: &str) -> PathBuf {
    let set = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || PathBuf::from(std::env::var_os("HOME").unwrap_or_else(|| "/".into())).join(below);
    set.unwrap_or_else(own)
}

fn resolve(
    flags: &Flags,
    env: impl Fn(&str) -> Option<String>,
    file: Option<(&Path, &str)>,
) -> Result<Config> {
    let written = file.map(|(path, text)| flatten(path, text)).transpose()?.unwrap_or_default();
    let mut settings = Vec::new();
    for key in KEYS.iter() {
        settings.push(setting(key, flags, &env, file.map(|(path, _)| path), &written)?);
    }
    if let Some(unknown) = written.keys().find(|name| KEYS.iter().all(|key| key.name != **name)) {
        let path = file.map(|(path, _)| path.display().to_string()).unwrap_or_default();
        return Err(bad(format!("{path}: there is no key `{unknown}`"))
            .hint("`stasis config` lists the settings"));
    }
    Ok(Config { settings, file: file.map(|(path, _)| path.to_owned()) })
}

fn setting(
    key: &'static Key,
    flags: &Flags,
    env: &impl Fn(&str) -> Option<String>,
    path: Option<&Path>,
    written: &BTreeMap<String, toml::Value>,
) -> Result<Setting> {
    let name = key.variable();
    let wrong = |from: &str, what: String| bad(format!("{from}: {}: {what}", key.name));
    let made = |value, source| Setting { key, value: Some(value), source };
    if let (Some(text), Some(flag)) = (flags.get(key.name), key.flag) {
        return Ok(made(
            key.parse(text).map_err(|what| wrong(flag, what))?,
            ValueSource::Flag(flag),
        ));
    }
    if let Some(text) = env(&name) {
        let value = key.parse(&text).map_err(|what| wrong(&name, what))?;
        return Ok(made(value, ValueSource::Environment(name)));
    }
    if let (Some(given), Some(path)) = (written.get(key.name), path) {
        let from = path.display().to_string();
        let value = key.read(given).map_err(|what| wrong(&from, what))?;
        return Ok(made(value, ValueSource::File(path.to_owned())));
    }
    Ok(Setting { key, value: (key.default)(), source: ValueSource::Default })
}

fn bad(message: String) -> CliFailure {
    CliFailure::new("config.invalid", message).exit(Exit::Usage)
}

/// Keys of tables joined by a dot.
fn flatten(path: &Path, text: &str) -> Result<BTreeMap<String, toml::Value>> {
    let table: toml::Table = toml::from_str(text)
        .map_err(|error| bad(format!("{}: {}", path.display(), error.message())))?;
    let mut flat = BTreeMap::new();
    for (key, value) in table {
        match value {
            toml::Value::Table(inner) => {
                flat.extend(
                    inner.into_iter().map(|(name, value)| (format!("{key}.{name}"), value)),
                );
            }
            value => {
                flat.insert(key, value);
            }
        }
    }
    Ok(flat)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(flags: &[(&'static str, &str)], env: &[(&str, &str)], file: &str) -> Result<Config> {
        let flags = flags.iter().map(|(key, value)| (*key, (*value).to_owned())).collect();
        let env = |name: &str| {
            env.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned())
        };
        resolve(&flags, env, Some((Path::new("c.toml"), file)))
    }

    fn source(config: &Config, key: &str) -> ValueSource {
        config.settings.iter().find(|setting| setting.key.name == key).unwrap().source.clone()
    }

    #[test]
    fn the_nearest_wins() {
        let file = "data_dir = '/file'\ntimeout_seconds = 3\nlinger_seconds = 'none'\n\
                    [limits]\ncpus = 2";
        let flags = [("data_dir", "/flag")];
        let env = [("STASIS_DATA_DIR", "/env"), ("STASIS_TIMEOUT_SECONDS", "1.5")];
        let config = made(&flags, &env, file).unwrap();
        assert_eq!(config.data_dir(), Path::new("/flag"));
        assert_eq!(source(&config, "data_dir"), ValueSource::Flag("--data-dir"));
        assert_eq!(config.seconds("timeout_seconds"), Some(Duration::from_millis(1500)));
        assert_eq!(config.seconds("linger_seconds"), None);
        assert_eq!(config.limits().cpus, Some(2.0));
        assert_eq!(source(&config, "limits.cpus"), ValueSource::File("c.toml".into()));
        assert_eq!(source(&config, "limits.pids"), ValueSource::Default);
    }

    #[test]
    fn a_kept_token_goes_to_its_service_only() {
        let login = Login { url: "https://kept".into(), token: "kept.token".into() };
        let signed = |flags: &[(&'static str, &str)], env: &[(&str, &str)]| {
            let mut config = made(flags, env, "").unwrap();
            config.sign_in(&login);
            (config.text("url"), config.text("token"))
        };
        let kept =
            |url: Option<&str>, token: Option<&str>| (url.map(Into::into), token.map(Into::into));
        assert_eq!(signed(&[], &[]), kept(Some("https://kept"), Some("kept.token")));
        assert_eq!(signed(&[("url", "https://other")], &[]), kept(Some("https://other"), None));
        let same = signed(&[("url", "https://kept/")], &[]);
        assert_eq!(same, kept(Some("https://kept/"), Some("kept.token")));
        let own = signed(&[], &[("STASIS_TOKEN", "own")]);
        assert_eq!(own, kept(Some("https://kept"), Some("own")));
        for here in [signed(&[("data_dir", "/d")], &[]), signed(&[], &[("STASIS_DATA_DIR", "/d")])]
        {
            assert_eq!(here, kept(None, None));
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        for file in [
            "no_such = 1",
            "timeout_seconds = -1",
            "limits.pids = 'x'",
            "data_dir = 3",
            "timeout_seconds = 'soon'",
            "limits = 3",
            "a b",
            "limits.cpus = nan",
        ] {
            let failure = made(&[], &[], file).expect_err(file);
            assert_eq!((failure.code.as_str(), failure.exit), ("config.invalid", Exit::Usage));
        }
        assert!(made(&[], &[("STASIS_LIMITS_PIDS", "-3")], "").is_err());
    }
}
