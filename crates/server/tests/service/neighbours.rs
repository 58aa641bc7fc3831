//! Two accounts side by side: what one has must not be seen, or told from an answer, by the other.

use crate::client::{Client, Reply};
use crate::server::{root, shared};
use serde_json::{Value, json};

const JSON: &[&str] = &["content-type: application/json"];

fn token(new: &Value) -> Client {
    let made = root().post("/v1/token", new).good();
    Client::new(shared().address, made["token"].as_str().expect("a token"))
}

/// Two accounts that may also import.
fn two(name: &str) -> [Client; 2] {
    let scopes = json!(["machines", "host"]);
    ["one", "other"]
        .map(|which| token(&json!({ "account": format!("{name}-{which}"), "scopes": scopes })))
}

fn named(client: &Client, name: &str) -> Reply {
    client.post("/v1/machine/new", &json!({ "name": name }))
}

fn kept(client: &Client, machine: &str, code: &str) -> Value {
    let body = json!({ "instruction": { "code": code, "timeout_seconds": 600 },
        "durability": "local" });
    let seq = client.post(&format!("/v1/machine/{machine}/exec"), &body).good();
    let seq = &seq["instruction_seq"];
    client.get(&format!("/v1/machine/{machine}/exec/{seq}/wait")).good()
}

