//! Quotas of accounts, and issuers of accepted tokens.

use crate::client::{Client, PATIENCE};
use crate::server::{fresh_data, serve_on};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};
use stasis_machine::{Host, Quota, Settings};
use stasis_server::{JwtOptions, Listen, Options};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Of these tests and nothing else.
const KEY: &str = "-----BEGIN PRIVATE KEY-----\n\
    MC4CAQAwBQYDK2VwBCIEIIQt4yTY/QvJbAgocJKqRISTyskIoAd1XwUPus9kF+fN\n\
    -----END PRIVATE KEY-----\n";
const PUBLIC: &str = "qxIUxGQ_ul4-MFGMvKPmz9OONGHSN9K_PDA7Ti0j2h8";

fn claims(change: &[(&str, Value)]) -> Value {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    let mut claims = json!({
        "iss": "https://issuer.example", "aud": "stasis", "sub": "user|42",
        "exp": now.as_secs() + 86_400, "scope": "openid stasis:machines",
    });
    for (key, value) in change {
        claims[*key] = value.clone();
    }
    claims
}

fn signed(claims: &Value) -> String {
    let key = EncodingKey::from_ed_pem(KEY.as_bytes()).expect("a key");
    let header = Header { kid: Some("one".into()), ..Header::new(Algorithm::EdDSA) };
    encode(&header, claims, &key).expect("a token")
}

#[test]
fn quotas_and_foreign_tokens() {
    let data = fresh_data("quotas");
    let jwk = json!({ "kty": "OKP", "crv": "Ed25519", "kid": "one", "x": PUBLIC });
    let jwks = data.join("jwks.json");
    std::fs::write(&jwks, json!({ "keys": [jwk] }).to_string()).expect("written");
    let quota = Quota {
        machines: Some(3),
        memory_mb: Some(1024),
        instructions: Some(3),
        disk_mb: Some(10_000),
    };
    let host = Host::open(Settings { quota, ..stasis_testbed::settings(&data) }).expect("a host");
    let jwt = JwtOptions {
        jwks: jwks.to_string_lossy().into_owned(),
        issuer: "https://issuer.example".into(),
        audience: "stasis".into(),
    };
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let options = Options { listen, jwt: Some(jwt), ..Options::default() };
    let (bound, running) = serve_on(Arc::new(host), options);
    let address = bound.tcp().expect("an address");
    let good = Client::new(address, &signed(&claims(&[])));
    foreign_tokens(&good);
    way_to_a_token(&good);
    one_more_key(&good, &jwks);
    over_quota(&good);
    let root = std::fs::read_to_string(data.join("token")).expect("a token");
    let root = Client::new(address, root.trim());
    (0..4).for_each(|_| drop(root.machine()));
    bound.stop.stop();
    running.join().expect("no panic").expect("a good end");
}

/// A client without a token learns where to get one, and one whose token is too weak learns why.
fn way_to_a_token(good: &Client) {
    let place = "/.well-known/oauth-protected-resource";
    let stranger = Client::new(good.address, "a.b");
    let weak = Client::new(good.address, &signed(&claims(&[("scope", json!("openid"))])));
    for path in ["/mcp", "/mcp/forkd", "/sse/messages?session_id=x"] {
        let own = path.split('?').next().expect("a path");
        let pointer = format!("resource_metadata=\"http://{}{place}{own}\"", good.address);
        let bare =
            format!("POST {path} HTTP/1.1\r\nhost: {}\r\nconnection: close\r\n\r\n", good.address);
        for (refused, status, why) in [
            (good.raw(bare.as_bytes()), 401, ""),
            (stranger.post(path, &json!({})), 401, "error=\"invalid_token\", "),
            (
                weak.post(path, &json!({})),
                403,
                "error=\"insufficient_scope\", scope=\"machines\", ",
            ),
        ] {
            // heads are read in small letters
            let line = format!("www-authenticate: bearer realm=\"stasis\", {why}{pointer}");
            assert_eq!(refused.status, status, "{}", refused.head);
            assert!(refused.head.contains(&line), "{}\n{line}", refused.head);
        }
        let about = stranger.get(&format!("{place}{own}")).good();
        assert_eq!(about["resource"], format!("http://{}{own}", good.address));
        assert_eq!(about["authorization_servers"], json!(["https://issuer.example"]));
        assert_eq!(about["bearer_methods_supported"], json!(["header"]));
        let scopes = about["scopes_supported"].as_array().expect("a list");
        assert!(scopes.contains(&json!("machines")), "{about}");
    }
    for wrong in
        [("aud", json!("other")), ("iss", json!("https://other.example")), ("exp", json!(1))]
    {
        let client = Client::new(good.address, &signed(&claims(&[wrong])));
        assert_eq!(client.post("/mcp", &json!({})).status, 401);
    }
    machines_by_mcp(good);
}

