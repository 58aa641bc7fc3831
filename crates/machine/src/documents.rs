//! Documents: values that API surfaces store for an account. The surface interprets them.

use crate::error::Result;
use crate::host::Host;
use stasis_records::DocumentChange;

impl Host {
    /// Applies changes to an account's documents, all or none. They survive the end of this
    /// process.
    pub fn change_documents(&self, account: &str, changes: Vec<DocumentChange>) -> Result<()> {
        Ok(self.inner().records.change_documents(account, changes)?)
    }

    pub fn document(&self, account: &str, kind: &str, key: &str) -> Result<Option<String>> {
        Ok(self.inner().records.document(account, kind, key)?)
    }

    /// Keys and values of a kind whose keys begin with `prefix`, in the order of keys.
    pub fn documents(
        &self,
        account: &str,
        kind: &str,
        prefix: &str,
    ) -> Result<Vec<(String, String)>> {
        Ok(self.inner().records.documents(account, kind, prefix)?)
    }

    /// Accounts and keys of all documents of a kind.
    pub fn documents_of_kind(&self, kind: &str) -> Result<Vec<(String, String)>> {
        Ok(self.inner().records.documents_of_kind(kind)?)
    }
}
