//! Fetches by the host for an instruction: modules by name, and JavaScript for TypeScript files.
//!
//!   agent ── Fetch: module npm:a ──► host        one at a time, while the instruction waits
//!         ◄─ Fetched: package a@1, blobs ──
//!         ── Fetch: piece of a blob ──►          until the agent has all of it
//!         ◄─ Fetched: bytes ──
//!
//! A machine gets only pieces of blobs that an answer to the same instruction named.

use crate::PreparedCode;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a piece, before they are encoded.
pub const PIECE: u64 = 1 << 20;

/// The requested item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FetchRequest {
    /// A module by the name that an import gives it.
    Module { specifier: String },
    /// The bytes of a blob from an offset on, at most `PIECE` of them.
    Piece { hash: String, offset: u64 },
    /// The code to run in place of a file in a typed form of the language.
    Source { text: String },
}

/// The answer to a `FetchRequest`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum FetchAnswer {
    /// One file, at its final address.
    Text {
        url: String,
        form: TextForm,
        blob: BlobRef,
    },
    /// A package with everything it depends on.
    Package {
        /// The requested package, among `packages`.
        id: String,
        /// The part of the name after the package: empty, or a path that begins with `/`.
        subpath: String,
        packages: Vec<FetchedPackage>,
    },
    /// Bytes in base64.
    Piece {
        bytes: String,
    },
    Source(PreparedModule),
    /// Why there is none.
    Refused {
        message: String,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TextForm {
    Script,
    Typed,
    Json,
}

/// Bytes requested in pieces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlobRef {
    /// SHA-256, in hex.
    pub hash: String,
    pub size: u64,
}

/// A package. Its blob is a line of JSON, `[[path, size], ...]`, and then the files' bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedPackage {
    /// `name@version`.
    pub id: String,
    pub name: String,
    pub blob: BlobRef,
    /// Names that its files import, and the ids of the packages they mean.
    pub dependencies: BTreeMap<String, String>,
}

/// A typed file for the language's own loader.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreparedModule {
    pub code: PreparedCode,
    /// Whether it imports or exports at the top level.
    pub is_module: bool,
}