/// The same token is one for MCP, and sees the same machines.
fn machines_by_mcp(good: &Client) {
    let name = good.machine();
    let seen = good.tool("list_machines", json!({}), &[]);
    assert!(seen.text().contains(&name), "{}: {}", seen.head, seen.text());
    good.delete(&format!("/v1/machine/{name}")).good();
}

/// The issuer has one more key: a token that names it is good once the set was read again, which a
/// token with an unknown key leads to.
fn one_more_key(good: &Client, jwks: &std::path::Path) {
    let header = Header { kid: Some("two".into()), ..Header::new(Algorithm::EdDSA) };
    let key = EncodingKey::from_ed_pem(KEY.as_bytes()).expect("a key");
    let token = encode(&header, &claims(&[]), &key).expect("a token");
    let client = Client::new(good.address, &token);
    assert_eq!(client.get("/v1/whoami").code(401), "token.unknown");
    let jwk = |id| json!({ "kty": "OKP", "crv": "Ed25519", "kid": id, "x": PUBLIC });
    let set = json!({ "keys": [jwk("one"), jwk("two")] }).to_string();
    // never half of it
    let new = jwks.with_extension("new");
    std::fs::write(&new, set).and_then(|()| std::fs::rename(&new, jwks)).expect("written");
    let patience = Instant::now() + PATIENCE;
    while client.get("/v1/whoami").status != 200 {
        assert!(Instant::now() < patience, "the new key is not known");
        std::thread::sleep(Duration::from_millis(100));
    }
    good.get("/v1/whoami").good();
}

fn foreign_tokens(good: &Client) {
    let who = good.get("/v1/whoami").good();
    assert_eq!(who, json!({ "account": "user|42", "scopes": ["machines"] }));
    let past = json!(1_600_000_000);
    let refused = [
        ("exp", past, "token.expired"),
        ("exp", Value::Null, "token.claim"),
        ("iss", json!("https://other.example"), "token.issuer"),
        ("aud", json!("other"), "token.audience"),
        ("nbf", json!(9_999_999_999u64), "token.early"),
        ("account", json!("root"), "token.account"),
        ("account", json!("with blank"), "token.account"),
    ];
    for (key, value, code) in refused {
        let client = Client::new(good.address, &signed(&claims(&[(key, value.clone())])));
        assert_eq!(client.get("/v1/whoami").code(401), code, "{key} {value}");
    }
    let bare = Client::new(good.address, &signed(&claims(&[("scope", Value::Null)])));
    assert_eq!(bare.get("/v1/machine/list").code(403), "token.scope");
    // another's signature, none, and a secret instead of a key
    let token = signed(&claims(&[]));
    let (head, signature) = token.rsplit_once('.').expect("dots");
    let other = format!("{head}.{}", signature.chars().rev().collect::<String>());
    let shared = encode(
        &Header { kid: Some("one".into()), ..Header::new(Algorithm::HS256) },
        &claims(&[]),
        &EncodingKey::from_secret(PUBLIC.as_bytes()),
    );
    for token in [other, format!("{head}."), shared.expect("a token")] {
        let client = Client::new(good.address, &token);
        assert_eq!(client.get("/v1/whoami").code(401), "token.signature");
    }
    // a token with two faults gets only the signature's error
    let late = signed(&claims(&[("exp", json!(1))]));
    let late = late.replace(signature_of(&late), signature);
    assert_eq!(Client::new(good.address, &late).get("/v1/whoami").code(401), "token.signature");
    let odd = Client::new(good.address, "a.b.c");
    assert_eq!(odd.get("/v1/whoami").code(401), "token.unknown");
}

