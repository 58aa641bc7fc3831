//! The secrets of all accounts, in memory as they are on disk: sealed.
//!
//! A value is opened when a request needs it, and wiped when the request was sent.

use crate::binding::HostBinding;
use crate::check_name;
use crate::error::SecretError;
use crate::key::{MasterKey, SealedText};
use crate::lent::LentHeaders;
use crate::placeholder::{Placeholder, variable};
use crate::value::SecretContent;
use parking_lot::RwLock;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Secrets of one account.
const MOST: usize = 1000;
const MOST_HOSTS: usize = 100;

/// A secret as it is kept, but for its account and name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoredSecret {
    pub hosts: Vec<HostBinding>,
    /// Whether the content is client credentials of OAuth, not a value.
    #[serde(default)]
    pub is_oauth: bool,
    pub changed_ms: i64,
    pub sealed: SealedText,
}

/// A secret that a machine may use, and how its code names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantedSecret {
    pub name: String,
    pub variable: String,
    pub placeholder: Placeholder,
}

type Account = BTreeMap<String, Arc<StoredSecret>>;

/// The secrets of a host and the key that opens them.
#[derive(Debug)]
pub struct SecretBook {
    accounts: RwLock<HashMap<String, Account>>,
    key: Result<MasterKey, String>,
    version: AtomicU64,
    pub(crate) lent: LentHeaders,
}

impl SecretBook {
    /// Without a key there are no secrets: what needs one says why there is none.
    pub fn new(key: Result<MasterKey, SecretError>) -> SecretBook {
        let key = key.map_err(|error| match error {
            SecretError::NoKey(said) => said,
            other => other.to_string(),
        });
        let (accounts, version, lent) = Default::default();
        SecretBook { accounts, key, version, lent }
    }

    pub fn key(&self) -> Result<&MasterKey, SecretError> {
        self.key.as_ref().map_err(|said| SecretError::NoKey(said.clone()))
    }

    /// Changes with every secret that is set or removed.
    pub fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    /// Checks and seals a secret; it is not in the book yet.
    pub fn seal(
        &self,
        account: &str,
        name: &str,
        hosts: &[String],
        content: &SecretContent,
        changed_ms: i64,
    ) -> Result<StoredSecret, SecretError> {
        check_name(name)?;
        if hosts.is_empty() || hosts.len() > MOST_HOSTS {
            return Err(SecretError::HostCount);
        }
        let hosts = hosts.iter().map(|host| HostBinding::parse(host)).collect::<Result<_, _>>()?;
        if let SecretContent::OauthClient(client) = content {
            client.check()?;
        }
        let accounts = self.accounts.read();
        let full = accounts.get(account).is_some_and(|own| {
            let other = own.keys().any(|one| one != name && variable(one) == variable(name));
            other || (!own.contains_key(name) && own.len() >= MOST)
        });
        if full {
            return Err(SecretError::TooMany(MOST));
        }
        let sealed = self.key()?.seal(account, name, content)?;
        let is_oauth = matches!(content, SecretContent::OauthClient(_));
        Ok(StoredSecret { hosts, is_oauth, changed_ms, sealed })
    }

    pub fn put(&self, account: &str, name: &str, secret: StoredSecret) {
        let mut accounts = self.accounts.write();
        accounts.entry(account.to_owned()).or_default().insert(name.to_owned(), Arc::new(secret));
        self.version.fetch_add(1, Ordering::Release);
    }

    pub fn remove(&self, account: &str, name: &str) {
        if let Some(own) = self.accounts.write().get_mut(account) {
            own.remove(name);
        }
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The secrets of an account, by name.
    pub fn of_account(&self, account: &str) -> Vec<(String, Arc<StoredSecret>)> {
        let accounts = self.accounts.read();
        let own = accounts.get(account).into_iter().flatten();
        own.map(|(name, secret)| (name.clone(), secret.clone())).collect()
    }

    pub fn get(&self, account: &str, name: &str) -> Option<Arc<StoredSecret>> {
        self.accounts.read().get(account)?.get(name).cloned()
    }

    /// The secrets of an account that `is_granted` allows, with their placeholders on one line of
    /// machines. None, if there is no key.
    pub fn granted(
        &self,
        account: &str,
        lineage: i64,
        is_granted: impl Fn(&str, &StoredSecret) -> bool,
    ) -> Vec<GrantedSecret> {
        let Ok(key) = self.key() else { return Vec::new() };
        let own = self.of_account(account).into_iter();
        let own = own.filter(|(name, secret)| is_granted(name, secret));
        own.map(|(name, _)| GrantedSecret {
            variable: variable(&name),
            placeholder: Placeholder::of(key, account, &name, lineage),
            name,
        })
        .collect()
    }

    /// Opens a secret for one use.
    pub fn open(&self, account: &str, name: &str) -> Result<SecretContent, SecretError> {
        let secret = self.get(account, name);
        let secret = secret.ok_or_else(|| SecretError::NotFound(name.to_owned()))?;
        self.key()?.open(account, name, &secret.sealed)
    }
}

impl StoredSecret {
    pub fn covers(&self, host: &str, port: u16, is_tls: bool) -> bool {
        self.hosts.iter().any(|binding| binding.covers(host, port, is_tls))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::value::SecretText;

    fn content(text: &str) -> SecretContent {
        SecretContent::Value(SecretText::new(text.into()).expect("a value"))
    }

    #[test]
    fn secrets_belong_to_accounts_and_are_kept_sealed() {
        let book = SecretBook::new(Ok(MasterKey::new([7; 32])));
        let hosts = ["api.example".to_owned()];
        let sealed = book.seal("a", "GITHUB", &hosts, &content("s3cret"), 1).expect("sealed");
        let text = serde_json::to_string(&sealed).expect("JSON");
        assert!(!text.contains("s3cret"), "{text}");
        book.put("a", "GITHUB", serde_json::from_str(&text).expect("the same"));
        assert_eq!(book.open("a", "GITHUB").expect("opened"), content("s3cret"));
        book.open("b", "GITHUB").expect_err("another account");
        assert_eq!(book.granted("a", 1, |_, _| true).len(), 1);
        assert_eq!(book.granted("a", 1, |_, _| false), []);
        let secret = book.get("a", "GITHUB").expect("it");
        assert!(secret.covers("api.example", 443, true));
        book.remove("a", "GITHUB");
        book.open("a", "GITHUB").expect_err("removed");
        assert_eq!(book.version(), 2);
    }

    #[test]
    fn what_cannot_be_kept_is_refused() {
        let book = SecretBook::new(Ok(MasterKey::new([7; 32])));
        let seal = |name: &str, hosts: &[&str]| {
            let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
            book.seal("a", name, &hosts, &content("x"), 1)
        };
        for name in ["", "1A", "A B", "A-B", &"A".repeat(65)] {
            seal(name, &["a.example"]).expect_err(name);
        }
        seal("A", &[]).expect_err("no host");
        seal("A", &["*"]).expect_err("every host");
        book.put("a", "key", seal("key", &["a.example"]).expect("sealed"));
        seal("KEY", &["a.example"]).expect_err("the same variable");
        let without = SecretBook::new(Err(SecretError::NoKey("HOME is not set".into())));
        let said = without.seal("a", "A", &["a.example".into()], &content("x"), 1);
        assert!(said.expect_err("no key").to_string().contains("HOME is not set"));
    }
}
