//! The valid tokens: in memory for every request, in the records for the next start.
//!
//! A token is `id.secret`. Only the secret's hash is kept; hashes are compared in constant time.

use crate::auth::{Caller, ROOT, Scope};
use crate::error::{Error, ErrorContext};
use parking_lot::RwLock;
use stasis_api::Timestamp;
use stasis_machine::{Host, TokenRecord};
use std::collections::HashMap;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;

pub struct Keyring {
    tokens: RwLock<HashMap<String, Key>>,
}

struct Key {
    secret: blake3::Hash,
    account: String,
    scopes: Arc<[String]>,
}

impl Keyring {
    pub fn load(host: &Host) -> Result<Keyring, Error> {
        let keyring = Keyring { tokens: RwLock::default() };
        host.tokens()?.iter().for_each(|record| keyring.put(record));
        Ok(keyring)
    }

    pub fn put(&self, record: &TokenRecord) {
        // a malformed hash matches nothing
        let Ok(secret) = blake3::Hash::from_hex(&record.secret) else { return };
        let scopes = record.scopes.clone().into();
        let key = Key { secret, account: record.account.clone(), scopes };
        self.write().insert(record.id.clone(), key);
    }

    pub fn drop(&self, id: &str) {
        self.write().remove(id);
    }

    fn write(&self) -> parking_lot::RwLockWriteGuard<'_, HashMap<String, Key>> {
        self.tokens.write()
    }

    /// The caller that a token identifies.
    pub fn caller(&self, token: &str) -> Option<Caller> {
        let (id, secret) = token.split_once('.')?;
        let tokens = self.tokens.read();
        let key = tokens.get(id)?;
        // comparing hashes of this kind takes the same time wherever they differ
        let same = key.secret == blake3::hash(secret.as_bytes());
        same.then(|| Caller {
            account: key.account.clone(),
            scopes: key.scopes.clone(),
            token: Some(id.to_owned()),
        })
    }
}

/// A fresh token, and what is kept of it.
pub fn mint(account: &str, name: Option<String>, scopes: Vec<String>) -> (String, TokenRecord) {
    let id = random_hex::<8>();
    let secret = random_hex::<24>();
    let record = record(&id, &secret, account, name, scopes);
    (format!("{id}.{secret}"), record)
}

fn record(
    id: &str,
    secret: &str,
    account: &str,
    name: Option<String>,
    scopes: Vec<String>,
) -> TokenRecord {
    TokenRecord {
        id: id.to_owned(),
        secret: blake3::hash(secret.as_bytes()).to_hex().to_string(),
        name,
        account: account.to_owned(),
        scopes,
        created_at: Timestamp::now(),
    }
}

pub fn random_hex<const BYTES: usize>() -> String {
    hex::encode(stasis_machine::random::<BYTES>())
}

/// Ensures that a first token exists: the given one, or one created at the first start and written
/// to a file that only its owner can read.
pub fn first_token(host: &Host, given: Option<&str>, file: &Path) -> Result<(), Error> {
    if let Some(token) = given {
        let (id, secret) = token.split_once('.').ok_or(Error::RootToken)?;
        if id.is_empty() || secret.len() < 16 || !is_plain(token) {
            return Err(Error::RootToken);
        }
        let name = Some("given at start".to_owned());
        return Ok(host.set_token(&record(id, secret, ROOT, name, Scope::all()))?);
    }
    if file.exists() {
        return Ok(());
    }
    let doing = || format!("write {}", file.display());
    let name = Some("made at first start".to_owned());
    let (token, record) = mint(ROOT, name, Scope::all());
    host.set_token(&record)?;
    let new = file.with_extension("new");
    let mut options = std::fs::File::options();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut open = options.open(&new).doing(doing)?;
    writeln!(open, "{token}").and_then(|()| open.sync_all()).doing(doing)?;
    std::fs::rename(&new, file).doing(doing)
}

/// Whether it can be used in a header and in a query unchanged.
fn is_plain(token: &str) -> bool {
    token.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_only_with_its_own_secret() {
        let keyring = Keyring { tokens: RwLock::default() };
        let (token, record) = mint("me", None, vec!["machines".into()]);
        keyring.put(&record);
        let caller = keyring.caller(&token).expect("the caller");
        assert_eq!(caller.account, "me");
        assert!(caller.may(Scope::Machines) && !caller.may(Scope::Tokens));
        let id = &record.id;
        for wrong in ["", ".", id, &format!("{id}."), &format!("{id}.{id}"), &token[1..]] {
            assert!(keyring.caller(wrong).is_none(), "{wrong:?}");
        }
        assert!(!record.secret.contains(token.split_once('.').expect("a dot").1));
        keyring.drop(id);
        assert!(keyring.caller(&token).is_none());
    }

    #[test]
    fn a_secret_may_contain_dots() {
        let keyring = Keyring { tokens: RwLock::default() };
        keyring.put(&record("id", "a.b.c", "me", None, Vec::new()));
        assert!(keyring.caller("id.a.b.c").is_some());
    }
}
