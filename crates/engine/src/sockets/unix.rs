//! Unix sockets: pairs, connections by name, listeners with clients waiting, datagrams.

use super::plan::Planner;
use crate::error::{Error, Result};
use stasis_image::model::*;
use stasis_spawner::socket_plan::{SocketPath, SocketStep};
use stasis_sys::libc;
use std::collections::{BTreeMap, HashSet};

/// More than a buffer may be: the kernel takes it for the most it allows.
const LARGEST: i32 = 64 << 20;

/// Two ends to be made at once, and who is to have made them.
struct Pair {
    creator: PeerId,
    kind: i32,
    slots: [u32; 2],
}

/// The construction of each socket.
#[derive(Default)]
struct Sorted {
    pairs: Vec<Pair>,
    /// Connections with a name: the end that has the listener's, and the other.
    named: Vec<(u32, u32)>,
    /// The temporary other end of a connection that has ended.
    gone: BTreeMap<u32, u32>,
    single: Vec<u32>,
}

pub fn plan(planner: &mut Planner) -> Result<()> {
    let all: Vec<(u32, &Socket)> = planner
        .sockets
        .iter()
        .filter(|(_, own)| own.family == libc::AF_UNIX)
        .map(|(slot, own)| (*slot, *own))
        .collect();
    let sorted = sort(planner, &all)?;
    make_pairs(planner, &sorted)?;
    for (server, client) in &sorted.named {
        connect_by_name(planner, *server, *client)?;
    }
    for slot in &sorted.single {
        make_single(planner, *slot)?;
    }
    for (slot, own) in &all {
        if let SocketState::Listening { waiting, .. } = &own.state {
            wait_in_line(planner, *slot, own, waiting)?;
        }
    }
    for (slot, own) in all.iter().filter(|(_, own)| !own.queue.is_empty()) {
        match own.kind {
            libc::SOCK_DGRAM => fill_datagrams(planner, &all, *slot, own)?,
            _ => fill_stream(planner, &sorted, *slot, own)?,
        }
    }
    for (slot, own) in &all {
        connect_one_way(planner, *slot, own)?;
    }
    end(planner, &sorted)
}

/// Decides how each socket is made, and that connections have two ends that agree.
fn sort(planner: &mut Planner, all: &[(u32, &Socket)]) -> Result<Sorted> {
    let mut sorted = Sorted::default();
    for (slot, own) in all {
        let (slot, datagrams) = (*slot, own.kind == libc::SOCK_DGRAM);
        match own.state {
            SocketState::Connected { peer } if is_mutual(planner, slot, own, peer)? => {
                if slot > peer {
                    continue;
                }
                match server_of(planner, all, slot, peer)?.filter(|_| !datagrams) {
                    Some(true) => sorted.named.push((slot, peer)),
                    Some(false) => sorted.named.push((peer, slot)),
                    None => sorted.pairs.push(pair(own, [slot, peer])),
                }
            }
            SocketState::Ended(_) if !datagrams => {
                let other = planner.temporary();
                sorted.gone.insert(slot, other);
                match own.local.is_empty() {
                    true => sorted.pairs.push(pair(own, [slot, other])),
                    false => sorted.named.push((slot, other)),
                }
            }
            SocketState::Waiting { .. } => {}
            _ => sorted.single.push(slot),
        }
    }
    // those of one process together: they share a helper
    sorted.pairs.sort_by_key(|pair| (pair.creator, pair.slots));
    Ok(sorted)
}

fn pair(own: &Socket, slots: [u32; 2]) -> Pair {
    Pair { creator: own.peer_credentials, kind: own.kind, slots }
}

/// Whether two sockets are connected to each other. Only datagram sockets may be connected to one
/// that is not.
fn is_mutual(planner: &Planner, slot: u32, own: &Socket, peer: u32) -> Result<bool> {
    let other = planner.get(peer)?;
    if (other.family, other.kind) != (own.family, own.kind) {
        return Err(Error::Unfit(format!("socket {slot} is connected to one of another kind")));
    }
    let back = matches!(other.state, SocketState::Connected { peer } if peer == slot);
    if !back && own.kind != libc::SOCK_DGRAM {
        return Err(Error::Unfit(format!(
            "socket {slot} is connected to a socket that is not connected back"
        )));
    }
    Ok(back && slot != peer)
}

