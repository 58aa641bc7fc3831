//! The sandbox of a machine: the parts that can be decided or built without the machine.
//!
//!   config    the layers that are on, and the limits
//!   ids       a range of user ids per machine, not used by others on the host
//!   seccomp   the calls a machine may make, each with its reason, compiled to a filter
//!   landlock  restrictions beside system calls
//!   cgroup    memory, processor and process limits, changeable while a machine runs
//!   disk      the size of a machine's files
//!
//! The engine and its spawner apply these; SECURITY.md lists them for readers. A layer that this
//! host cannot have is an error where it is requested, or is reported by `cgroup::Cgroups`.

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
