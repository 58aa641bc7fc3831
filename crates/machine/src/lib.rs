//! Machines: their life, from creation over instructions and checkpoints to swap and removal.
//!
//!   Host ─┬─ Machine ── queue ──► driver ──► live: tree + line ──► agent
//!         ├─ Machine                │
//!         └─ ...                    └──► checkpoints (engine) and records (store)
//!
//! A `Host` owns a data directory. Each machine that is in memory has one driver, a thread that
//! alone changes the machine's state; everyone else puts instructions and wishes into its queue
//! and follows what happens. A machine that is swapped out has no thread, no process, no
//! descriptor: only records and an image.
//!
//! If this process is killed, every tree ends with it. What was acknowledged is in the records;
//! the next `Host::open` says of each instruction that was cut off what became of it.

#![forbid(unsafe_code)]

mod agent;
mod artifacts;
mod driver;
mod error;
mod events;
mod feed;
mod files;
mod held;
mod history;
mod host;
mod large;
mod leave;
mod life;
mod limits;
mod line;
mod lines;
mod live;
mod machine;
mod names;
mod network;
mod observe;
mod outcome;
mod pressure;
mod queue;
mod quota;
mod recover;
mod settings;
mod standby;
mod template;
mod tokens;
mod traffic;
mod travel;
mod upkeep;
mod warm;
mod watch;

pub use error::{Error, Result};
pub use events::{Everywhere, Interest, News};
pub use files::{Fault, Upload, Watch};
pub use history::{Branch, MAX_BRANCHES};
pub use host::Host;
pub use machine::{Machine, Progress};
pub use observe::{Cause, Moment, Observer};
pub use quota::{Quota, Used};
pub use settings::{Dirs, Settings};
pub use stasis_engine::Stats;
pub use stasis_protocol::Variable;
pub use stasis_store::{Checkpoint, MachineId, TokenRecord};
pub use template::DEFAULT as DEFAULT_TEMPLATE;
pub use travel::{Ended, Explore, Export, Place, Varied, Wanted};
pub use upkeep::{Checked, Found, Freed};
