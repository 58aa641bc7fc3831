//! Calls over standard streams: `stasis mcp` as a client starts it.

use super::{McpBench, wrong};
use crate::report::Results;
use crate::samples::Samples;
use serde_json::{Value, json};
use stasis_command::failure::Result;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

pub fn measure(bed: &McpBench, results: &mut Results) -> Result<()> {
    // the daemon needs the directory, with the template in it
    drop(bed.host()?);
    let (mut first, mut warm, mut call) =
        (Samples::default(), Samples::default(), Samples::default());
    for _ in 0..bed.runs {
        stop(&bed.dir)?;
        let start = Instant::now();
        Agent::open(&bed.dir)?;
        first.push_ms(start.elapsed());
        let start = Instant::now();
        let mut agent = Agent::open(&bed.dir)?;
        warm.push_ms(start.elapsed());
        for _ in 0..10 {
            let start = Instant::now();
            agent.one_and_one()?;
            call.push_ms(start.elapsed());
        }
    }
    stop(&bed.dir)?;
    results.add("stdio_call_ms", call);
    results.add("first_call_ms", first);
    results.add("first_call_warm_ms", warm);
    Ok(())
}

fn stasis(dir: &Path) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe().map_err(wrong)?);
    command.arg("--data-dir").arg(dir);
    Ok(command)
}

/// Ends the daemon, so that the next one has to be started.
fn stop(dir: &Path) -> Result<()> {
    let done = stasis(dir)?.arg("stop").output().map_err(wrong)?;
    if done.status.success() { Ok(()) } else { Err(wrong(String::from_utf8_lossy(&done.stderr))) }
}

/// A client, and the program it talks to.
struct Agent {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    machine: String,
}

impl Drop for Agent {
    fn drop(&mut self) {
        // its end of input is its end
        self.input.take();
        let _ = self.child.wait();
    }
}

impl Agent {
    /// Starts the program, and has it run something on a new machine.
    fn open(dir: &Path) -> Result<Agent> {
        let mut command = stasis(dir)?;
        command.arg("mcp").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(wrong)?;
        let (input, output) = (child.stdin.take(), child.stdout.take());
        let output = BufReader::new(output.ok_or_else(|| wrong("no output"))?);
        let mut agent = Agent { child, input, output, machine: String::new() };
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        agent.ask("initialize", hello)?;
        agent.put(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }))?;
        let made = agent.call(json!({ "code": "1+1" }))?;
        agent.machine = made["machine"].as_str().unwrap_or_default().to_owned();
        Ok(agent)
    }

    fn put(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().ok_or_else(|| wrong("it has ended"))?;
        input.write_all(format!("{message}\n").as_bytes()).map_err(wrong)
    }

    fn ask(&mut self, method: &str, params: Value) -> Result<Value> {
        self.put(&json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params }))?;
        loop {
            let mut line = String::new();
            if self.output.read_line(&mut line).map_err(wrong)? == 0 {
                return Err(wrong("it ended before it answered"));
            }
            let message: Value = serde_json::from_str(&line).map_err(wrong)?;
            if message["id"] == 1 {
                return Ok(message["result"].clone());
            }
        }
    }

    fn call(&mut self, arguments: Value) -> Result<Value> {
        let params = json!({ "name": "run_code", "arguments": arguments });
        let ran = self.ask("tools/call", params)?["structuredContent"].clone();
        if ran["value"] == "2" { Ok(ran) } else { Err(wrong(ran)) }
    }

    fn one_and_one(&mut self) -> Result<()> {
        let arguments = json!({ "code": "1+1", "machine": self.machine });
        self.call(arguments).map(drop)
    }
}
