//! The network of a machine, if it has one.
//!
//! It is created when the machine enters memory and ends with its tree: connections come back as
//! reset. A changed setting applies when the machine next enters memory, a changed policy at once.
//! A branch has its parent's network unless requested otherwise; an imported machine has none.

use crate::error::{Error, ErrorContext, Result};
use crate::host::HostInner;
use stasis_api::Network;
use stasis_egress::{Egress, EgressRules, RefusalSink};
use stasis_engine::NetworkLink;
use stasis_records::MachineRecord;
use stasis_sys::probe;
use std::os::fd::OwnedFd;

pub const LINK: NetworkLink = NetworkLink {
    address: stasis_egress::MACHINE,
    resolver: stasis_egress::RESOLVER,
    mtu: stasis_egress::MTU,
};

impl HostInner {
    /// Whether machines of this host can have it.
    pub fn check_network(&self, network: &Network) -> Result<()> {
        if !network.is_none() && !probe::has_tun() {
            return Err(Error::Unsupported("network: open", "the kernel has no TUN device"));
        }
        match network {
            Network::Policy(name) if !self.policies.has(name) => {
                Err(Error::NoPolicy(name.to_string()))
            }
            _ => Ok(()),
        }
    }
}

/// Carries a machine's packets for as long as the value lives.
pub fn carry(
    host: &HostInner,
    record: &MachineRecord,
    refused: RefusalSink,
    packets: OwnedFd,
) -> Result<Egress> {
    let (resolv_conf, network) = (host.settings.resolv_conf.clone(), record.made.network.clone());
    let rules = EgressRules { network, book: host.policies.clone(), refused };
    Egress::start(packets, rules, resolv_conf).doing(|| "start a machine's network".into())
}
