//! The memory quota of an account, when limits of machines that run are changed.

use crate::client::{Client, Reply};
use crate::server::{fresh_data, serve_on};
use serde_json::{Value, json};
use stasis_machine::{Host, Quota, Settings};
use stasis_server::{Listen, Options};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

fn raise(client: &Client, name: &str, memory_mb: u64) -> Reply {
    let body = json!({ "limits": { "memory_mb": memory_mb } }).to_string();
    client.send("PATCH", &format!("/v1/machine/{name}"), &[], body.as_bytes())
}

fn sized(client: &Client, memory_mb: u64) -> String {
    let made = client.post("/v1/machine/new", &json!({ "memory_mb": memory_mb })).good();
    let name = made["machine_name"].as_str().expect("a name").to_owned();
    client.run(&name, "1");
    name
}

/// The combined memory limits of the account's machines in memory.
fn taken(client: &Client) -> u64 {
    let list = client.get("/v1/machine/list").good();
    let there = |one: &&Value| one["state"] != "swapped";
    let machines = list["machines"].as_array().expect("a list").iter().filter(there);
    machines.map(|one| one["limits"]["memory_mb"].as_u64().expect("a limit")).sum()
}

#[test]
fn limits_of_machines_that_run_are_raised_within_the_quota_only() {
    let data = fresh_data("raised");
    let quota = Quota { memory_mb: Some(1024), ..Quota::default() };
    let host = Host::open(Settings { quota, ..stasis_testbed::settings(&data) }).expect("a host");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let (bound, running) = serve_on(Arc::new(host), Options { listen, ..Options::default() });
    let root = std::fs::read_to_string(data.join("token")).expect("a token");
    let root = Client::new(bound.tcp().expect("an address"), root.trim());
    let token = root.post("/v1/token", &json!({ "account": "small" })).good();
    let client = Client::new(root.address, token["token"].as_str().expect("a token"));
    alone(&client);
    at_once(&client);
    while_it_runs(&client);
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}

fn alone(client: &Client) {
    let name = sized(client, 512);
    assert_eq!(raise(client, &name, 1025).code(429), "account.over_quota");
    raise(client, &name, 1024).good();
    raise(client, &name, 256).good();
    client.delete(&format!("/v1/machine/{name}")).good();
}

/// Many at once: as if they had come one after the other.
fn at_once(client: &Client) {
    let names: Vec<String> = (0..4).map(|_| sized(client, 128)).collect();
    let codes: Vec<u16> = std::thread::scope(|scope| {
        let asked: Vec<_> =
            names.iter().map(|name| scope.spawn(|| raise(client, name, 640).status)).collect();
        asked.into_iter().map(|one| one.join().expect("no panic")).collect()
    });
    assert!(codes.contains(&429) && taken(client) <= 1024, "{codes:?} {}", taken(client));
    names.iter().for_each(|name| drop(client.delete(&format!("/v1/machine/{name}"))));
}

/// A lower limit counts when it is in force: not while an instruction still runs with the old one.
fn while_it_runs(client: &Client) {
    let (big, other) = (sized(client, 768), client.post("/v1/machine/new", &json!({})).good());
    let other = other["machine_name"].as_str().expect("a name").to_owned();
    raise(client, &other, 512).good();
    let exec = format!("/v1/machine/{big}/exec");
    let sleep = json!({ "instruction": { "code": "import time; time.sleep(600)",
        "timeout_seconds": 900 } });
    client.post(&exec, &sleep).good();
    while client.get(&format!("/v1/machine/{big}")).good()["state"] != "running" {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::scope(|scope| {
        let lowered = scope.spawn(|| raise(client, &big, 64).status);
        let lower =
            || client.get(&format!("/v1/machine/{big}")).good()["limits"]["memory_mb"] == 64;
        while !lower() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let woken = client.post(&format!("/v1/machine/{other}/wake"), &json!({}));
        assert_eq!(woken.code(429), "account.over_quota");
        client.post(&format!("/v1/machine/{big}/interrupt"), &json!({})).good();
        assert_eq!(lowered.join().expect("no panic"), 200);
    });
    client.post(&format!("/v1/machine/{other}/wake"), &json!({})).good();
}
