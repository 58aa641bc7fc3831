//! The session of sixty instructions through HTTP and WebSocket, with connections that drop,
//! requests that are sent twice, and a service that is killed: the same answers, nothing twice.

use crate::client::Client;
use crate::socket;
use crate::worker::Worker;
use serde_json::{Value, json};
use std::io::Write;
use std::net::TcpStream;

const WORK: &str = include_str!("../../../machine/tests/transcript/work.py");

fn instructions() -> Vec<&'static str> {
    WORK.split("# ---\n").collect()
}

/// A client's view of an instruction.
fn seen(client: &Client, machine: &str, seq: u64) -> String {
    let path = format!("/v1/machine/{machine}/exec/{seq}");
    let end = client.get(&format!("{path}/wait")).good();
    let output = client.get(&format!("{path}/output")).good();
    let lines: Vec<&Value> =
        output["chunks"].as_array().expect("chunks").iter().map(|chunk| &chunk["data"]).collect();
    let outcome = &end["outcome"];
    let error = (&outcome["error"]["name"], &outcome["error"]["message"]);
    format!("{} {} {error:?} {lines:?}", end["status"], outcome["value"])
}

/// Sends an instruction with a key twice, the first time without waiting for the answer.
fn submit(client: &Client, machine: &str, index: usize, code: &str) -> u64 {
    let body = json!({ "instruction": { "code": code }, "durability": "local" }).to_string();
    let path = format!("/v1/machine/{machine}/exec");
    let key = format!("idempotency-key: step-{index}");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n{key}\r\n\
         content-length: {}\r\n\r\n{body}",
        client.address,
        client.token,
        body.len()
    );
    let mut dropped = TcpStream::connect(client.address).expect("a connection");
    dropped.write_all(head.as_bytes()).expect("sent");
    drop(dropped);
    let accepted = client.send("POST", &path, &[&key], body.as_bytes()).good();
    accepted["instruction_seq"].as_u64().expect("a number")
}

fn same(one: &[String], other: &[String], how: &str) {
    for (index, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one, other, "{how}: instruction {index}: {}", instructions()[index]);
    }
    assert_eq!(one.len(), other.len());
}

#[test]
fn the_same_answers_over_every_way_in() {
    let data = stasis_testbed::data_dir();
    let mut worker = Some(Worker::start(data.path()));
    let client = worker.as_ref().expect("a service").client.clone();
    let plain = plain(&client);
    let failed = plain.iter().filter(|line| line.contains("Error")).count();
    assert_eq!(failed, 1, "one instruction divides by zero, the others work: {plain:#?}");
    same(&plain, &socketed(&client), "over WebSockets that drop after each");
    let mut killed = Vec::new();
    let machine = client.machine();
    for (index, code) in instructions().iter().enumerate() {
        if index % 12 == 6 {
            worker = None;
        }
        let service = worker.get_or_insert_with(|| Worker::start(data.path()));
        let seq = submit(&service.client, &machine, index, code);
        assert_eq!(seq, index as u64, "an instruction ran twice");
        killed.push(seen(&service.client, &machine, seq));
    }
    same(&plain, &killed, "every request dropped and sent again, the service killed on the way");
}

fn plain(client: &Client) -> Vec<String> {
    let machine = client.machine();
    let one = |code: &&str| {
        let seq = client.submit(&machine, code);
        seen(client, &machine, seq)
    };
    instructions().iter().map(one).collect()
}

fn socketed(client: &Client) -> Vec<String> {
    let machine = client.machine();
    let one = |code: &&str| {
        let mut socket = socket::of(client, &machine);
        socket.connected();
        let seq = socket.received(0, code);
        // gone before the answer is
        drop(socket);
        seen(client, &machine, seq)
    };
    instructions().iter().map(one).collect()
}
