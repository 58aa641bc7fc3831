//! The limits of a template's recipe are those of its machines, unless a request says otherwise.

use crate::client::Client;
use crate::server::{fresh_data, serve_on};
use serde_json::{Value, json};
use stasis_machine::{Host, Quota, Settings};
use stasis_server::{Listen, Options};
use stasis_template::{NoProgress, Recipe, RecipeLimits, Size};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

/// Tries to have more processes than a machine of the template may; how many there are.
const FORKS: &str = "import os, time\nmade = 0\ntry:\n    for _ in range(100):\n        \
                     if os.fork() == 0:\n            time.sleep(600)\n            \
                     os._exit(0)\n        made += 1\nexcept OSError:\n    pass\nmade";

/// Builds a template that differs from the one that is there in its name and its limits.
fn build(host: &Host) {
    let known = host.template(None).expect("a template").template;
    let recipe = Recipe::parse(&known.recipe).expect("its recipe");
    let memory = Some(Size(300 << 20));
    let limits = RecipeLimits { memory, pids: Some(24), ..RecipeLimits::default() };
    let recipe = Recipe { name: "small".into(), limits, warm_up: String::new(), ..recipe };
    host.build_template(&recipe, &NoProgress).expect("a template");
}

fn made(client: &Client, new: Value) -> (String, Value) {
    let made = client.post("/v1/machine/new", &new).good();
    let name = made["machine_name"].as_str().expect("a name").to_owned();
    let limits = client.get(&format!("/v1/machine/{name}")).good()["limits"].clone();
    (name, limits)
}

fn open(data: &Path) -> Host {
    let quota = Quota { memory_mb: Some(200), ..Quota::default() };
    Host::open(Settings { quota, ..stasis_testbed::settings(data) }).expect("a host")
}

#[test]
fn a_machine_has_the_limits_of_its_template() {
    let data = fresh_data("template-limits");
    let host = open(&data);
    build(&host);
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let (bound, running) = serve_on(Arc::new(host), Options { listen, ..Options::default() });
    let root = std::fs::read_to_string(data.join("token")).expect("a token");
    let root = Client::new(bound.tcp().expect("an address"), root.trim());
    let (name, limits) = made(&root, json!({ "template": "small" }));
    assert_eq!(limits, json!({ "memory_mb": 300, "pids": 24 }));
    let forks: u64 = root.run(&name, FORKS)["value"].as_str().expect("a value").parse().expect("n");
    assert!((1..24).contains(&forks), "{forks}");
    let (_, limits) = made(&root, json!({ "template": "small", "limits": { "pids": 99 } }));
    assert_eq!(limits, json!({ "memory_mb": 300, "pids": 99 }));
    let (_, limits) = made(&root, json!({ "limits": { "memory_mb": 16_000_000 } }));
    let most = limits["memory_mb"].as_u64().expect("a limit");
    assert!(most < 16_000_000, "more than the host has: {most}");
    // an account's machines are no larger than the account, unless it asks for that
    let token = root.post("/v1/token", &json!({ "account": "little" })).good();
    let client = Client::new(root.address, token["token"].as_str().expect("a token"));
    let (name, limits) = made(&client, json!({ "template": "small" }));
    assert_eq!(limits["memory_mb"], 200, "{limits}");
    assert_eq!(client.run(&name, "1 + 1")["value"], "2");
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}
