//! The image engine: a live process tree out into an image, and back as often as asked.
//!
//!   launch ─► Tree ──capture──► Image ──restore──► Tree, Tree, Tree ...
//!                                 └─────park─────► template (the hot path of restore)
//!
//! `capture` and `plan`/`restore` mirror each other; `store` keeps images; `spawner` is the small
//! process that forks. See ARCHITECTURE.md for the walk through both.

#![forbid(unsafe_code)]

mod capture;
mod clone;
mod confine;
mod contents;
mod disk;
mod engine;
mod error;
#[doc(hidden)]
pub mod fault;
mod fill;
mod flatten;
mod forks;
mod freeze;
mod held;
mod identity;
mod inject;
mod inside;
mod jobs;
mod layers;
mod lazy;
mod objects;
mod origin;
mod parked;
mod plan;
mod proc;
mod restore;
mod rseq;
mod sockets;
mod spares;
mod spawner;
mod store;
mod sysv;
mod template;
mod track;
mod tree;
mod tty;
mod turns;
mod unlinked;
mod validate;
mod vdso;
mod walls;

pub use capture::{Captured, Counts};
pub use contents::{Contents, Difference, Entry, EntryKind, plain_path};
pub use engine::{Config, Engine, Outside};
pub use error::{Error, Result};
pub use inside::Inside;
pub use restore::Lazy;
pub use stasis_image::ImageId;
pub use stasis_image::{BundleError, BundleHead, PackRoot, SectionKind};
pub use stasis_sandbox::disk::DiskUsage;
pub use stasis_sandbox::{DiskLimit, Limits, Usage, WallsConfig};
pub use stasis_spawner::protocol::{LaunchSpec, Link, User};
#[doc(hidden)]
pub use store::fuzzing;
pub use store::{
    Checked, Collected, Collection, Damage, Finding, Image, Progress, Reformed, Repair, Scrap,
    Stats, Store, Usage as Space,
};
pub use tree::Tree;
pub use turns::Turns;
