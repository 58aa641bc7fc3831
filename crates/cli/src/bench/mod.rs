//! `stasis bench`: measurements, each with the bar it must reach.
//!
//!   arguments ─► setup ─► measure/* ─► Results ─► report (JSON or table)
//!                (bed)    (samples)
//!
//! `metrics` is the list of everything that can be measured; nothing is printed that is not in it.
//! When a measurement fails the whole run fails: half a report would be mistaken for a whole one.

mod bed;
mod choice;
mod engine;
mod host;
mod machine;
mod measure;
mod metrics;
mod python;
mod report;
mod samples;
mod service;
pub mod setup;

use crate::failure::Result;
use clap::Subcommand;
use std::process::ExitCode;

#[derive(Subcommand)]
pub enum Bench {
    /// Measure capture, restore and branching of a live Python process
    Engine(engine::Args),
    /// Measure machines: create, run, swap, wake, and many of them at once
    Machine(machine::Args),
    /// Measure a service as its clients see it, over loopback
    Service(service::Args),
}

impl Bench {
    pub fn run(self) -> Result<ExitCode> {
        match self {
            Bench::Engine(args) => engine::run(args),
            Bench::Machine(args) => machine::run(args),
            Bench::Service(args) => service::run(args),
        }
    }
}
