//! Tokens that a person allowed, in a file that only its user reads. The file is bound to the
//! server's address, the scopes and the client: with others it counts as missing.

use crate::auth_config::BrowserAuth;
use crate::oauth::{IssuedTokens, OauthIdentity};
use serde::{Deserialize, Serialize};
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

const LONGEST: u64 = 128 << 10;

/// A file of tokens.
pub struct TokenFile {
    path: PathBuf,
    binding: TokenBinding,
}

/// The server, client and scopes that tokens belong to.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct TokenBinding {
    url: String,
    scopes: Vec<String>,
    client_id: Option<String>,
}

#[derive(Serialize, Deserialize)]
struct CacheFile {
    binding: TokenBinding,
    #[serde(flatten)]
    kept: KeptTokens,
}

/// Tokens, and how they are renewed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptTokens {
    pub token_url: String,
    pub client: OauthIdentity,
    pub tokens: IssuedTokens,
}

impl TokenFile {
    pub fn new(url: &str, auth: &BrowserAuth) -> Result<TokenFile, String> {
        let mut scopes = auth.scope.clone();
        scopes.sort();
        let (url, client_id) = (url.to_owned(), auth.client_id.clone());
        let binding = TokenBinding { url, scopes, client_id };
        let path = match &auth.token_cache {
            Some(path) => path.clone(),
            None => usual_dir()?.join(format!("{}.json", binding.name())),
        };
        Ok(TokenFile { path, binding })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The tokens, if the file is there and for this server.
    pub fn read(&self) -> Result<Option<KeptTokens>, String> {
        let odd = |said: String| format!("{}: {said}", self.path.display());
        let mut file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(odd(error.to_string())),
        };
        let about = file.metadata().map_err(|error| odd(error.to_string()))?;
        if !about.is_file() || about.mode() & 0o077 != 0 {
            return Err(odd("others can read it; run `chmod 600` on it, or remove it".into()));
        }
        let mut text = String::new();
        let read = Read::by_ref(&mut file).take(LONGEST).read_to_string(&mut text);
        read.map_err(|error| odd(error.to_string()))?;
        let found: Option<CacheFile> = serde_json::from_str(&text).ok();
        Ok(found.filter(|found| found.binding == self.binding).map(|found| found.kept))
    }

    /// Replaces the file at once, so that a reader finds the old one or the new one.
    pub fn write(&self, kept: &KeptTokens) -> Result<(), String> {
        let file = CacheFile { binding: self.binding.clone(), kept: kept.clone() };
        let text = serde_json::to_vec_pretty(&file).map_err(|error| error.to_string())?;
        let odd = |error: io::Error| format!("{}: {error}", self.path.display());
        let dir = self.path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let dir = dir.unwrap_or(Path::new("."));
        fs::create_dir_all(dir).map_err(odd)?;
        let new = dir.join(format!(".{}.{}", self.binding.name(), std::process::id()));
        let _ = fs::remove_file(&new);
        let made = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&new);
        let written = made.and_then(|mut file| {
            file.set_permissions(Permissions::from_mode(0o600))?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&new, &self.path)
        });
        written.map_err(odd)
    }
}

impl TokenBinding {
    fn name(&self) -> String {
        let text = serde_json::to_vec(self).unwrap_or_default();
        blake3::hash(&text).to_hex()[..32].to_owned()
    }
}

fn usual_dir() -> Result<PathBuf, String> {
    let set = |name: &str| std::env::var_os(name).filter(|text| !text.is_empty());
    let config = set("XDG_CONFIG_HOME").map(PathBuf::from);
    let config = config.or_else(|| set("HOME").map(|home| PathBuf::from(home).join(".config")));
    let config = config.ok_or("HOME is not set: write `token_cache` into `auth`")?;
    Ok(config.join("stasis/oauth"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_private_and_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("deep/tokens.json");
        let auth = BrowserAuth {
            scope: vec!["b".into(), "a".into()],
            token_cache: Some(path.clone()),
            ..BrowserAuth::default()
        };
        let cache = TokenFile::new("https://a.example/mcp", &auth).expect("a cache");
        assert!(cache.read().expect("readable").is_none());
        let tokens =
            IssuedTokens { access_token: "t".into(), refresh_token: None, expires_at: Some(5) };
        let client = OauthIdentity { client_id: "c".into(), client_secret: None };
        let kept = KeptTokens { token_url: "https://a.example/t".into(), client, tokens };
        cache.write(&kept).expect("written");
        assert!(cache.read().expect("readable").as_ref() == Some(&kept));
        assert_eq!(fs::metadata(&path).expect("a file").mode() & 0o777, 0o600);
        let other = BrowserAuth { scope: vec!["a".into()], ..auth.clone() };
        let other = TokenFile::new("https://a.example/mcp", &other).expect("a cache");
        assert!(other.read().expect("readable").is_none(), "other scopes");
        let other = TokenFile::new("https://b.example/mcp", &auth).expect("a cache");
        assert!(other.read().expect("readable").is_none(), "another server");
        fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("changed");
        assert!(cache.read().is_err_and(|said| said.contains("chmod 600")));
    }
}
