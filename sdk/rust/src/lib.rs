//! The Rust SDK of Stasis: stateful code machines for AI agents.
//!
//! ```text
//!   Client ─► Machine ─► Instruction ─► RunResult
//!      └────────┴──────────┴──► transport: one pool of connections, retries, typed errors
//! ```
//!
//! Every failure is an [`Error`] with the service's code and hint.
#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod branches;
mod client;
mod error;
mod events;
mod exec;
mod files;
mod follow;
mod here;
mod instruction;
mod listen;
mod local;
mod machine;
mod moving;
mod repl;
mod result;
mod retry;
mod sse;
mod transport;
pub mod types;

pub use branches::{AttemptOptions, Past};
pub use client::{Builder, Client, StreamedResult};
pub use error::{ApiError, Error, Kind, Result};
pub use events::Wanted;
pub use exec::{Exec, Run};
pub use files::Files;
/// For `next()` on the streams of this crate.
pub use futures_util::StreamExt;
pub use instruction::{Instruction, Progress, Streamed};
pub use jiff::Timestamp;
pub use machine::Machine;
pub use moving::Export;
pub use repl::Repl;
pub use result::RunResult;
pub use retry::Retry;
