//! The network of a machine, if it has one.
//!
//! It is created when the machine enters memory and ends with its tree: a restored program finds
//! its connections reset. A changed setting applies when the machine next enters memory, a changed
//! policy at once. A branch has its parent's network unless requested otherwise; an imported
//! machine has none.

use crate::error::{Error, ErrorContext, Result};
use crate::host::HostInner;
use stasis_api::Network;
use stasis_egress::{Egress, EgressRules, InterceptedMachine, RefusalSink};
use stasis_engine::NetworkLink;
use stasis_records::MachineRecord;
use stasis_sys::{fds, libc, probe};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

pub const LINK: NetworkLink = NetworkLink {
    address: stasis_egress::MACHINE,
    resolver: stasis_egress::RESOLVER,
    mtu: stasis_egress::MTU,
};

impl HostInner {
    /// Whether machines of this host can have a network.
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

/// Additions to a machine under a policy, beside its connections: its own certificate authority,
/// which its programs trust, and the placeholders of its secrets. Its files and variables are the
/// same each time, so programs that read them before a swap, and branches, go on using them.
#[derive(Default)]
pub struct Grants {
    pub variables: BTreeMap<String, String>,
    intercept: Option<Arc<InterceptedMachine>>,
    /// Certificates as files: those of the host, and of the machine.
    trusted: Option<(Arc<OwnedFd>, OwnedFd)>,
}

/// The trusted certificates, as the init writes them (`spawner/src/network.rs`).
const BUNDLE: &str = "/etc/stasis/ca-bundle.pem";

/// Variables that name the certificates to trust: instead of the usual ones, or beside them (Node
/// and Deno have their own, without those that only this host trusts).
const NAMES_BUNDLE: [&str; 10] = [
    "SSL_CERT_FILE",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "PIP_CERT",
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "npm_config_cafile",
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
];

impl Grants {
    /// Those of a machine; none, if it is not held to a policy, or the host has no key.
    pub fn of(host: &HostInner, record: &MachineRecord) -> Result<Grants> {
        let network = &record.made.network;
        if network.is_none() {
            return Ok(Grants::default());
        }
        let who = host.identity(record)?;
        let shared = host.interception.clone();
        let (account, lineage) = (record.made.account.clone(), record.lineage.0);
        let intercept = Arc::new(InterceptedMachine::new(shared, account, lineage));
        let none = |intercept| Grants { intercept: Some(intercept), ..Grants::default() };
        if !host.policies.is_named(&who, network) {
            return Ok(none(intercept));
        }
        let Ok(authority) = intercept.authority() else { return Ok(none(intercept)) };
        let own = memory_file(authority.pem().as_bytes());
        let own = own.doing(|| "write a machine's certificate".into())?;
        let trusted = Some((host.roots_file.clone(), own));
        let mut variables: BTreeMap<String, String> = BTreeMap::new();
        variables.extend(NAMES_BUNDLE.map(|name| (name.to_owned(), BUNDLE.to_owned())));
        let granted = host.granted_secrets(record, &who);
        variables
            .extend(granted.into_iter().map(|one| (one.variable, one.placeholder.to_string())));
        Ok(Grants { variables, intercept: Some(intercept), trusted })
    }

    /// The variables of a new machine. Its own variables replace those of the network.
    pub fn fresh(&self, made: &BTreeMap<String, String>) -> BTreeMap<String, String> {
        let mut all = self.variables.clone();
        all.extend(made.iter().map(|(name, value)| (name.clone(), value.clone())));
        all
    }

    pub fn trusted(&self) -> Vec<BorrowedFd<'_>> {
        let files = self.trusted.as_ref().map(|(host, own)| [host.as_fd(), own.as_fd()]);
        files.into_iter().flatten().collect()
    }
}

/// A file in memory.
pub fn memory_file(text: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(fds::memfd("stasis-certificates", libc::MFD_CLOEXEC)?);
    file.write_all(text)?;
    Ok(file.into())
}

/// Relays a machine's packets until dropped.
pub fn carry(
    host: &HostInner,
    record: &MachineRecord,
    refused: RefusalSink,
    granted: &Grants,
    packets: OwnedFd,
) -> Result<Egress> {
    let (resolv_conf, network) = (host.settings.resolv_conf.clone(), record.made.network.clone());
    let who = host.identity(record)?;
    let no_network = || Error::Invalid("the machine has no network".into());
    let intercept = granted.intercept.clone().ok_or_else(no_network)?;
    let (book, made) = (host.policies.clone(), &record.made);
    let meter = book.meter(&made.account, record.lineage.0);
    let rules = EgressRules { who, network, book, refused, intercept, meter };
    Egress::start(packets, rules, resolv_conf).doing(|| "start a machine's network".into())
}
