//! Tokens of a host's service. The host keeps them; what they allow is the service's to decide.

use crate::error::Result;
use crate::host::Host;
use stasis_store::TokenRecord;

impl Host {
    /// Adds a token, or replaces the one with that id.
    pub fn set_token(&self, token: &TokenRecord) -> Result<()> {
        Ok(self.inner().store.set_token(token)?)
    }

    pub fn tokens(&self) -> Result<Vec<TokenRecord>> {
        Ok(self.inner().store.tokens()?)
    }

    /// Whether there was one.
    pub fn remove_token(&self, id: &str) -> Result<bool> {
        Ok(self.inner().store.remove_token(id)?)
    }
}
