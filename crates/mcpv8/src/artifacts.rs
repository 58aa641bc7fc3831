//! Artifacts: bytes that code stores with `artifact(key, mime, bytes)`. Each account has its own
//! keys; storing a key again replaces its artifact.
//!
//!   machine: /tmp/.mcp-v8/index, 0, 1, … ─► <data>/mcp-v8/<hash of account and key> and a record
//!
//! The machine's files are untrusted: every size, key and type is checked here. Artifacts that fail
//! a check are omitted.

use crate::V8;
use crate::documents::{ARTIFACT, put};
use crate::error::{Error, Result};
use crate::executions::shown;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use stasis_api::Timestamp;
use stasis_machine::{DocumentChange, FileUser, Machine};
use std::io::{Read, Write};
use std::path::PathBuf;
use std::sync::Arc;

const EMITTED: &str = "/tmp/.mcp-v8";
const LONGEST_KEY: usize = 256;
const LONGEST_MIME: usize = 128;
const LARGEST: u64 = 16 << 20;
const LONGEST_INDEX: u64 = 256 << 10;
/// Maximum artifacts of one run, and bytes of all artifacts of an account.
const MOST_OF_RUN: usize = 100;
const MOST_BYTES: u64 = 1 << 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactMeta {
    pub key: String,
    pub mime_type: String,
    pub size_bytes: u64,
    pub created_at: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution_id: Option<String>,
}

/// An artifact's bytes, in the form shown to a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactPayload {
    Image { base64: String },
    Audio { base64: String },
    Text(String),
    Base64(String),
}

impl ArtifactPayload {
    pub fn new(mime: &str, bytes: Vec<u8>) -> ArtifactPayload {
        let encoded = |bytes: &[u8]| BASE64_STANDARD.encode(bytes);
        if mime.starts_with("image/") {
            return ArtifactPayload::Image { base64: encoded(&bytes) };
        }
        if mime.starts_with("audio/") {
            return ArtifactPayload::Audio { base64: encoded(&bytes) };
        }
        match String::from_utf8(bytes) {
            Ok(text) => ArtifactPayload::Text(text),
            Err(odd) => ArtifactPayload::Base64(encoded(odd.as_bytes())),
        }
    }

    pub fn encoding(&self) -> &'static str {
        match self {
            ArtifactPayload::Image { .. } => "image",
            ArtifactPayload::Audio { .. } => "audio",
            ArtifactPayload::Text(_) => "utf-8",
            ArtifactPayload::Base64(_) => "base64",
        }
    }
}

/// A line of the index that code writes.
#[derive(Deserialize)]
struct Emitted {
    number: u64,
    key: String,
    mime: String,
}

impl Emitted {
    fn is_sound(&self) -> bool {
        let visible = |byte: u8| (0x21..0x7f).contains(&byte);
        let mime = self.mime.len() <= LONGEST_MIME && self.mime.bytes().all(visible);
        let has_key = !self.key.is_empty() && self.key.len() <= LONGEST_KEY;
        has_key && mime && self.mime.contains('/') && !self.key.contains('\0')
    }
}

impl V8 {
    /// Stores the artifacts of a run; returns them, and the changes that record them.
    pub(crate) fn take_artifacts(
        &self,
        account: &str,
        id: &str,
        machine: &Arc<Machine>,
    ) -> Result<(Vec<ArtifactMeta>, Vec<DocumentChange>)> {
        let Some(index) = bytes(machine, &format!("{EMITTED}/index"), LONGEST_INDEX) else {
            return Ok((Vec::new(), Vec::new()));
        };
        let index = String::from_utf8_lossy(&index).into_owned();
        let lines = index.lines().filter_map(|line| serde_json::from_str::<Emitted>(line).ok());
        let mut room = MOST_BYTES.saturating_sub(self.artifact_bytes(account)?);
        let mut kept: Vec<ArtifactMeta> = Vec::new();
        for one in lines.filter(Emitted::is_sound).take(MOST_OF_RUN) {
            let path = format!("{EMITTED}/{}", one.number);
            let Some(content) = bytes(machine, &path, LARGEST.min(room)) else { continue };
            room -= content.len() as u64;
            self.store(account, &one.key, &content)?;
            kept.retain(|before| before.key != one.key);
            kept.push(ArtifactMeta {
                key: one.key,
                mime_type: one.mime,
                size_bytes: content.len() as u64,
                created_at: Timestamp::now().to_string(),
                execution_id: Some(id.to_owned()),
            });
        }
        let changes = kept.iter().map(|meta| put(ARTIFACT, &meta.key, meta)).collect::<Result<_>>();
        Ok((kept, changes?))
    }

