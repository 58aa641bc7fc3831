//! Models' arguments that differ from the schemas, and the tools they are shown.

use crate::common::{Service, text};
use serde_json::{Value, json};

fn names(listed: &Value) -> Vec<&str> {
    let tools = listed["tools"].as_array().expect("tools").iter();
    tools.map(|tool| tool["name"].as_str().expect("a name")).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_tools_unless_all_are_wanted() {
    let service = Service::start().await;
    let few = service.session("/mcp", "root").await;
    let listed = few.request("tools/list", json!({})).await.result().clone();
    assert_eq!(names(&listed).len(), 10, "{:?}", names(&listed));
    // at most 2,500 tokens, schemas included; a token is about four bytes of JSON
    let size = listed["tools"].to_string().len();
    assert!(size <= 4 * 2500, "{size} bytes of tools");
    let all = service.session("/mcp/all", "root").await;
    let more = all.request("tools/list", json!({})).await.result().clone();
    let has = |name: &str| names(&more).contains(&name);
    assert!(has("roll_back") && has("list_files") && has("run_code"), "{:?}", names(&more));
    // what is not shown is there all the same
    let found = few.call("list_templates", json!({})).await;
    assert_eq!(found["isError"], false, "{found}");
}

#[tokio::test(flavor = "multi_thread")]
async fn guesses_that_are_plain_are_taken() {
    let service = Service::start().await;
    let client = service.client();
    let made = client.call("create_machine", json!({ "name": "lab", "network": "none" })).await;
    assert_eq!(made["isError"], false, "{made}");
    for code in ["x = 1", "x = 2", "x = 3"] {
        let ran = client.call("run_code", json!({ "machine_name": "lab", "code": code })).await;
        assert_eq!(ran["isError"], false, "{ran}");
    }
    let fork = json!({ "machine": "lab@0", "name": "fork" });
    let fork = client.call("branch_machine", fork).await;
    assert_eq!(fork["isError"], false, "{fork}");
    assert_eq!(client.run("fork", "x").await["structuredContent"]["value"], "1");
    // the state it is in may be named, an earlier one not
    assert_eq!(client.run("lab@2", "x").await["structuredContent"]["value"], "3");
    let earlier = client.run("lab@0", "x").await;
    assert!(text(&earlier).contains("branch_machine with lab@0"), "{earlier}");
    let back = client.call("undo", json!({ "machine": "lab@1" })).await;
    assert_eq!(back["isError"], false, "{back}");
    assert_eq!(client.run("lab", "x").await["structuredContent"]["value"], "2");
    let best = json!({ "machine": "lab", "candidates": "x = 9", "score": "x" });
    let best = client.call("explore", best).await;
    assert_eq!(best["structuredContent"]["best"], 0, "{best}");
    assert_eq!(best["structuredContent"].get("former"), Some(&Value::Null), "{best}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_called_one_and_a_directory_can_be_read() {
    let service = Service::start().await;
    let client = service.client();
    let code = "import random, uuid, tempfile; open('a.txt', 'w').write('hi'); 1 / 0";
    let failed = client.call("run_code", json!({ "code": code })).await;
    let data = &failed["structuredContent"];
    assert_eq!((&failed["isError"], &data["status"]), (&json!(true), &json!("failed")));
    assert!(!text(&failed).contains("made fresh"), "{}", text(&failed));
    let machine = data["machine"].as_str().expect("a name");
    client.call("branch_machine", json!({ "machine": machine, "names": ["two"] })).await;
    let woken = client.run("two", "1").await;
    assert!(!woken.to_string().contains("made fresh"), "{woken}");
    let read = client.call("read_file", json!({ "machine": machine, "file_path": "." })).await;
    assert!(text(&read).contains("a.txt"), "{read}");
    let read = client.call("read_file", json!({ "machine": machine, "path": "a.txt" })).await;
    assert_eq!(read["structuredContent"]["content"], "hi", "{read}");
}
