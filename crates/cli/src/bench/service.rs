//! `stasis bench service`: what clients of a service get, over loopback.
//!
//!   this process ── HTTP, WebSocket ──► `stasis serve` in a process of its own
//!
//! Clients here are as plain as can be, so that the service is what is measured.

mod clients;
mod flow;
mod speed;

use super::choice::Choice;
use super::host::Host as Place;
use super::metrics::{self, Group, SERVICE_METRICS, Services};
use super::report::{Report, Results};
use crate::failure::{At, Failure, Result};
use clients::Http;
use serde_json::json;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

const TOKEN: &str = "bench.only-for-measuring-on-loopback";

#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    choice: Choice,
    /// Where the measured service keeps its data; its template stays there for the next run
    #[arg(long, value_name = "DIR", default_value = "/var/tmp/stasis-bench-machine")]
    dir: PathBuf,
}

/// A service and how to measure it.
pub struct Bed {
    service: Child,
    address: SocketAddr,
    runs: usize,
    quick: bool,
}

impl Bed {
    fn start(dir: &Path, runs: usize, quick: bool) -> Result<Bed> {
        let own = std::env::current_exe().at("find", Path::new("this program"))?;
        let mut command = Command::new(own);
        command.args(["serve", "--listen", "127.0.0.1:0", "--data-dir"]).arg(dir);
        command.env("STASIS_ROOT_TOKEN", TOKEN).env("STASIS_LOG", "warn");
        command.env_remove("STASIS_URL").stdin(Stdio::null()).stderr(Stdio::piped());
        let mut service = command.spawn().at("start a service for", dir)?;
        let said = service.stderr.take().map(BufReader::new);
        let Some(mut said) = said else { return Err(silent("it has no standard error")) };
        let address = listening(&mut said);
        // it must never wait for somebody to read what it says
        std::thread::spawn(move || std::io::copy(&mut said, &mut std::io::sink()));
        match address {
            Ok(address) => Ok(Bed { service, address, runs, quick }),
            Err(failure) => {
                let _ = service.kill();
                Err(failure)
            }
        }
    }

    fn http(&self) -> Result<Http> {
        Http::open(self.address)
    }

    /// A new machine that has answered once.
    fn machine(&self, http: &mut Http) -> Result<String> {
        let made = http.post("/v1/machine/new", &json!({}))?;
        let name = made["machine_name"].as_str().unwrap_or_default().to_owned();
        http.run(&name, "1+1", "2")?;
        Ok(name)
    }

    fn remove(&self, http: &mut Http, name: &str) -> Result<()> {
        http.ask("DELETE", &format!("/v1/machine/{name}"), b"").map(drop)
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = Command::new("kill").arg(self.service.id().to_string()).status();
        let _ = self.service.wait();
    }
}

/// Where it listens, which it says when it is ready.
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

fn silent(said: &str) -> Failure {
    Failure::new("bench.no_service", format!("the service did not start: {said}"))
}

pub fn run(args: Args) -> Result<ExitCode> {
    let (wanted, runs) = (args.choice.wanted(SERVICE_METRICS)?, args.choice.runs());
    std::fs::create_dir_all(&args.dir).at("make", &args.dir)?;
    let host = Place::look(&args.dir);
    let bed = Bed::start(&args.dir, runs, args.choice.quick)?;
    let mut results = measure(&bed, &wanted)?;
    results.keep(|key| wanted.contains(&key));
    let cleared = clear(&bed);
    drop(bed);
    let exit = args.choice.say(&Report { metrics: SERVICE_METRICS, runs, host, results });
    cleared.map(|()| exit)
}

/// Leaves the directory as it was found, but for the template.
fn clear(bed: &Bed) -> Result<()> {
    let mut http = bed.http()?;
    loop {
        let list = http.get("/v1/machine/list")?;
        let machines = list["machines"].as_array().cloned().unwrap_or_default();
        if machines.is_empty() {
            return http.post("/v1/store/gc", &json!({})).map(drop);
        }
        for machine in machines {
            bed.remove(&mut http, machine["name"].as_str().unwrap_or_default())?;
        }
    }
}

fn measure(bed: &Bed, wanted: &[&str]) -> Result<Results> {
    let mut results = Results::default();
    for (group, _) in metrics::groups(SERVICE_METRICS, wanted) {
        match group {
            Group::Service(Services::Exec) => speed::exec(bed, &mut results)?,
            Group::Service(Services::Many) => speed::many(bed, &mut results)?,
            Group::Service(Services::Life) => speed::life(bed, &mut results)?,
            Group::Service(Services::Output) => flow::output(bed, &mut results)?,
            Group::Service(Services::Files) => flow::files(bed, &mut results)?,
            _ => flow::idle(bed, &mut results)?,
        }
    }
    Ok(results)
}