    fn artifact_bytes(&self, account: &str) -> Result<u64> {
        Ok(self.artifacts(account)?.iter().map(|meta| meta.size_bytes).sum())
    }

    fn artifact_path(&self, account: &str, key: &str) -> PathBuf {
        let hash = blake3::hash(format!("{account}\0{key}").as_bytes());
        self.host.data_dir().join("mcp-v8").join(hash.to_hex().as_str())
    }

    /// Writes an artifact, all or nothing.
    fn store(&self, account: &str, key: &str, content: &[u8]) -> Result<()> {
        let path = self.artifact_path(account, key);
        let failed = |error: std::io::Error| {
            Error::new(500, format!("cannot store artifact '{}': {error}", shown(key)))
        };
        let dir = path.parent().unwrap_or_else(|| self.host.data_dir());
        std::fs::create_dir_all(dir).map_err(failed)?;
        let mut file = tempfile::NamedTempFile::new_in(dir).map_err(failed)?;
        file.write_all(content).map_err(failed)?;
        file.persist(&path).map_err(|error| failed(error.error))?;
        Ok(())
    }

    /// All artifacts of an account, by key.
    pub fn artifacts(&self, account: &str) -> Result<Vec<ArtifactMeta>> {
        let all = self.read_all(account, ARTIFACT, "")?;
        Ok(all.into_iter().map(|(_, meta)| meta).collect())
    }

    pub fn artifact(&self, account: &str, key: &str) -> Result<(ArtifactMeta, Vec<u8>)> {
        let missing = || Error::missing(format!("artifact '{}' not found", shown(key)));
        let meta: ArtifactMeta = self.read(account, ARTIFACT, key)?.ok_or_else(missing)?;
        let content = std::fs::read(self.artifact_path(account, key));
        let content = content.map_err(|error| {
            Error::new(500, format!("cannot read artifact '{}': {error}", shown(key)))
        })?;
        Ok((meta, content))
    }
}

/// A file of a machine, if it exists and is within the limit.
fn bytes(machine: &Arc<Machine>, path: &str, most: u64) -> Option<Vec<u8>> {
    let (info, file) = machine.read_file_for(FileUser::Service, path).ok()?;
    if info.size > most {
        return None;
    }
    let mut content = Vec::new();
    file.take(most + 1).read_to_end(&mut content).ok()?;
    (content.len() as u64 <= most).then_some(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_own_words_are_checked() {
        let emitted = |key: &str, mime: &str| {
            Emitted { number: 0, key: key.into(), mime: mime.into() }.is_sound()
        };
        assert!(emitted("chart", "image/png"));
        for (key, mime) in [("", "a/b"), ("k", "png"), ("k", "a/b\n"), ("a\0b", "a/b")] {
            assert!(!emitted(key, mime), "{key:?} {mime:?}");
        }
        assert!(!emitted(&"k".repeat(257), "a/b"));
    }

    #[test]
    fn payloads_by_their_type() {
        assert_eq!(ArtifactPayload::new("image/png", vec![1]).encoding(), "image");
        assert_eq!(ArtifactPayload::new("text/csv", b"a,b".to_vec()).encoding(), "utf-8");
        assert_eq!(ArtifactPayload::new("application/x", vec![0xff]).encoding(), "base64");
    }
}
