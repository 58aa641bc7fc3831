//! The contract: what clients send and get, the words for it, and the codes of errors.
//!
//!   SDK, CLI ──► api types ──► server ──► machine
//!
//! Pure data with no implementation behind it, so that every surface and every client means the
//! same thing. Fields only ever join; `openapi.json` is generated from here and committed.

#![forbid(unsafe_code)]

mod address;
mod error;
mod events;
mod files;
mod forever;
mod instruction;
mod machine;
mod name;
mod range;
mod service;
mod template;
mod travel;

pub use address::{Address, AddressError};
pub use error::{ErrorBody, Problem};
pub use events::{Event, EventFilter, EventKind};
pub use files::{
    AtPath, FileChange, FileEvent, FileInfo, FileKind, FileList, ListFiles, PutFile, RemoveFile,
    WatchFile,
};
pub use forever::{ExecResult, FromClient, Picture, ResultBody, ToClient};
pub use instruction::{
    Artifact, ArtifactList, Chunk, Data, Exec, Failure, Instruction, Kept, Outcome, Receipt, Shown,
    Status, Stream, Timeout,
};
pub use jiff::Timestamp;
pub use machine::{Durability, Limits, Machine, Network, NewMachine, Parent, State, Update, Usage};
pub use name::{Name, NameError};
pub use range::{OutOfRange, RANGES, Ranged, SEQ, Span, WHOLE, within};
pub use service::{
    Accepted, BranchRequest, Branches, BuildLine, BuildTemplate, Cancelled, CheckStore, Code,
    Complete, Completions, ExecRequest, Filter, Health, InstructionList, Interrupted, MachineList,
    Made, MadeToken, NewToken, Outputs, Range, Removed, Rollback, StoreChecked, StoreFinding,
    StoreFreed, StoreStats, TemplateList, Token, TokenList, Var, VarList, Whoami, timeout,
};
pub use template::Template;
pub use travel::{
    AdoptRequest, Adopted, Ancestor, BranchEnd, BranchLine, Candidate, Change, CompareRequest,
    Comparison, Conflict, DiskUse, ExploreRequest, Explored, FileChanges, FileDifference,
    FileQuery, FileView, FileViews, History, HistoryQuery, LabelRequest, Lineage, Output,
    OutputDifference, Point, PromoteRequest, Promoted, Relative, Retention, VariableDifference,
    Vary,
};
