//! A service on loopback in this process, and a client of it.

use super::BranchBench;
use crate::service::{Http, TOKEN};
use serde_json::{Value, json};
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_machine::{Host, Settings};
use stasis_server::{Listen, Options, StopHandle};
use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The code that machines run before they are branched.
const FRAME: &str = "import pandas as pd, numpy as np\n\
    df = pd.DataFrame({'a': np.arange(1000) % 7, 'b': np.random.rand(1000)})\n\
    float(df.groupby('a').b.mean().sum())";

pub struct InProcessService {
    pub host: Arc<Host>,
    address: SocketAddr,
    stop: StopHandle,
    serving: JoinHandle<std::result::Result<(), stasis_server::Error>>,
}

impl InProcessService {
    /// Opens the bench's directory and serves it.
    pub fn open(bed: &BranchBench, change: impl FnOnce(&mut Settings)) -> Result<InProcessService> {
        let mut settings = Settings::new(bed.dir.clone(), install::spawner()?);
        change(&mut settings);
        let host = Arc::new(open(settings)?);
        host.build_template(
            &stasis_template::Recipe::default_template(),
            &stasis_template::NoProgress,
        )?;
        // as `stasis serve` does
        host.warm_template(None)?;
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        let options = Options {
            listen: vec![Listen::Tcp(loopback)],
            root_token: Some(TOKEN.to_owned()),
            ..Options::default()
        };
        let (tell, told) = mpsc::channel();
        let own = host.clone();
        let serving = std::thread::spawn(move || {
            stasis_server::serve(own, options, move |bound| {
                let _ = tell.send(bound.clone());
            })
        });
        let failed = || CliFailure::new("bench.service", "the service did not start");
        let bound = told.recv().map_err(|_| failed())?;
        let address = bound.tcp().ok_or_else(failed)?;
        Ok(InProcessService { host, address, stop: bound.stop, serving })
    }

    /// Ends the service and resets the directory, except for the template.
    pub fn close(self) -> Result<()> {
        for machine in self.host.machines() {
            self.host.remove(&machine)?;
        }
        self.host.collect()?;
        self.stop.stop();
        let broke = |_| CliFailure::new("bench.service", "the service broke off");
        let ended = self.serving.join().map_err(broke)?;
        ended.map_err(|error| CliFailure::new(error.code(), error.to_string()))
    }

    pub fn post(&self, path: &str, body: &Value) -> Result<Value> {
        Http::open(self.address)?.post(path, body)
    }

    /// A machine with a frame, whose checkpoint is on disk.
    pub fn machine(&self) -> Result<String> {
        let made = self.post("/v1/machine/new", &json!({}))?;
        let name = made["machine_name"].as_str().unwrap_or_default().to_owned();
        self.ask(&name, FRAME)?;
        self.settle(&name)?;
        Ok(name)
    }

    /// Runs code; its value, and how long that took.
    pub fn ask(&self, machine: &str, code: &str) -> Result<(String, Duration)> {
        let mut http = Http::open(self.address)?;
        let start = Instant::now();
        let end = http.finish(machine, code)?;
        let took = start.elapsed();
        match end["result"]["error"].as_str() {
            Some(error) => Err(wrong(code, error)),
            None => Ok((end["result"]["value"].as_str().unwrap_or_default().to_owned(), took)),
        }
    }

    pub fn settle(&self, machine: &str) -> Result<()> {
        Ok(self.host.machine(machine)?.settle()?)
    }

    /// Creates branches that each run `code`; returns their names.
    pub fn branch(&self, machine: &str, count: usize, code: &str) -> Result<Vec<String>> {
        let vary = vec![json!({ "code": code }); count];
        let made = self.post(&format!("/v1/machine/{machine}/branch"), &json!({ "vary": vary }))?;
        let ends = made["ends"].as_array().cloned().unwrap_or_default();
        let failed = ends.iter().find(|end| !end["instruction"]["outcome"]["value"].is_string());
        if ends.len() != count || failed.is_some() {
            return Err(wrong(code, &format!("{failed:?}")));
        }
        let machines = made["machines"].as_array().cloned().unwrap_or_default();
        Ok(machines.iter().filter_map(|one| one["name"].as_str().map(str::to_owned)).collect())
    }

    pub fn remove(&self, names: &[String]) -> Result<()> {
        for name in names {
            self.host.remove(&self.host.machine(name)?)?;
        }
        Ok(())
    }
}

pub fn wrong(code: &str, what: &str) -> CliFailure {
    CliFailure::new("bench.wrong_answer", format!("`{code}`: {what}"))
}

/// The last one's threads may still be on their way out.
fn open(settings: Settings) -> Result<Host> {
    let end = Instant::now() + Duration::from_secs(20);
    loop {
        match Host::open(settings.clone()) {
            Err(error) if ["data.in_use", "store.busy"].contains(&error.code()) => {
                if Instant::now() > end {
                    return Err(error.into());
                }
                std::thread::sleep(Duration::from_millis(50));
            }
            other => return Ok(other?),
        }
    }
}
