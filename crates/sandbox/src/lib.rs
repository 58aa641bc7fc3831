//! The walls around a machine, as far as they can be decided or built without the machine.
//!
//!   config    which walls stand, and the limits
//!   ids       a range of user ids per machine, apart from everyone else's on the host
//!   seccomp   the calls a machine may make, each with its reason, compiled to a filter
//!   landlock  what is taken away beside calls
//!   cgroup    memory, processor and process limits, changeable while a machine runs
//!   disk      what a machine's files take up
//!
//! The engine and its spawner put these up; they are listed for readers in SECURITY.md. A wall
//! that this host cannot have is an error where it was asked for, or is told by `cgroup::Cgroups`.

#![forbid(unsafe_code)]

pub mod cgroup;
mod config;
pub mod disk;
mod ids;
pub mod landlock;
pub mod seccomp;
pub mod service;

pub use cgroup::{Cgroup, CgroupUsage, Cgroups};
pub use config::{DiskLimit, ResourceLimits, WallsConfig};
pub use ids::{IdRange, IdRanges, Ids};
