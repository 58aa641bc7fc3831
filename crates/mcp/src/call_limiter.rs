//! Permits for calls that block a thread. The service that embeds MCP decides how accounts share
//! them, so that an account with many calls does not take every thread.

use crate::error::{Error, Result};
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The permit of one call, until it is dropped.
pub type CallPermit = Box<dyn Send>;
type Waiting = Pin<Box<dyn Future<Output = std::result::Result<CallPermit, String>> + Send>>;

/// Gives permits to accounts. The default gives one to every call at once.
#[derive(Clone, Default)]
pub struct CallLimiter(Option<Arc<dyn Fn(String) -> Waiting + Send + Sync>>);

impl CallLimiter {
    /// `take` waits for a permit for an account, or returns why there is none.
    pub fn new<F, T>(take: impl Fn(String) -> F + Send + Sync + 'static) -> CallLimiter
    where
        F: Future<Output = std::result::Result<T, String>> + Send + 'static,
        T: Send + 'static,
    {
        let give = move |account| -> Waiting {
            let turn = take(account);
            Box::pin(async move { Ok(Box::new(turn.await?) as CallPermit) })
        };
        CallLimiter(Some(Arc::new(give)))
    }

    pub(crate) async fn take(&self, account: &str) -> Result<Option<CallPermit>> {
        match &self.0 {
            Some(take) => take(account.to_owned()).await.map(Some).map_err(Error::Busy),
            None => Ok(None),
        }
    }
}

impl fmt::Debug for CallLimiter {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(if self.0.is_some() {
            "CallLimiter(shared)"
        } else {
            "CallLimiter(unlimited)"
        })
    }
}
