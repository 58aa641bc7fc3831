//! Name resolution for machines with a policy, through the host's resolvers.
//!
//!   question ─► allowed? ─► our own question ─► resolver ─► checked, remembered ─► machine
//!
//! A name without IPv4 addresses, or whose addresses the host has no route to, is asked for its
//! IPv6 addresses. If a resolver does not answer, the next one is asked; after some seconds the
//! machine gets a failure. Questions beyond a bound get one, too.

use crate::budget::SocketPermit;
use crate::device::Device;
use crate::dns::{self, AddressKind, AnswerCode, Question, ResolvedAnswer};
use crate::guard::Guard;
use crate::packet::{self, Endpoints};
use crate::{resolvers, udp};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Questions of one machine that are not answered yet.
const MOST: usize = 64;
/// A resolver that has not answered for this long is left for the next.
const PATIENCE: Duration = Duration::from_secs(2);
/// Questions to resolvers about one name.
const ATTEMPTS: usize = 4;
/// Routes do not depend on the port.
pub const ANY_PORT: u16 = 443;

#[derive(Default)]
pub struct Lookups {
    open: Vec<Lookup>,
}

struct Lookup {
    ends: Endpoints,
    question: Question,
    socket: UdpSocket,
    id: u16,
    kind: AddressKind,
    /// The answer without IPv6, once that is asked for.
    four: Option<ResolvedAnswer>,
    resolvers: Vec<SocketAddr>,
    attempt: usize,
    asked: Instant,
    _room: SocketPermit,
}

impl Lookups {
    pub fn is_empty(&self) -> bool {
        self.open.is_empty()
    }

    pub fn interests(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.open.iter().map(|one| one.socket.as_fd())
    }

    /// A question of the machine.
    pub fn take(
        &mut self,
        ends: Endpoints,
        payload: &[u8],
        resolv_conf: &Path,
        guard: &mut Guard,
        device: &mut Device,
    ) {
        let Some(question) = dns::question(payload) else { return };
        let code = match () {
            () if !guard.resolve(&question.name) => AnswerCode::NoSuchName,
            () if !question.is_address => AnswerCode::Found,
            () if self.is_asked(&ends, &question) => return,
            () => match Lookup::begin(ends, question.clone(), resolv_conf) {
                Some(lookup) if self.open.len() < MOST => return self.open.push(lookup),
                _ => AnswerCode::Failed,
            },
        };
        device.write(&packet::datagram(&ends, &question.empty(code)));
    }

    /// Whether the same question is pending.
    fn is_asked(&self, ends: &Endpoints, question: &Question) -> bool {
        self.open.iter().any(|one| one.ends == *ends && one.question == *question)
    }

    /// Reads answers, and sends them to the machine.
    pub fn receive(&mut self, buffer: &mut [u8], guard: &mut Guard, device: &mut Device) {
        self.open.retain_mut(|one| match one.receive(buffer, guard) {
            Some(answer) => {
                device.write(&packet::datagram(&one.ends, &answer));
                false
            }
            None => true,
        });
    }

    /// Asks the next resolver after a timeout, and fails after the last.
    pub fn sweep(&mut self, device: &mut Device) {
        self.open.retain_mut(|one| {
            let kept = one.asked.elapsed() < PATIENCE || one.ask_next();
            if !kept {
                let answer = match &one.four {
                    Some(four) => one.question.answered(four),
                    None => one.question.empty(AnswerCode::Failed),
                };
                device.write(&packet::datagram(&one.ends, &answer));
            }
            kept
        });
    }
}

impl Lookup {
    fn begin(ends: Endpoints, question: Question, resolv_conf: &Path) -> Option<Lookup> {
        let resolvers = resolvers::read(resolv_conf);
        let room = SocketPermit::take()?;
        let kind = AddressKind::V4;
        let (socket, id) = asked(*resolvers.first()?, &question.name, kind)?;
        let (asked, attempt, four) = (Instant::now(), 0, None);
        let _room = room;
        Some(Lookup { ends, question, socket, id, kind, four, resolvers, attempt, asked, _room })
    }

    fn ask_next(&mut self) -> bool {
        // an answer is there already: it does not wait for a better one
        if self.four.is_some() {
            return false;
        }
        self.attempt += 1;
        self.attempt < ATTEMPTS && self.ask()
    }

    fn ask(&mut self) -> bool {
        let resolver = self.resolvers[self.attempt % self.resolvers.len()];
        match asked(resolver, &self.question.name, self.kind) {
            Some(next) => {
                (self.socket, self.id) = next;
                self.asked = Instant::now();
                true
            }
            None => false,
        }
    }

    /// The answer to the machine, if the resolver's has come.
    fn receive(&mut self, buffer: &mut [u8], guard: &mut Guard) -> Option<Vec<u8>> {
        // an error concerns our question: the next resolver is asked after the timeout
        let len = self.socket.recv(buffer).ok()?;
        let name = &self.question.name;
        let mut found = dns::answer(&buffer[..len], self.id, name, self.kind)?;
        let had = !found.addresses.is_empty() || !found.six.is_empty();
        match self.four.take() {
            None => guard.resolved(name, &mut found.addresses, found.ttl),
            Some(four) => {
                guard.resolved_six(name, &mut found);
                if !had || found.addresses.is_empty() && !four.addresses.is_empty() {
                    return Some(self.question.answered(&four));
                }
            }
        }
        if had && found.addresses.is_empty() {
            found.code = AnswerCode::NoSuchName;
        } else if self.kind == AddressKind::V4 && found.code == AnswerCode::Found {
            let is_reached = |ip: &Ipv4Addr| has_route((*ip, ANY_PORT).into());
            if !found.addresses.first().is_some_and(is_reached) {
                self.kind = AddressKind::V6;
                if self.ask() {
                    self.four = Some(found);
                    return None;
                }
            }
        }
        Some(self.question.answered(&found))
    }
}

/// Whether the host has a route to an address. Nothing is sent.
pub fn has_route(to: SocketAddr) -> bool {
    udp::connected(to).is_ok()
}

/// A pending question to a resolver, with an unguessable port and id.
fn asked(resolver: SocketAddr, name: &str, kind: AddressKind) -> Option<(UdpSocket, u16)> {
    let socket = udp::connected(resolver).ok()?;
    let id = dns::random_id();
    let _ = socket.send(&dns::ask(id, name, kind));
    Some((socket, id))
}
