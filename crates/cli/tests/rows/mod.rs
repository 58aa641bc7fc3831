//! mcp-v8's surface, row by row of sections 1 to 3 of its description: each row is a check that
//! runs against `stasis mcp-v8`, and says why the answer is another where it differs on purpose.
//! Section 5, the environment of code, is `crates/mcpv8/tests/environment.rs`. Tasks, policies and
//! upstream servers are listed in `crates/mcpv8/tests/surface.rs`, with the tests that show them.

pub mod flags;
pub mod protocol;
pub mod rest;
pub mod runs;
pub mod tools;

use crate::v8::{Front, Place, STASIS, front, request};
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::process::Stdio;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(120);

/// One row of the description.
pub struct Row {
    pub section: &'static str,
    pub about: &'static str,
    /// Why this is not what mcp-v8 does.
    pub differs: Option<&'static str>,
    pub check: fn(&Bed),
}

pub const fn works(section: &'static str, about: &'static str, check: fn(&Bed)) -> Row {
    Row { section, about, differs: None, check }
}

pub const fn differs(
    section: &'static str,
    about: &'static str,
    why: &'static str,
    check: fn(&Bed),
) -> Row {
    Row { section, about, differs: Some(why), check }
}

/// Ports in the four modes, each started when a row needs it.
pub struct Bed {
    stateless: OnceLock<Front>,
    heap: OnceLock<Front>,
    files: OnceLock<Front>,
    both: OnceLock<Front>,
    pub place: Place,
}

/// An answer over HTTP.
pub struct HttpAnswer {
    pub status: u16,
    pub head: String,
    pub body: String,
}

impl HttpAnswer {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }

    /// The result of a JSON-RPC message in it, as JSON or as an event.
    pub fn message(&self) -> Value {
        let lines = self.body.lines().filter_map(|line| {
            serde_json::from_str(line.strip_prefix("data:").unwrap_or(line).trim()).ok()
        });
        let mut found = lines.filter(|message: &Value| message.is_object());
        found.find(|message| message.get("id").is_some()).unwrap_or_else(|| panic!("{}", self.body))
    }
}

pub fn send(address: SocketAddr, line: &str, headers: &[&str], body: &str) -> HttpAnswer {
    let hosted = headers.iter().any(|header| header.to_lowercase().starts_with("host:"));
    let host = if hosted { String::new() } else { format!("\r\nhost: {address}") };
    let more: String = headers.iter().map(|header| format!("\r\n{header}")).collect();
    let answer = request(address, &format!("{line} HTTP/1.1{host}{more}"), body);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    let status = head[9..12].parse().expect("a status");
    let body = match head.to_lowercase().contains("transfer-encoding: chunked") {
        true => dechunked(body),
        false => body.to_owned(),
    };
    HttpAnswer { status, head: head.to_lowercase(), body }
}

fn dechunked(body: &str) -> String {
    let (mut rest, mut whole) = (body, String::new());
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size.trim(), 16).unwrap_or(0);
        if size == 0 {
            break;
        }
        whole.push_str(&after[..size]);
        rest = after[size..].trim_start_matches("\r\n");
    }
    whole
}

impl Bed {
    pub fn start() -> Bed {
        let own = OnceLock::new;
        let place = Place::new();
        Bed { stateless: own(), heap: own(), files: own(), both: own(), place }
    }

    pub fn stateless(&self) -> SocketAddr {
        self.stateless.get_or_init(|| front(&self.place, &[])).address
    }

    pub fn heap(&self) -> SocketAddr {
        self.heap.get_or_init(|| front(&self.place, &["--heap-store=dir"])).address
    }

    pub fn files(&self) -> SocketAddr {
        self.files.get_or_init(|| front(&self.place, &["--fs-store=dir"])).address
    }

    pub fn both(&self) -> SocketAddr {
        let flags = ["--heap-store=dir", "--fs-store=dir"];
        self.both.get_or_init(|| front(&self.place, &flags)).address
    }

    /// `stasis mcp-v8` with flags and an empty standard input: whether it succeeds, what it prints,
    /// and what it says.
    pub fn program(&self, flags: &[&str], environment: &[(&str, &str)]) -> (bool, String, String) {
        let mut command = self.place.command(Path::new(STASIS));
        command.arg("mcp-v8").args(flags).envs(environment.iter().copied()).stdin(Stdio::null());
        let done = command.output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (done.status.success(), text(&done.stdout), text(&done.stderr))
    }

