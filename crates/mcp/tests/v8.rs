//! mcp-v8's tools, over sessions, without sessions, and over the older transport.

use crate::common::{Client, Service};
use serde_json::{Value, json};
use std::time::Duration;

/// A tool's answer: the JSON object in its first block.
fn said(result: &Value) -> Value {
    let text = result["content"][0]["text"].as_str().expect("a text");
    serde_json::from_str(text).expect("JSON")
}

async fn ended(client: &Client, id: &str) -> Value {
    loop {
        let info = said(&client.call("get_execution", json!({ "execution_id": id })).await);
        if info["status"] != "running" {
            return info;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Runs code in the client's session; the execution, and what it printed.
async fn run(client: &Client, arguments: Value) -> (Value, String) {
    let answer = said(&client.call("run_js", arguments).await);
    let id = answer["execution_id"].as_str().expect("an id").to_owned();
    let info = ended(client, &id).await;
    let page = said(&client.call("get_execution_output", json!({ "execution_id": id })).await);
    (info, page["data"].as_str().expect("data").to_owned())
}

fn names(list: &Value) -> Vec<&str> {
    let tools = list["tools"].as_array().expect("tools");
    tools.iter().map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn stateless_runs_answer_with_their_output() {
    let service = Service::of("javascript").await;
    let client = service.session("/mcp/v8-stateless", "root").await;
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(names(list.result()), ["get_artifact", "list_artifacts", "run_js"]);
    let code = "console.log(1 + 1); artifact('p', 'image/png', new Uint8Array([137]))";
    let result = client.call("run_js", json!({ "code": code })).await;
    let answer = said(&result);
    assert_eq!((&answer["output"], &answer["artifacts"][0]["inline"]), (&json!("2"), &json!(true)));
    assert_eq!(
        result["content"][1],
        json!({ "type": "image", "data": "iQ==", "mimeType": "image/png" })
    );
    let result =
        client.call("run_js", json!({ "code": "console.log('x'); throw new Error('no')" }));
    let result = result.await;
    let answer = said(&result);
    assert_eq!((&result["isError"], &answer["output"]), (&json!(true), &json!("x")));
    assert!(answer["error"].as_str().expect("an error").starts_with("Error: no"));
    let result = client.call("run_js", json!({ "code": "1", "file": "/etc/passwd" })).await;
    assert_eq!(said(&result)["error"], "run_js: provide either `code` or `file`, not both");
    let artifact = client.call("get_artifact", json!({ "key": "p" })).await;
    assert_eq!(said(&artifact)["encoding"], "image");
    // arguments that cannot be read, and tools there are not, are errors of the protocol
    for params in [
        json!({ "name": "get_artifact", "arguments": {} }),
        json!({ "name": "get_execution", "arguments": { "execution_id": "x" } }),
    ] {
        let reply = client.request("tools/call", params).await;
        assert!(reply.last()["error"]["code"].is_i64(), "{}", reply.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_is_a_session_and_a_named_one_outlives_it() {
    let service = Service::of("javascript").await;
    let client = service.session("/mcp/v8", "root").await;
    let list = client.request("tools/list", json!({})).await;
    assert_eq!(names(list.result()).len(), 13);
    let tags = json!({ "step": "first" });
    let (first, _) = run(&client, json!({ "code": "globalThis.n = 1", "tags": tags })).await;
    assert_eq!((&first["status"], &first["result"]), (&json!("completed"), &json!("")));
    let (_, printed) = run(&client, json!({ "code": "console.log(++n)" })).await;
    assert_eq!(printed, "2");
    let entries =
        said(&client.call("list_session_snapshots", json!({ "fields": "index,code" })).await);
    assert_eq!(entries["entries"][0], json!({ "index": 0, "code": "globalThis.n = 1" }));
    let found = said(&client.call("query_heaps_by_tags", json!({ "tags": tags })).await);
    assert_eq!(found["results"], json!([{ "heap": first["heap"], "tags": tags }]));
    let heap = json!({ "heap": first["heap"], "code": "console.log(n)" });
    assert_eq!(run(&client, heap).await.1, "1");
    let unknown = json!({ "code": "1", "heap": "0".repeat(64) });
    let answer = said(&client.call("run_js", unknown).await);
    assert!(answer["execution_id"].as_str().expect("words").starts_with("error: heap "));
    let hidden = said(&client.call("fs_ls", json!({})).await);
    assert!(hidden["error"].as_str().expect("words").contains("not configured"));

    // a name goes from connection to connection, within its account
    let named = |account| {
        let extra = vec![("x-mcp-session-id", "thread")];
        Client { path: "/mcp/v8", account, extra, ..service.client() }
    };
    let one = service.open(named("root")).await;
    run(&one, json!({ "code": "globalThis.kept = 'yes'" })).await;
    let other = service.open(named("root")).await;
    let typed = json!({ "code": "console.log(globalThis.kept)" });
    assert_eq!(run(&other, typed.clone()).await.1, "yes");
    // the header counts when the connection is opened; later requests need not have it
    let silent = Client { extra: Vec::new(), ..other };
    assert_eq!(run(&silent, typed.clone()).await.1, "yes");
    let stranger = service.open(named("other")).await;
    assert_eq!(run(&stranger, typed.clone()).await.1, "undefined");
    // clients without sessions say which each time
    let modern = named("root");
    assert_eq!(run(&modern, typed).await.1, "yes");
    let sessions = said(&modern.call("list_sessions", json!({})).await);
    assert!(sessions["sessions"].as_array().expect("names").contains(&json!("thread")));
}

#[tokio::test(flavor = "multi_thread")]
async fn resources_and_instructions() {
    let service = Service::of("javascript").await;
    let client = service.session("/mcp/v8", "root").await;
    let list = client.request("resources/list", json!({})).await;
    let resources = list.result()["resources"].as_array().expect("resources").clone();
    assert_eq!(resources.len(), 4);
    for one in &resources {
        let read = client.request("resources/read", json!({ "uri": one["uri"] })).await;
        let contents = &read.result()["contents"][0];
        assert_eq!(contents["mimeType"], one["mimeType"]);
        assert!(!contents["text"].as_str().expect("a text").is_empty());
    }
    let odd = client.request("resources/read", json!({ "uri": "docs://other" })).await;
    assert_eq!(odd.last()["error"]["message"], "Unknown resource URI: docs://other");
}
