//! The service: machines over HTTP and WebSocket, for our own clients and foreverVM's.
//!
//!   TCP, TLS ──► guard (hosts, origins) ──► token ──┐
//!   unix socket ──► same user ──────────────────────┴─► one file per resource ──► Host
//!
//! Handlers parse, call and render; what is decided is decided in the machine crate or in a pure
//! function here. Everything a client sends is bounded: connections, headers, bodies, queues and
//! the time it may take. Overload is answered, never queued without end.
//!
//! Every failure is an `ErrorBody` with a stable code and the request's id. When the service ends
//! it refuses new work, lets what runs end, and saves every machine.

#![forbid(unsafe_code)]

mod app;
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
mod files;
mod follow;
mod forkd;
mod gate;
mod guard;
mod history;
mod instructions;
mod jwt;
mod keyring;
mod limits;
mod listen;
mod machines;
mod mcp;
mod metrics;
mod oauth;
mod openapi;
mod pages;
mod ranges;
mod repl;
mod routes;
mod serve;
mod socket;
mod store;
mod streams;
mod templates;
mod tokens;
mod trace;
mod transfer;
mod travel;
mod turns;
mod unproven;
mod watching;

pub use error::Error;
pub use jwt::JwtOptions;
pub use listen::{Bound, Listen};
pub use openapi::document as openapi;
pub use serve::{Options, Stop, serve};
pub use trace::Traces;
