//! The thread that relays one machine's traffic.
//!
//!   wait ─► packets of the machine ─► what came from outside ─► what the machine is to get ─► wait
//!
//! It restricts itself first (`stasis_sandbox::service`), because its input is hostile. It holds no
//! lock, and neither a thread nor a capture waits for it: a stopped machine sends no packets, and
//! packets for it wait in its kernel.

use crate::device::Device;
use crate::guard::{Guard, connection, is_own};
use crate::lookup::Lookups;
use crate::packet::{self, Endpoints, PacketKind};
use crate::rules::EgressRules;
use crate::tcp::{SocketReadiness, Tcp};
use crate::traffic::RelayTraffic;
use crate::udp::{self, Udp};
use crate::{MTU, resolvers};
use stasis_policy::reach::{self, Protocol};
use stasis_sandbox::service;
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Write};
use std::net::{SocketAddr, SocketAddrV4};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum packets read from the machine before other work.
const AT_ONCE: usize = 64;
/// Interval between checks for idle connections, while there are any.
const SWEEP: Duration = Duration::from_secs(1);

/// A machine's way outside; it ends with this value.
pub struct Egress {
    stop: File,
}

impl Egress {
    /// Relays the traffic of a machine over `packets`, as its rules allow; names are resolved by
    /// the resolvers in `resolv_conf`.
    pub fn start(packets: OwnedFd, rules: EgressRules, resolv_conf: PathBuf) -> io::Result<Egress> {
        let stop = File::from(fds::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)?);
        let ending = stop.try_clone()?;
        let kind = service::ServiceThread::Egress { resolv_conf: resolv_conf.clone() };
        let thread = std::thread::Builder::new().name("stasis-egress".into());
        thread.stack_size(256 << 10).spawn(move || {
            if let Err(error) = service::restrict_thread(&kind) {
                return tracing::error!(%error, "a machine has no network: cannot restrict it");
            }
            let mut relay = Relay::new(packets, rules, ending, resolv_conf);
            if let Err(error) = relay.run() {
                // the interface goes with its machine
                tracing::debug!(%error, "a machine's network ended");
            }
        })?;
        Ok(Egress { stop })
    }
}

impl Drop for Egress {
    fn drop(&mut self) {
        let _ = self.stop.write(&1u64.to_ne_bytes());
    }
}

struct Relay {
    device: Device,
    tcp: Tcp,
    udp: Udp,
    lookups: Lookups,
    stop: File,
    guard: Guard,
    traffic: RelayTraffic,
    resolv_conf: PathBuf,
    buffer: Vec<u8>,
    swept: Instant,
}

/// The work after a wait.
struct Found {
    over: bool,
    packets: bool,
    tcp: Vec<SocketReadiness>,
    udp: Vec<Endpoints>,
    answers: bool,
}

