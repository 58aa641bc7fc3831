//! Shared code of the engine's integration tests.
//!
//!   places ─► where root, spawner, programs and interpreters are
//!   catalog ─► tests/programs/programs.toml
//!   bench ─► an engine in a directory of its own: launch, capture, restore
//!   program ─► one live program and its conversation
//!   undisturbed ─► what the same conversation is when nothing happens to the program
//!   watch ─► turns a hang into a failure that says where

// every test takes what it needs of this
#![allow(dead_code, unused_imports)]

mod bench;
mod catalog;
mod failure;
mod places;
mod program;
mod undisturbed;
mod watch;

pub use bench::{Bench, Saved};
pub use catalog::{Kind, Spec};
pub use failure::Failure;
pub use places::Places;
pub use program::{AFTER, BEFORE, Program};
pub use undisturbed::same_as_undisturbed;
pub use watch::{Watch, within};

pub type Result<T> = std::result::Result<T, Failure>;
