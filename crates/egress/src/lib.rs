//! What a machine with a network reaches, and how.
//!
//!   machine's kernel ─► interface ─► packets ─┬─► TCP, as smoltcp speaks it ─┐
//!                                             └─► UDP, datagram by datagram ─┤
//!                                                                            ▼
//!                                         policy: may it be reached? ─► sockets of the host
//!
//! One thread for each machine reads the machine's packets and opens ordinary sockets of the host
//! for it. No route, rule or bridge of the host is touched. Every connection and every flow of
//! datagrams is decided by `stasis-policy`, before a socket is made. There are only so many of
//! them, with so much in their buffers, and none that is idle for long.
//!
//! Under a policy the host resolves names for the machine (`lookup`) and remembers the answers
//! (`names`). A connection is judged by the name of its address and, if it is TLS, by the name in
//! its first bytes (`hello`). A changed policy is applied to open connections too.
//!
//! When the handle is dropped or the machine's interface is gone, the thread ends and its sockets
//! with it. What goes wrong with one connection ends that connection, with a reset.

#![forbid(unsafe_code)]

mod book;
mod budget;
mod device;
mod dns;
mod guard;
mod hello;
mod lookup;
mod names;
mod packet;
mod relay;
mod resolvers;
mod tcp;
mod udp;

pub use book::PolicyBook;
pub use guard::{EgressRules, RefusalSink};
pub use relay::{Egress, refusal};
pub use stasis_policy::reach::{MACHINE, RESOLVER, Refusal};

/// Readers of what machines and resolvers send, for fuzzing.
pub mod fuzzing {
    pub use crate::dns::fuzzing as dns;
    pub use crate::hello::fuzzing as hello;
}

/// The largest packet a machine sends: nearly as large as packets get, because there is no wire.
pub const MTU: u32 = 65_520;
