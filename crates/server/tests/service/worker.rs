//! A service in a process of its own, which can be killed and whose memory, descriptors and
//! threads are its own: this test program, started again.

use crate::client::{Client, PATIENCE};
use crate::server::serve_on;
use stasis_server::{Listen, Options};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Memory that the allocator may keep in addition from one time to another: some MiB for each of
/// its arenas, of which there are eight per processor, and the size of a table that doubles.
pub const ALLOCATOR_MIB: u64 = 128;

/// Killed when it is dropped, without a word.
pub struct Worker {
    child: Child,
    pub client: Client,
}

impl Worker {
    pub fn start(data: &Path) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "worker::serve_here", "--nocapture", "--ignored"]);
        command.env("WORKER_DATA", data).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a worker");
        let mut said = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        let address = said.find_map(|line| {
            let line = line.expect("text");
            line.split_once("LISTENS ").map(|(_, address)| address.to_owned())
        });
        let address = address.expect("it listens").parse().expect("an address");
        // the test program prints a message when it runs for long, and ends if its output is closed
        std::thread::spawn(move || said.for_each(drop));
        let token = std::fs::read_to_string(data.join("token")).expect("a token");
        Worker { child, client: Client::new(address, token.trim()) }
    }

    fn place(&self, name: &str) -> String {
        format!("/proc/{}/{name}", self.child.id())
    }

    /// Descriptors, threads and MiB of memory.
    pub fn look(&self) -> (usize, usize, u64) {
        (self.count("fd"), self.count("task"), self.resident_mib())
    }

    /// Memory use once caches are full and the allocator has its reserve: later growth reveals a
    /// leak.
    pub fn warmed_up(&self, load: impl Fn()) -> (usize, usize, u64) {
        let mut before = self.look();
        for _ in 0..8 {
            load();
            let now = self.look();
            let settled = now.2 <= before.2 + 8;
            before = now;
            if settled {
                break;
            }
        }
        before
    }

    /// Waits until there is no more than there was before, and as much more of each.
    pub fn comes_down_to(&self, before: (usize, usize, u64), more: (usize, usize, u64)) {
        let end = Instant::now() + PATIENCE;
        loop {
            let after = self.look();
            if after.0 <= before.0 + more.0
                && after.1 <= before.1 + more.1
                && after.2 <= before.2 + more.2
            {
                return;
            }
            let said = "descriptors, threads, MiB:";
            assert!(Instant::now() < end, "{said} {before:?} {after:?}, with {more:?} allowed");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// How many entries a directory of the process in /proc has.
    fn count(&self, name: &str) -> usize {
        std::fs::read_dir(self.place(name)).expect("a process").count()
    }

    pub fn resident_mib(&self) -> u64 {
        let text = std::fs::read_to_string(self.place("statm")).expect("a process");
        let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
        let pages = pages.expect("a number");
        assert!(pages > 0, "the service has ended");
        (pages * 4096) >> 20
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
    }
}

/// Not a test: what a worker runs.
#[test]
#[ignore = "started by other tests"]
fn serve_here() {
    let Some(data) = std::env::var_os("WORKER_DATA") else { return };
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let options = Options { listen, ..Options::default() };
    let (bound, running) = serve_on(Arc::new(stasis_testbed::open(Path::new(&data))), options);
    println!("LISTENS {}", bound.tcp().expect("an address"));
    let _ = running.join();
}
