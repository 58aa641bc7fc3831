//! What machines and accounts may do: pure decisions, without I/O, each in one place.
//!
//!   decide    what a machine may reach, resolve and import: the floor, then every policy
//!   document  policies as people write them, read and checked
//!   pattern   the rules in them: hosts, ports and protocols; modules
//!   reach     the floor: addresses that no policy allows
//!   limits    what a machine may use: what was asked for, its template, the host, the quota
//!   quota     what an account may have
//!   creation  what a machine may be made with
//!   modules   which modules the host fetches for a machine
//!
//! Callers find out the facts (what is used, whose an address is) and act on the answer.

#![forbid(unsafe_code)]

pub mod creation;
pub mod decide;
pub mod document;
pub mod limits;
pub mod modules;
pub mod pattern;
pub mod quota;
pub mod reach;
