//! Servers that a surface lends to the machines it runs code in, beside those of the host, and
//! texts of a surface that are kept sealed because they hold keys.

use crate::error::{Error, Result};
use crate::host::Host;
use stasis_secrets::SealedText;
use stasis_tools::{ToolInfo, ToolScope, ToolServer};

impl Host {
    /// Lends a set of servers, named by its content. Sets are not on record, and the oldest end.
    pub fn lend_tools(&self, set: &str, servers: Vec<ToolServer>) {
        self.inner().tools.lend(set, servers);
    }

    pub fn lends_tools(&self, set: &str) -> bool {
        self.inner().tools.lends(set)
    }

    /// Connects to a server of a lent set and lists its tools. Waits.
    pub fn try_lent_server(&self, set: &str, server: &str) -> std::result::Result<(), String> {
        let scope = ToolScope::of("", Some(set));
        let listed = self.inner().tools.list(&scope, server);
        listed.map(drop).map_err(|fault| fault.to_string())
    }

    /// The tools of a server of a lent set, as it lists them or did last. Waits.
    pub fn lent_tools(&self, set: &str, server: &str) -> Vec<ToolInfo> {
        let scope = ToolScope::of("", Some(set));
        let listed = self.inner().tools.known_list(&scope, server);
        listed.map(|list| list.tools.clone()).unwrap_or_default()
    }

    /// A name for a text that tells nothing about it: the same text has the same name.
    pub fn private_name(&self, account: &str, text: &str) -> Result<String> {
        let key = self.inner().secrets.key()?;
        let bytes = key.derive("private text", &[account, text]);
        Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
    }

    /// Seals a text under its name.
    pub fn seal_text(&self, account: &str, name: &str, text: String) -> Result<String> {
        let sealed = self.inner().secrets.key()?.seal_bytes(account, name, text.into_bytes())?;
        serde_json::to_string(&sealed).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Opens a text that was sealed under this name.
    pub fn open_text(&self, account: &str, name: &str, sealed: &str) -> Result<String> {
        let sealed: SealedText =
            serde_json::from_str(sealed).map_err(|error| Error::Invalid(error.to_string()))?;
        let bytes = self.inner().secrets.key()?.open_bytes(account, name, &sealed)?;
        String::from_utf8(bytes.to_vec()).map_err(|error| Error::Invalid(error.to_string()))
    }
}
