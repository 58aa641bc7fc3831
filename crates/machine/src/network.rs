//! A machine's way outside, where it has one.
//!
//! It is made when the machine comes into memory and goes with its tree: connections do not
//! outlive that, and come back as reset. A machine that was made without stays without, its
//! branches too, and so does what was imported from elsewhere.

use crate::error::{Doing, Error, Result};
use crate::host::Inner;
use crate::standby::{self, Stood};
use stasis_api::Network;
use stasis_egress::Egress;
use stasis_engine::Link;
use stasis_store::MachineRecord;
use stasis_sys::probe;

const LINK: Link = Link {
    address: stasis_egress::MACHINE,
    resolver: stasis_egress::RESOLVER,
    mtu: stasis_egress::MTU,
};

/// Whether machines of this host can have it.
pub fn check(network: Network) -> Result<()> {
    match network {
        Network::Open if !probe::has_tun() => {
            Err(Error::Unsupported("network: open", "the kernel has no TUN device"))
        }
        Network::None | Network::Open => Ok(()),
    }
}

/// Brings a machine's newest image into memory, from a tree that stands ready if there is one.
pub fn stand(
    host: &Inner,
    record: &MachineRecord,
    ready: Option<Stood>,
) -> Result<(Stood, Option<Egress>)> {
    match (record.made.network, ready) {
        (Network::None, Some(stood)) => Ok((stood, None)),
        (Network::None, None) => {
            Ok((standby::stand(host, &record.head_image, &record.made.account)?, None))
        }
        (Network::Open, Some(stood)) => {
            let packets = stood.tree.open_network(LINK)?;
            Ok((stood, Some(carry(host, packets)?)))
        }
        (Network::Open, None) => {
            let image = host.image(&record.head_image)?;
            let restore = |ends| host.engine.restore_open(&image, ends, LINK);
            let (line, (tree, packets)) = standby::restore(host, &record.made.account, restore)?;
            Ok((Stood { tree, line }, Some(carry(host, packets)?)))
        }
    }
}

fn carry(host: &Inner, packets: std::os::fd::OwnedFd) -> Result<Egress> {
    let resolv_conf = host.settings.resolv_conf.clone();
    Egress::start(packets, resolv_conf).doing(|| "start a machine's network".into())
}