/// Which of two connected sockets was accepted: `true` for the first, `None` if neither has a name.
/// A socket that shares its name with others has it from a listener.
fn server_of(
    planner: &Planner,
    all: &[(u32, &Socket)],
    one: u32,
    other: u32,
) -> Result<Option<bool>> {
    let names = (&planner.get(one)?.local, &planner.get(other)?.local);
    let shared = |name: &[u8]| all.iter().filter(|(_, own)| own.local == name).count() > 1;
    Ok(match (names.0.is_empty(), names.1.is_empty()) {
        (true, true) => None,
        (true, false) => Some(false),
        (false, true) => Some(true),
        (false, false) => Some(!shared(names.1)),
    })
}

fn make_pairs(planner: &mut Planner, sorted: &Sorted) -> Result<()> {
    for pair in &sorted.pairs {
        let Pair { creator, kind, slots } = *pair;
        planner.must_as(creator, SocketStep::Pair { slots, kind });
    }
    for slot in sorted.pairs.iter().flat_map(|pair| pair.slots) {
        if let Some(own) = planner.sockets.get(&slot).copied() {
            planner.early_options(slot, own);
            planner.bind(slot, own);
        }
    }
    Ok(())
}

/// A connection whose server's end has a name: through a listener of that name, which goes again.
fn connect_by_name(planner: &mut Planner, server: u32, client: u32) -> Result<()> {
    let own = planner.get(server)?;
    let peer = planner.sockets.get(&client).copied();
    let listener = planner.temporary();
    planner.new_like(listener, own);
    let place = match &own.node {
        Some(node) => SocketPath::File { directory: node.directory.clone(), path: None },
        None => SocketPath::Nowhere,
    };
    planner.must(SocketStep::Bind { slot: listener, address: own.local.clone(), place });
    let listened = peer.map(|peer| peer.peer_credentials).unwrap_or_default();
    planner.must_as(listened, SocketStep::Listen { slot: listener, backlog: 1 });
    planner.new_like(client, own);
    if let Some(peer) = peer {
        planner.early_options(client, peer);
        planner.bind(client, peer);
    }
    let connect = SocketStep::ConnectTo { slot: client, to: listener };
    planner.must_as(own.peer_credentials, connect);
    planner.must(SocketStep::Accept { slot: server, listener });
    planner.must(SocketStep::Close { slot: listener });
    planner.early_options(server, own);
    Ok(())
}

/// A socket that is connected to nothing, or not yet.
fn make_single(planner: &mut Planner, slot: u32) -> Result<()> {
    let own = planner.get(slot)?;
    planner.new_like(slot, own);
    planner.early_options(slot, own);
    planner.bind(slot, own);
    if let SocketState::Listening { backlog, .. } = own.state {
        planner.must_as(own.peer_credentials, SocketStep::Listen { slot, backlog });
    }
    Ok(())
}

/// Clients not accepted yet, with their sent data.
fn wait_in_line(
    planner: &mut Planner,
    listener: u32,
    own: &Socket,
    waiting: &[PendingConnection],
) -> Result<()> {
    for connection in waiting {
        let slot = match connection.client {
            Some(client) => client,
            None => planner.temporary(),
        };
        planner.new_like(slot, own);
        if let Some(client) = connection.client {
            let client = planner.get(client)?;
            let waits =
                matches!(client.state, SocketState::Waiting { listener: to } if to == listener);
            if !waits {
                return Err(Error::Unfit(format!("socket {slot} does not wait for {listener}")));
            }
            planner.early_options(slot, client);
            planner.bind(slot, client);
        }
        let connect = SocketStep::ConnectTo { slot, to: listener };
        planner.must_as(connection.connector, connect);
        planner.fill(slot, &connection.sent);
        if connection.client.is_none() {
            planner.must(SocketStep::Close { slot });
        }
    }
    Ok(())
}

