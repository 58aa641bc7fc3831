//! What the commands of all our programs share: how they fail, and the program beside them.

#![forbid(unsafe_code)]

pub mod failure;
pub mod install;
