//! Records of templates. A name stands for the newest template built under it; machines keep the
//! one they were made from.

use crate::Store;
use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::machines::{optional, text, value};
use rusqlite::{Row, params};
use stasis_api::Template;

/// How a template is kept.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateRecord {
    pub template: Template,
    /// Variables its machines start with, the interpreter's path: whatever its builder needs.
    pub details: serde_json::Value,
}

impl Store {
    pub fn add_template(&self, new: &TemplateRecord, image: &dyn HeldImage) -> Result<()> {
        if new.template.image != image.name() {
            return Err(Error::NotHeld(new.template.image.clone()));
        }
        let body = text(&(&new.template, &new.details))?;
        self.durably(|connection| {
            connection.execute(
                "INSERT OR REPLACE INTO templates (digest, name, created_ms, image, template) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    new.template.digest,
                    new.template.name,
                    new.template.created_at.as_millisecond(),
                    new.template.image,
                    body,
                ],
            )?;
            Ok(())
        })
    }

    /// The newest template of a name, or the one with a digest.
    pub fn template(&self, name_or_digest: &str) -> Result<Option<TemplateRecord>> {
        let sql = "SELECT template FROM templates WHERE digest = ?1 OR name = ?1 \
                   ORDER BY created_ms DESC LIMIT 1";
        let connection = self.lock();
        let mut statement = connection.prepare_cached(sql)?;
        optional(statement.query_row([name_or_digest], |row| Ok(read(row))))
    }

    pub fn templates(&self) -> Result<Vec<TemplateRecord>> {
        let connection = self.lock();
        let mut statement =
            connection.prepare_cached("SELECT template FROM templates ORDER BY created_ms DESC")?;
        let rows = statement.query_and_then([], read)?;
        rows.collect()
    }

    /// How many machines were made from it.
    pub fn template_users(&self, digest: &str) -> Result<u64> {
        let sql = "SELECT count(*) FROM machines WHERE template = ?1";
        let count: i64 = self.lock().query_row(sql, [digest], |row| row.get(0))?;
        Ok(count as u64)
    }

    /// Forgets a template, unless machines stand on it; how many do.
    pub fn remove_template(&self, digest: &str) -> Result<u64> {
        self.durably(|connection| {
            let sql = "SELECT count(*) FROM machines WHERE template = ?1";
            let users: i64 = connection.query_row(sql, [digest], |row| row.get(0))?;
            if users == 0 {
                connection.execute("DELETE FROM templates WHERE digest = ?1", [digest])?;
            }
            Ok(users as u64)
        })
    }
}

fn read(row: &Row<'_>) -> Result<TemplateRecord> {
    let (template, details) = value(row, 0)?;
    Ok(TemplateRecord { template, details })
}
