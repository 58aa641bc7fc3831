//! Sockets of a machine: looked at for a capture, made again for a restore.

mod bind;
mod diag;
mod helper;
mod look;
mod steps;

pub use look::look;
pub use steps::make;
