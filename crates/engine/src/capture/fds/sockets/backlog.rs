//! Connections that wait to be accepted, with what their clients have already sent.
//!
//! The kernel hides the contents of such a connection until it is accepted, and an accepted one
//! cannot be put back. So where clients have sent data, the backlog is rebuilt while the tree is
//! stopped: each client gets a new socket with the same visible properties; the waiting connections
//! are accepted and read; the new sockets connect in the same order, send the same data, and
//! replace the old ones.
//!
//!   new sockets, handed over ─► accept and look ─► connect, send ─► replace, watch again
//!
//! Until the first is accepted, a failure leaves everything as it was; nothing after that depends
//! on a limit or a permission of the program's. Lines without data are left alone. Descriptors on
//! their way would be lost here; the kernel counts them beforehand, and they are refused then.

use super::handover::Handover;
use super::{FoundSocket, Scene, options, queue};
use crate::error::{Error, ErrorContext, Result};
use crate::freeze::FrozenProcess;
use crate::tree::Tree;
use stasis_image::model::*;
use stasis_spawner::protocol::InitRequest;
use stasis_spawner::socket_plan::{self, PlanStep, SocketPlan, SocketStep, UnixRow};
use stasis_sys::{fds, libc, socket};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The contents of each backlog, by the listener's object.
pub type Backlogs = HashMap<u32, Vec<PendingConnection>>;

/// The stopped processes and the state read from them.
pub struct FrozenView<'a> {
    pub frozen: &'a [FrozenProcess],
    pub processes: &'a [Process],
    pub objects: &'a [Object],
    pub tree: &'a Tree,
}

/// A client, its new socket, and who holds it.
struct Client {
    /// Its place among the sockets found; `None` for one that has been closed.
    found: Option<usize>,
    shutdown: u8,
    new: OwnedFd,
    /// Process (by place), descriptor, close on exec.
    holders: Vec<(usize, i32, bool)>,
}

/// Looks into every line, and forms anew those with data in them.
pub fn read(
    stage: &FrozenView,
    found: &mut [FoundSocket],
    sockets: &[Socket],
    scene: &Scene,
) -> Result<Backlogs> {
    let mut lines = Backlogs::new();
    for index in 0..found.len() {
        let Some(row) = scene.rows.get(&found[index].inode) else { continue };
        if row.waiting.is_empty() {
            continue;
        }
        let clients = clients(&found[index], row, found)?;
        let line = if clients.iter().all(|client| client.is_some_and(|own| is_silent(&found[own])))
        {
            clients.iter().flatten().map(|own| silent(&found[*own], &sockets[*own])).collect()
        } else {
            form_anew(stage, found, index, &clients, scene)?
        };
        lines.insert(found[index].object, line);
    }
    Ok(lines)
}

/// The sockets that wait, in order; `None` for those that were closed since.
fn clients(own: &FoundSocket, row: &UnixRow, found: &[FoundSocket]) -> Result<Vec<Option<usize>>> {
    let find = |inode: &u32| match inode {
        0 => Ok(None),
        inode => match found.iter().position(|other| other.inode == *inode) {
            Some(client) => Ok(Some(client)),
            None => Err(own.refuse("a client from outside waits to be accepted")),
        },
    };
    row.waiting.iter().map(find).collect()
}

/// Whether nothing that a client sent is still unread.
fn is_silent(client: &FoundSocket) -> bool {
    const SIOCOUTQ: u64 = 0x5411;
    let mut count = [0; 4];
    fds::ioctl_buffer(client.fd(), SIOCOUTQ, &mut count).is_ok() && count == [0; 4]
}

/// The peer shows only after an accept: most likely the process that holds and owns the socket.
fn silent(client: &FoundSocket, socket: &Socket) -> PendingConnection {
    let connector = PeerId { pid: client.own_pid, uid: socket.uid, gid: socket.gid };
    PendingConnection { client: Some(client.object), connector, sent: Vec::new() }
}

fn form_anew(
    stage: &FrozenView,
    found: &mut [FoundSocket],
    listener: usize,
    places: &[Option<usize>],
    scene: &Scene,
) -> Result<Vec<PendingConnection>> {
    let clients = prepare(stage, found, &found[listener], places, scene)?;
    let mut handovers = open_handovers(stage, &clients)?;
    let mut given = Vec::new();
    for client in &clients {
        given.push(give(client, &mut handovers)?);
    }
    let own = &found[listener];
    let (node, address) = address_of(own)?;
    // from here on there is no way back
    let mut line = Vec::new();
    let accepted = clients.iter().map(|_| accept(own, scene)).collect::<Result<Vec<Accepted>>>()?;
    for ((client, numbers), connection) in clients.iter().zip(&given).zip(accepted) {
        connect(client, numbers, &mut handovers, &node, &address).doing(|| own.doing())?;
        send_again(client, &connection.sent).doing(|| own.doing())?;
        line.push(connection.waiting(client, found));
    }
    settle(stage, found, clients, given, handovers)?;
    Ok(line)
}

