//! Shared parts of our programs' commands: failures, and the spawner beside them.

#![forbid(unsafe_code)]

pub mod failure;
pub mod install;
