//! Records of named policies.

use crate::Records;
use crate::error::Result;
use crate::machines::{text, time, value};
use rusqlite::{Row, params};
use stasis_api::{Name, Network, PolicyInfo};

impl Records {
    /// Adds a policy, or replaces the one of that name.
    pub fn set_policy(&self, info: &PolicyInfo) -> Result<()> {
        let (name, document) = (text(&info.name)?, text(&info.document)?);
        let changed_ms = info.changed_at.as_millisecond();
        self.write_synced(move |connection| {
            let sql =
                "INSERT OR REPLACE INTO policies (name, document, changed_ms) VALUES (?1, ?2, ?3)";
            connection.execute(sql, params![name, document, changed_ms])?;
            Ok(())
        })
    }

    /// All policies, by name.
    pub fn policies(&self) -> Result<Vec<PolicyInfo>> {
        let sql = "SELECT name, document, changed_ms FROM policies ORDER BY name";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then([], read)?;
            rows.collect()
        })
    }

    /// Removes a policy unless machines have it; how many have.
    pub fn remove_policy(&self, name: &Name) -> Result<u64> {
        let (key, network) = (text(name)?, text(&Network::Policy(name.clone()))?);
        self.write_synced(move |connection| {
            let sql = "SELECT count(*) FROM machines WHERE network = ?1";
            let machines: i64 = connection.query_row(sql, [network], |row| row.get(0))?;
            if machines == 0 {
                connection.execute("DELETE FROM policies WHERE name = ?1", [key])?;
            }
            Ok(machines as u64)
        })
    }
}

fn read(row: &Row<'_>) -> Result<PolicyInfo> {
    Ok(PolicyInfo { name: value(row, 0)?, document: value(row, 1)?, changed_at: time(row.get(2)?) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_api::{PolicyDocument, PolicyRules};

    #[test]
    fn set_listed_removed() {
        let dir = tempfile::tempdir().expect("a directory");
        let network = PolicyRules { allow: vec!["a.example".into()], ..PolicyRules::default() };
        let info = PolicyInfo {
            name: "web".parse().expect("a name"),
            changed_at: time(5),
            document: PolicyDocument::default(),
        };
        let changed = PolicyInfo {
            document: PolicyDocument { network, ..PolicyDocument::default() },
            ..info.clone()
        };
        let store = Records::open(dir.path()).expect("a store");
        store.set_policy(&info).expect("set");
        store.set_policy(&changed).expect("replaced");
        drop(store);
        let store = Records::open(dir.path()).expect("the same");
        assert_eq!(store.policies().expect("a list"), std::slice::from_ref(&changed));
        assert_eq!(store.remove_policy(&changed.name).expect("removed"), 0);
        assert_eq!(store.policies().expect("a list"), []);
    }
}
