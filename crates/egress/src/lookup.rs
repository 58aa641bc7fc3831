//! Name resolution for machines with a policy, through the host's resolvers.
//!
//!   question ─► allowed? ─► our own question ─► resolver ─► checked, remembered ─► machine
//!
//! If a resolver does not answer, the next one is asked; after some seconds the machine gets a
//! failure. Questions beyond a bound get one, too.

use crate::budget::SocketPermit;
use crate::device::Device;
use crate::dns::{self, AnswerCode, Question};
use crate::guard::Guard;
use crate::packet::{self, Endpoints};
use crate::{resolvers, udp};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::{Duration, Instant};

/// Questions of one machine that are not answered yet.
const MOST: usize = 64;
/// A resolver that has not answered for this long is left for the next.
const PATIENCE: Duration = Duration::from_secs(2);
/// Questions to resolvers about one name.
const ATTEMPTS: usize = 4;

#[derive(Default)]
pub struct Lookups {
    open: Vec<Lookup>,
}

struct Lookup {
    ends: Endpoints,
    question: Question,
    socket: UdpSocket,
    id: u16,
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
        self.open.retain(|one| match one.receive(buffer, guard) {
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
                let answer = one.question.empty(AnswerCode::Failed);
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
        let (socket, id) = asked(*resolvers.first()?, &question.name)?;
        let asked = Instant::now();
        Some(Lookup { ends, question, socket, id, resolvers, attempt: 0, asked, _room: room })
    }

    fn ask_next(&mut self) -> bool {
        self.attempt += 1;
        let resolver = self.resolvers[self.attempt % self.resolvers.len()];
        match asked(resolver, &self.question.name).filter(|_| self.attempt < ATTEMPTS) {
            Some(next) => {
                (self.socket, self.id) = next;
                self.asked = Instant::now();
                true
            }
            None => false,
        }
    }

    /// The answer to the machine, if the resolver's has come.
    fn receive(&self, buffer: &mut [u8], guard: &mut Guard) -> Option<Vec<u8>> {
        let name = &self.question.name;
        // an error concerns our question: the next resolver is asked after the timeout
        let len = self.socket.recv(buffer).ok()?;
        let mut found = dns::answer(&buffer[..len], self.id, name)?;
        let had = !found.addresses.is_empty();
        guard.resolved(name, &mut found.addresses, found.ttl);
        if had && found.addresses.is_empty() {
            found.code = AnswerCode::NoSuchName;
        }
        Some(self.question.answered(&found))
    }
}

/// A pending question to a resolver, with an unguessable port and id.
fn asked(resolver: SocketAddr, name: &str) -> Option<(UdpSocket, u16)> {
    let socket = udp::connected(resolver).ok()?;
    let id = dns::random_id();
    let _ = socket.send(&dns::ask(id, name));
    Some((socket, id))
}
