//! What a machine with an open network reaches, and how.
//!
//!   machine's kernel ─► interface ─► packets ─┬─► TCP, as smoltcp speaks it ─┐
//!                                             └─► UDP, datagram by datagram ─┤
//!                                                                            ▼
//!                                           zone: may it be reached? ─► sockets of the host
//!
//! One thread for each machine reads the machine's packets and opens ordinary sockets of the host
//! for it. No route, rule or bridge of the host is touched. Every connection and every flow of
//! datagrams is decided in `zone`, before a socket is made. There are only so many of them, with
//! so much in their buffers, and none that is idle for long.
//!
//! When the handle is dropped or the machine's interface is gone, the thread ends and its sockets
//! with it. What goes wrong with one connection ends that connection, with a reset.

#![forbid(unsafe_code)]

mod budget;
mod device;
mod packet;
mod relay;
mod resolvers;
mod tcp;
mod udp;
mod zone;

pub use relay::Egress;
pub use zone::{MACHINE, RESOLVER, Refusal, Verdict, verdict};

/// The largest packet a machine sends: nearly as large as packets get, because there is no wire.
pub const MTU: u32 = 65_520;