    /// Runs code over REST to its end.
    pub fn run(&self, address: SocketAddr, body: &Value) -> Value {
        let json = ["content-type: application/json"];
        let answer = send(address, "POST /api/exec?wait=60", &json, &body.to_string());
        assert_eq!(answer.status, 200, "{}", answer.body);
        answer.json()
    }
}

/// A name that nothing else has.
pub fn fresh(kind: &str) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    format!("{kind}-{}", COUNT.fetch_add(1, Ordering::SeqCst))
}

/// A client of one connection.
pub struct McpClient {
    address: SocketAddr,
    session: String,
    pub greeting: Value,
}

const KINDS: [&str; 2] =
    ["content-type: application/json", "accept: application/json, text/event-stream"];

impl McpClient {
    pub fn open(address: SocketAddr) -> McpClient {
        McpClient::with(address, "2025-06-18", &[])
    }

    pub fn with(address: SocketAddr, version: &str, headers: &[&str]) -> McpClient {
        let params = json!({ "protocolVersion": version, "capabilities": {},
            "clientInfo": { "name": "rows", "version": "1" } });
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
        let headers: Vec<&str> = KINDS.iter().chain(headers).copied().collect();
        let answer = send(address, "POST /mcp", &headers, &hello.to_string());
        let id = answer.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let session = id.unwrap_or_else(|| panic!("{} {}", answer.head, answer.body)).to_owned();
        let greeting = answer.message()["result"].clone();
        let own = McpClient { address, session, greeting };
        own.post(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        own
    }

    pub fn session_header(&self) -> String {
        format!("mcp-session-id: {}", self.session)
    }

    fn post(&self, message: &Value) -> HttpAnswer {
        let session = self.session_header();
        let headers: Vec<&str> = KINDS.iter().copied().chain([&*session]).collect();
        send(self.address, "POST /mcp", &headers, &message.to_string())
    }

    /// The whole message that answers a request.
    pub fn request(&self, method: &str, params: &Value) -> Value {
        let message = json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params });
        self.post(&message).message()
    }

    pub fn raw(&self, tool: &str, arguments: &Value) -> Value {
        self.request("tools/call", &json!({ "name": tool, "arguments": arguments }))
    }

    /// A tool's answer: the JSON object in its first block.
    pub fn call(&self, tool: &str, arguments: &Value) -> Value {
        let answer = self.raw(tool, arguments);
        let text = answer["result"]["content"][0]["text"].as_str();
        let text = text.unwrap_or_else(|| panic!("{tool}: {answer}"));
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{tool}: {answer}"))
    }

    /// Runs code to its end; the execution, with what it printed as `printed`.
    pub fn run(&self, arguments: &Value) -> Value {
        let id = self.call("run_js", arguments)["execution_id"].clone();
        self.ended(&id)
    }

    pub fn ended(&self, id: &Value) -> Value {
        let since = Instant::now();
        loop {
            let mut info = self.call("get_execution", &json!({ "execution_id": id }));
            if info["status"] != "running" {
                let page = self.call("get_execution_output", &json!({ "execution_id": id }));
                info["printed"] = page["data"].clone();
                return info;
            }
            assert!(since.elapsed() < PATIENCE, "{info}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub fn printed(&self, code: &str) -> Value {
        self.run(&json!({ "code": code }))["printed"].clone()
    }

    pub fn tools(&self) -> Vec<Value> {
        let list = self.request("tools/list", &json!({}));
        list["result"]["tools"].as_array().expect("tools").clone()
    }
}

/// The error message in an in-band failure.
pub fn words(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("no text: {value}"))
}

/// Runs every row of some tables against one daemon, and names those that fail.
fn check(tables: &[&[Row]]) {
    let bed = Bed::start();
    let mut failed = Vec::new();
    let mut counts = [0, 0];
    for row in tables.iter().copied().flatten() {
        assert!(row.differs.is_none_or(|why| !why.is_empty()), "{} {}", row.section, row.about);
        counts[usize::from(row.differs.is_some())] += 1;
        if catch_unwind(AssertUnwindSafe(|| (row.check)(&bed))).is_err() {
            failed.push(format!("{} {}", row.section, row.about));
        }
    }
    println!("{} rows work, {} differ on purpose", counts[0], counts[1]);
    assert!(failed.is_empty(), "{failed:#?}");
}

#[test]
fn section_1_protocol() {
    check(&[protocol::ROWS]);
}

#[test]
fn section_1_tools() {
    check(&[tools::ROWS]);
}

#[test]
fn section_1_runs() {
    check(&[runs::ROWS]);
}

#[test]
fn section_2_rest() {
    check(&[rest::ROWS]);
}

#[test]
fn section_3_flags() {
    check(&[flags::ROWS]);
}
