//! The list of steps as it grows, and steps that all families share.

use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_spawner::socket_plan::{PlanStep, ProcessIdentity, SocketPath, SocketPlan, SocketStep};
use stasis_sys::libc;
use std::collections::{BTreeMap, HashMap};

const IPV6_FREEBIND: i32 = libc::IPV6_FREEBIND;

/// Options that act when a socket is bound or data arrives; all others are set at the end.
const EARLY: [(i32, i32); 9] = [
    (libc::SOL_SOCKET, libc::SO_REUSEPORT),
    (libc::SOL_SOCKET, libc::SO_BINDTODEVICE),
    (libc::SOL_SOCKET, libc::SO_PASSCRED),
    (libc::SOL_SOCKET, libc::SO_PASSSEC),
    (libc::SOL_SOCKET, libc::SO_MARK),
    (libc::IPPROTO_IP, libc::IP_FREEBIND),
    (libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT),
    (libc::IPPROTO_IPV6, libc::IPV6_V6ONLY),
    (libc::IPPROTO_IPV6, IPV6_FREEBIND),
];

pub struct Planner<'a> {
    /// By index among the objects, which is also the slot.
    pub sockets: BTreeMap<u32, &'a Socket>,
    pub plan: SocketPlan,
    next: u32,
    /// Options to be set to something in the end that the image does not say.
    defaults: HashMap<(u32, i32, i32), i32>,
}

impl<'a> Planner<'a> {
    /// `free` is the first slot that no object has.
    pub fn new(sockets: BTreeMap<u32, &'a Socket>, free: u32) -> Planner<'a> {
        let keep = sockets.keys().copied().collect();
        let plan = SocketPlan { steps: Vec::new(), keep };
        Planner { sockets, plan, next: free, defaults: HashMap::new() }
    }

    /// A slot for a socket that is closed again.
    pub fn temporary(&mut self) -> u32 {
        self.next += 1;
        self.next - 1
    }

    pub fn get(&self, slot: u32) -> Result<&'a Socket> {
        self.sockets
            .get(&slot)
            .copied()
            .ok_or_else(|| Error::Unfit(format!("a socket is connected to object {slot}")))
    }

    pub fn must(&mut self, what: SocketStep) {
        self.plan.steps.push(PlanStep { who: None, must: true, what });
    }

    /// A step whose failure is no harm.
    pub fn may(&mut self, what: SocketStep) {
        self.plan.steps.push(PlanStep { who: None, must: false, what });
    }

    /// A step the kernel remembers the caller of.
    pub fn must_as(&mut self, who: PeerId, what: SocketStep) {
        let known = who.pid > 1 && who.uid != u32::MAX && who.gid != u32::MAX;
        let who = known.then_some(ProcessIdentity { pid: who.pid, uid: who.uid, gid: who.gid });
        self.plan.steps.push(PlanStep { who, must: true, what });
    }

    /// A new socket like another.
    pub fn new_like(&mut self, slot: u32, like: &Socket) {
        let Socket { family, kind, protocol, .. } = *like;
        self.must(SocketStep::New { slot, family, kind, protocol });
    }

    pub fn set(&mut self, slot: u32, level: i32, name: i32, value: i32) {
        let value = value.to_ne_bytes().to_vec();
        self.must(SocketStep::Option { slot, level, name, value });
    }

    /// Sets an option for now; in the end it is as the image says, or else off.
    pub fn set_for_now(&mut self, slot: u32, level: i32, name: i32, value: i32) {
        self.set(slot, level, name, value);
        self.defaults.insert((slot, level, name), 0);
    }

    pub fn early_options(&mut self, slot: u32, socket: &Socket) {
        for option in &socket.options {
            if EARLY.contains(&(option.level, option.name)) {
                self.option(slot, option);
            }
        }
    }

    fn option(&mut self, slot: u32, option: &SocketOption) {
        let SocketOption { level, name, value } = option.clone();
        self.must(SocketStep::Option { slot, level, name, value });
    }

    pub fn bind(&mut self, slot: u32, socket: &Socket) {
        if socket.local.is_empty() {
            return;
        }
        let place = match &socket.node {
            Some(node) => {
                SocketPath::File { directory: node.directory.clone(), path: node.path.clone() }
            }
            None => SocketPath::Nowhere,
        };
        self.must(SocketStep::Bind { slot, address: socket.local.clone(), place });
    }

    /// Data for the peer of `slot`.
    pub fn fill(&mut self, slot: u32, queue: &[SocketMessage]) {
        for message in queue {
            let data = message.data.clone();
            self.must_as(message.sender.unwrap_or_default(), SocketStep::Send { slot, data });
        }
    }

    /// The last steps of every socket: shut down directions, remaining options, owners.
    pub fn finish(&mut self) {
        let sockets: Vec<(u32, &Socket)> = self.sockets.iter().map(|(s, own)| (*s, *own)).collect();
        for (slot, socket) in sockets {
            if let how @ 0..=2 = i32::from(socket.shutdown) - 1 {
                // an ended socket has shut both directions down already
                self.may(SocketStep::Shutdown { slot, how });
            }
            let late = |own: &&SocketOption| !EARLY.contains(&(own.level, own.name));
            for option in socket.options.iter().filter(late) {
                self.option(slot, option);
            }
            self.take_back(slot, socket);
            if (socket.uid, socket.gid) != (0, 0) {
                self.must(SocketStep::Owner { slot, uid: socket.uid, gid: socket.gid });
            }
        }
    }

    /// Undoes temporary settings that the image does not contain.
    fn take_back(&mut self, slot: u32, socket: &Socket) {
        let mut set: Vec<(i32, i32)> = self
            .defaults
            .keys()
            .filter(|(own, ..)| *own == slot)
            .map(|(_, level, name)| (*level, *name))
            .collect();
        set.sort_unstable();
        for (level, name) in set {
            let recorded = |own: &&SocketOption| (own.level, own.name) == (level, name);
            match socket.options.iter().find(recorded) {
                Some(option) => self.option(slot, option),
                None => self.set(slot, level, name, self.defaults[&(slot, level, name)]),
            }
        }
    }
}
