//! The thread that carries one machine's traffic.
//!
//!   wait ─► packets of the machine ─► what came from outside ─► what the machine is to get ─► wait
//!
//! It holds no lock and nobody waits for it, a capture neither: a machine that stands still sends
//! no packets, and those for it wait in its kernel.

use crate::device::Device;
use crate::packet::{self, Ends, Kind};
use crate::tcp::{Ready, Tcp};
use crate::udp::{self, Udp};
use crate::zone::{self, Verdict};
use crate::{MTU, resolvers};
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Packets taken from the machine before others have their turn.
const AT_ONCE: usize = 64;
/// How often idle connections are looked for, while there are any.
const SWEEP: Duration = Duration::from_secs(1);

/// A machine's way outside; it ends with this value.
pub struct Egress {
    stop: File,
}

impl Egress {
    /// Carries the traffic of a machine whose packets come and go through `packets`; names are
    /// asked of the resolvers in `resolv_conf`.
    pub fn start(packets: OwnedFd, resolv_conf: PathBuf) -> io::Result<Egress> {
        let stop = File::from(fds::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)?);
        let ending = stop.try_clone()?;
        let thread = std::thread::Builder::new().name("stasis-egress".into());
        thread.stack_size(256 << 10).spawn(move || {
            let mut relay = Relay::new(packets, ending, resolv_conf);
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
    stop: File,
    resolv_conf: PathBuf,
    buffer: Vec<u8>,
    swept: Instant,
}

/// What there is to do after a wait.
struct Found {
    over: bool,
    packets: bool,
    tcp: Vec<Ready>,
    udp: Vec<Ends>,
}

impl Relay {
    fn new(packets: OwnedFd, stop: File, resolv_conf: PathBuf) -> Relay {
        let mut device = Device::new(packets);
        let tcp = Tcp::new(&mut device);
        let buffer = vec![0; MTU as usize + 1];
        let (udp, swept) = (Udp::default(), Instant::now());
        Relay { device, tcp, udp, stop, resolv_conf, buffer, swept }
    }

    fn run(&mut self) -> io::Result<()> {
        loop {
            let found = self.wait()?;
            if found.over {
                return Ok(());
            }
            if found.packets {
                self.take_packets()?;
            }
            for ends in &found.udp {
                self.udp.receive(ends, &mut self.buffer, &mut self.device);
            }
            self.tcp.turn(&found.tcp, &mut self.device);
            if self.swept.elapsed() >= SWEEP {
                self.swept = Instant::now();
                self.tcp.sweep(&mut self.device);
                self.udp.sweep();
            }
        }
    }

    fn wait(&mut self) -> io::Result<Found> {
        let rest = self.tcp.rest();
        let sweep = (!self.tcp.is_empty() || !self.udp.is_empty()).then_some(SWEEP);
        let rest = rest.into_iter().chain(sweep).min();
        // rounded up: a wait that ends early is one that is made twice
        let ms = rest.map_or(-1, |rest| rest.as_micros().div_ceil(1000) as i32);
        let mut wanted: Vec<(BorrowedFd, i16)> =
            vec![(self.stop.as_fd(), libc::POLLIN), (self.device.fd(), libc::POLLIN)];
        let (mut tcp, mut udp) = (Vec::new(), Vec::new());
        for (fd, ends, wish) in self.tcp.wishes() {
            let bits = [(wish.read, libc::POLLIN), (wish.write, libc::POLLOUT)];
            let events = bits.iter().filter(|(wanted, _)| *wanted).map(|(_, bit)| bit).sum();
            wanted.push((fd, events));
            tcp.push((ends, wish));
        }
        for (fd, ends) in self.udp.wishes() {
            wanted.push((fd, libc::POLLIN));
            udp.push(ends);
        }
        let events = fds::poll_for(&wanted, ms)?;
        let (own, others) = events.split_at(2);
        let (streams, flows) = others.split_at(tcp.len());
        let is_ready = |events: &i16| *events != 0;
        let ready = tcp.iter().zip(streams).filter(|(_, events)| is_ready(events));
        Ok(Found {
            over: is_ready(&own[0]),
            packets: is_ready(&own[1]),
            tcp: ready
                .map(|((ends, wish), _)| Ready { ends: *ends, readable: wish.read })
                .collect(),
            udp: udp.into_iter().zip(flows).filter(|(_, e)| is_ready(e)).map(|(e, _)| e).collect(),
        })
    }

    fn take_packets(&mut self) -> io::Result<()> {
        let mut buffer = std::mem::take(&mut self.buffer);
        let mut taken = Ok(());
        for _ in 0..AT_ONCE {
            match self.device.read(&mut buffer) {
                Ok(Some(len)) => self.packet(&buffer[..len]),
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
            Kind::Opening(ends) if self.tcp.is_new(&ends) => self.open(ends, packet),
            Kind::Opening(_) | Kind::Segment => self.tcp.segment(packet, &mut self.device),
            Kind::Datagram(ends, payload) => self.datagram(ends, payload, packet),
            Kind::Other => {}
        }
    }

    /// A machine wants to connect.
    fn open(&mut self, ends: Ends, syn: &[u8]) {
        let to = match decide(&ends) {
            Verdict::Outside => Some(SocketAddr::V4(ends.outside)),
            Verdict::Resolver => resolvers::read(&self.resolv_conf).first().copied(),
            Verdict::Refused(_) => None,
        };
        match to {
            Some(to) => self.tcp.begin(ends, to, syn, &mut self.device),
            None => self.tcp.pass(syn, &mut self.device),
        }
    }

    fn datagram(&mut self, ends: Ends, payload: &[u8], packet: &[u8]) {
        if self.udp.send(&ends, payload) {
            return;
        }
        let begun = match decide(&ends) {
            Verdict::Outside => self.udp.begin(ends),
            Verdict::Resolver => self.udp.begin_asking(ends, &self.resolv_conf),
            Verdict::Refused(_) => Err(io::ErrorKind::PermissionDenied.into()),
        };
        match begun {
            Ok(()) => drop(self.udp.send(&ends, payload)),
            Err(_) => udp::refuse(&ends, packet, &mut self.device),
        }
    }
}

fn decide(ends: &Ends) -> Verdict {
    let verdict = zone::verdict(ends.outside, is_own(*ends.outside.ip()));
    if let Verdict::Refused(why) = verdict {
        tracing::debug!(to = %ends.outside, %why, "a machine was refused");
    }
    verdict
}

/// Whether an address is one of this host's, on whatever interface: then, and only then, a socket
/// can be bound to it. When that cannot be found out, it counts as the host's.
fn is_own(ip: Ipv4Addr) -> bool {
    match UdpSocket::bind((ip, 0)) {
        Err(error) => error.kind() != io::ErrorKind::AddrNotAvailable,
        Ok(_) => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_addresses_are_known_as_such() {
        assert!(is_own(Ipv4Addr::LOCALHOST));
        assert!(is_own(Ipv4Addr::new(127, 9, 9, 9)));
        assert!(!is_own(Ipv4Addr::new(198, 51, 100, 7)));
    }
}
