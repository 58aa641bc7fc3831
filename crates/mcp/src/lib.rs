//! Machines for agents: MCP over a host, as Streamable HTTP, as the older HTTP+SSE, and over
//! standard streams.
//!
//!   client ──► http ──┐
//!   client ──► sse ───┴► server ──► tools, resources, guide ──► calls ──► Host
//!   client ──► proxy ──► http, of a service elsewhere or behind a unix socket
//!
//! The only state between calls is the machine's name in the arguments, never the connection. An
//! error on a machine is a result; only a request that cannot be parsed is a protocol error.

#![forbid(unsafe_code)]

mod answer;
mod approve;
mod call;
mod call_limiter;
mod changes;
mod complete;
mod confirm;
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
mod tool_texts;
mod tools;
mod travel;
mod v8;
mod v8_tasks;

pub use call_limiter::{CallLimiter, CallPermit};
pub use error::{Error, Result};
pub use http::{McpCaller, McpOptions, router};
pub use proxy::{Upstream, proxy, proxy_streams};
pub use sets::ToolSet;
pub use tool_texts::ToolTexts;
