//! The API contract: requests, responses, and error codes.
//!
//!   SDK, CLI ──► api types ──► server ──► machine
//!
//! This crate is pure data, so every surface and every client shares one definition. Fields are
//! only ever added. `openapi.json` is generated from here and committed.

#![forbid(unsafe_code)]

mod address;
mod error;
mod events;
mod files;
mod forever;
mod instruction;
mod machine;
mod name;
mod network;
mod object;
mod policy;
mod range;
mod secret;
mod service;
mod template;
mod tool;
mod travel;
mod whole;

pub use address::{Address, AddressError};
pub use error::{ErrorBody, Problem};
pub use events::{Event, EventFilter, EventKind};
pub use files::{
    AtPath, FileChange, FileEvent, FileInfo, FileKind, FileList, ListFiles, PutFile, RemoveFile,
    WatchFile,
};
pub use forever::{ExecResult, FromClient, Picture, ResultBody, ToClient};
pub use instruction::{
    Artifact, ArtifactList, Chunk, Data, Exec, Failure, ImportedModule, Instruction, KeptArtifact,
    Outcome, Receipt, Shown, Status, Stream, Timeout,
};
pub use jiff::Timestamp;
pub use machine::{
    Checkpoints, Durability, Limits, MachineInfo, NewMachine, Parent, State, Update, Usage,
};
pub use name::{Name, NameError};
pub use network::{Network, NetworkError};
pub use policy::{
    BudgetLimits, ExplainQuery, Explanation, PolicyCase, PolicyDocument, PolicyInfo, PolicyList,
    PolicyRules, PolicyVerdict, RefusedAccess, TrafficLimits,
};
pub use range::{OutOfRange, RANGES, Ranged, SEQ, STEPS, ValueRange, WHOLE, within};
pub use secret::{
    MachineSecret, MachineSecrets, OauthClient, SecretInfo, SecretKind, SecretList, SetSecret,
};
pub use service::{
    Accepted, BranchRequest, Branches, BuildLine, BuildTemplate, Cancelled, CheckStore, Code,
    Complete, Completions, CreatedMachine, ExecRequest, Health, InputLine, InputTaken,
    InstructionList, InstructionRange, Interrupted, MachineFilter, MachineList, MadeToken,
    NewToken, Outputs, Removed, Rollback, StepRequest, StoreChecked, StoreFinding, StoreFreed,
    StoreStats, TemplateList, Token, TokenList, Var, VarList, Whoami, timeout,
};
pub use template::TemplateInfo;
pub use tool::{
    ApprovalAnswer, ApprovalChoice, ApprovalList, ApprovalQuery, ToolCallInfo, ToolCallList,
    ToolCallState,
};
pub use travel::{
    AdoptRequest, Adopted, Ancestor, BranchEnd, BranchLine, Candidate, Change, CompareRequest,
    Comparison, Conflict, DiskUse, ExploreRequest, Explored, FileChanges, FileDifference,
    FileQuery, FileView, FileViews, History, HistoryQuery, LabelRequest, Lineage, OlderCheckpoints,
    Output, OutputDifference, Point, PromoteRequest, Promoted, Relative, Retention,
    VariableDifference, Vary,
};
