//! The service as clients see it: a real one on loopback, in this process, with real machines.
//!
//! Needs root and a Python on the host, like everything with machines.

mod accounts;
mod artifacts;
mod bad_input;
mod client;
mod crowd;
mod document;
mod events;
mod files;
mod forkd;
mod fuzzed;
mod history;
mod input;
mod instruments;
mod limits;
mod load;
mod machines;
mod mcp_load;
mod neighbours;
mod numbers;
mod policies;
mod private;
mod published;
mod quotas;
mod raised;
mod reports;
mod server;
mod socket;
mod storm;
mod streams;
mod template_limits;
mod traces;
mod transcript;
mod travel;
mod v8;
mod worker;
