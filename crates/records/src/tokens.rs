//! Records of tokens. The secret itself is never kept, only its hash.

use crate::Records;
use crate::error::Result;
use crate::machines::{text, time, value};
use rusqlite::{Row, params};
use stasis_api::Timestamp;

#[derive(Debug, Clone, PartialEq)]
pub struct TokenRecord {
    pub id: String,
    /// The secret's hash.
    pub secret: String,
    pub name: Option<String>,
    pub account: String,
    pub scopes: Vec<String>,
    pub created_at: Timestamp,
}

impl Records {
    /// Adds a token, or replaces the one with that id.
    pub fn set_token(&self, new: &TokenRecord) -> Result<()> {
        let (new, scopes) = (new.clone(), text(&new.scopes)?);
        self.write_synced(move |connection| {
            connection.execute(
                "INSERT OR REPLACE INTO tokens (id, secret, name, account, scopes, created_ms) \
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                params![
                    new.id,
                    new.secret,
                    new.name,
                    new.account,
                    scopes,
                    new.created_at.as_millisecond(),
                ],
            )?;
            Ok(())
        })
    }

    /// All tokens, oldest first.
    pub fn tokens(&self) -> Result<Vec<TokenRecord>> {
        let sql = "SELECT id, secret, name, account, scopes, created_ms FROM tokens \
                   ORDER BY created_ms, id";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then([], read)?;
            rows.collect()
        })
    }

    /// Whether there was one.
    pub fn remove_token(&self, id: &str) -> Result<bool> {
        let id = id.to_owned();
        self.write_synced(move |connection| {
            Ok(connection.execute("DELETE FROM tokens WHERE id = ?1", [id])? > 0)
        })
    }
}

fn read(row: &Row<'_>) -> Result<TokenRecord> {
    Ok(TokenRecord {
        id: row.get(0)?,
        secret: row.get(1)?,
        name: row.get(2)?,
        account: row.get(3)?,
        scopes: value(row, 4)?,
        created_at: time(row.get(5)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn set_listed_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let store = Records::open(dir.path()).expect("a store");
        let token = TokenRecord {
            id: "abc".into(),
            secret: "hash".into(),
            name: None,
            account: "root".into(),
            scopes: vec!["machines".into()],
            created_at: time(5),
        };
        store.set_token(&token).expect("set");
        let changed = TokenRecord { name: Some("ci".into()), ..token };
        store.set_token(&changed).expect("replaced");
        assert_eq!(store.tokens().expect("a list"), [changed]);
        assert!(store.remove_token("abc").expect("removed"));
        assert!(!store.remove_token("abc").expect("asked again"));
    }
}
