//! Records what lines of machines and accounts have sent and received, so that a restart of the
//! service renews no total.
//!
//! Nothing is recorded while no policy limits a total. Like the other budgets, the counts are
//! recorded five times a second.

use crate::error::Result;
use stasis_egress::PolicyBook;
use stasis_records::{DocumentChange, Records};
use std::collections::{HashMap, HashSet};

/// The kind of the documents in the records, and the key of an account's.
const KIND: &str = "traffic";
const ACCOUNT: &str = "account";

/// Takes over what was recorded; lines without a machine are forgotten.
pub(crate) fn load(records: &Records, book: &PolicyBook) -> Result<()> {
    let machines = records.machines()?;
    let lines: HashSet<_> =
        machines.iter().map(|record| (record.made.account.clone(), record.lineage.0)).collect();
    for (account, key) in records.documents_of_kind(KIND)? {
        let line = key.parse().ok();
        let is_known = |line| lines.contains(&(account.clone(), line));
        if key != ACCOUNT && !line.is_some_and(is_known) {
            let gone = DocumentChange::Remove { kind: KIND, key };
            records.change_documents(&account, vec![gone])?;
            continue;
        }
        let bytes = records.document(&account, KIND, &key)?;
        let bytes = bytes.and_then(|text| text.parse().ok()).unwrap_or_default();
        book.restore_traffic(&account, line, bytes);
    }
    Ok(())
}

/// Records what has changed, each account in one transaction.
pub(crate) fn write(records: &Records, book: &PolicyBook) {
    let mut accounts = HashMap::<String, Vec<_>>::new();
    for one in book.unrecorded_traffic() {
        accounts.entry(one.account.clone()).or_default().push(one);
    }
    for (account, counts) in accounts {
        let change = |line: Option<i64>, bytes: u64| {
            let key = line.map_or_else(|| ACCOUNT.to_owned(), |line| line.to_string());
            DocumentChange::Put { kind: KIND, key, value: bytes.to_string() }
        };
        let changes = counts.iter().map(|one| change(one.line, one.bytes)).collect();
        match records.change_documents(&account, changes) {
            Ok(()) => counts.iter().for_each(|one| one.set_recorded()),
            Err(error) => tracing::error!(account, %error, "traffic was not recorded"),
        }
    }
}