fn fill_stream(planner: &mut Planner, sorted: &Sorted, slot: u32, own: &Socket) -> Result<()> {
    let from = match (&own.state, sorted.gone.get(&slot)) {
        (SocketState::Connected { peer }, _) => *peer,
        (_, Some(other)) => *other,
        _ => return Err(Error::Unfit(format!("socket {slot} has data but no peer"))),
    };
    make_room(planner, from);
    planner.fill(from, &own.queue);
    Ok(())
}

/// Data that was sent once need not fit again piece by piece, unless the sender may send that much.
/// Its own limit is set at the end.
fn make_room(planner: &mut Planner, sender: u32) {
    planner.set(sender, libc::SOL_SOCKET, libc::SO_SNDBUF, LARGEST);
}

/// Datagrams come from their sender where it is there, else from one made for it.
fn fill_datagrams(
    planner: &mut Planner,
    all: &[(u32, &Socket)],
    slot: u32,
    own: &Socket,
) -> Result<()> {
    let mutual = match own.state {
        SocketState::Connected { peer } if is_mutual(planner, slot, own, peer)? => Some(peer),
        _ => None,
    };
    let mut ready = HashSet::new();
    for message in &own.queue {
        let named = |other: &&(u32, &Socket)| {
            other.1.kind == libc::SOCK_DGRAM && other.1.local == message.from
        };
        let sender = match mutual {
            Some(peer) => Some(peer),
            None if message.from.is_empty() => None,
            None => all.iter().find(named).map(|(sender, _)| *sender),
        };
        let data = message.data.clone();
        let who = message.sender.unwrap_or_default();
        match sender {
            Some(sender) => {
                if ready.insert(sender) {
                    make_room(planner, sender);
                }
                planner.must_as(
                    who,
                    match mutual {
                        Some(_) => SocketStep::Send { slot: sender, data },
                        None => SocketStep::SendTo { slot: sender, data, to: slot },
                    },
                );
            }
            None => send_for(planner, slot, own, message),
        }
    }
    Ok(())
}

/// A datagram whose sender has ended, from a temporary socket.
fn send_for(planner: &mut Planner, to: u32, own: &Socket, message: &SocketMessage) {
    let slot = planner.temporary();
    planner.new_like(slot, own);
    make_room(planner, slot);
    if !message.from.is_empty() {
        let is_path = message.from.get(2).is_some_and(|byte| *byte != 0);
        let place = match is_path {
            true => SocketPath::File { directory: "/".into(), path: None },
            false => SocketPath::Nowhere,
        };
        planner.must(SocketStep::Bind { slot, address: message.from.clone(), place });
    }
    let data = message.data.clone();
    planner.must_as(message.sender.unwrap_or_default(), SocketStep::SendTo { slot, data, to });
    planner.must(SocketStep::Close { slot });
}

/// Datagram sockets that send to one that need not know them. After the data: once connected, a
/// socket takes datagrams from its peer only.
fn connect_one_way(planner: &mut Planner, slot: u32, own: &Socket) -> Result<()> {
    if own.kind != libc::SOCK_DGRAM {
        return Ok(());
    }
    match own.state {
        SocketState::Connected { peer } if !is_mutual(planner, slot, own, peer)? => {
            planner.must(SocketStep::ConnectTo { slot, to: peer });
        }
        SocketState::Ended(_) => {
            let other = planner.temporary();
            planner.new_like(other, own);
            // the kernel chooses a name
            let address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
            planner.must(SocketStep::Bind { slot: other, address, place: SocketPath::Nowhere });
            planner.must(SocketStep::ConnectTo { slot, to: other });
            planner.must(SocketStep::Close { slot: other });
        }
        _ => {}
    }
    Ok(())
}

/// Lets the other ends go. A peer that goes with data unread leaves an error behind.
fn end(planner: &mut Planner, sorted: &Sorted) -> Result<()> {
    for (slot, other) in &sorted.gone {
        if planner.get(*slot)?.state == SocketState::Ended(Ending::Reset) {
            planner.must(SocketStep::Send { slot: *slot, data: vec![0] });
        }
        planner.must(SocketStep::Close { slot: *other });
    }
    Ok(())
}
