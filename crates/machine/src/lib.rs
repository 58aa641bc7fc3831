//! Machines: their lifecycle, from creation through instructions and checkpoints to swap and
//! removal.
//!
//!   Host ─┬─ Machine ── queue ──► driver ──► live: tree + line ──► agent
//!         ├─ Machine    state       │
//!         └─ ...                    └──► checkpoints (engine) and records
//!
//! A `Host` owns a data directory. A machine is in one of nine states (`state.rs`). A machine with
//! work has one driver, the only thread that acts on it; callers put instructions and actions
//! (`action.rs`) into its queue and follow the results. A swapped machine has no thread, process or
//! descriptor, only records and an image.
//!
//! If this process is killed, every tree ends with it. Every accepted instruction is in the
//! records; the next `Host::open` records the end of each interrupted one (`recover.rs`).

#![forbid(unsafe_code)]

mod action;
mod agent;
mod approvals;
mod artifacts;
mod background_save;
mod budgets;
mod connection;
mod documents;
mod driver;
mod early_restore;
mod effects;
mod endings;
mod error;
mod events;
mod feed;
mod files;
mod finish;
mod follow;
mod helpers;
mod history;
mod host;
mod imports;
mod input;
mod large;
mod lent_tools;
mod life;
mod limits;
mod lines;
mod live;
mod lock;
mod machine;
mod network;
mod observe;
mod outcome;
mod park;
mod pinned;
mod policies;
mod pressure;
mod queue;
mod quota;
mod recover;
mod registry;
mod removal;
mod run;
mod secrets;
mod settings;
mod standby_pool;
mod state;
mod steps;
mod submit;
mod template;
mod thread_count;
mod threads;
mod tokens;
mod tools;
mod traffic;
mod traffic_totals;
mod travel;
mod turns;
mod unsaved;
mod upkeep;
mod wake;
mod warm;
mod watch;
mod work;

pub use action::Steps;
pub use error::{Error, Result};
pub use events::{AllEvents, EventBatch, EventSelector, RefusalKey};
pub use files::{FileError, FileUser, Upload, Watch};
pub use follow::FollowUpdate;
pub use history::{Branch, MAX_BRANCHES};
pub use host::{Host, random};
pub use lock::is_process_ending;
pub use machine::Machine;
pub use observe::{ObservedEvent, Observer, TraceContext};
pub use quota::QuotaUsage;
pub use settings::{DataDirs, Settings};
pub use stasis_engine::{Preparation, remains};
pub use stasis_policy::commands::CommandText;
pub use stasis_policy::modules::ImportRule;
pub use stasis_policy::quota::Quota;
pub use stasis_protocol::Variable;
pub use stasis_records::{
    Checkpoint, DocumentChange, MachineId, TokenRecord, forbid_records_on_this_thread,
};
pub use stasis_secrets::{HeaderRule, KeySource};
pub use stasis_sys::error_context;
pub use stasis_tools::{ConfigFault, ServerTransport, ToolInfo, ToolServer};
pub use template::{DEFAULT as DEFAULT_TEMPLATE, MoreWarmUp};
pub use threads::{JobAborted, block, hand_over};
pub use travel::{AdoptSelection, BranchPlan, BranchResult, Explore, Export, StateRef};
