//! The service of this computer, found like the CLI does: configuration, login, data directory.

use std::path::PathBuf;

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|text| !text.is_empty())
}

/// A directory of the XDG convention.
fn home(name: &str, below: &str) -> PathBuf {
    let given = std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let own = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(below);
    given.unwrap_or_else(own)
}

/// The service in a file of the CLI.
#[derive(Debug, Default, PartialEq)]
struct Settings {
    url: Option<String>,
    token: Option<String>,
    data_dir: Option<String>,
}

impl Settings {
    /// Plain strings at the top of a TOML file.
    fn parse(text: &str) -> Settings {
        let top = || text.lines().take_while(|line| !line.trim_start().starts_with('['));
        let field = |name: &str| top().find_map(|line| plain_string(line, name));
        Settings { url: field("url"), token: field("token"), data_dir: field("data_dir") }
    }
}

/// The value of a line `name = "value"` or `name = 'value'`, which a comment may follow.
fn plain_string(line: &str, name: &str) -> Option<String> {
    let value = line.strip_prefix(name)?.trim_start().strip_prefix('=')?.trim_start();
    let quote = value.chars().next().filter(|quote| "\"'".contains(*quote))?;
    let (text, rest) = value[1..].split_once(quote)?;
    let escaped = quote == '"' && text.contains('\\');
    let rest = rest.trim();
    (!escaped && (rest.is_empty() || rest.starts_with('#'))).then(|| text.to_owned())
}

/// The service of this computer, found like the CLI does.
#[derive(Debug, Default)]
pub(crate) struct KnownService {
    /// The CLI's configuration file.
    config: Settings,
    /// The stored login.
    login: Settings,
}

impl KnownService {
    pub fn find() -> KnownService {
        let dir = home("XDG_CONFIG_HOME", ".config").join("stasis");
        let read =
            |path: PathBuf| Settings::parse(&std::fs::read_to_string(path).unwrap_or_default());
        let config = variable("STASIS_CONFIG").map(PathBuf::from);
        let config = read(config.unwrap_or_else(|| dir.join("config.toml")));
        let path = dir.join("login.toml");
        // a login that other users can read is not used
        let login = if is_open(&path) { Settings::default() } else { read(path) };
        KnownService { config, login }
    }

    /// The address: from the environment, the configuration, or the login.
    pub fn url(&self) -> Option<String> {
        let known = || self.config.url.clone().or_else(|| self.login.url.clone());
        variable("STASIS_URL").or_else(known)
    }

    /// The token for a service: from the environment, from the configuration or the login if they
    /// name this service, or from the data directory if the service is local.
    pub fn token(&self, url: &str) -> Option<String> {
        variable("STASIS_TOKEN").or_else(|| self.kept_token(url)).or_else(|| self.own_token(url))
    }

    fn kept_token(&self, url: &str) -> Option<String> {
        let KnownService { config, login } = self;
        let named = |settings: &Settings| {
            settings.url.as_deref().is_some_and(|own| own.trim_end_matches('/') == url)
        };
        let configured = config.url.is_none() || named(config);
        let token = config.token.clone().filter(|_| configured);
        token.or_else(|| login.token.clone().filter(|_| named(login)))
    }

    fn own_token(&self, url: &str) -> Option<String> {
        if !is_here(url) {
            return None;
        }
        let data = variable("STASIS_DATA_DIR").or_else(|| self.config.data_dir.clone());
        let usual = || home("XDG_DATA_HOME", ".local/share").join("stasis");
        let data = data.map_or_else(usual, PathBuf::from);
        let token = std::fs::read_to_string(data.join("token")).ok()?;
        Some(token.trim().to_owned()).filter(|token| !token.is_empty())
    }
}

#[cfg(unix)]
fn is_open(path: &std::path::Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path).is_ok_and(|about| about.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &std::path::Path) -> bool {
    false
}

/// Whether an address is a loopback one.
fn is_here(url: &str) -> bool {
    let host = reqwest::Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| ["localhost", "127.0.0.1", "[::1]"].contains(&host.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_strings_at_the_top_are_read() {
        let text = "# here\nurl = 'https://box'\ntoken=\"id.secret\" # mine\n\
                    [limits]\ndata_dir = '/x'\n";
        let read = Settings::parse(text);
        assert_eq!(read.url.as_deref(), Some("https://box"));
        assert_eq!(read.token.as_deref(), Some("id.secret"));
        assert_eq!(read.data_dir, None, "a key of a table");
        let odd = "url = x\ntoken = \"a\\nb\"\ndata_dir = '/x' 'y'\nurls = 'z'\n";
        assert_eq!(Settings::parse(odd), Settings::default());
    }

    #[test]
    fn a_kept_token_goes_to_its_service_only() {
        let login = || Settings::parse("url = \"https://box\"\ntoken = \"id.secret\"\n");
        let known = KnownService { login: login(), ..KnownService::default() };
        assert_eq!(known.kept_token("https://box").as_deref(), Some("id.secret"));
        assert_eq!(known.kept_token("https://other"), None);
        let config = Settings::parse("url = 'https://own/'\ntoken = 'own.secret'\n");
        let known = KnownService { config, login: login() };
        assert_eq!(known.kept_token("https://own").as_deref(), Some("own.secret"));
        assert_eq!(known.kept_token("https://box").as_deref(), Some("id.secret"));
        assert_eq!(known.kept_token("https://other"), None);
    }

    #[test]
    fn only_loopback_is_here() {
        for url in ["http://127.0.0.1:7717", "http://localhost", "https://[::1]:1"] {
            assert!(is_here(url), "{url}");
        }
        for url in ["http://127.0.0.1.example", "http://user@box", "http://localhost@box", "x"] {
            assert!(!is_here(url), "{url}");
        }
    }
}
