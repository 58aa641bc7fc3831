//! Stores the tokens of the service. The service decides what they allow.

use crate::error::Result;
use crate::host::Host;
use stasis_records::TokenRecord;

impl Host {
    /// Adds a token, or replaces the one with that id.
    pub fn set_token(&self, token: &TokenRecord) -> Result<()> {
        Ok(self.inner().records.set_token(token)?)
    }

    pub fn tokens(&self) -> Result<Vec<TokenRecord>> {
        Ok(self.inner().records.tokens()?)
    }

    /// Whether there was one.
    pub fn remove_token(&self, id: &str) -> Result<bool> {
        Ok(self.inner().records.remove_token(id)?)
    }
}