/// New sockets like the clients', made inside the machine, not connected yet.
fn prepare(
    stage: &FrozenView,
    found: &[FoundSocket],
    listener: &FoundSocket,
    places: &[Option<usize>],
    scene: &Scene,
) -> Result<Vec<Client>> {
    let mut plan = SocketPlan::default();
    for (slot, place) in places.iter().enumerate() {
        let slot = slot as u32;
        let mut step = |what| plan.steps.push(PlanStep { who: None, must: true, what });
        let (family, kind, protocol) = (listener.family, listener.kind, listener.protocol);
        step(SocketStep::New { slot, family, kind, protocol });
        if let Some(own) = place.map(|place| &found[place]) {
            if socket::local_name(own.fd()).doing(|| own.doing())?.len() > 2 {
                return Err(own.refuse("it has a name, and waits with data to be accepted"));
            }
            for SocketOption { level, name, value } in options::read(own)? {
                step(SocketStep::Option { slot, level, name, value });
            }
        }
        plan.keep.push(slot);
    }
    let packed = socket_plan::pack(&plan).doing(|| "plan sockets".into())?;
    let new = stage.tree.walls.init.ask(&InitRequest::MakeSockets, &[packed.as_fd()])?;
    if new.len() != places.len() {
        return Err(Error::Gone);
    }
    let client = |(place, new): (&Option<usize>, OwnedFd)| {
        let own = place.map(|place| &found[place]);
        let row = own.and_then(|own| scene.rows.get(&own.inode));
        let holders = own.map_or(Vec::new(), |own| holders(stage, own.object));
        Client { found: *place, shutdown: row.map_or(0, |row| row.shutdown), new, holders }
    };
    Ok(places.iter().zip(new).map(client).collect())
}

fn holders(stage: &FrozenView, object: u32) -> Vec<(usize, i32, bool)> {
    let mut holders = Vec::new();
    for (index, process) in stage.processes.iter().enumerate() {
        let fds = process.live().into_iter().flat_map(|live| &live.fds);
        let own = fds.filter(|fd| fd.object == object);
        holders.extend(own.map(|fd| (index, fd.number, fd.close_on_exec)));
    }
    holders
}

type Handovers<'a> = HashMap<usize, Handover<'a>>;

fn open_handovers<'a>(stage: &FrozenView<'a>, clients: &[Client]) -> Result<Handovers<'a>> {
    let mut handovers = Handovers::new();
    for (process, ..) in clients.iter().flat_map(|client| &client.holders) {
        if let Entry::Vacant(new) = handovers.entry(*process) {
            new.insert(Handover::open(&stage.frozen[*process])?);
        }
    }
    Ok(handovers)
}

/// Hands a client's new socket to its holders; the number it has in each.
fn give(client: &Client, handovers: &mut Handovers) -> Result<HashMap<usize, i32>> {
    let mut numbers = HashMap::new();
    for (process, ..) in &client.holders {
        if !numbers.contains_key(process) {
            let handover = handovers.get_mut(process).ok_or(Error::Gone)?;
            numbers.insert(*process, handover.pass(client.new.as_fd())?);
        }
    }
    Ok(numbers)
}

/// How to reach the listener: by name, or by its file, also when that has no name any more.
fn address_of(own: &FoundSocket) -> Result<(Option<OwnedFd>, Vec<u8>)> {
    let name = socket::local_name(own.fd()).doing(|| own.doing())?;
    if name.get(2).is_none_or(|byte| *byte == 0) {
        return Ok((None, name));
    }
    let node = socket::bound_file(own.fd()).doing(|| own.doing())?;
    let address = file_address(node.as_raw_fd());
    Ok((Some(node), address))
}

fn file_address(number: i32) -> Vec<u8> {
    let mut address = (libc::AF_UNIX as u16).to_ne_bytes().to_vec();
    address.extend(format!("/proc/self/fd/{number}\0").bytes());
    address
}

/// A connection taken out of the line.
struct Accepted {
    connector: PeerId,
    sent: Vec<SocketMessage>,
}

impl Accepted {
    fn waiting(self, client: &Client, found: &[FoundSocket]) -> PendingConnection {
        PendingConnection {
            client: client.found.map(|place| found[place].object),
            connector: self.connector,
            sent: self.sent,
        }
    }
}

