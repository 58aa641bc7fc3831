//! Traffic of real machines under a policy: connections, bytes, and what an idle one costs.

use super::outside::{GREETING, Outside, SECURE, STREAM};
use crate::machine::{self, BenchLanguage};
use crate::report::Results;
use crate::samples::Samples;
use stasis_api::{Exec, Name, Network, NewMachine, Status, Timeout};
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_machine::{Host, Machine, Settings};
use stasis_sys::memory;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of one transfer.
const SIZE: usize = 256 << 20;
const CONNECTS: usize = 50;
const EACH: usize = 10;
const MACHINES: usize = 100;
const MACHINES_QUICK: usize = 20;
/// Memory counts as still when it changes by less in this time; it is waited for so long.
const STILL: u64 = 256 << 10;
const WHILE: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);

const CLIENT: &str = "
import socket, ssl, time
def connects(address, port, count):
    took = []
    for _ in range(count):
        began = time.perf_counter()
        one = socket.create_connection((address, port))
        took.append((time.perf_counter() - began) * 1e3)
        one.close()
    return ' '.join(map(str, took))
def pull(address, port, size, secure):
    one = socket.create_connection((address, port))
    if secure: one = ssl.create_default_context().wrap_socket(one, server_hostname=address)
    one.sendall(f'GET /{size} HTTP/1.1\\r\\nHost: {address}:{port}\\r\\n\\r\\n'.encode())
    buffer, got, began = bytearray(1 << 20), 0, time.perf_counter()
    while got < size:
        count = one.recv_into(buffer)
        if count == 0: raise OSError(f'{got} bytes')
        got += count
    return got / (time.perf_counter() - began) / 2**20
held = []
def hold(address, port, count):
    wrong = 0
    for _ in range(count):
        try:
            held.append(socket.create_connection((address, port), timeout=60))
            wrong += held[-1].recv(1) != b'k'
        except OSError: wrong += 1
    return wrong
";

/// A host with a policy for the servers outside.
pub struct EgressBed {
    host: Host,
    outside: Outside,
    network: Network,
    runs: usize,
    machines: usize,
}

impl EgressBed {
    pub fn make(dir: &Path, runs: usize, quick: bool) -> Result<EgressBed> {
        let roots = dir.join("bench-roots.pem");
        let outside = Outside::make(&roots)?;
        let mut settings = Settings::new(dir.to_owned(), install::spawner()?);
        settings.trusted_roots = Some(roots);
        settings.timeout = None;
        let host = Host::open(settings)?;
        machine::build(&host, BenchLanguage::default())?;
        let at = outside.address;
        let text = format!(
            "[network]\nallow = [\"{at}:{GREETING},{STREAM}\"]\n[http]\n\
             allow = [\"GET {at}:{SECURE}\"]"
        );
        let wrong = |error: String| CliFailure::new("bench.wrong_answer", error);
        let policy =
            stasis_policy::document::parse(&text).map_err(|fault| wrong(fault.to_string()))?;
        let name: Name = "bench-egress".parse().map_err(|_| wrong("a name".into()))?;
        host.set_policy(name.clone(), policy)?;
        let machines = if quick { MACHINES_QUICK } else { MACHINES };
        Ok(EgressBed { host, outside, network: Network::Policy(name), runs, machines })
    }

    fn machine(&self) -> Result<Arc<Machine>> {
        let network = Some(self.network.clone());
        let machine = self.host.create("bench", NewMachine { network, ..NewMachine::default() })?;
        value(&machine, &format!("{CLIENT}\n0"))?;
        Ok(machine)
    }

    /// Leaves the directory as it was found, but for the template.
    pub fn clear(&self) -> Result<()> {
        for machine in self.host.machines() {
            self.host.remove(&machine)?;
        }
        self.host.remove_policy("bench-egress")?;
        self.host.collect()?;
        Ok(())
    }

    /// How much longer a machine takes to connect than the host itself.
    pub fn connect(&self, results: &mut Results) -> Result<()> {
        let (machine, at) = (self.machine()?, self.outside.address);
        let mut direct = Samples::default();
        for _ in 0..CONNECTS {
            let start = Instant::now();
            TcpStream::connect((at, GREETING)).map_err(failed)?;
            direct.push_ms(start.elapsed());
        }
        let own = direct.p50().unwrap_or_default();
        let mut over = Samples::default();
        for _ in 0..self.runs {
            let said = value(&machine, &format!("connects('{at}', {GREETING}, 10)"))?;
            let took = said.trim_matches('\'').split(' ').filter_map(|one| one.parse::<f64>().ok());
            took.for_each(|one| over.push(one - own));
        }
        self.host.remove(&machine)?;
        results.add("connect_overhead_ms", over);
        Ok(())
    }

