//! A world outside of the host: a network namespace with servers in it, and one link to it.
//!
//!   machine ─► the host ─► 10.x.y.1 ═══ veth ═══ 10.x.y.2, 198.18.x.y web, names, echo
//!                          2001:db8:…:1 ═ (where the host has IPv6) ═ 2001:db8:…:2
//!
//! The second address is public as far as policies know: it is of the range for benchmarks.
//!
//! It goes with the process: the kernel removes a namespace that no thread is in.

use stasis_sys::{libc, namespace};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, TcpStream, UdpSocket};
use std::process::Command;
use std::sync::{Arc, Mutex, mpsc};
use std::thread;

/// Files of the web server, by path.
type Pages = Arc<Mutex<HashMap<String, Vec<u8>>>>;
/// Addresses of names that have another than all names have.
pub type Names = Arc<Mutex<HashMap<String, Ipv4Addr>>>;

pub type NamesV6 = Arc<Mutex<HashMap<String, Ipv6Addr>>>;

pub struct OutsideNetwork {
    /// The server's address.
    pub there: Ipv4Addr,
    /// The host's address on the link.
    pub here: Ipv4Addr,
    /// The server's public address.
    pub public: Ipv4Addr,
    /// Another one, which no name has.
    pub unnamed: Ipv4Addr,
    /// Both ends of the link in IPv6, if the host has it: of the host, and of the server.
    pub six: Option<[Ipv6Addr; 2]>,
    pub pages: Pages,
    pub names: Names,
    /// Names that have an IPv6 address and no other.
    pub names_v6: NamesV6,
    /// The names of both ends of the link.
    ends: [String; 2],
    work: mpsc::Sender<Box<dyn FnOnce() + Send>>,
}

fn ip(arguments: &str) {
    let done = Command::new("ip").args(arguments.split_whitespace()).output();
    let done = done.expect("`ip` of iproute2 is there");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "ip {arguments}: {said}");
}

impl OutsideNetwork {
    pub fn make() -> OutsideNetwork {
        let id = std::process::id();
        let [_, _, high, low] = id.to_be_bytes();
        let net = |last: u8| Ipv4Addr::new(10, 128 + (high & 127), low, last);
        let (here, there) = (net(1), net(2));
        let public = Ipv4Addr::new(198, 18 + (high & 1), low, high | 1);
        let unnamed = Ipv4Addr::new(198, 18 + (high & 1), low, (high | 1) ^ 128);
        let (work, orders) = mpsc::channel::<Box<dyn FnOnce() + Send>>();
        let (tell, told) = mpsc::channel();
        thread::spawn(move || {
            namespace::unshare(libc::CLONE_NEWNET).expect("a namespace");
            let own = std::fs::read_link("/proc/thread-self").expect("our own number");
            tell.send(own.file_name().expect("a number").to_string_lossy().into_owned())
                .expect("somebody waits");
            orders.into_iter().for_each(|order| order());
        });
        let thread = told.recv().expect("a thread in the namespace");
        let (near, far) = (format!("st{id}"), format!("so{id}"));
        ip(&format!("link add {near} type veth peer name {far} netns {thread}"));
        ip(&format!("addr add {here}/30 dev {near}"));
        ip(&format!("link set {near} up"));
        let ends = [near.clone(), far.clone()];
        let (pages, known) = (Pages::default(), Names::default());
        let (shared, all) = (pages.clone(), known.clone());
        let (names_v6, six, names_v4) = (NamesV6::default(), None, known);
        let all_v6 = names_v6.clone();
        let mut outside = OutsideNetwork {
            there,
            here,
            public,
            unnamed,
            six,
            pages,
            names: names_v4,
            names_v6,
            ends,
            work,
        };
        outside.run(move || {
            ip(&format!("addr add {there}/30 dev {far}"));
            ip(&format!("addr add {public}/32 dev {far}"));
            ip(&format!("addr add {unnamed}/32 dev {far}"));
            ip(&format!("link set {far} up"));
            ip("link set lo up");
            let any = Ipv4Addr::UNSPECIFIED;
            web(TcpListener::bind((any, 80)).expect("a port"), shared);
            echo(TcpListener::bind((any, 7)).expect("a port"));
            echo(TcpListener::bind((any, 443)).expect("a port"));
            echo_datagrams(UdpSocket::bind((public, 443)).expect("a port"));
            echo_datagrams(UdpSocket::bind((public, 123)).expect("a port"));
            names(UdpSocket::bind((there, 53)).expect("a port"), there, all, all_v6);
        });
        ip(&format!("route add {public}/32 via {there} dev {near}"));
        ip(&format!("route add {unnamed}/32 via {there} dev {near}"));
        outside.add_v6([high, low].map(u16::from));
        outside
    }

