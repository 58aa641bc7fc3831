//! mcp-v8's surface. One program, because each would link everything below it; `ends` makes a run
//! hang, so it is another.

mod environment;
mod files;
mod headers;
mod mcpv8;
mod policies;
mod surface;
