//! `stasis bench`: measurements, each with the bar it must reach.
//!
//!   arguments ─► setup ─► measure/* ─► Results ─► report (JSON or table)
//!                (bed)    (samples)
//!
//! `metrics` is the list of everything that can be measured; nothing is printed that is not in it.
//! When a measurement fails the whole run fails: half a report would be mistaken for a whole one.
//!
//! `stasis` has all of it but the yardsticks, CRIU, gVisor and Jupyter: they are a separate program
//! (`src/bin/stasis-yardsticks`), which uses the public modules here and is not installed.

#![forbid(unsafe_code)]

pub mod bed;
mod branch;
pub mod choice;
mod egress;
mod engine;
pub mod host;
mod machine;
mod mcp;
pub mod measure;
pub mod metrics;
mod progress;
pub mod python;
pub mod report;
pub mod samples;
mod service;
pub mod setup;
mod tool_call;
mod v8;

use clap::Subcommand;
use stasis_command::failure::Result;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Bench {
    /// Measure capture, restore and branching of a live Python process
    Engine(engine::Args),
    /// Measure machines: create, run, swap, wake, and load
    Machine(machine::Args),
    /// Measure MCP calls over HTTP and standard streams
    Mcp(mcp::Args),
    /// Measure runs through mcp-v8's API, over loopback
    #[command(name = "mcp-v8")]
    V8(v8::Args),
    /// Measure a service from its clients' side, over loopback
    Service(service::Args),
    /// Measure branches and undo through a service on loopback
    Branch(branch::Args),
    /// Measure decisions of policies
    Egress(egress::Args),
}

impl Bench {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Bench::Engine(args) => engine::run(args),
            Bench::Machine(args) => machine::run(args),
            Bench::Mcp(args) => mcp::run(args),
            Bench::V8(args) => v8::run(args),
            Bench::Service(args) => service::run(args),
            Bench::Branch(args) => branch::run(args),
            Bench::Egress(args) => egress::run(args),
        }
    }
}
