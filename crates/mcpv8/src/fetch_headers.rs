//! Headers that a setup adds to requests (`--fetch-header`).
//!
//!   front ─► rules ─► checked ─► kept, sealed ─► lent with the policies of the setup
//!
//! Requests get them where they leave a machine, after its hooks. Its code never has the values,
//! and neither have policies: they see marks. The rules belong to the policies of the setup, since
//! without a policy for requests none leaves the machine. They are lent again after a restart.

use crate::V8;
use crate::error::{Error, Result};
use crate::setup::V8Setup;
use stasis_machine::HeaderRule;
use stasis_policy::v8::V8Policies;

const LONGEST: usize = 256 << 10;

impl V8 {
    /// Checks the header rules of a setup and keeps them sealed. Returns the name of the sealed
    /// part.
    pub(crate) fn keep_headers(&self, account: &str, setup: &V8Setup) -> Result<Option<String>> {
        let rules = &setup.fetch_headers;
        if rules.is_empty() {
            return Ok(None);
        }
        let Some(policies) = &setup.policies else {
            let said = "headers for requests need policies (`--policies-json`): without the \
                        category fetch, websocket or http2 no request leaves a machine";
            return Err(Error::invalid(said));
        };
        self.with_headers(self.check_policies(account, policies)?, rules)?;
        let text = serde_json::to_string(rules)
            .map_err(|error| Error::new(500, format!("cannot write a setup: {error}")))?;
        if text.len() > LONGEST {
            return Err(Error::invalid("the rules for headers are larger than 256 KiB"));
        }
        let name = self.host.private_name(account, &text)?;
        let sealed = self.host.seal_text(account, &name, text)?;
        self.write_private(account, &name, sealed.as_bytes())?;
        Ok(Some(name))
    }

    /// Policies with the headers that are added before they are asked.
    pub(crate) fn with_headers(
        &self,
        policies: V8Policies,
        rules: &[HeaderRule],
    ) -> Result<V8Policies> {
        let scopes = rules.iter().map(|rule| rule.scope());
        let scopes: std::result::Result<Vec<_>, _> = scopes.collect();
        let scopes = scopes.map_err(|error| Error::invalid(error.to_string()))?;
        policies.with_headers(scopes).map_err(|fault| Error::invalid(fault.0))
    }

    /// The header rules of a setup.
    pub(crate) fn header_rules(&self, account: &str, name: &str) -> Result<Vec<HeaderRule>> {
        let missing = || {
            let said = "the header rules of this setup are gone; restart `stasis mcp-v8`";
            Error::missing(said)
        };
        let sealed = self.read_private(account, name).ok_or_else(missing)?;
        let text = self.host.open_text(account, name, &sealed)?;
        serde_json::from_str(&text).map_err(|_| missing())
    }
}
