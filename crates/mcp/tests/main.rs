//! MCP as clients meet it. One program, because each links the whole service.

mod common;
mod conformance;
mod forkd;
mod guesses;
mod hostile;
mod tasks;
mod tools;
mod transports;
mod v8;
mod v8_setup;
mod walls;
