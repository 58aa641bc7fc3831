//! Machines for agents: MCP over a host, as Streamable HTTP, as the older HTTP+SSE, and over
//! standard streams.
//!
//!   client ──► http ──┐
//!   client ──► sse ───┴► server ──► tools, resources, guide ──► calls ──► Host
//!   client ──► proxy ──► http, of a service elsewhere or behind a unix socket
//!
//! State between calls is the machine's name in the arguments, never the connection. What goes
//! wrong on a machine is a result that says so; only a request that cannot be understood is an
//! error of the protocol.

#![forbid(unsafe_code)]

mod answer;
mod ask;
mod call;
mod call_limiter;
mod changes;
mod complete;
mod error;
mod files;
mod fixtures;
mod forevervm;
mod forkd;
mod guide;
mod http;
mod input;
mod legacy;
mod lenient;
mod listen;
mod notes;
mod output;
mod packages;
mod proxy;
mod resources;
mod server;
mod sessions;
mod sets;
mod sse;
mod table;
mod tasks;
mod text;
mod tools;
mod travel;
mod v8;
mod v8_tasks;
mod words;

pub use call_limiter::{CallLimiter, CallPermit};
pub use error::{Error, Result};
pub use http::{McpCaller, McpOptions, router};
pub use proxy::{Upstream, proxy, proxy_streams};
pub use sets::ToolSet;
pub use words::ToolTexts;
