//! The image engine: a live process tree out into an image, and back as often as asked.
//!
//!   launch ─► Tree ──capture──► Image ──restore──► Tree, Tree, Tree ...
//!                                 └─────park─────► template (the hot path of restore)
//!
//! `capture` and `plan`/`restore` mirror each other; the crate `store` keeps images; `spawner` is
//! the small process that forks. See ARCHITECTURE.md for the walk through both.

#![forbid(unsafe_code)]

mod capture;
mod clone;
mod confine;
mod contents;
mod disk;
mod disk_watch;
mod engine;
mod error;
mod fair_queue;
mod fill;
mod flatten;
mod forks;
mod freeze;
#[doc(hidden)]
pub mod fuzzing;
mod held;
mod identity;
mod inject;
mod inside;
mod jobs;
mod lazy;
mod objects;
mod plan;
mod prepared;
mod proc;
mod registers;
mod remains;
mod restore;
mod rseq;
mod sockets;
mod spare_pool;
mod spawner;
mod sysv;
mod template;
mod template_pool;
mod track;
mod tree;
mod tty;
mod unlinked;
mod unsaved;
mod validate;
mod vdso;
mod walls;

pub use capture::Captured;
pub use contents::{ContentEntry, Contents, Difference, EntryKind, plain_path};
pub use disk::DiskExcess;
pub use engine::{Engine, EngineConfig, OutsideFds, PreparedCounts};
pub use error::{Error, Result};
pub use fair_queue::FairQueue;
pub use inside::TreeAccess;
pub use prepared::{
    Demand, LONG_LULL, LULL, PoolSizes, Preparation, PreparedBudget, PreparedItem, PreparedKind,
    PreparedShare,
};
pub use remains::remains;
pub use restore::Lazy;
#[doc(hidden)]
pub use stasis_fault as fault;
pub use stasis_image::ImageId;
pub use stasis_image::{BundleError, BundleHead, PackRoot, SectionKind};
pub use stasis_sandbox::disk::DiskUsage;
pub use stasis_sandbox::{CgroupUsage, DiskLimit, ResourceLimits, WallsConfig};
pub use stasis_spawner::protocol::{LaunchSpec, NetworkLink, User};
pub use stasis_store::Error as StoreError;
pub use stasis_store::{
    CheckProgress, CheckReport, Collected, Collection, Damage, DamageFinding, Image, PageCounts,
    Repair, RewrittenPack, Store, StoreUsage, TempFile,
};
pub use tree::Tree;
pub use unsaved::UnsavedState;
