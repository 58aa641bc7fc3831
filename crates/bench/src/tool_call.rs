//! `tool_call_ms` of `stasis bench egress`: a call of a tool from code, and its answer back in it.
//!
//!   code in a machine ─► agent ─► driver: policy, record ─► hub ─► an echo server over stdio
//!
//! The clock is the machine's own, so one sample is what the code waits for.

use super::machine::{self, BenchLanguage};
use super::report::Results;
use super::samples::Samples;
use serde_json::json;
use stasis_api::{Exec, NewMachine};
use stasis_command::failure::{CliFailure, Result};
use stasis_command::install;
use stasis_machine::{Host, Settings, ToolServer};
use std::path::Path;

/// Calls before the first sample.
const WARM: usize = 20;
/// An MCP server with one tool.
const SERVER: &str = r#"
import json, sys
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked: continue
    method, given = asked["method"], asked.get("params") or {}
    if method == "initialize":
        about = {"name": "echo", "version": "1"}
        found = {"protocolVersion": given["protocolVersion"], "capabilities": {"tools": {}},
                 "serverInfo": about}
    elif method == "tools/list":
        found = {"tools": [{"name": "echo", "inputSchema": {"type": "object",
                 "properties": {"text": {"type": "string"}}, "required": ["text"]}}]}
    else:
        found = {"content": [{"type": "text", "text": given["arguments"]["text"]}]}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": found}), flush=True)
"#;

pub fn measure(dir: &Path, runs: usize, results: &mut Results) -> Result<()> {
    let wrong = |said: String| CliFailure::new("bench.wrong_answer", said);
    let config =
        json!({ "mcpServers": { "bench": { "command": "python3", "args": ["-c", SERVER] } } });
    let servers = ToolServer::read(&config.to_string(), |_| None);
    let mut settings = Settings::new(dir.to_owned(), install::spawner()?);
    settings.tools = servers.map_err(|fault| wrong(fault.to_string()))?;
    let host = Host::open(settings)?;
    machine::build(&host, BenchLanguage::default())?;
    let template = Some(BenchLanguage::default().template().to_owned());
    let machine = host.create("bench", NewMachine { template, ..NewMachine::default() })?;
    let code = format!(
        "import stasis, time\necho = stasis.tools.bench.echo\ntook = []\nfor n in range({}):\n    \
         begun = time.perf_counter()\n    assert echo(str(n)) == str(n)\n    \
         took.append((time.perf_counter() - begun) * 1000)\ntook[{WARM}:]",
        WARM + runs
    );
    let end = machine.wait(machine.submit(Exec { code, ..Exec::default() })?)?;
    let outcome = end.outcome.unwrap_or_default();
    let value = outcome.value.ok_or_else(|| wrong(format!("no times: {:?}", outcome.error)))?;
    let took: Vec<f64> = serde_json::from_str(&value).map_err(|error| wrong(error.to_string()))?;
    let mut samples = Samples::default();
    took.into_iter().for_each(|one| samples.push(one));
    results.add("tool_call_ms", samples);
    host.remove(&machine)?;
    Ok(())
}
