//! Documents of this surface in the records, by kind. A document that cannot be read is an error
//! that names it.

use crate::V8;
use crate::error::{Error, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use stasis_machine::DocumentChange;

/// Executions by id, in the order they were accepted.
pub const EXECUTION: &str = "v8.execution";
/// Output of finished executions, by id.
pub const OUTPUT: &str = "v8.output";
/// Unfinished executions, with the data needed to follow them.
pub const RUNNING: &str = "v8.running";
pub const HEAP: &str = "v8.heap";
pub const SESSION: &str = "v8.session";
/// Entries of session logs, by session, a NUL and a number.
pub const ENTRY: &str = "v8.session.entry";
pub const ARTIFACT: &str = "v8.artifact";
pub const LABEL: &str = "v8.label";
/// Entries of the logs of labels, by label, a NUL and a number.
pub const LABEL_STEP: &str = "v8.label.step";

pub fn put(kind: &'static str, key: &str, value: &impl Serialize) -> Result<DocumentChange> {
    let value = serde_json::to_string(value)
        .map_err(|error| Error::new(500, format!("cannot write {kind} {key}: {error}")))?;
    Ok(DocumentChange::Put { kind, key: key.to_owned(), value })
}

pub fn parse<T: DeserializeOwned>(kind: &str, key: &str, value: &str) -> Result<T> {
    let broken = |error| Error::new(500, format!("cannot read the record {kind} {key}: {error}"));
    serde_json::from_str(value).map_err(broken)
}

impl V8 {
    pub(crate) fn read<T: DeserializeOwned>(
        &self,
        account: &str,
        kind: &'static str,
        key: &str,
    ) -> Result<Option<T>> {
        let found = self.host.document(account, kind, key)?;
        found.map(|value| parse(kind, key, &value)).transpose()
    }

    pub(crate) fn read_all<T: DeserializeOwned>(
        &self,
        account: &str,
        kind: &'static str,
        prefix: &str,
    ) -> Result<Vec<(String, T)>> {
        let all = self.host.documents(account, kind, prefix)?.into_iter();
        all.map(|(key, value)| Ok((key.clone(), parse(kind, &key, &value)?))).collect()
    }
}
