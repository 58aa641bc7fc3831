//! Types of templates.
//!
//! Written by `python3 sdk/generate`; change the document instead.

use super::ErrorBody;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// A line of a build's progress.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub say: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template: Option<Template>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorBody>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct BuildTemplate {
    /// The recipe as TOML.
    pub recipe: String,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Template {
    pub created_at: Timestamp,
    /// The hash of everything it was built from.
    pub digest: String,
    /// The image machines start from.
    pub image: String,
    /// The language of its instructions, such as `python`.
    pub language: String,
    pub name: String,
    /// The recipe it was built from, as TOML.
    pub recipe: String,
    /// Its root file system.
    pub root: String,
    /// The language's version.
    pub version: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct TemplateList {
    pub templates: Vec<Template>,
}