#[test]
fn each_account_has_its_own_names() {
    let [one, other] = two("names");
    named(&one, "shared-name").good();
    kept(&one, "shared-name", "mine = 'of one'");
    // made, branched, imported: a name that is taken elsewhere is free
    named(&other, "shared-name").good();
    let own = other.run("shared-name", "'mine' in globals()");
    assert_eq!(own["value"], "False", "it is a machine of its own");
    let file = one.get("/v1/machine/shared-name/export?root=false");
    assert_eq!(file.status, 200);
    named(&one, "second").good();
    other.send("POST", "/v1/import?name=second", &[], &file.body).good();
    assert_eq!(other.run("second", "mine")["value"], "'of one'", "it was handed the file");
    named(&one, "third").good();
    other.post("/v1/machine/shared-name/branch", &json!({ "names": ["third"] })).good();
    // in one account a name is taken once, however it comes
    assert_eq!(named(&one, "third").code(409), "machine.name_taken");
    let again = one.send("POST", "/v1/import?name=third", &[], &file.body);
    assert_eq!(again.code(409), "machine.name_taken");
    let again = one.post("/v1/machine/second/branch", &json!({ "names": ["third"] }));
    assert_eq!(again.code(409), "machine.name_taken");
    // what one removes, renames and changes is its own
    one.delete("/v1/machine/shared-name").good();
    assert_eq!(other.run("shared-name", "1")["value"], "1");
    other.post("/v1/machine/third/promote", &json!({ "onto": "shared-name" })).good();
    assert_eq!(one.get("/v1/machine/shared-name").code(404), "machine.not_found");
    let lists = [&one, &other].map(|client| {
        let list = client.get("/v1/machine/list").good();
        let names = list["machines"].as_array().expect("a list").iter();
        let mut names: Vec<_> = names.map(|one| one["name"].to_string()).collect();
        names.sort();
        names.join(" ")
    });
    assert_eq!(lists, [r#""second" "third""#, r#""second" "shared-name" "third""#]);
}

/// The same request about another's machine and about none, through every surface.
#[test]
fn other_accounts_machines_look_nonexistent() {
    let [one, other] = two("probe");
    named(&one, "real").good();
    kept(&one, "real", "x = 1");
    named(&other, "own").good();
    kept(&other, "own", "x = 1");
    let ask = |method: &str, path: &str, body: &Value| {
        let probe = |name: &str| {
            let (path, text) = (path.replace("NAME", name), body.to_string());
            let reply = other.send(method, &path, JSON, text.replace("NAME", name).as_bytes());
            let said = reply.text().replace(name, "NAME");
            let said = match serde_json::from_str::<Value>(&said) {
                Ok(mut body) => {
                    body.as_object_mut().map(|body| body.remove("id"));
                    body.to_string()
                }
                Err(_) => said,
            };
            (reply.status, said)
        };
        let (there, nowhere) = (probe("real"), probe("none"));
        assert_eq!(there, nowhere, "{method} {path} {body}");
        assert!(there.0 >= 400, "{method} {path}: {there:?}");
    };
    let nothing = json!({});
    for path in ["", "/exec", "/history", "/lineage", "/disk", "/export", "/vars", "/artifact"] {
        ask("GET", &format!("/v1/machine/NAME{path}"), &nothing);
    }
    for path in ["/swap", "/wake", "/interrupt", "/branch", "/promote", "/undo"] {
        ask("POST", &format!("/v1/machine/NAME{path}"), &nothing);
    }
    ask("DELETE", "/v1/machine/NAME", &nothing);
    ask("PATCH", "/v1/machine/NAME", &nothing);
    ask("POST", "/v1/machine/own/promote", &json!({ "onto": "NAME" }));
    ask("POST", "/v1/machine/own/adopt", &json!({ "from": "NAME", "variables": ["x"] }));
    ask("POST", "/v1/compare", &json!({ "left": "own", "right": "NAME" }));
    for path in ["", "/ping", "/branch", "/exec", "/eval"] {
        let method = if path.is_empty() { "GET" } else { "POST" };
        let body = json!({ "code": "1", "args": ["true"] });
        ask(method, &format!("/v1/sandboxes/NAME{path}"), &body);
    }
    ask("POST", "/v1/workspaces/NAME/suspend", &nothing);
    assert_eq!(by_mcp(&other, "real").replace("real", "NAME"), {
        by_mcp(&other, "none").replace("none", "NAME")
    });
}

fn by_mcp(client: &Client, machine: &str) -> String {
    let reply = client.tool("run_code", json!({ "machine": machine, "code": "1" }), &[]);
    assert!(reply.text().contains("machine.not_found"), "{}", reply.text());
    reply.text()
}

#[test]
fn recipes_are_visible_only_with_the_scope() {
    let secret = "only-for-builders";
    let nothing = token(&json!({ "account": "recipes", "scopes": [] }));
    for path in ["/v1/template", "/v1/template/python"] {
        let refused = nothing.get(path);
        assert_eq!(refused.code(403), "token.scope", "{path}");
        assert!(!refused.text().contains(secret));
        let machines = token(&json!({ "account": "recipes", "scopes": ["machines"] })).get(path);
        assert!(machines.good().to_string().contains("python"));
        assert!(!machines.text().contains(secret), "{}", machines.text());
        let builder = token(&json!({ "account": "recipes", "scopes": ["templates"] })).get(path);
        assert!(builder.text().contains(secret), "{}", builder.text());
    }
}

#[test]
fn policies_name_no_other_account() {
    let (mine, other) = ("policies-mine", "policies-hidden");
    let document = json!({ "accounts": [mine, other], "network": { "allow": ["example.com"] } });
    let path = "/v1/policies/of-accounts";
    root().send("PUT", path, JSON, document.to_string().as_bytes()).good();
    let scopes = |scopes: Value| token(&json!({ "account": mine, "scopes": scopes }));
    let (machines, host) = (scopes(json!(["machines"])), scopes(json!(["host"])));
    for path in ["/v1/policies", path] {
        let seen = machines.get(path).good().to_string();
        assert!(seen.contains(mine) && seen.contains("example.com"), "{seen}");
        assert!(!seen.contains(other), "{seen}");
        assert!(host.get(path).good().to_string().contains(other));
    }
    root().delete(path).good();
}

/// A checkpoint's reported size does not reveal whether another account has the same pages.
#[test]
fn sizes_do_not_reveal_other_accounts_data() {
    let [one, other] = two("sizes");
    let guess = "import random; page = random.Random(41).randbytes(4 << 20)";
    let size = |client: &Client, code: &str| {
        let name = client.machine();
        kept(client, &name, "import random");
        kept(client, &name, code);
        let history = client.get(&format!("/v1/machine/{name}/history")).good();
        let last = history["checkpoints"].as_array().and_then(|all| all.last()).cloned();
        let bytes = last.expect("a checkpoint")["bytes"].as_u64().expect("a size");
        let disk = client.get(&format!("/v1/machine/{name}/disk")).good();
        (bytes, disk["own_bytes"].as_u64().expect("a size"))
    };
    let first = size(&one, guess);
    let second = size(&other, guess);
    for (what, bytes) in [("checkpoint", second.0), ("own", second.1)] {
        assert!(bytes > 3 << 20, "{what}: {bytes} bytes, the first had {first:?}");
    }
}
