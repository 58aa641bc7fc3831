//! Counts of instructions: each once, however many follow it and however it came.

use crate::client::Client;
use crate::server::{fresh_data, start};
use serde_json::json;
use stasis_server::{Listen, Options};
use stasis_testbed::until;
use std::net::SocketAddr;

fn count(client: &Client, name: &str) -> u64 {
    let metrics = client.get("/metrics").text();
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.and_then(|value| value.parse().ok()).unwrap_or_else(|| panic!("no {name}\n{metrics}"))
}

#[test]
fn an_instruction_is_counted_once_whoever_follows_it() {
    let data = fresh_data("instruments");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let (bound, running) = start(&data, Options { listen, ..Options::default() });
    let token = std::fs::read_to_string(data.join("token")).expect("the first token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    let counts = || {
        ["stasis_instructions_total", "stasis_instruction_seconds_count"]
            .map(|name| count(&client, name))
    };
    // an instruction is counted right after its answer, which may be here before
    let counted = |wanted| until("it is counted, once", || counts() == wanted);
    assert_eq!(counts(), [0, 0]);
    let name = client.machine();
    let body = json!({ "instruction": { "code": "1 + 1" } });
    let accepted = client.post(&format!("/v1/machine/{name}/exec"), &body).good();
    let at = format!("/v1/machine/{name}/exec/{}", accepted["instruction_seq"]);
    for way in ["result", "wait", "events", "stream-result", "result"] {
        assert_eq!(client.get(&format!("{at}/{way}")).status, 200, "{way}");
    }
    counted([1, 1]);
    // this one has no follower, and came from another surface
    let mine = json!({ "snapshot_tag": "python" });
    let made = client.send(
        "POST",
        "/v1/sandboxes",
        &["content-type: application/json"],
        mine.to_string().as_bytes(),
    );
    let id = made.json()[0]["id"].as_str().expect("an id").to_owned();
    let code = json!({ "code": "x = 1" }).to_string();
    let path = format!("/v1/sandboxes/{id}/eval");
    client.send("POST", &path, &["content-type: application/json"], code.as_bytes());
    counted([2, 2]);
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}