    /// Bytes per second through the relay, untouched and with requests read.
    pub fn bytes(&self, results: &mut Results) -> Result<()> {
        let (machine, at) = (self.machine()?, self.outside.address);
        for (key, port, secure) in
            [("passthrough_mib_per_s", STREAM, "False"), ("intercept_mib_per_s", SECURE, "True")]
        {
            let mut rate = Samples::default();
            for _ in 0..self.runs.min(5) {
                let said = value(&machine, &format!("pull('{at}', {port}, {SIZE}, {secure})"))?;
                rate.push(said.parse().map_err(|_| wrong(&said))?);
            }
            results.add(key, rate);
        }
        self.host.remove(&machine)?;
        Ok(())
    }

    /// Many connections of many machines. As many again show what one costs while it is idle: by
    /// then machines and relays have what they need, and the first ones stay, so that nothing of
    /// theirs is used again.
    pub fn many(&self, results: &mut Results) -> Result<()> {
        let all: Vec<Arc<Machine>> =
            (0..self.machines).map(|_| self.machine()).collect::<Result<_>>()?;
        let (mut errors, mut idle) = (Samples::default(), Samples::default());
        errors.push(self.hold(&all)?);
        let before = still();
        let more = self.hold(&all)?;
        if more > 0.0 {
            return Err(wrong(&format!("{more} of the second connections failed")));
        }
        let grown = still().saturating_sub(before) as f64 / 1024.0;
        idle.push(grown / (all.len() * EACH) as f64);
        results.add("connection_errors", errors);
        results.add("idle_conn_kib", idle);
        for machine in &all {
            self.host.remove(machine)?;
        }
        Ok(())
    }

    /// Has each machine hold more connections; how many of them failed.
    fn hold(&self, all: &[Arc<Machine>]) -> Result<f64> {
        let at = self.outside.address;
        let code = format!("hold('{at}', {GREETING}, {EACH})");
        let exec = || Exec { code: code.clone(), timeout: Timeout::Never, ..Exec::default() };
        let begun: Vec<u64> =
            all.iter().map(|machine| Ok(machine.submit(exec())?)).collect::<Result<_>>()?;
        let mut wrong_ones = 0.0;
        for (machine, seq) in all.iter().zip(begun) {
            let end = machine.wait(seq)?;
            let said = end.outcome.and_then(|outcome| outcome.value).unwrap_or_default();
            wrong_ones += said.parse::<f64>().map_err(|_| wrong(&said))?;
        }
        for machine in all {
            machine.settle()?;
        }
        Ok(wrong_ones)
    }
}

fn failed(error: std::io::Error) -> CliFailure {
    CliFailure::new("bench.network", error.to_string())
}

fn wrong(said: &str) -> CliFailure {
    CliFailure::new("bench.wrong_answer", format!("a machine said {said:?}"))
}

fn value(machine: &Arc<Machine>, code: &str) -> Result<String> {
    let exec = Exec { code: code.to_owned(), timeout: Timeout::Never, ..Exec::default() };
    let end = machine.wait(machine.submit(exec)?)?;
    match (end.status, end.outcome) {
        (Status::Done, Some(outcome)) => Ok(outcome.value.unwrap_or_default()),
        (status, outcome) => Err(wrong(&format!("{status:?} {outcome:?}"))),
    }
}

/// Memory that this process uses once it no longer changes, in bytes: without what the allocator
/// keeps for later, which new connections would use without a sign.
fn still() -> u64 {
    let (begun, mut last) = (Instant::now(), resident());
    loop {
        std::thread::sleep(WHILE);
        let now = resident();
        if now.abs_diff(last) < STILL || begun.elapsed() > PATIENCE {
            return now;
        }
        last = now;
    }
}

fn resident() -> u64 {
    memory::release_free();
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = text.split(' ').nth(1).and_then(|word| word.parse::<u64>().ok());
    pages.unwrap_or_default() * 4096
}
