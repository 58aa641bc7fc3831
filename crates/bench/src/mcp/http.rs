//! Calls over Streamable HTTP, each session with a connection and a machine of its own.

use super::{McpBench, wrong};
use crate::report::Results;
use crate::samples::Samples;
use reqwest::Response;
use serde_json::{Value, json};
use stasis_command::failure::Result;
use stasis_server::{Listen, Options, StopHandle};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

const TOKEN: &str = "bench.0123456789abcdef0123456789abcdef";
const VERSION: &str = "2025-11-25";

pub fn measure(bed: &McpBench, results: &mut Results) -> Result<()> {
    let host = Arc::new(bed.host()?);
    let options = Options {
        listen: vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))],
        root_token: Some(TOKEN.to_owned()),
        ..Options::default()
    };
    let (tell, told) = std::sync::mpsc::channel();
    let serving = std::thread::spawn(move || {
        stasis_server::serve(host, options, |bound| {
            let _ = tell.send((bound.tcp(), bound.stop.clone()));
        })
    });
    let Ok((Some(address), stop)) = told.recv() else { return Err(wrong("no service")) };
    let measured = ask(bed, address, results);
    StopHandle::stop(&stop);
    let served = serving.join().map_err(|_| wrong("the service broke"))?;
    served.map_err(wrong)?;
    measured
}

fn ask(bed: &McpBench, address: SocketAddr, results: &mut Results) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(wrong)?;
    runtime.block_on(async {
        let session = Session::open(address).await?;
        let mut call = Samples::default();
        for _ in 0..bed.runs * 10 {
            let start = Instant::now();
            session.one_and_one().await?;
            call.push_ms(start.elapsed());
        }
        results.add("call_ms", call);
        results.add("calls_per_s", crowd(bed, address).await?);
        Ok(())
    })
}

/// Calls of all sessions in a second.
async fn crowd(bed: &McpBench, address: SocketAddr) -> Result<f64> {
    let opening = (0..bed.sessions).map(|_| tokio::spawn(Session::open(address)));
    let mut sessions = Vec::new();
    for opened in opening.collect::<Vec<_>>() {
        sessions.push(opened.await.map_err(wrong)??);
    }
    let start = Instant::now();
    let end = start + bed.length;
    let calling = sessions.into_iter().map(|session| {
        tokio::spawn(async move {
            let mut calls = 0u64;
            while Instant::now() < end {
                session.one_and_one().await?;
                calls += 1;
            }
            Ok::<u64, stasis_command::failure::CliFailure>(calls)
        })
    });
    let mut calls = 0;
    for called in calling.collect::<Vec<_>>() {
        calls += called.await.map_err(wrong)??;
    }
    Ok(calls as f64 / start.elapsed().as_secs_f64())
}

struct Session {
    http: reqwest::Client,
    url: String,
    id: Option<String>,
    machine: String,
}

impl Session {
    async fn open(address: SocketAddr) -> Result<Session> {
        let http = reqwest::Client::builder().no_proxy().build().map_err(wrong)?;
        let url = format!("http://{address}/mcp");
        let mut session = Session { http, url, id: None, machine: String::new() };
        let hello = json!({ "protocolVersion": VERSION, "capabilities": {},
            "clientInfo": { "name": "bench", "version": "1" } });
        let answer = session.post("initialize", hello).await?;
        let id = answer.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
        session.id = id.map(str::to_owned);
        let _ = answer.bytes().await;
        let made = session.call("run_code", json!({ "code": "1+1" })).await?;
        session.machine = made["machine"].as_str().unwrap_or_default().to_owned();
        Ok(session)
    }

    async fn post(&self, method: &str, params: Value) -> Result<Response> {
        let message = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let mut request = self
            .http
            .post(&self.url)
            .bearer_auth(TOKEN)
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", VERSION)
            .json(&message);
        if let Some(id) = &self.id {
            request = request.header("mcp-session-id", id);
        }
        request.send().await.map_err(wrong)
    }

    /// A tool's result, as data.
    async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        let params = json!({ "name": tool, "arguments": arguments });
        let text = self.post("tools/call", params).await?.text().await.map_err(wrong)?;
        let data = text.lines().filter_map(|line| line.strip_prefix("data:"));
        let mut messages = data.filter_map(|data| serde_json::from_str::<Value>(data).ok());
        let answer = messages.find(|message| message.get("id").is_some());
        let answer = answer.ok_or_else(|| wrong(&text))?;
        Ok(answer["result"]["structuredContent"].clone())
    }

    async fn one_and_one(&self) -> Result<()> {
        let arguments = json!({ "code": "1+1", "machine": self.machine });
        let ran = self.call("run_code", arguments).await?;
        if ran["value"] == "2" { Ok(()) } else { Err(wrong(ran)) }
    }
}
