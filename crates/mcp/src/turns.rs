//! Turns for work that blocks a thread. Whoever serves MCP says how they are shared: an account
//! with many calls must not take all threads there are.

use crate::error::{Error, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// Somebody's turn, until it is dropped.
pub type Turn = Box<dyn Send>;
type Waiting = Pin<Box<dyn Future<Output = std::result::Result<Turn, String>> + Send>>;

/// Gives turns to accounts; at once and to everybody, unless it was told how.
#[derive(Clone, Default)]
pub struct Turns(Option<Arc<dyn Fn(String) -> Waiting + Send + Sync>>);

impl Turns {
    /// `take` waits for an account's turn, or says why there is none.
    pub fn new<F, T>(take: impl Fn(String) -> F + Send + Sync + 'static) -> Turns
    where
        F: Future<Output = std::result::Result<T, String>> + Send + 'static,
        T: Send + 'static,
    {
        let give = move |account| -> Waiting {
            let turn = take(account);
            Box::pin(async move { Ok(Box::new(turn.await?) as Turn) })
        };
        Turns(Some(Arc::new(give)))
    }

    pub(crate) async fn take(&self, account: &str) -> Result<Option<Turn>> {
        match &self.0 {
            Some(take) => take(account.to_owned()).await.map(Some).map_err(Error::Busy),
            None => Ok(None),
        }
    }
}

impl fmt::Debug for Turns {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() { "Turns(shared)" } else { "Turns(at once)" })
    }
}
