//! Named policies over HTTP: who may change them, what is refused, and that changes are audited.

use crate::client::Client;
use crate::server::{root, shared};
use serde_json::{Value, json};

fn put(client: &Client, name: &str, body: &Value) -> crate::client::Reply {
    client.send("PUT", &format!("/v1/policies/{name}"), &[], body.to_string().as_bytes())
}

#[test]
fn policies_are_set_shown_and_removed_by_operators() {
    let root = root();
    let document = json!({ "network": { "allow": ["a.example"], "deny": ["*:25"] } });
    let set = put(&root, "routed", &document).good();
    assert_eq!((&set["name"], &set["document"]), (&json!("routed"), &document));
    assert_eq!(root.get("/v1/policies/routed").good(), set);
    let all = root.get("/v1/policies").good();
    assert!(all["policies"].as_array().is_some_and(|all| all.contains(&set)), "{all}");
    let made = root.post("/v1/token", &json!({ "account": "ruled" })).good();
    let user = Client::new(shared().address, made["token"].as_str().expect("a token"));
    assert_eq!(put(&user, "routed", &document).code(403), "token.scope");
    assert_eq!(user.delete("/v1/policies/routed").code(403), "token.scope");
    assert_eq!(user.get("/v1/policies/routed").good(), set);
    // a machine of another account has it, and cannot get one that does not exist
    let new = |network: &str| user.post("/v1/machine/new", &json!({ "network": network }));
    let machine = new("policy:routed").good();
    let name = machine["machine_name"].as_str().expect("a name").to_owned();
    assert_eq!(new("policy:missing").code(404), "policy.not_found");
    assert_eq!(new("policy:").code(400), "request.json");
    let at = format!("/v1/machine/{name}");
    assert_eq!(user.get(&at).good()["network"], "policy:routed");
    assert_eq!(root.delete("/v1/policies/routed").code(409), "policy.in_use");
    let explain = |query: &str| user.get(&format!("{at}/explain?{query}"));
    let said = explain("fetch=https://a.example/").good();
    assert_eq!(said["verdict"], "allow", "{said}");
    assert_eq!(said["rule"], "network.allow \"a.example\"");
    assert_eq!(explain("fetch=https://b.example/").good()["verdict"], "deny");
    assert_eq!(explain("fetch=http://127.0.0.1/").good()["verdict"], "deny");
    assert_eq!(explain("import=npm:a").good()["verdict"], "deny");
    for wrong in ["", "fetch=x", "fetch=ftp://a", "import=x", "fetch=http://a&import=npm:a"] {
        assert_eq!(explain(wrong).code(400), "policy.invalid", "{wrong}");
    }
    let change = json!({ "network": "none" }).to_string();
    user.send("PATCH", &at, &[], change.as_bytes()).good();
    assert_eq!(root.delete("/v1/policies/routed").good()["removed"], "routed");
    assert_eq!(root.get("/v1/policies/routed").code(404), "policy.not_found");
    assert_eq!(root.delete("/v1/policies/routed").code(404), "policy.not_found");
}

#[test]
fn what_is_no_policy_is_refused() {
    let root = root();
    for (body, code) in [
        (json!({ "network": { "allow": ["a b"] } }), "policy.invalid"),
        (json!({ "network": { "allow": ["https://a.example"] } }), "policy.invalid"),
        (json!({ "modules": { "allow": ["react"] } }), "policy.invalid"),
        (json!({ "network": { "allow": vec!["a.example"; 1001] } }), "policy.invalid"),
        (json!({ "test": [{ "expect": "allow" }] }), "policy.invalid"),
        (json!({ "network": [] }), "request.json"),
        (json!({ "test": [[]] }), "request.json"),
    ] {
        assert_eq!(put(&root, "wrong", &body).code(400), code, "{body}");
    }
    let unknown = put(&root, "wrong", &json!({ "netwrok": {} }));
    assert_eq!(unknown.status, 400);
    assert!(unknown.text().contains("network"), "{}", unknown.text());
    for name in ["new", "a%20b", "..%2Fx", &"x".repeat(65)] {
        let reply = put(&root, name, &json!({}));
        assert!((400..500).contains(&reply.status), "{name}: {}", reply.status);
    }
    assert_eq!(root.get("/v1/policies/wrong").code(404), "policy.not_found");
}
