//! Time travel: operations on earlier states and on related machines.
//!
//!   state_ref  one state, held while in use      read_only a restore of it that is not recorded
//!   changes ── what each checkpoint changed      compare ─ what differs between two states
//!   lineage ── who branched from whom            adopt ─── parts of one state into another
//!   promote ── two machines exchange names       vary ──── branches that run something at once
//!   retain ─── which checkpoints stay            explore ─ candidates, scored, the best kept
//!   export, import ─ a machine as one file
//!
//! None of them delays an instruction.

mod adopt;
mod base;
mod bundle;
mod carry;
mod changes;
mod compare;
mod explore;
mod export;
mod import;
mod lineage;
mod promote;
mod read_only;
mod retain;
mod state_ref;
mod unified;
mod vary;

pub(crate) use adopt::AdoptPayload;
pub use adopt::AdoptSelection;
pub use explore::Explore;
pub use export::Export;
pub use state_ref::StateRef;
pub use vary::{BranchPlan, BranchResult};
