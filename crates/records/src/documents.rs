//! Documents: small texts that a surface stores for an account, by kind and key. The records do not
//! interpret them.
//!
//! All changes of one call take effect together or not at all. Accounts never see each other's
//! documents.

use crate::Records;
use crate::error::Result;
use rusqlite::params;

/// One change of a document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DocumentChange {
    Put {
        kind: &'static str,
        key: String,
        value: String,
    },
    Remove {
        kind: &'static str,
        key: String,
    },
    /// Removes all documents of a kind except those with the greatest keys.
    KeepLast {
        kind: &'static str,
        count: u64,
    },
}

/// Follows every key that begins with the text before it: no character is greater.
const AFTER: char = char::MAX;

impl Records {
    /// Applies changes to an account's documents, all or none.
    pub fn change_documents(&self, account: &str, changes: Vec<DocumentChange>) -> Result<()> {
        let account = account.to_owned();
        self.write(move |connection| {
            for change in changes {
                match change {
                    DocumentChange::Put { kind, key, value } => connection
                        .prepare_cached(
                            "INSERT OR REPLACE INTO documents (account, kind, key, value) \
                             VALUES (?1, ?2, ?3, ?4)",
                        )?
                        .execute(params![account, kind, key, value])?,
                    DocumentChange::Remove { kind, key } => connection
                        .prepare_cached(
                            "DELETE FROM documents WHERE account = ?1 AND kind = ?2 AND key = ?3",
                        )?
                        .execute(params![account, kind, key])?,
                    DocumentChange::KeepLast { kind, count } => connection
                        .prepare_cached(
                            "DELETE FROM documents WHERE account = ?1 AND kind = ?2 AND key <= \
                             (SELECT key FROM documents WHERE account = ?1 AND kind = ?2 \
                              ORDER BY key DESC LIMIT 1 OFFSET ?3)",
                        )?
                        .execute(params![account, kind, count as i64])?,
                };
            }
            Ok(())
        })
    }

    pub fn document(&self, account: &str, kind: &str, key: &str) -> Result<Option<String>> {
        let sql = "SELECT value FROM documents WHERE account = ?1 AND kind = ?2 AND key = ?3";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let mut rows = statement.query(params![account, kind, key])?;
            Ok(rows.next()?.map(|row| row.get(0)).transpose()?)
        })
    }

    /// Keys and values of a kind whose keys begin with `prefix`, in the order of keys.
    pub fn documents(
        &self,
        account: &str,
        kind: &str,
        prefix: &str,
    ) -> Result<Vec<(String, String)>> {
        let sql = "SELECT key, value FROM documents \
                   WHERE account = ?1 AND kind = ?2 AND key >= ?3 AND key < ?4 ORDER BY key";
        let end = format!("{prefix}{AFTER}");
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![account, kind, prefix, end], |row| {
                Ok((row.get(0)?, row.get(1)?))
            })?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }

    /// Accounts and keys of all documents of a kind.
    pub fn documents_of_kind(&self, kind: &str) -> Result<Vec<(String, String)>> {
        let sql = "SELECT account, key FROM documents WHERE kind = ?1 ORDER BY account, key";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([kind], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<rusqlite::Result<_>>()?)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(key: &str, value: &str) -> DocumentChange {
        DocumentChange::Put { kind: "k", key: key.into(), value: value.into() }
    }

    #[test]
    fn documents_belong_to_an_account_and_survive() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Records::open(dir.path()).expect("a store");
        store.change_documents("a", vec![put("x", "1"), put("y", "2")]).expect("changed");
        store.change_documents("a", vec![put("x", "3")]).expect("replaced");
        assert_eq!(store.document("b", "k", "x").expect("read"), None);
        drop(store);
        let store = Records::open(dir.path()).expect("a store");
        assert_eq!(store.document("a", "k", "x").expect("read").as_deref(), Some("3"));
        let removed = DocumentChange::Remove { kind: "k", key: "x".into() };
        store.change_documents("a", vec![removed]).expect("removed");
        assert_eq!(store.document("a", "k", "x").expect("read"), None);
        let all = store.documents_of_kind("k").expect("a list");
        assert_eq!(all, [("a".to_owned(), "y".to_owned())]);
    }

    #[test]
    fn prefixes_select_and_old_ones_go() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Records::open(dir.path()).expect("a store");
        let all = ["s\u{0}1", "s\u{0}2", "t\u{0}1", "s"].map(|key| put(key, key)).to_vec();
        store.change_documents("a", all).expect("changed");
        let keys = |prefix: &str| -> Vec<String> {
            let found = store.documents("a", "k", prefix).expect("a list");
            found.into_iter().map(|(key, _)| key).collect()
        };
        assert_eq!(keys("s\u{0}"), ["s\u{0}1", "s\u{0}2"]);
        let last = DocumentChange::KeepLast { kind: "k", count: 2 };
        store.change_documents("a", vec![last.clone()]).expect("kept");
        assert_eq!(keys(""), ["s\u{0}2", "t\u{0}1"]);
        store.change_documents("a", vec![last]).expect("nothing to do");
        assert_eq!(keys("").len(), 2);
    }
}
