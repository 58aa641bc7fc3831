//! `stasis bench service`: measures a service from its clients' side, over loopback.
//!
//!   this process ── HTTP, WebSocket ──► `stasis serve` in a process of its own
//!
//! The clients are as simple as possible, so that the service is measured.

mod clients;
mod flow;
mod speed;

use super::choice::{BenchArgs, DirArgs};
use super::metrics::{MetricGroup, SERVICE_METRICS, ServiceGroup};
use super::report::Results;
pub use clients::Http;
use serde_json::{Value, json};
use stasis_api::Checkpoints;
use stasis_command::failure::{CliFailure, PathContext, Result};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long the service may take to remove its machines.
const REMOVAL: Duration = Duration::from_secs(60);

pub const TOKEN: &str = "bench.only-for-measuring-on-loopback";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: BenchArgs,
    #[command(flatten)]
    data: DirArgs,
}

/// A service and how to measure it.
pub struct ServiceBench {
    service: Child,
    address: SocketAddr,
    runs: usize,
    quick: bool,
}

impl ServiceBench {
    pub fn start(dir: &Path, runs: usize, quick: bool) -> Result<ServiceBench> {
        let own = std::env::current_exe().at("find", Path::new("this program"))?;
        let mut command = Command::new(own);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir);
        command.env("STASIS_ROOT_TOKEN", TOKEN).env("STASIS_LOG", "warn");
        command.env_remove("STASIS_URL").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut service = command.spawn().at("start a service for", dir)?;
        let said = service.stderr.take().map(BufReader::new);
        let Some(mut said) = said else { return Err(silent("it has no standard error")) };
        let address = listening(&mut said);
        // it must never block on an unread pipe
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        match address {
            Ok(address) => Ok(ServiceBench { service, address, runs, quick }),
            Err(failure) => {
                let _ = service.kill();
                Err(failure)
            }
        }
    }

    pub fn http(&self) -> Result<Http> {
        Http::open(self.address)
    }

    /// A new machine that has answered once, for the cost of an instruction without its state.
    fn machine(&self, http: &mut Http) -> Result<String> {
        self.machine_with(http, Checkpoints::Grouped)
    }

    fn machine_with(&self, http: &mut Http, checkpoints: Checkpoints) -> Result<String> {
        let made = http.post("/v1/machine/new", &json!({ "checkpoints": checkpoints }))?;
        let name = made["machine_name"].as_str().unwrap_or_default().to_owned();
        http.run(&name, "1+1", "2")?;
        Ok(name)
    }

    fn remove(&self, http: &mut Http, name: &str) -> Result<()> {
        http.ask("DELETE", &format!("/v1/machine/{name}"), b"").map(drop)
    }

    /// The names of all machines.
    fn machines(&self, http: &mut Http) -> Result<Vec<String>> {
        let list = http.get("/v1/machine/list")?;
        let machines = list["machines"].as_array().cloned().unwrap_or_default();
        let name = |machine: &Value| machine["name"].as_str().unwrap_or_default().to_owned();
        Ok(machines.iter().map(name).collect())
    }

    pub fn swap_all(&self) -> Result<()> {
        let mut http = self.http()?;
        for name in self.machines(&mut http)? {
            http.post(&format!("/v1/machine/{name}/swap"), &json!({}))?;
        }
        Ok(())
    }

    /// Leaves the directory as it was found, but for the template. The service removes machines of
    /// finished runs itself, so a removal may find nothing.
    pub fn clear(&self) -> Result<()> {
        let mut http = self.http()?;
        let begun = Instant::now();
        loop {
            let machines = self.machines(&mut http)?;
            if machines.is_empty() {
                return http.post("/v1/store/gc", &json!({})).map(drop);
            }
            for name in machines {
                match self.remove(&mut http, &name) {
                    Err(failure) if begun.elapsed() > REMOVAL => return Err(failure),
                    _ => {}
                }
            }
            // machines that are being removed are still listed
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for ServiceBench {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.service.id().to_string()).status();
        let _ = self.service.wait();
    }
}

/// Its address, which it prints when it is ready.
fn listening(said: &mut impl BufRead) -> Result<SocketAddr> {
    let mut all = String::new();
    for line in said.lines().map_while(std::io::Result::ok) {
        if let Some((_, rest)) = line.split_once("http://")
            && let Ok(address) = rest.trim().parse()
        {
            return Ok(address);
        }
        all = format!("{all}{line}\n");
    }
    Err(silent(&all))
}

fn silent(said: &str) -> CliFailure {
    CliFailure::new("bench.no_service", format!("the service did not start: {said}"))
}

pub fn run(args: Args) -> Result<ExitCode> {
    let dir = &args.data.dir;
    let run = args.choice.begin(SERVICE_METRICS, dir)?;
    let bed = ServiceBench::start(dir, run.runs, args.choice.quick)?;
    let results = run.measure(|group, results| measure(&bed, group, results))?;
    let cleared = bed.clear();
    drop(bed);
    let exit = run.say(results);
    cleared.map(|()| exit)
}

fn measure(bed: &ServiceBench, group: MetricGroup, results: &mut Results) -> Result<()> {
    match group {
        MetricGroup::Service(ServiceGroup::Exec) => speed::exec(bed, results),
        MetricGroup::Service(ServiceGroup::Many) => speed::many(bed, results),
        MetricGroup::Service(ServiceGroup::Life) => speed::life(bed, results),
        MetricGroup::Service(ServiceGroup::Output) => flow::output(bed, results),
        MetricGroup::Service(ServiceGroup::Files) => flow::files(bed, results),
        _ => flow::idle(bed, results),
    }
}
