//! Types of requests and responses, from the OpenAPI document.
//!
//! Written by `python3 sdk/generate`; change the document instead. Fields and words only ever
//! join: what this version does not know is passed over, or [`Newer`](State::Newer).

mod approvals;
mod events;
mod files;
mod history;
mod instructions;
mod machines;
mod policies;
mod secrets;
mod service;
mod store;
mod templates;
mod tokens;

pub use approvals::*;
pub use events::*;
pub use files::*;
pub use history::*;
pub use instructions::*;
pub use machines::*;
pub use policies::*;
pub use secrets::*;
pub use service::*;
pub use store::*;
pub use templates::*;
pub use tokens::*;
