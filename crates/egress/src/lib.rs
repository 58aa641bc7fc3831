//! The network relay: the addresses a machine with a network reaches, and the mechanism.
//!
//!   machine's kernel ─► interface ─► packets ─┬─► TCP, as smoltcp speaks it ─┐
//!                                             └─► UDP, datagram by datagram ─┤
//!                                                                            ▼
//!                                         policy: may it be reached? ─► sockets of the host
//!
//! One thread per machine reads the machine's packets and opens ordinary host sockets for it. No
//! route, rule or bridge of the host is touched. `stasis-policy` decides every connection and every
//! UDP flow before a socket is created. Their number, buffers and idle time are bounded.
//!
//! Under a policy the host resolves names for the machine (`lookup`) and remembers the answers
//! (`names`); a host that has IPv6 only gets an address that stands for its own (`stand_in`). A
//! connection is judged by the name of its address and, if it is TLS, by the name in its first
//! bytes (`hello`). A changed policy is applied to open connections too. Where a rule is about
//! requests or secrets, the requests are read (`intercept`).
//!
//! When the handle is dropped or the machine's interface is removed, the thread ends with its
//! sockets. An error of one connection resets that connection only.

#![forbid(unsafe_code)]

mod book;
mod budget;
mod connection;
mod device;
mod dns;
mod guard;
mod hello;
mod intercept;
mod lookup;
mod names;
mod other_side;
mod packet;
mod relay;
mod resolvers;
mod rules;
mod stand_in;
mod tcp;
mod traffic;
mod udp;
mod unguarded;

pub use book::{PolicyBook, UnrecordedTraffic};
pub use intercept::{
    InterceptedConnection, InterceptedMachine, Interception, MachineAuthority, TrustedRoots,
};
pub use relay::{Egress, refusal};
pub use rules::{EgressRules, MachineRules, RefusalSink};
pub use stasis_policy::reach::{MACHINE, RESOLVER, Refusal};
pub use traffic::TrafficMeter;

#[cfg(debug_assertions)]
pub use unguarded::{EgressGuard, remove as remove_guards};

/// Readers of messages from machines and resolvers, for fuzzing.
pub mod fuzzing {
    pub use crate::dns::fuzzing as dns;
    pub use crate::hello::fuzzing as hello;
    pub use crate::intercept::fuzzing as head;
}

/// The largest packet of a machine: nearly the maximum, because there is no wire.
pub const MTU: u32 = 65_520;