fn accept(own: &FoundSocket, scene: &Scene) -> Result<Accepted> {
    if fds::ready_for(own.fd(), libc::POLLIN).doing(|| own.doing())? & libc::POLLIN == 0 {
        return Err(own.refuse("a connection that waited to be accepted has vanished"));
    }
    let fd = socket::accept(own.fd(), 0).doing(|| own.doing())?;
    let connector = scene.inside(socket::peer_credentials(fd.as_fd()).doing(|| own.doing())?);
    let connection = FoundSocket { fd, ..*own };
    Ok(Accepted { connector, sent: queue::peek_stream(&connection, scene)? })
}

/// Connects a new socket, by a process that holds it where there is one: the server may ask who.
fn connect(
    client: &Client,
    numbers: &HashMap<usize, i32>,
    handovers: &mut Handovers,
    node: &Option<OwnedFd>,
    address: &[u8],
) -> std::io::Result<()> {
    // a full backlog must not stop us
    fds::fcntl(client.new.as_fd(), libc::F_SETFL, libc::O_NONBLOCK as u64)?;
    let mut by_holder = || -> Result<bool> {
        let Some((process, ..)) = client.holders.first() else { return Ok(false) };
        let handover = handovers.get_mut(process).ok_or(Error::Gone)?;
        let address = match node {
            Some(node) => file_address(handover.pass(node.as_fd())?),
            None => address.to_vec(),
        };
        Ok(handover.connect(numbers[process], &address)? == 0)
    };
    match by_holder() {
        Ok(true) => Ok(()),
        _ => socket::connect(client.new.as_fd(), address),
    }
}

fn send_again(client: &Client, messages: &[SocketMessage]) -> std::io::Result<()> {
    let fd = client.new.as_fd();
    let size = socket::option_int(fd, libc::SOL_SOCKET, libc::SO_SNDBUF)?;
    let set = |size: i32| {
        socket::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, &size.to_ne_bytes())
    };
    set(64 << 20)?;
    for message in messages {
        let mut rest = &message.data[..];
        while !rest.is_empty() {
            rest = &rest[socket::send_to(fd, rest, &[])?..];
        }
    }
    set(size / 2)?;
    match i32::from(client.shutdown) - 1 {
        how @ 0..=2 => socket::shutdown(fd, how),
        _ => Ok(()),
    }
}

/// Puts the new sockets where the old ones were, in descriptor tables and epoll sets.
fn settle<'a>(
    stage: &FrozenView<'a>,
    found: &mut [FoundSocket],
    clients: Vec<Client>,
    given: Vec<HashMap<usize, i32>>,
    mut handovers: Handovers<'a>,
) -> Result<()> {
    let mut watched = Vec::new();
    for (client, numbers) in clients.into_iter().zip(given) {
        let Some(place) = client.found else { continue };
        let object = found[place].object;
        let flags = stage.objects[object as usize].flags;
        fds::fcntl(client.new.as_fd(), libc::F_SETFL, flags.into()).doing(|| "set flags".into())?;
        for (process, number, close_on_exec) in &client.holders {
            let handover = handovers.get_mut(process).ok_or(Error::Gone)?;
            handover.replace(numbers[process], *number, *close_on_exec)?;
        }
        watched.extend(watches(stage, object));
        // the last copy of the old one: with it, what watched it ends
        found[place].fd = client.new;
    }
    for (process, epoll, watch) in watched {
        let handover = match handovers.entry(process) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Handover::open(&stage.frozen[process])?),
        };
        handover.watch(epoll, watch.fd, watch.events, watch.data)?;
    }
    handovers.into_values().for_each(Handover::finish);
    Ok(())
}

/// Epoll sets that watch an object, each once: process (by place), its descriptor, the watch.
fn watches(stage: &FrozenView, object: u32) -> Vec<(usize, i32, EpollWatch)> {
    let mut seen = Vec::new();
    let mut watches = Vec::new();
    for (index, process) in stage.processes.iter().enumerate() {
        let Some(live) = process.live() else { continue };
        for fd in &live.fds {
            let ObjectKind::Epoll { watches: all } = &stage.objects[fd.object as usize].kind else {
                continue;
            };
            let is_it = |watch: &&EpollWatch| {
                live.fds.iter().any(|own| own.number == watch.fd && own.object == object)
            };
            for watch in all.iter().filter(is_it) {
                if !seen.contains(&(fd.object, watch.fd)) {
                    seen.push((fd.object, watch.fd));
                    watches.push((index, fd.number, *watch));
                }
            }
        }
    }
    watches
}
