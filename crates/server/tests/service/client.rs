//! A plain HTTP/1.1 client that can also send what no decent client would.

use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Against hangs only.
pub const PATIENCE: Duration = Duration::from_secs(600);

#[derive(Clone)]
pub struct Client {
    pub address: SocketAddr,
    pub token: String,
}

#[derive(Debug)]
pub struct Reply {
    pub status: u16,
    pub head: String,
    pub body: Vec<u8>,
}

impl Reply {
    pub fn json(&self) -> Value {
        let said = || format!("{}\n{}", self.head, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", said()))
    }

    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body of an answer that is a success.
    pub fn good(&self) -> Value {
        assert_eq!(self.status, 200, "{}\n{}", self.head, self.text());
        self.json()
    }

    /// The code of an answer that is a failure with this status.
    pub fn code(&self, status: u16) -> String {
        assert_eq!(self.status, status, "{}\n{}", self.head, self.text());
        let body = self.json();
        for part in ["message", "hint", "id"] {
            assert!(body[part].as_str().is_some_and(|text| !text.is_empty()), "{part}: {body}");
        }
        body["code"].as_str().expect("a code").to_owned()
    }
}

impl Client {
    pub fn new(address: SocketAddr, token: &str) -> Client {
        Client { address, token: token.to_owned() }
    }

    pub fn get(&self, path: &str) -> Reply {
        self.send("GET", path, &[], b"")
    }

    pub fn delete(&self, path: &str) -> Reply {
        self.send("DELETE", path, &[], b"")
    }

    pub fn post(&self, path: &str, body: &Value) -> Reply {
        self.send("POST", path, &[], body.to_string().as_bytes())
    }

    pub fn send(&self, method: &str, path: &str, headers: &[&str], body: &[u8]) -> Reply {
        let mut all = vec![format!("authorization: Bearer {}", self.token)];
        all.push(format!("content-length: {}", body.len()));
        if !headers.iter().any(|line| line.starts_with("host:")) {
            all.push(format!("host: {}", self.address));
        }
        all.extend(headers.iter().map(|line| (*line).to_owned()));
        let head = format!("{method} {path} HTTP/1.1\r\nconnection: close\r\n{}", all.join("\r\n"));
        self.raw(&[head.as_bytes(), b"\r\n\r\n", body].concat())
    }

    /// Calls a tool of MCP, in a request that stands alone.
    pub fn tool(&self, name: &str, arguments: Value, more: &[&str]) -> Reply {
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        self.tool_with(name, arguments, meta, more)
    }

    /// The same with other metadata.
    pub fn tool_with(&self, name: &str, arguments: Value, meta: Value, more: &[&str]) -> Reply {
        let params = json!({ "name": name, "arguments": arguments, "_meta": meta });
        let call = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let named = format!("mcp-name: {name}");
        let mut headers = vec![
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "mcp-protocol-version: 2026-07-28",
            "mcp-method: tools/call",
            &named,
        ];
        headers.extend(more);
        self.send("POST", "/mcp", &headers, call.to_string().as_bytes())
    }

    /// Sends bytes and reads what comes until the other side closes.
    pub fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        exchange(&mut stream, bytes)
    }

    /// Makes a machine; its name.
    pub fn machine(&self) -> String {
        let made = self.post("/v1/machine/new", &serde_json::json!({})).good();
        made["machine_name"].as_str().expect("a name").to_owned()
    }

    /// Submits code; its number.
    pub fn submit(&self, machine: &str, code: &str) -> u64 {
        let body = serde_json::json!({ "instruction": { "code": code, "timeout_seconds": 600 } });
        let accepted = self.post(&format!("/v1/machine/{machine}/exec"), &body).good();
        accepted["instruction_seq"].as_u64().expect("a number")
    }

    /// Runs code; its result.
    pub fn run(&self, machine: &str, code: &str) -> Value {
        let seq = self.submit(machine, code);
        self.get(&format!("/v1/machine/{machine}/exec/{seq}/result")).good()["result"].clone()
    }
}

pub fn exchange<S: Read + Write + Patient>(stream: &mut S, bytes: &[u8]) -> Reply {
    stream.set_deadline(PATIENCE);
    // a server that has seen enough may close before it has read all
    let _ = stream.write_all(bytes);
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let end = all.windows(4).position(|four| four == b"\r\n\r\n").expect("the end of a head");
    let head = String::from_utf8_lossy(&all[..end]).to_lowercase();
    let status = head.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    let rest = all[end + 4..].to_vec();
    let chunked = head.contains("transfer-encoding: chunked");
    let body = if chunked { joined(&rest) } else { rest };
    Reply { status, head, body }
}

pub trait Patient {
    fn set_deadline(&self, limit: Duration);
}

impl Patient for TcpStream {
    fn set_deadline(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).expect("a timeout");
    }
}

impl Patient for std::os::unix::net::UnixStream {
    fn set_deadline(&self, limit: Duration) {
        self.set_read_timeout(Some(limit)).expect("a timeout");
    }
}

fn joined(mut rest: &[u8]) -> Vec<u8> {
    let mut body = Vec::new();
    while let Some(end) = rest.windows(2).position(|two| two == b"\r\n") {
        let size = std::str::from_utf8(&rest[..end]).expect("a size");
        let size = usize::from_str_radix(size, 16).expect("a size");
        body.extend_from_slice(&rest[end + 2..end + 2 + size]);
        rest = &rest[end + 4 + size..];
    }
    body
}
