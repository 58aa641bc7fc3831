//! forkd's tools: what the published server's own test does not reach.

use crate::common::{Client, Service, text};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

fn at(service: &Service, account: &'static str) -> Client {
    Client { path: "/mcp/forkd", account, ..service.client() }
}

async fn spawn(client: &Client) -> String {
    spawn_from(client, "python").await
}

async fn spawn_from(client: &Client, tag: &str) -> String {
    let made = client.call("spawn_sandboxes", json!({ "snapshot_tag": tag })).await;
    made["structuredContent"]["result"][0]["id"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_texts_and_refusals() {
    let service = Service::start().await;
    let client = at(&service, "root");
    let about = client.request("server/discover", json!({})).await.result().clone();
    assert_eq!(about["capabilities"].get("extensions"), None, "no tasks: {about}");
    assert_eq!(client.call("list_sandboxes", json!({})).await["content"], json!([]));
    let boxes = json!({ "snapshot_tag": "python", "n": 2 });
    let made = client.call("spawn_sandboxes", boxes).await;
    assert_eq!(made["content"].as_array().expect("a list").len(), 2, "one text for each: {made}");
    let first: Value = serde_json::from_str(text(&made)).expect("JSON");
    assert_eq!(first, made["structuredContent"]["result"][0]);

    for (tool, arguments, code) in [
        ("get_sandbox", json!({ "sandbox_id": "sb-none" }), "forkd.not_found"),
        ("spawn_sandboxes", json!({ "snapshot_tag": "python", "n": 0 }), "forkd.invalid"),
        ("spawn_sandboxes", json!({ "snapshot_tag": "python", "n": 1001 }), "forkd.invalid"),
        ("spawn_sandboxes", json!({ "snapshot_tag": "../python" }), "forkd.invalid"),
        ("spawn_sandboxes", json!({ "snapshot_tag": 7 }), "request.invalid"),
        ("exec_command", json!({ "sandbox_id": first["id"], "args": [] }), "forkd.invalid"),
        ("branch_sandbox", json!({ "sandbox_id": first["id"], "mode": "odd" }), "request.invalid"),
        (
            "wait_for_text",
            json!({ "sandbox_id": "x", "path": "/x", "marker": "x" }),
            "forkd.not_found",
        ),
    ] {
        let refused = client.call(tool, arguments).await;
        let words = text(&refused);
        assert!(words.starts_with(&format!("error[{code}]: ")), "{tool}: {words}");
        assert_eq!(refused["isError"], true);
    }
    let unknown = client.call("delete_snapshot", json!({})).await;
    assert_eq!(
        (&unknown["isError"], text(&unknown)),
        (&true.into(), "Unknown tool: delete_snapshot")
    );
}

/// Generators that a program seeded before the branch differ in every child.
#[tokio::test(flavor = "multi_thread")]
async fn children_draw_their_own_numbers_and_eval_knows_numpy() {
    let service = Service::start().await;
    let client = at(&service, "root");
    let eval = async |id: &str, code: &str| {
        let said = client.call("eval_code", json!({ "sandbox_id": id, "code": code })).await;
        let answer = &said["structuredContent"];
        answer["result"].as_str().unwrap_or_else(|| panic!("{code}: {said}")).to_owned()
    };
    let source = spawn(&client).await;
    assert_eq!(eval(&source, "int(np.arange(4).sum()), numpy is np").await, "(6, True)");
    assert_eq!(eval(&source, "1 + 1;").await, "None", "a trailing `;` hides the value");
    let seeded = "import random; own = random.Random(1); rng = np.random.default_rng(1)";
    eval(&source, seeded).await;
    let branch = json!({ "sandbox_id": source, "tag": "dice" });
    let branched = client.call("branch_sandbox", branch).await;
    assert_eq!(branched["isError"], false, "{branched}");
    let children = [spawn_from(&client, "dice").await, spawn_from(&client, "dice").await];
    for draw in ["own.random()", "float(rng.random())"] {
        let [one, other] = [eval(&children[0], draw).await, eval(&children[1], draw).await];
        assert!(one.parse::<f64>().is_ok(), "{draw}: {one}");
        assert_ne!(one, other, "{draw}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_rights() {
    let service = Service::start().await;
    let (anna, bert) = (at(&service, "anna"), at(&service, "bert"));
    let id = spawn(&anna).await;
    for tool in ["get_sandbox", "kill_sandbox", "ping_sandbox", "branch_sandbox"] {
        let refused = bert.call(tool, json!({ "sandbox_id": id })).await;
        assert!(text(&refused).starts_with("error[forkd.not_found]"), "{tool}: {refused}");
    }
    assert_eq!(
        bert.call("list_sandboxes", json!({})).await["structuredContent"]["result"],
        json!([])
    );
    // only machines that forkd's clients made are sandboxes
    let ours = Client { path: "/mcp", ..anna.clone() };
    ours.call("create_machine", json!({ "name": "mine" })).await;
    let refused = anna.call("eval_code", json!({ "sandbox_id": "mine", "code": "1" })).await;
    assert!(text(&refused).starts_with("error[forkd.not_found]"), "{refused}");
    let recipe = json!({ "tag": "built", "kernel": "-", "rootfs": "name = 'built'\nfrom = 'x'" });
    let refused = anna.call("create_snapshot", recipe).await;
    assert!(text(&refused).starts_with("error[token.scope]"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_is_given_up_interrupts() {
    let service = Service::start().await;
    let client = at(&service, "root");
    let id = spawn(&client).await;
    let code = "kept = 1\nprint('on', flush=True)\nwhile True: pass";
    let arguments = json!({ "sandbox_id": id, "code": code });
    let params = json!({ "name": "eval_code", "arguments": arguments });
    let message = client.message(5, "tools/call", params);
    let machine = service.bed.host.machine(&id).expect("the machine");
    let (caller, status) = (client.clone(), || machine.instruction(0).map(|one| one.status));
    let calling = tokio::spawn(async move { drop(caller.send(&message).await) });
    let patience = Instant::now() + crate::common::PATIENCE;
    while machine.outputs(0, 0).map_or(true, |lines| lines.is_empty()) {
        assert!(Instant::now() < patience, "it never ran");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    calling.abort();
    while !status().expect("an instruction").is_over() {
        assert!(Instant::now() < patience, "it still runs");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let end = machine.instruction(0).expect("an instruction").outcome.expect("an end");
    assert_eq!(end.error.expect("an error").name, "KeyboardInterrupt", "not its timeout");
    let kept = client.call("eval_code", json!({ "sandbox_id": id, "code": "kept" })).await;
    assert_eq!(kept["structuredContent"]["result"], "1", "{kept}");
}
