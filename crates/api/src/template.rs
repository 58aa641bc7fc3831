//! A template as clients see it.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[schema(as = Template)]
pub struct TemplateInfo {
    pub name: String,
    /// The hash of everything it was built from.
    pub digest: String,
    #[schema(value_type = String, format = DateTime)]
    pub created_at: Timestamp,
    /// The language of its instructions, such as `python`.
    pub language: String,
    /// The language's version.
    pub version: String,
    /// The recipe it was built from, as TOML.
    pub recipe: String,
    /// The image machines start from.
    pub image: String,
    /// Its root file system.
    pub root: String,
}
