//! The yardstick: a Jupyter kernel doing the same, through its own client.

use stasis_bench::report::Results;
use stasis_bench::samples::Samples;
use std::path::Path;
use std::process::Command;

const SCRIPT: &str = r#"
import json, sys, time
from jupyter_client.manager import start_new_kernel

def ask(client, code):
    client.execute_interactive(code, timeout=60, output_hook=lambda message: None)

starts, execs = [], []
for _ in range(int(sys.argv[1])):
    begin = time.perf_counter()
    manager, client = start_new_kernel(startup_timeout=60)
    ask(client, "1+1")
    starts.append((time.perf_counter() - begin) * 1000)
    for _ in range(10):
        begin = time.perf_counter()
        ask(client, "1+1")
        execs.append((time.perf_counter() - begin) * 1000)
    client.stop_channels()
    manager.shutdown_kernel(now=True)
print(json.dumps({"starts": starts, "execs": execs}))
"#;

/// `venv` is where the kernel is installed, and stays.
pub fn measure(venv: &Path, runs: usize, results: &mut Results) {
    match run(venv, runs) {
        Ok((starts, execs)) => {
            results.add("jupyter_start_ms", starts);
            results.add("jupyter_exec_ms", execs);
        }
        Err(why) => {
            results.absent("jupyter_start_ms", why.clone());
            results.absent("jupyter_exec_ms", why);
        }
    }
}

fn run(venv: &Path, runs: usize) -> Result<(Samples, Samples), String> {
    let python = venv.join("bin/python");
    if !venv.join("ready").exists() {
        install(venv, &python)?;
    }
    let runs = runs.min(10).to_string();
    let output = done(Command::new(&python).args(["-c", SCRIPT, &runs]))?;
    let values: serde_json::Value =
        serde_json::from_slice(&output).map_err(|error| error.to_string())?;
    let samples = |key: &str| {
        let mut samples = Samples::default();
        let list = values[key].as_array().cloned().unwrap_or_default();
        list.iter().filter_map(serde_json::Value::as_f64).for_each(|ms| samples.push(ms));
        samples
    };
    Ok((samples("starts"), samples("execs")))
}

fn install(venv: &Path, python: &Path) -> Result<(), String> {
    done(Command::new("python3").args(["-m", "venv"]).arg(venv))?;
    let pip = ["-m", "pip", "install", "--quiet", "jupyter_client", "ipykernel"];
    done(Command::new(python).args(pip))?;
    std::fs::write(venv.join("ready"), "").map_err(|error| error.to_string())
}

fn done(command: &mut Command) -> Result<Vec<u8>, String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said.lines().last().unwrap_or("it failed without a word").to_owned())
}
