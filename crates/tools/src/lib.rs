//! Upstream MCP servers whose tools machines call.
//!
//!   hub ─► upstream: connection, list of tools ─┬─► stdio: a child process
//!                                               ├─► http: Streamable HTTP ◄─ tokens (OAuth)
//!                                               └─► sse: HTTP+SSE, of older servers
//!
//! A connection is made with the first use, kept, and made again after it broke. A call is sent
//! once: if the connection breaks while it is under way, the caller gets an error that says so.
//! Everything an upstream server sends is bounded before it is parsed, and every wait has a
//! deadline.

#![forbid(unsafe_code)]

mod auth_config;
mod bounds;
mod config;
mod error;
mod http;
mod hub;
mod login;
mod oauth;
mod sse;
mod token_cache;
mod tokens;
mod upstream;

pub use auth_config::{BrowserAuth, ClientAuth, ServerAuth};
pub use bounds::{DEEPEST, LONGEST, VALUES};
pub use config::{ConfigFault, ServerTransport, ToolServer, is_server_name};
pub use error::ToolFault;
pub use hub::{ToolHub, ToolScope};
pub use upstream::{ToolInfo, ToolList, ToolOutcome};
