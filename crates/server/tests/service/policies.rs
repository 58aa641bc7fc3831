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
        assert_eq!(explain(wrong).code(422), "policy.invalid", "{wrong}");
    }
    let change = json!({ "network": "none" }).to_string();
    user.send("PATCH", &at, &[], change.as_bytes()).good();
    assert_eq!(root.delete("/v1/policies/routed").good()["removed"], "routed");
    assert_eq!(root.get("/v1/policies/routed").code(404), "policy.not_found");
    assert_eq!(root.delete("/v1/policies/routed").code(404), "policy.not_found");
}

#[test]
fn malformed_policies_are_refused() {
    let root = root();
    for body in [
        json!({ "network": { "allow": ["a b"] } }),
        json!({ "network": { "allow": ["https://a.example"] } }),
        json!({ "modules": { "allow": ["react"] } }),
        json!({ "network": { "allow": vec!["a.example"; 1001] } }),
        json!({ "test": [{ "expect": "allow" }] }),
    ] {
        assert_eq!(put(&root, "wrong", &body).code(422), "policy.invalid", "{body}");
    }
    for body in [json!({ "network": [] }), json!({ "test": [[]] })] {
        assert_eq!(put(&root, "wrong", &body).code(400), "request.json", "{body}");
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

#[test]
fn rules_about_files_and_commands_hold_over_http() {
    let root = root();
    let document = json!({
        "files": { "allow": ["/home/user*"], "deny": ["write /home/user/keep"] },
        "commands": { "allow": ["git log *"] },
    });
    put(&root, "filed", &document).good();
    let new = json!({ "network": "policy:filed" });
    let machine = root.post("/v1/machine/new", &new).good();
    let name = machine["machine_name"].as_str().expect("a name").to_owned();
    let at = format!("/v1/machine/{name}");
    let file = |path: &str| format!("{at}/file?path={path}");
    root.send("PUT", &file("a"), &[], b"text").good();
    assert_eq!(root.get(&file("a")).text(), "text");
    let refused = root.send("PUT", &file("keep"), &[], b"text");
    assert_eq!(refused.code(403), "policy.refused");
    assert!(refused.text().contains("policy `filed` refuses it: a rule denies it"));
    for path in ["/etc/passwd", "/home/user/../../etc/passwd"] {
        assert!(root.get(&file(path)).status >= 400, "{path}");
    }
    assert_eq!(root.get(&file("/etc/passwd")).code(403), "policy.refused");
    assert_eq!(root.delete(&file("/etc/passwd")).code(403), "policy.refused");
    assert_eq!(root.get(&format!("{at}/file/stat?path=/etc/passwd")).code(403), "policy.refused");
    assert_eq!(root.get(&format!("{at}/files?path=/etc")).code(403), "policy.refused");
    assert_eq!(root.get(&format!("{at}/files?path=.")).status, 200);
    let said = |query: &str| root.get(&format!("{at}/explain?{query}")).good();
    assert_eq!(said("file=read%20/etc/passwd")["verdict"], "deny");
    assert_eq!(
        said("file=write%20/home/user/keep")["rule"],
        "files.deny \"write /home/user/keep\""
    );
    assert_eq!(said("command=git%20log%20-1")["verdict"], "allow");
    assert_eq!(said("command=git%20log;id")["verdict"], "deny");
    for wrong in ["file=/etc", "file=list%20/etc", "file=read%20x", "file=read%20/x&command=ls"] {
        let reply = root.get(&format!("{at}/explain?{wrong}"));
        assert_eq!(reply.code(422), "policy.invalid", "{wrong}");
    }
    let counted = root.get("/metrics").text();
    let line = "stasis_refusals_total{policy=\"filed\",rule=\"files.deny";
    assert!(counted.contains(line), "{counted}");
    root.delete(&at).good();
}

#[test]
fn values_of_secrets_are_in_no_answer() {
    const VALUE: &str = "hidd3n-from-all";
    let root = root();
    let body = json!({ "value": VALUE, "hosts": ["api.example.com"] }).to_string();
    let set = root.send("PUT", "/v1/secrets/HIDDEN", &[], body.as_bytes());
    assert!(!set.good().to_string().contains(VALUE));
    for path in ["/v1/secrets", "/metrics", "/openapi.json", "/v1/policies", "/v1/whoami"] {
        let said = root.get(path).text();
        assert!(!said.contains(VALUE) && !said.is_empty(), "{path}: {said}");
    }
    assert!(root.get("/v1/secrets").text().contains("HIDDEN"));
    assert_eq!(root.get("/v1/secrets/HIDDEN").status, 405, "values are not read back");
    root.delete("/v1/secrets/HIDDEN").good();
}

#[test]
fn answers_to_approvals_need_their_scope() {
    let root = root();
    let token = |scopes: Value| {
        let made = root.post("/v1/token", &json!({ "account": "asked", "scopes": scopes })).good();
        Client::new(shared().address, made["token"].as_str().expect("a token"))
    };
    let allow = |client: &Client| client.post("/v1/approvals/1", &json!({ "answer": "allow" }));
    let (agent, person) = (token(json!(["machines"])), token(json!(["approve"])));
    assert_eq!(allow(&agent).code(403), "token.scope");
    assert_eq!(allow(&person).code(404), "approval.not_found");
    assert_eq!(agent.get("/v1/approvals").good()["approvals"], json!([]));
    assert_eq!(person.get("/v1/approvals").good()["approvals"], json!([]));
    assert_eq!(token(json!(["templates"])).get("/v1/approvals").code(403), "token.scope");
}

#[test]
fn a_budget_ends_and_is_counted() {
    let root = root();
    let refused = put(&root, "purse", &json!({ "budget": { "instructions": -1 } }));
    assert_eq!(refused.status, 400);
    let most = json!({ "account_budget": { "cpu_seconds": 1u64 << 60 } });
    assert_eq!(put(&root, "purse", &most).code(400), "request.range");
    put(&root, "purse", &json!({ "budget": { "instructions": 1 } })).good();
    let new = json!({ "network": "policy:purse" });
    let machine = root.post("/v1/machine/new", &new).good();
    let name = machine["machine_name"].as_str().expect("a name").to_owned();
    let exec = |code: &str| {
        root.post(&format!("/v1/machine/{name}/exec"), &json!({ "instruction": { "code": code } }))
    };
    exec("1").good();
    assert_eq!(exec("2").code(403), "budget.used_up");
    let counted = root.get("/metrics").text();
    let line = "stasis_refusals_total{policy=\"purse\",rule=\"budget.instructions\"} 1";
    assert!(counted.contains(line), "{counted}");
}

/// A policy of an account applies beside the machine's own, decides with Rego, and says which
/// templates machines are created from.
#[test]
fn policies_of_accounts_rego_and_creation() {
    let root = root();
    let rego = "package stasis\nallow if input.object.tool == \"made\"\n\
                ask if startswith(input.object.tool, \"delete_\")\n\
                deny contains \"not today\" if input.object.tool == \"late\"";
    let document = json!({ "accounts": ["levelled"], "tools": { "allow": ["a.*"] }, "rego": rego });
    put(&root, "level", &document).good();
    let made = root.post("/v1/token", &json!({ "account": "levelled" })).good();
    let user = Client::new(shared().address, made["token"].as_str().expect("a token"));
    let machine = user.post("/v1/machine/new", &json!({})).good();
    let name = machine["machine_name"].as_str().expect("a name").to_owned();
    let explain = |query: &str| user.get(&format!("/v1/machine/{name}/explain?{query}")).good();
    for (query, verdict, rule) in [
        ("tool=a.b", "allow", json!("tools.allow \"a.*\"")),
        ("tool=b.made", "allow", json!("rego allow")),
        ("tool=a.delete_all", "ask", json!("rego ask")),
        ("tool=a.late", "deny", json!("rego deny")),
        ("tool=b.other", "deny", Value::Null),
    ] {
        let said = explain(query);
        assert_eq!((&said["verdict"], &said["rule"]), (&json!(verdict), &rule), "{query}: {said}");
        assert_eq!(said["policy"], "level", "{query}");
    }
    assert_eq!(explain("tool=a.late")["reason"], "not today");
    // sections that it does not have
    for query in ["create=default", "file=read%20/x", "command=ls"] {
        let said = explain(query);
        assert_eq!(said, json!({ "verdict": "allow", "reason": "no policy is about it" }));
    }
    let none = json!({ "accounts": ["levelled"], "machines": {} });
    put(&root, "level", &none).good();
    assert_eq!(user.post("/v1/machine/new", &json!({})).code(403), "policy.refused");
    for rego in ["package other\nallow := true", "package stasis\nallow if {", "x"] {
        assert_eq!(put(&root, "level", &json!({ "rego": rego })).code(422), "policy.invalid");
    }
    assert_eq!(root.delete("/v1/policies/level").good()["removed"], "level");
    user.post("/v1/machine/new", &json!({})).good();
}
