//! All changes are reported to the accounts concerned, and again after a reconnect.

use crate::client::{Client, PATIENCE};
use crate::server::{fresh_data, root, start};
use serde_json::{Value, json};
use stasis_server::{Listen, Options};
use std::io::{BufRead, BufReader, Lines, Write};
use std::net::{SocketAddr, TcpStream};

/// A follower of events.
pub struct Follower {
    lines: Lines<BufReader<TcpStream>>,
}

impl Follower {
    pub fn new(client: &Client, query: &str, header: &str) -> Follower {
        let mut stream = TcpStream::connect(client.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        let head = format!(
            "GET /v1/events?{query} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             {header}\r\n",
            client.address, client.token
        );
        stream.write_all(head.as_bytes()).expect("sent");
        let mut lines = BufReader::new(stream).lines();
        let status = lines.next().expect("a line").expect("text");
        assert!(status.contains("200"), "{status}");
        Follower { lines }
    }

    pub fn next(&mut self) -> Value {
        loop {
            let line = self.lines.next().expect("more").expect("in time");
            if let Some(data) = line.strip_prefix("data: ") {
                return serde_json::from_str(data).expect("JSON");
            }
        }
    }

    /// Kinds up to and with `last`.
    pub fn until(&mut self, last: &str) -> Vec<Value> {
        let mut all = vec![self.next()];
        while all.last().is_some_and(|event| event["kind"] != last) {
            all.push(self.next());
        }
        all
    }
}

fn kinds(events: &[Value]) -> Vec<&str> {
    events.iter().filter_map(|event| event["kind"].as_str()).collect()
}

#[test]
fn a_machines_lifecycle_is_reported() {
    let client = root();
    let mut follower = Follower::new(&client, "tag=watched%3Dyes", "");
    client.machine();
    let made = client.post("/v1/machine/new", &json!({ "tags": { "watched": "yes" } })).good();
    let name = made["machine_name"].as_str().expect("a name").to_owned();
    client.run(&name, "1");
    client.post(&format!("/v1/machine/{name}/swap"), &json!({})).good();
    let path = format!("/v1/machine/{name}/file?path=x");
    client.send("PUT", &path, &[], b"x").good();
    client.post(&format!("/v1/machine/{name}/branch"), &json!({ "names": ["told-branch"] })).good();
    client.post(&format!("/v1/machine/{name}/rollback"), &json!({ "seq": 0 })).good();
    client.delete(&format!("/v1/machine/{name}")).good();
    let events = follower.until("machine.removed");
    let all = kinds(&events);
    let place = |kind: &str| {
        all.iter().position(|own| *own == kind).unwrap_or_else(|| panic!("{kind}: {all:?}"))
    };
    let order = [
        "machine.created",
        "instruction.queued",
        "instruction.finished",
        "checkpoint.made",
        "machine.swapped",
        "file.put",
        "machine.rolled_back",
        "machine.removed",
    ];
    let places: Vec<_> = order.iter().map(|kind| place(kind)).collect();
    assert!(places.is_sorted(), "{all:?}");
    for kind in ["instruction.started", "machine.woken"] {
        place(kind);
    }
    let finished = &events[place("instruction.finished")];
    assert_eq!((&finished["seq"], &finished["status"]), (&json!(0), &json!("done")));
    let born = events.iter().rfind(|event| event["kind"] == "machine.created").expect("a branch");
    assert_eq!(
        (&born["machine"], &born["about"]),
        (&json!("told-branch"), &json!(format!("{name}@0")))
    );
    // who was away gets what came after the last one they saw
    let seen = events[2]["id"].as_u64().expect("an id");
    let mut again =
        Follower::new(&client, &format!("machine={name}"), &format!("last-event-id: {seen}\r\n"));
    let rest: Vec<Value> =
        events[3..].iter().filter(|event| event["machine"] == name.as_str()).cloned().collect();
    assert_eq!(again.until("machine.removed"), rest);
    let counted = client.get("/metrics").text();
    assert!(counted.contains("stasis_events_total{kind=\"machine.swapped\"}"), "{counted}");
}

#[test]
fn events_of_other_accounts_are_not_sent() {
    let client = root();
    let other = client.post("/v1/token", &json!({ "account": "quiet" })).good();
    let other = Client::new(client.address, other["token"].as_str().expect("a token"));
    let mut follower = Follower::new(&other, "kind=machine.", "");
    client.machine();
    let own = other.machine();
    let first = follower.next();
    assert_eq!((&first["kind"], &first["machine"]), (&json!("machine.created"), &json!(own)));
    assert_eq!(client.get("/v1/events?tag=nonsense").code(400), "request.invalid");
}

#[test]
fn events_survive_a_restart_and_say_when_too_old() {
    let data = fresh_data("events");
    let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
    let options = || Options { listen: vec![Listen::Tcp(loopback)], ..Options::default() };
    let (bound, running) = start(&data, options());
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let mut follower = Follower::new(&client, "", "");
    let name = client.machine();
    let seen = follower.until("machine.created").last().expect("one")["id"].clone();
    client.delete(&format!("/v1/machine/{name}")).good();
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
    let (bound, running) = start(&data, options());
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let mut again = Follower::new(&client, "", &format!("last-event-id: {seen}\r\n"));
    assert_eq!(kinds(&again.until("service.started")), ["machine.removed", "service.started"]);
    // more than are kept, at three for each instruction
    let name = client.machine();
    client.run(&name, "1");
    for _ in 0..3400 {
        client.send("PATCH", &format!("/v1/machine/{name}"), &[], b"{\"tags\":{}}").good();
        client.send("PATCH", &format!("/v1/machine/{name}"), &[], b"{\"tags\":{}}").good();
        client.send("PATCH", &format!("/v1/machine/{name}"), &[], b"{\"tags\":{}}").good();
    }
    let mut late = Follower::new(&client, "", &format!("last-event-id: {seen}\r\n"));
    assert_eq!(late.next()["kind"], "events.missed");
    assert_eq!(late.next()["kind"], "machine.updated");
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}