impl Relay {
    fn new(packets: OwnedFd, rules: EgressRules, stop: File, resolv_conf: PathBuf) -> Relay {
        let mut device = Device::new(packets);
        let tcp = Tcp::new(&mut device);
        let buffer = vec![0; MTU as usize + 1];
        let (udp, lookups, swept) = (Udp::default(), Lookups::default(), Instant::now());
        let mut traffic = RelayTraffic::new(rules.meter.clone(), swept);
        let guard = Guard::new(rules);
        traffic.limit(&guard.levels());
        Relay { device, tcp, udp, lookups, stop, guard, traffic, resolv_conf, buffer, swept }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let found = self.wait()?;
            if found.over {
                return Ok(());
            }
            if self.guard.has_changed() {
                self.tcp.judge_again(&mut self.guard, &mut self.device);
                self.udp.judge_again(&mut self.guard);
                self.traffic.limit(&self.guard.levels());
            }
            self.traffic.fill(Instant::now());
            if found.packets {
                self.take_packets()?;
            }
            if found.answers {
                self.lookups.receive(&mut self.buffer, &mut self.guard, &mut self.device);
            }
            for ends in &found.udp {
                self.udp.receive(ends, &mut self.buffer, &mut self.traffic, &mut self.device);
            }
            let (guard, traffic) = (&mut self.guard, &mut self.traffic);
            self.tcp.turn(&found.tcp, guard, traffic, &mut self.device);
            if self.traffic.is_used_up() && !self.tcp.is_empty() {
                self.guard.limited("open connections", self.traffic.used_up(), &self.traffic);
                self.tcp.reset_all(&mut self.device);
            }
            if self.swept.elapsed() >= SWEEP {
                self.swept = Instant::now();
                self.tcp.sweep(&mut self.device);
                self.udp.sweep();
                self.lookups.sweep(&mut self.device);
            }
        }
    }

    fn wait(&mut self) -> io::Result<Found> {
        let rest = self.tcp.rest().into_iter().chain(self.traffic.rest()).min();
        let idle = self.tcp.is_empty() && self.udp.is_empty() && self.lookups.is_empty();
        let sweep = (!idle).then_some(SWEEP);
        let rest = rest.into_iter().chain(sweep).min();
        // rounded up: a wait that ends early would be repeated
        let ms = rest.map_or(-1, |rest| rest.as_micros().div_ceil(1000) as i32);
        let mut wanted: Vec<(BorrowedFd, i16)> =
            vec![(self.stop.as_fd(), libc::POLLIN), (self.device.fd(), libc::POLLIN)];
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for (fd, ends, interest) in self.tcp.interests(self.traffic.has_room()) {
            let bits = [(interest.read, libc::POLLIN), (interest.write, libc::POLLOUT)];
            let events = bits.iter().filter(|(wanted, _)| *wanted).map(|(_, bit)| bit).sum();
            wanted.push((fd, events));
            tcp.push((ends, interest));
        }
        for (fd, ends) in self.udp.interests() {
            wanted.push((fd, libc::POLLIN));
            udp.push(ends);
        }
        wanted.extend(self.lookups.interests().map(|fd| (fd, libc::POLLIN)));
        let events = fds::poll_for(&wanted, ms)?;
        let (own, others) = events.split_at(2);
        let (streams, others) = others.split_at(tcp.len());
        let (flows, answers) = others.split_at(udp.len());
        let is_ready = |events: &i16| *events != 0;
        let ready = tcp.iter().zip(streams).filter(|(_, events)| is_ready(events));
        Ok(Found {
            over: is_ready(&own[0]),
            packets: is_ready(&own[1]),
            tcp: ready
                .map(|((ends, interest), _)| SocketReadiness {
                    ends: *ends,
                    readable: interest.read,
                })
                .collect(),
            answers: answers.iter().any(is_ready),
            udp: udp.into_iter().zip(flows).filter(|(_, e)| is_ready(e)).map(|(e, _)| e).collect(),
        })
    }

    fn take_packets(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut taken = Ok(());
        for _ in 0..AT_ONCE {
            match self.device.read(&mut buffer) {
                Ok(Some(packet)) => self.packet(packet),
                Ok(None) => break,
                Err(error) => {
                    taken = Err(error);
                    break;
                }
            }
        }
        self.buffer = buffer;
        taken
    }

    fn packet(&mut self, packet: &[u8]) {
        match packet::look(packet) {
            PacketKind::Opening(ends) if self.tcp.is_new(&ends) => self.open(ends, packet),
            PacketKind::Opening(_) | PacketKind::Segment => {
                self.tcp.segment(packet, &mut self.device)
            }
            PacketKind::Datagram(ends, payload) => self.datagram(ends, payload, packet),
            PacketKind::Other => {}
        }
    }

    /// A machine requests a connection.
    fn open(&mut self, ends: Endpoints, syn: &[u8]) {
        let (tcp, device) = (&mut self.tcp, &mut self.device);
        if reach::is_resolver(ends.outside) {
            // under a policy no answer is long enough to need TCP
            let resolvers = resolvers::read(&self.resolv_conf);
            return match resolvers.first().filter(|_| !self.guard.is_named()) {
                Some(to) => tcp.begin(ends, *to, syn, device),
                None => tcp.pass(syn, device),
            };
        }
        let access = || connection(None, ends.outside, Protocol::Tcp);
        if let Some(limit) = self.traffic.limit_of(tcp.count()) {
            self.guard.limited(&access(), limit, &self.traffic);
            return tcp.pass(syn, device);
        }
        match self.guard.open(&ends, Protocol::Tcp) {
            Some(allowed) if self.guard.is_named() => {
                let to = self.guard.destination(ends.outside);
                tcp.begin_judged(ends, to, allowed, syn, device);
            }
            Some(_) => tcp.begin(ends, SocketAddr::V4(ends.outside), syn, device),
            None => tcp.pass(syn, device),
        }
    }

    fn datagram(&mut self, ends: Endpoints, payload: &[u8], packet: &[u8]) {
        if self.udp.send(&ends, payload, &mut self.traffic) {
            return;
        }
        let (guard, device) = (&mut self.guard, &mut self.device);
        let begun = match reach::is_resolver(ends.outside) {
            true if guard.is_named() => {
                return self.lookups.take(ends, payload, &self.resolv_conf, guard, device);
            }
            true => self.udp.begin_asking(ends, &self.resolv_conf),
            false if self.traffic.is_used_up() => {
                let access = connection(None, ends.outside, Protocol::Udp);
                guard.limited(&access, self.traffic.used_up(), &self.traffic);
                Err(io::ErrorKind::PermissionDenied.into())
            }
            false => match guard.open(&ends, Protocol::Udp) {
                Some(allowed) => {
                    self.udp.begin(ends, guard.destination(ends.outside), allowed.name)
                }
                None => Err(io::ErrorKind::PermissionDenied.into()),
            },
        };
        match begun {
            Ok(()) => drop(self.udp.send(&ends, payload, &mut self.traffic)),
            Err(_) => udp::refuse(&ends, packet, device),
        }
    }
}

/// Why the host may not connect to an address for a machine, if so: the same decision as for a
/// machine with a network. For fetches on behalf of a machine.
pub fn refusal(address: SocketAddrV4) -> Option<reach::Refusal> {
    reach::floor(address, is_own(*address.ip()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_fetches_for_machines_only_what_they_may_reach() {
        let refused = |text: &str| refusal(text.parse().expect("an address")).is_some();
        assert!(refused("127.0.0.1:443") && refused("169.254.169.254:443"));
        assert!(refused("192.0.0.1:53") && !refused("198.51.100.7:443"));
    }
}
