//! The `stasis` program as people use it. One program, because each would link the same crates;
//! `alone`, which compares help texts with files, is another.

mod approvals;
mod bench;
mod common;
mod daemon;
mod first_hour;
mod install;
mod keys;
mod mcp_clients;
mod mcp_install;
mod mcp_v8;
mod mcp_v8_files;
mod mcp_v8_setup;
mod mcp_v8_tools;
mod rows;
mod screen;
mod serve;
mod service;
mod v8;
