//! Templates' root file systems, from recipes.
//!
//!   recipe.toml ──► Recipe ──► base (host, debian, oci) ──► packages ──► <roots>/<name>/
//!                         └──► host's userland, Node ─────────────┘     <roots>/<name>.json
//!
//! Also the modules that the host fetches for imports of machines (`modules`): from the same
//! registry, checked in the same way.
//!
//! A root is a directory that is never written again, and everything in it is a copy. Machines see
//! it below their own changes. An error names the failed step, has a code and a hint, and leaves
//! nothing but downloads behind.

#![forbid(unsafe_code)]

mod build;
mod build_lock;
mod carry;
mod check;
mod debian;
mod error;
mod host;
mod index;
mod inside;
mod jailed;
mod modules;
mod node;
mod npm;
mod oci;
mod packages;
mod progress;
mod recipe;
mod registry;
mod root;
mod seal;
mod size;
mod tool;
mod tree;

pub use build::build_root;
pub use carry::{export, import};
pub use error::{Error, Result};
pub use modules::{FetchedImport, ModuleStore, PinnedModule, Registries};
pub use progress::{NoProgress, Progress};
pub use recipe::{Base, ImageSource, Recipe, RecipeLimits};
pub use root::{FORMAT, Root, inspect, list, remove};
pub use size::Size;
