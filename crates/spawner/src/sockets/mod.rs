//! Sockets of a machine: inspected for a capture, created for a restore.

mod bind;
mod diag;
mod helper;
mod inspect;
mod steps;

pub use inspect::look;
pub use steps::make;
