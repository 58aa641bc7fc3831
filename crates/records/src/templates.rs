//! Records of templates. A name refers to the newest template built under it; machines keep the one
//! they were created from.

use crate::Records;
use crate::error::{Error, Result};
use crate::held::HeldImage;
use crate::machines::{optional, text, value};
use rusqlite::{Connection, Row, params};
use stasis_api::TemplateInfo;
use stasis_image::ImageId;

/// The record of a template.
#[derive(Debug, Clone, PartialEq)]
pub struct TemplateRecord {
    pub template: TemplateInfo,
    /// The image that `template` names.
    pub image: ImageId,
    /// Environment variables, the interpreter's path and other data of its builder.
    pub details: serde_json::Value,
}

impl Records {
    pub fn add_template(&self, new: &TemplateRecord, image: &dyn HeldImage) -> Result<()> {
        let image = image.id();
        if new.image != image || new.template.image != image.to_string() {
            return Err(Error::NotHeld(new.image));
        }
        let body = text(&(&new.template, &new.details))?;
        let template = new.template.clone();
        self.write_synced(move |connection| {
            connection.execute(
                "INSERT OR REPLACE INTO templates (digest, name, created_ms, image, template) \
                 VALUES (?1, ?2, ?3, ?4, ?5)",
                params![
                    template.digest,
                    template.name,
                    template.created_at.as_millisecond(),
                    template.image,
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
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            optional(statement.query_row([name_or_digest], |row| Ok(read(row))))
        })
    }

    pub fn templates(&self) -> Result<Vec<TemplateRecord>> {
        let sql = "SELECT template FROM templates ORDER BY created_ms DESC";
        self.read(|connection| {
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_and_then([], read)?;
            rows.collect()
        })
    }

    /// Number of machines created from it.
    pub fn template_users(&self, digest: &str) -> Result<u64> {
        self.read(|connection| users(connection, digest))
    }

    /// Removes a template, unless machines use it; returns how many do.
    pub fn remove_template(&self, digest: &str) -> Result<u64> {
        let digest = digest.to_owned();
        self.write_synced(move |connection| {
            let users = users(connection, &digest)?;
            if users == 0 {
                connection.execute("DELETE FROM templates WHERE digest = ?1", [digest])?;
            }
            Ok(users)
        })
    }
}

fn users(connection: &Connection, digest: &str) -> Result<u64> {
    let sql = "SELECT count(*) FROM machines WHERE template = ?1";
    let count: i64 = connection.query_row(sql, [digest], |row| row.get(0))?;
    Ok(count as u64)
}

fn read(row: &Row<'_>) -> Result<TemplateRecord> {
    let (template, details): (TemplateInfo, _) = value(row, 0)?;
    let unknown = |_| Error::Missing(format!("an image called {:?}", template.image));
    let image = template.image.parse().map_err(unknown)?;
    Ok(TemplateRecord { template, image, details })
}
