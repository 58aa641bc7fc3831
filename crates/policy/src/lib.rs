//! Decisions about machines and accounts: pure, without I/O, each in one place.
//!
//!   decide    network, requests, imports and tools of a machine: the floor, then policies
//!   judge     the answer of one policy
//!   document  policies as people write them, read and checked
//!   request   requests as people write them, to test policies and to have them explained
//!   suggest   the rule that would have allowed what was refused
//!   pattern   the rules in them: hosts, ports and protocols; modules
//!   http      rules about requests and the secrets in them
//!   tools     rules about calls of tools
//!   files     rules about files that clients read and write
//!   commands  rules about commands that clients start
//!   rego      what the other rules cannot say, evaluated within bounds
//!   reach     the floor: addresses that no policy allows
//!   v8        mcp-v8's policies
//!   timing    how long decisions take, for `stasis bench`
//!   limits    limits of a machine: the request, its template, the host, the quota
//!   quota     resources of an account
//!   budget    amounts that machines and accounts use up
//!   creation  tags and environment of a new machine
//!   modules   which modules the host fetches for a machine
//!
//! Callers determine the facts (usage, owner of an address) and act on the answer.

#![forbid(unsafe_code)]

pub mod budget;
pub mod commands;
pub mod creation;
pub mod decide;
pub mod document;
pub mod files;
mod glob;
pub mod http;
mod judge;
pub mod limits;
pub mod modules;
pub mod pattern;
pub mod quota;
pub mod reach;
pub mod rego;
pub mod request;
pub mod suggest;
pub mod timing;
pub mod tools;
pub mod v8;