fn signature_of(token: &str) -> &str {
    token.rsplit_once('.').expect("dots").1
}

fn over_quota(client: &Client) {
    let small = json!({ "memory_mb": 512 });
    let make = || client.post("/v1/machine/new", &small);
    let names: Vec<String> = (0..3)
        .map(|_| make().good()["machine_name"].as_str().expect("a name").to_owned())
        .collect();
    let refused = make();
    assert_eq!(refused.code(429), "account.over_quota");
    assert!(refused.head.contains("retry-after: 1"), "{}", refused.head);
    let branch = client.post(&format!("/v1/machine/{}/branch", names[0]), &json!({}));
    assert_eq!(branch.code(429), "account.over_quota");
    // two fit into memory; the third makes the idle ones leave, and then fits
    client.run(&names[0], "1");
    client.run(&names[1], "1");
    let exec = format!("/v1/machine/{}/exec", names[2]);
    let body = json!({ "instruction": { "code": "1" } });
    assert_eq!(client.post(&exec, &body).code(429), "account.over_quota");
    let patience = Instant::now() + PATIENCE;
    let taken = loop {
        let reply = client.post(&exec, &body);
        if reply.status == 200 {
            break reply.good();
        }
        assert!(Instant::now() < patience, "no room was made");
        std::thread::sleep(Duration::from_millis(50));
    };
    // one that still runs would make room later, for what is to be refused below
    client.get(&format!("{exec}/{}/result", taken["instruction_seq"])).good();
    let sleep = "import time; time.sleep(900)";
    let sleep = json!({ "instruction": { "code": sleep, "timeout_seconds": 999 } });
    let codes: Vec<u16> = (0..5).map(|_| client.post(&exec, &sleep).status).collect();
    assert!(codes.contains(&429), "{codes:?}");
    by_other_ways(client, &names);
    client.delete(&format!("/v1/machine/{}", names[2])).good();
    make().good();
}

/// As many as may be wait on the last machine, and the two before it have left memory for it.
fn by_other_ways(client: &Client, names: &[String]) {
    let called = by_mcp(client, &names[2]);
    assert!(called.contains("account.over_quota"), "{called}");
    let mut socket = crate::socket::of(client, &names[2]);
    socket.connected();
    let (_, result) = socket.run(0, "1");
    assert!(result["error"].as_str().expect("an error").contains("account.over_quota"), "{result}");
    // many at once: as if they had come one after the other
    client.post(&format!("/v1/machine/{}/interrupt", names[2]), &json!({})).good();
    let waiting = || client.get(&format!("/v1/machine/{}/exec", names[2])).good();
    let open = |list: &Value| {
        let is_open = |one: &&Value| one["status"] == "queued" || one["status"] == "running";
        list["instructions"].as_array().expect("a list").iter().filter(is_open).count()
    };
    let exec = format!("/v1/machine/{}/exec", names[2]);
    let sleep = json!({ "instruction": { "code": "time.sleep(900)", "timeout_seconds": 999 } });
    std::thread::scope(|scope| {
        (0..40).for_each(|_| drop(scope.spawn(|| client.post(&exec, &sleep).status)));
    });
    assert!(open(&waiting()) <= 3, "{}", waiting());
    // two of 512 MB and one more: one of them cannot be there
    let woken = [0, 1]
        .map(|index| client.post(&format!("/v1/machine/{}/wake", names[index]), &json!({})).status);
    assert!(woken.contains(&429), "{woken:?}");
}

fn by_mcp(client: &Client, machine: &str) -> String {
    let ask = |headers: &[&str], message: Value| {
        let mut all = vec![
            "content-type: application/json",
            "accept: application/json, text/event-stream",
            "mcp-protocol-version: 2025-11-25",
        ];
        all.extend(headers);
        client.send("POST", "/mcp", &all, message.to_string().as_bytes())
    };
    let about = json!({ "protocolVersion": "2025-11-25", "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" } });
    let begun =
        ask(&[], json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": about }));
    let session = begun.head.lines().find(|line| line.starts_with("mcp-session-id"));
    let session = session.expect("a session").to_owned();
    ask(&[&session], json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    let code = json!({ "name": "run_code", "arguments": { "machine": machine, "code": "1" } });
    ask(&[&session], json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": code }))
        .text()
}
