//! Many sessions of MCP at once: nothing fails, and nothing stays behind.
//!
//! The short form is part of every run; `STASIS_SOAK=1` makes it the long one.

use crate::client::{Client, PATIENCE, Reply};
use crate::server::fresh_data;
use crate::worker::{ALLOCATOR_MIB, Worker};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const SESSIONS: usize = 200;
const MACHINES: usize = 8;
const VERSION: &str = "2025-11-25";

fn length() -> Duration {
    Duration::from_secs(if std::env::var_os("STASIS_SOAK").is_some() { 60 } else { 3 })
}

/// A session, with the stream of news that official clients open.
struct Session<'a> {
    client: &'a Client,
    id: String,
    _news: TcpStream,
}

fn post(client: &Client, session: Option<&str>, message: &Value) -> Reply {
    let session = session.map(|id| format!("mcp-session-id: {id}"));
    let version = format!("mcp-protocol-version: {VERSION}");
    let mut headers = vec![
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        &version,
    ];
    headers.extend(session.as_deref());
    client.send("POST", "/mcp", &headers, message.to_string().as_bytes())
}

impl Session<'_> {
    fn open(client: &Client) -> Session<'_> {
        let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
            "protocolVersion": VERSION, "capabilities": {},
            "clientInfo": { "name": "load", "version": "1" } } });
        let greeted = post(client, None, &hello);
        let id = greeted.head.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
        let id = id.unwrap_or_else(|| panic!("{}\n{}", greeted.head, greeted.text())).to_owned();
        let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(post(client, Some(&id), &ready).status, 202);
        let mut news = TcpStream::connect(client.address).expect("a connection");
        news.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "GET /mcp HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             accept: text/event-stream\r\nmcp-session-id: {id}\r\n\
             mcp-protocol-version: {VERSION}\r\n\r\n",
            client.address, client.token
        );
        news.write_all(head.as_bytes()).expect("sent");
        let mut first = [0; 12];
        news.read_exact(&mut first).expect("an answer");
        assert_eq!(&first, b"HTTP/1.1 200");
        Session { client, id, _news: news }
    }

    fn run(&self, number: u64, machine: &str, code: &str) -> String {
        let call = json!({ "jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {
            "name": "run_code", "arguments": { "machine": machine, "code": code } } });
        let reply = post(self.client, Some(&self.id), &call);
        let text = reply.text();
        let said = text.lines().filter_map(|line| line.strip_prefix("data:")).next_back();
        let said: Value = serde_json::from_str(said.unwrap_or_default().trim())
            .unwrap_or_else(|error| panic!("{error}: {}\n{text}", reply.head));
        let value = said["result"]["structuredContent"]["value"].as_str();
        value.unwrap_or_else(|| panic!("{said}")).to_owned()
    }

    fn close(self) {
        let headers =
            [&*format!("mcp-session-id: {}", self.id), "mcp-protocol-version: 2025-11-25"];
        let ended = self.client.send("DELETE", "/mcp", &headers, b"");
        assert_eq!(ended.status, 204, "{}", ended.head);
    }
}

/// Every session calls again and again; how many answers there were, all of them right.
fn round(worker: &Worker, names: &[String], sessions: usize, time: Duration) -> u64 {
    let end = Instant::now() + time;
    let work = |index: usize| {
        let session = Session::open(&worker.client);
        let mut count = 0;
        while count == 0 || Instant::now() < end {
            count += 1;
            let said =
                session.run(count, &names[index % names.len()], &format!("{index} + {count}"));
            assert_eq!(said, (index as u64 + count).to_string());
        }
        session.close();
        count
    };
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..sessions).map(|index| scope.spawn(move || work(index))).collect();
        all.into_iter().map(|one| one.join().expect("no failure")).sum()
    })
}

#[test]
fn many_sessions_leave_nothing_behind() {
    let data = fresh_data("mcp-load");
    let worker = Worker::start(&data);
    let names: Vec<String> = (0..MACHINES).map(|_| worker.client.machine()).collect();
    let before = worker.warmed_up(|| {
        round(&worker, &names, SESSIONS, Duration::from_secs(1));
    });
    let count = round(&worker, &names, SESSIONS, length());
    assert!(count >= SESSIONS as u64, "{count} calls");
    // machines may leave or enter memory meanwhile, and walls and trees stand ready for the next
    let (descriptors, threads) = (4 * (2 * MACHINES + 16) + 160 * 12, 2 * MACHINES + 16);
    worker.comes_down_to(before, (descriptors, threads, ALLOCATOR_MIB));
}
