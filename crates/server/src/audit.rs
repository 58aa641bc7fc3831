//! The audit log: who asked for what, one JSON object a line, for everything that changes things.
//!
//! Queries and bodies are never written: they can hold tokens and code. A line that cannot be
//! written is told to the log; the request goes on.

use crate::error::{Doing, Error};
use serde::Serialize;
use stasis_api::Timestamp;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Mutex;

pub struct Audit {
    file: Mutex<File>,
}

#[derive(Debug, Serialize)]
pub struct Entry<'a> {
    /// The request's id.
    pub id: &'a str,
    pub account: Option<&'a str>,
    /// The token's id.
    pub token: Option<&'a str>,
    pub peer: &'a str,
    pub method: &'a str,
    pub path: &'a str,
    pub status: u16,
}

#[derive(Serialize)]
struct Line<'a> {
    at: Timestamp,
    #[serde(flatten)]
    entry: &'a Entry<'a>,
}

impl Audit {
    pub fn open(path: &Path) -> Result<Audit, Error> {
        let file = File::options().create(true).append(true).mode(0o600).open(path);
        let file = file.doing(|| format!("open {}", path.display()))?;
        Ok(Audit { file: Mutex::new(file) })
    }

    pub fn write(&self, entry: &Entry<'_>) {
        let line = serde_json::to_string(&Line { at: Timestamp::now(), entry });
        let Ok(mut line) = line else { return };
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(|poison| poison.into_inner());
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::error!(%error, "the audit log cannot be written");
        }
    }
}
