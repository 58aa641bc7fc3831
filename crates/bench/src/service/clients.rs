//! The simplest clients: one connection each, no threads, no work of their own.

use super::TOKEN;
use serde_json::{Value, json};
use stasis_command::failure::{CliFailure, Result};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(300);

fn broken(what: impl std::fmt::Display) -> CliFailure {
    CliFailure::new("bench.connection", format!("the connection to the service: {what}"))
}

fn wrong(what: &str, got: &Value) -> CliFailure {
    CliFailure::new("bench.wrong_answer", format!("{what} gave {got}"))
}

fn connect(address: SocketAddr) -> Result<TcpStream> {
    let open = || -> std::io::Result<TcpStream> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(stream)
    };
    open().map_err(broken)
}

/// HTTP/1.1 on a connection that stays open.
pub struct Http {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    /// A header of every request, with its line's end.
    header: &'static str,
}

impl Http {
    pub fn open(address: SocketAddr) -> Result<Http> {
        let stream = BufReader::with_capacity(1 << 20, connect(address)?);
        Ok(Http { address, stream, header: "" })
    }

    pub fn with_header(self, header: &'static str) -> Http {
        Http { header, ..self }
    }

    fn head(&mut self, method: &str, path: &str, length: u64) -> Result<()> {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {TOKEN}\r\n\
             content-type: application/json\r\n{}content-length: {length}\r\n\r\n",
            self.address, self.header
        );
        self.stream.get_mut().write_all(head.as_bytes()).map_err(broken)
    }

    /// The length of the answer's body; all answers here have one.
    fn length(&mut self, path: &str) -> Result<u64> {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).map_err(broken)?;
            head.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&head).to_lowercase();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.and_then(|length| length.trim().parse().ok());
        match (head.starts_with("http/1.1 2"), length) {
            (true, Some(length)) => Ok(length),
            _ => {
                let mut body = vec![0; length.unwrap_or(0).min(1000) as usize];
                let _ = self.stream.read_exact(&mut body);
                let body = String::from_utf8_lossy(&body).into_owned();
                Err(wrong(path, &json!({ "head": head, "body": body })))
            }
        }
    }

    pub fn ask(&mut self, method: &str, path: &str, body: &[u8]) -> Result<Value> {
        self.head(method, path, body.len() as u64)?;
        self.stream.get_mut().write_all(body).map_err(broken)?;
        let length = self.length(path)?;
        let mut text = vec![0; length as usize];
        self.stream.read_exact(&mut text).map_err(broken)?;
        serde_json::from_slice(&text).map_err(broken)
    }

    pub fn get(&mut self, path: &str) -> Result<Value> {
        self.ask("GET", path, b"")
    }

    pub fn post(&mut self, path: &str, body: &Value) -> Result<Value> {
        self.ask("POST", path, body.to_string().as_bytes())
    }

    /// Runs code to its end, and returns the result.
    pub fn finish(&mut self, machine: &str, code: &str) -> Result<Value> {
        let body = json!({ "instruction": { "code": code, "timeout_seconds": 300 } });
        let accepted = self.post(&format!("/v1/machine/{machine}/exec"), &body)?;
        let seq = &accepted["instruction_seq"];
        self.get(&format!("/v1/machine/{machine}/exec/{seq}/result"))
    }

    /// Runs code and checks its result; returns the duration.
    pub fn run(&mut self, machine: &str, code: &str, expected: &str) -> Result<Duration> {
        let start = Instant::now();
        let end = self.finish(machine, code)?;
        let took = start.elapsed();
        match end["result"]["value"] == expected {
            true => Ok(took),
            false => Err(wrong(code, &end)),
        }
    }

    /// Sends a body made of the same piece again and again.
    pub fn upload(&mut self, path: &str, piece: &[u8], size: u64) -> Result<Duration> {
        let start = Instant::now();
        self.head("PUT", path, size)?;
        let mut left = size;
        while left > 0 {
            let now = left.min(piece.len() as u64) as usize;
            self.stream.get_mut().write_all(&piece[..now]).map_err(broken)?;
            left -= now as u64;
        }
        let length = self.length(path)?;
        let mut text = vec![0; length as usize];
        self.stream.read_exact(&mut text).map_err(broken)?;
        Ok(start.elapsed())
    }

    pub fn download(&mut self, path: &str, size: u64) -> Result<Duration> {
        let start = Instant::now();
        self.head("GET", path, 0)?;
        let length = self.length(path)?;
        if length != size {
            return Err(wrong(path, &json!(length)));
        }
        let copied = std::io::copy(&mut (&mut self.stream).take(length), &mut std::io::sink());
        copied.map_err(broken)?;
        Ok(start.elapsed())
    }
}

/// A WebSocket to a machine.
pub struct MachineSocket(WebSocket<TcpStream>);

impl MachineSocket {
    pub fn open(address: SocketAddr, machine: &str) -> Result<MachineSocket> {
        let url = format!("ws://{address}/v1/machine/{machine}/repl");
        let mut request = url.into_client_request().map_err(broken)?;
        let bearer = format!("Bearer {TOKEN}").parse().map_err(broken)?;
        request.headers_mut().insert("authorization", bearer);
        let (socket, _) = tungstenite::client(request, connect(address)?).map_err(broken)?;
        let mut socket = MachineSocket(socket);
        match socket.next()? {
            first if first["type"] == "connected" => Ok(socket),
            other => Err(wrong("connecting", &other)),
        }
    }

    fn next(&mut self) -> Result<Value> {
        loop {
            if let Message::Text(text) = self.0.read().map_err(broken)? {
                return serde_json::from_str(&text).map_err(broken);
            }
        }
    }

    fn send(&mut self, code: &str) -> Result<()> {
        let instruction = json!({ "code": code, "timeout_seconds": 120 });
        let exec = json!({ "type": "exec", "instruction": instruction, "request_id": 1 });
        self.0.send(Message::text(exec.to_string())).map_err(broken)
    }

    /// Runs code; how long until its first output, if it has any, and until its result.
    pub fn run(&mut self, code: &str, expected: &str) -> Result<(Option<Duration>, Duration)> {
        let start = Instant::now();
        self.send(code)?;
        let mut first = None;
        loop {
            let message = self.next()?;
            match message["type"].as_str() {
                Some("output") => first = first.or_else(|| Some(start.elapsed())),
                Some("result") if message["result"]["value"] == expected => {
                    return Ok((first, start.elapsed()));
                }
                Some("result") => return Err(wrong(code, &message)),
                _ => {}
            }
        }
    }

    /// Runs code whose output is only counted, in bytes of messages' data.
    pub fn drain(&mut self, code: &str, expected: &str) -> Result<(u64, Duration)> {
        let start = Instant::now();
        self.send(code)?;
        let mut bytes = 0;
        loop {
            let Message::Text(text) = self.0.read().map_err(broken)? else { continue };
            // parsed only if it is short: the service is measured
            if text.len() > 700 && text.starts_with("{\"type\":\"output\"") {
                bytes += text.len() as u64 - 80;
                continue;
            }
            let message: Value = serde_json::from_str(&text).map_err(broken)?;
            match message["type"].as_str() {
                Some("result") if message["result"]["value"] == expected => {
                    return Ok((bytes, start.elapsed()));
                }
                Some("result") => return Err(wrong(code, &message)),
                _ => {}
            }
        }
    }
}
