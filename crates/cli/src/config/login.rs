//! The stored login: one service and its token, in a file that only this user can read.
//!
//! The token is used for that service only. A file that other users can read is refused, because
//! the token may have leaked.

use super::home;
use crate::failure::{CliFailure, PathContext, Result};
use serde::{Deserialize, Serialize};
use std::fs::{DirBuilder, File};
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::PathBuf;

#[derive(Clone, Serialize, Deserialize)]
pub struct Login {
    pub url: String,
    pub token: String,
}

impl Login {
    pub fn path() -> PathBuf {
        home("XDG_CONFIG_HOME", ".config").join("stasis/login.toml")
    }

    /// The stored login, if any.
    pub fn read() -> Result<Option<Login>> {
        let path = Login::path();
        let about = match std::fs::metadata(&path) {
            Ok(about) => about,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at("read", &path),
        };
        let wrong = |what: String| {
            CliFailure::new("login.unusable", format!("{}: {what}", path.display()))
                .hint("`stasis logout` removes it")
        };
        if about.permissions().mode() & 0o077 != 0 {
            return Err(wrong("others may read it".into()));
        }
        let text = std::fs::read_to_string(&path).at("read", &path)?;
        let login = toml::from_str(&text).map_err(|error| wrong(error.message().to_owned()))?;
        Ok(Some(login))
    }

    /// Replaces the stored login atomically.
    pub fn write(&self) -> Result<PathBuf> {
        let path = Login::path();
        let dir = path.parent().unwrap_or(&path);
        DirBuilder::new().recursive(true).mode(0o700).create(dir).at("make", dir)?;
        let text = toml::to_string(self)
            .map_err(|error| CliFailure::new("login.unusable", error.to_string()))?;
        let part = path.with_extension(format!("{}.part", std::process::id()));
        let file = File::options().write(true).create_new(true).mode(0o600).open(&part);
        let written = file.and_then(|mut file| {
            file.write_all(text.as_bytes())?;
            file.sync_all()?;
            std::fs::rename(&part, &path)
        });
        if written.is_err() {
            let _ = std::fs::remove_file(&part);
        }
        written.at("write", &path).map(|()| path)
    }

    /// Removes the login; whether there was one.
    pub fn remove() -> Result<bool> {
        let path = Login::path();
        match std::fs::remove_file(&path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).at("remove", &path),
        }
    }
}
