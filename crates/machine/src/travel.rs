//! Moving through machines' pasts and among their relatives.
//!
//!   place ──── one state, held while in use      glance ── a passing copy of it, to ask things
//!   changes ── what each checkpoint changed      compare ─ what differs between two states
//!   lineage ── who branched from whom            adopt ─── parts of one state into another
//!   promote ── two machines exchange names       vary ──── branches that run something at once
//!   retain ─── which checkpoints stay            explore ─ candidates, scored, the best kept
//!   export, import ─ a machine as one file
//!
//! None of it is in the way of an instruction: what is not asked for costs nothing.

mod adopt;
mod base;
mod bundle;
mod carry;
mod changes;
mod compare;
mod explore;
mod export;
mod glance;
mod import;
mod lineage;
mod place;
mod promote;
mod python;
mod retain;
mod vary;

pub use adopt::Wanted;
pub use explore::Explore;
pub use export::Export;
pub use place::Place;
pub use vary::{Ended, Varied};
