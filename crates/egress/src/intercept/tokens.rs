//! Tokens got with client credentials, one for each secret, renewed before they end.
//!
//! Requests that need a token while one is being got wait for that one: a host that gives out
//! tokens is asked once. A failure is remembered for some seconds, so that it is not asked again
//! for every request that fails.

use super::InterceptedConnection;
use super::oauth::{self, IssuedToken};
use parking_lot::Mutex;
use stasis_secrets::{ClientCredentials, SecretText};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// The longest that getting a token may take.
const LONGEST: Duration = Duration::from_secs(30);
const FAILED: Duration = Duration::from_secs(5);
/// Tokens that are kept.
const MOST: usize = 10_000;

#[derive(Default)]
pub struct TokenCache {
    entries: Mutex<HashMap<TokenOwner, Arc<tokio::sync::Mutex<TokenState>>>>,
}

/// A secret, as it was set at some time: one that is set anew has no token yet.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct TokenOwner {
    account: String,
    secret: String,
    changed_ms: i64,
}

#[derive(Default)]
enum TokenState {
    #[default]
    None,
    Got(IssuedToken),
    Failed(String, Instant),
}

impl TokenCache {
    /// A token that is valid for a while.
    pub async fn get(
        &self,
        connection: &InterceptedConnection,
        secret: &str,
        client: &ClientCredentials,
    ) -> Result<SecretText, String> {
        let entry = self.entry(connection, secret);
        // a second caller waits here, and finds the token
        let mut state = entry.lock().await;
        let buffer = Duration::from_secs(client.refresh_buffer_secs.min(3600));
        let refresh = match &*state {
            TokenState::Got(token) if token.lasts(buffer) => return Ok(token.access.clone()),
            TokenState::Failed(error, at) if at.elapsed() < FAILED => return Err(error.clone()),
            TokenState::Got(token) => token.refresh.clone(),
            _ => None,
        };
        let asked = timeout(LONGEST, oauth::get(connection, client, refresh)).await;
        match asked.unwrap_or_else(|_| Err("the server does not answer".to_owned())) {
            Ok(token) => {
                let access = token.access.clone();
                *state = TokenState::Got(token);
                Ok(access)
            }
            Err(error) => {
                *state = TokenState::Failed(error.clone(), Instant::now());
                Err(error)
            }
        }
    }

    fn entry(
        &self,
        connection: &InterceptedConnection,
        secret: &str,
    ) -> Arc<tokio::sync::Mutex<TokenState>> {
        let account = connection.machine.account.clone();
        let stored = connection.machine.shared.secrets.get(&account, secret);
        let changed_ms = stored.map_or(0, |stored| stored.changed_ms);
        let owner = TokenOwner { account, secret: secret.to_owned(), changed_ms };
        let mut entries = self.entries.lock();
        if entries.len() >= MOST {
            // entries with waiting callers stay
            entries.retain(|_, entry| Arc::strong_count(entry) > 1);
        }
        // an older form of the same secret is of no use
        entries.retain(|own, _| {
            own.account != owner.account || own.secret != owner.secret || *own == owner
        });
        entries.entry(owner).or_default().clone()
    }
}