    /// Gives both ends of the link addresses of IPv6, if the host has it.
    fn add_v6(&mut self, [high, low]: [u16; 2]) {
        if !std::fs::exists("/proc/net/if_inet6").unwrap_or(false) {
            return;
        }
        let [here, there] =
            [1, 2].map(|last| Ipv6Addr::new(0x2001, 0xdb8, high, low, 0, 0, 0, last));
        let ([near, far], pages) = (self.ends.clone(), self.pages.clone());
        ip(&format!("addr add {here}/64 dev {near} nodad"));
        self.run(move || {
            ip(&format!("addr add {there}/64 dev {far} nodad"));
            web(TcpListener::bind((there, 80)).expect("a port"), pages);
            echo_datagrams(UdpSocket::bind((there, 123)).expect("a port"));
        });
        self.six = Some([here, there]);
    }

    /// Gives the outside another address, which the host has a route to.
    pub fn link(&self, address: Ipv4Addr) {
        let [near, far] = self.ends.clone();
        self.run(move || ip(&format!("addr add {address}/32 dev {far}")));
        ip(&format!("route add {address}/32 via {} dev {near}", self.there));
    }

    /// Does something out there, and waits for it.
    pub fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let (tell, told) = mpsc::channel();
        let order = Box::new(move || drop(tell.send(work())));
        self.work.send(order).expect("the namespace is there");
        told.recv().expect("it was done")
    }
}

/// Serves pages, and says of what it is sent how many bytes that was, and their sum.
fn web(listener: TcpListener, pages: Pages) {
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let pages = pages.clone();
            thread::spawn(move || answer(stream, &pages));
        }
    });
}

fn answer(mut stream: TcpStream, pages: &Pages) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut first, mut length) = (String::new(), 0);
    reader.read_line(&mut first)?;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 || line == "\r\n" {
            break;
        }
        let (name, value) = line.split_once(':').unwrap_or(("", ""));
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let path = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let body = if first.starts_with("POST") {
        let mut body = vec![0; length];
        reader.read_exact(&mut body)?;
        let sum: u64 = body.iter().map(|byte| u64::from(*byte)).sum();
        Some(format!("{length} {sum}").into_bytes())
    } else {
        pages.lock().expect("no panic").get(&path).cloned()
    };
    let status = if body.is_some() { "200 OK" } else { "404 Not Found" };
    let kind = if path.ends_with('/') { "text/html" } else { "application/octet-stream" };
    let body = body.unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(&body)
}

/// Sends back what it gets.
fn echo(listener: TcpListener) {
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let thread = thread::Builder::new().stack_size(128 << 10);
            let _ = thread.spawn(move || {
                let mut buffer = [0; 4096];
                while let Ok(len @ 1..) = stream.read(&mut buffer) {
                    if stream.write_all(&buffer[..len]).is_err() {
                        return;
                    }
                }
            });
        }
    });
}

fn echo_datagrams(socket: UdpSocket) {
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(&buffer[..len], from);
        }
    });
}

/// Knows one address, by every name that ends in `example`, and those in a table.
fn names(socket: UdpSocket, address: Ipv4Addr, others: Names, six: NamesV6) {
    thread::spawn(move || {
        let mut buffer = [0; 1500];
        while let Ok((len, from)) = socket.recv_from(&mut buffer) {
            let other = others.lock().expect("no panic").get(&asked(&buffer[..len])).copied();
            let address = other.unwrap_or(address);
            let six = six.lock().expect("no panic").get(&asked(&buffer[..len])).copied();
            let _ = socket.send_to(&resolved(&buffer[..len], address, six), from);
        }
    });
}

/// The queried name.
fn asked(query: &[u8]) -> String {
    let (mut rest, mut labels) = (query.get(12..).unwrap_or_default(), Vec::new());
    while let [len @ 1..=63, tail @ ..] = rest {
        let (label, others) = tail.split_at((*len as usize).min(tail.len()));
        labels.push(String::from_utf8_lossy(label).to_lowercase());
        rest = others;
    }
    labels.join(".")
}

fn resolved(query: &[u8], address: Ipv4Addr, six: Option<Ipv6Addr>) -> Vec<u8> {
    const HEAD: usize = 12;
    let name_end = query[HEAD..].iter().position(|byte| *byte == 0).map_or(HEAD, |at| HEAD + at);
    let question = &query[HEAD..name_end + 5];
    let known = query[HEAD..name_end].ends_with(b"\x07example");
    let kind = query[name_end + 2];
    let data = match (six, kind) {
        (Some(six), 28) => Some(six.octets().to_vec()),
        (None, 1) if known => Some(address.octets().to_vec()),
        _ => None,
    };
    let mut answer = query[..2].to_vec();
    let count = u8::from(data.is_some());
    answer.extend([0x81, if known { 0x80 } else { 0x83 }, 0, 1, 0, count, 0, 0, 0, 0]);
    answer.extend(question);
    if let Some(data) = data {
        answer.extend([0xc0, HEAD as u8, 0, kind, 0, 1, 0, 0, 0, 60, 0, data.len() as u8]);
        answer.extend(data);
    }
    answer
}
