//! The service: machines over HTTP and WebSocket, for our own clients and foreverVM's.
//!
//!   TCP, TLS ──► guard (hosts, origins) ──► token ──┐
//!   unix socket ──► same user ──────────────────────┴─► one file per resource ──► Host
//!
//! Handlers parse, call and render. Decisions are made in the machine crate or in pure functions
//! here. Everything a client sends is bounded: connections, headers, bodies, queues and time. On
//! overload the service refuses requests instead of queueing them.
//!
//! Every failure is an `ErrorBody` with a stable code and the request's id. At shutdown the service
//! refuses new work, waits for running requests, and saves every machine.

#![forbid(unsafe_code)]

mod account_queue;
mod app;
mod approvals;
mod artifacts;
mod audit;
mod auth;
mod body;
mod branch;
mod connection;
mod error;
mod events;
mod extract;
mod failure;
mod fields;
mod files;
mod follow;
mod forkd;
mod guard;
mod history;
mod instructions;
mod instruments;
mod jwt;
mod keyring;
mod keys;
mod limits;
mod listen;
mod machines;
mod mcp;
mod metrics;
mod middleware;
mod oauth;
mod openapi;
mod pages;
mod policies;
mod ranges;
mod repl;
mod routes;
mod secrets;
mod serve;
mod socket;
mod store;
mod streams;
mod templates;
mod tokens;
mod trace;
mod transfer;
mod travel;
mod unproven;
mod v8;
mod watching;

pub use error::Error;
pub use instruments::Instruments;
pub use jwt::JwtOptions;
pub use keys::TokenKeys;
pub use listen::{BoundAddresses, Listen};
pub use openapi::document as openapi;
pub use serve::{Options, StopHandle, serve};
