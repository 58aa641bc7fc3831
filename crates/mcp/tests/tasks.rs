//! Tasks, as both revisions that have them see them.

use crate::common::{Client, PATIENCE, Service};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Lasts until it is let go on.
const LONG: &str = "import os, time\nprint('begun', flush=True)\n\
                    while not os.path.exists('/tmp/go'): time.sleep(0.01)\n6 * 7";
const ENDLESS: &str = "kept = 1\nprint('on', flush=True)\nwhile True: pass";

fn knows_tasks() -> Value {
    json!({ "extensions": { "io.modelcontextprotocol/tasks": {} } })
}

/// Lets what lasts come to its end.
async fn let_go_on(client: &Client) {
    let go = json!({ "machine": "lab", "path": "/tmp/go", "content": "" });
    let wrote = client.call("write_file", go).await;
    assert_eq!(wrote["isError"], false, "{wrote}");
}

/// Waits until an instruction has said something.
async fn printed(service: &Service, seq: u64) {
    let machine = service.bed.host.machine("lab").expect("the machine");
    let end = Instant::now() + PATIENCE;
    while machine.outputs(seq, 0).map_or(true, |lines| lines.is_empty()) {
        assert!(Instant::now() < end, "it never ran");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A task that was made for a call.
async fn task(client: &Client, arguments: Value) -> String {
    let made = client.call("run_code", arguments).await;
    assert_eq!(made["resultType"], "task", "{made}");
    made["taskId"].as_str().expect("an id").to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_that_last_become_tasks() {
    let service = Service::start().await;
    let client = service.able(knows_tasks());
    let made = client.call("create_machine", json!({ "name": "lab" })).await;
    assert_eq!(made["isError"], false, "{made}");
    let id = task(&client, json!({ "machine": "lab", "code": LONG })).await;
    assert_eq!(id, "run_code:lab@0");
    let_go_on(&client).await;
    let end = client.over(&id).await;
    assert_eq!((&end["status"], &end["result"]["isError"]), (&"completed".into(), &false.into()));
    assert_eq!(end["result"]["structuredContent"]["value"], "42", "{end}");
    assert_eq!(end["result"]["structuredContent"]["stdout"], "begun");

    let id = task(&client, json!({ "machine": "lab", "code": ENDLESS, "timeout_seconds": 600 }));
    let id = id.await;
    printed(&service, 1).await;
    client.request("tasks/cancel", json!({ "taskId": id })).await.result();
    assert_eq!(client.over(&id).await["status"], "cancelled");
    // of one that knows no tasks: on a busy host anything may last
    let kept = service.client().run("lab", "kept").await;
    assert_eq!(kept["structuredContent"]["value"], "1", "{kept}");

    // a call that ends before its caller learns of a task has none
    let late = json!({ "machine": "lab", "code": ENDLESS, "timeout_seconds": 1.5 });
    let mut end = client.call("run_code", late).await;
    if let Some(id) = end["taskId"].as_str() {
        end = client.over(id).await["result"].clone();
    }
    assert_eq!(end["structuredContent"]["error"]["name"], "TimeoutError", "{end}");

    let other = Client { account: "other", ..client.clone() };
    for (client, id) in [(&other, &*id), (&client, "run_code:lab@99"), (&client, "swap:lab@0")] {
        let reply = client.request("tasks/get", json!({ "taskId": id })).await;
        assert_eq!(reply.last()["error"]["code"], -32602, "{id}");
    }
    let slow = "import time; time.sleep(1.5); 5";
    let plain = service.client().run("lab", slow).await;
    assert_eq!(plain["structuredContent"]["value"], "5", "others just wait");
    let session = service.open(service.able(knows_tasks())).await;
    let plain = session.run("lab", slow).await;
    assert_eq!(plain["structuredContent"]["value"], "5", "in a session the extension is nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_outlive_the_service() {
    let service = Service::start().await;
    let client = service.able(knows_tasks());
    client.call("create_machine", json!({ "name": "lab" })).await;
    let id = task(&client, json!({ "machine": "lab", "code": LONG })).await;
    let_go_on(&client).await;
    assert_eq!(client.over(&id).await["status"], "completed");
    let service = service.restart().await;
    let end = service.able(knows_tasks()).over(&id).await;
    assert_eq!(end["result"]["structuredContent"]["value"], "42", "{end}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_the_earlier_revision() {
    let service = Service::start().await;
    let client = service.session("/mcp", "root").await;
    let mut news = client.listen("/mcp").await;
    let tools = client.request("tools/list", json!({})).await.result().clone();
    let of = |name: &str| {
        let all = tools["tools"].as_array().expect("tools").iter();
        all.clone().find(|tool| tool["name"] == name).expect("the tool").clone()
    };
    assert_eq!(of("run_code")["execution"]["taskSupport"], "optional");
    assert_eq!(of("list_machines").get("execution"), None);

    let start = async |code: &str| {
        let arguments = json!({ "machine": "lab", "code": code, "timeout_seconds": 600 });
        let params =
            json!({ "name": "run_code", "arguments": arguments, "task": { "ttl": 60000 } });
        client.request("tools/call", params).await.result()["task"].clone()
    };
    client.call("create_machine", json!({ "name": "lab" })).await;
    let task = start(LONG).await;
    assert_eq!((&task["status"], &task["ttl"]), (&"working".into(), &Value::Null), "{task}");
    let id = json!({ "taskId": task["taskId"] });
    assert_eq!(client.request("tasks/get", id.clone()).await.result()["status"], "working");
    let_go_on(&client).await;
    let result = client.request("tasks/result", id.clone()).await.result().clone();
    assert_eq!(result["structuredContent"]["value"], "42", "{result}");
    assert_eq!(result["_meta"]["io.modelcontextprotocol/related-task"], id);
    let told = |message: &Value| message["method"] == "notifications/tasks/status";
    assert_eq!(news.until(told).await["params"]["status"], "completed");

    let task = start(ENDLESS).await;
    let id = json!({ "taskId": task["taskId"] });
    let cancelled = client.request("tasks/cancel", id.clone()).await;
    assert_eq!(cancelled.result()["status"], "cancelled");
    assert_eq!(client.request("tasks/cancel", id).await.last()["error"]["code"], -32602);
    let listed = client.request("tasks/list", json!({})).await.result().clone();
    let ids: Vec<_> = listed["tasks"].as_array().expect("a list").iter().collect();
    assert_eq!((&ids[0]["taskId"], ids.len()), (&task["taskId"], 2), "{listed}");
    let odd = json!({ "name": "list_machines", "arguments": {}, "task": {} });
    let refused = client.request("tools/call", odd).await;
    assert_eq!(refused.last()["error"]["code"], -32601);
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_are_listed_page_by_page() {
    let service = Service::start().await;
    let client = service.session("/mcp", "root").await;
    for name in ["a", "b"] {
        let machine = service
            .bed
            .host
            .create(
                "root",
                stasis_api::NewMachine {
                    name: Some(name.parse().expect("a name")),
                    ..Default::default()
                },
            )
            .expect("a machine");
        for _ in 0..70 {
            stasis_testbed::run(&machine, "1");
        }
    }
    let first = client.request("tasks/list", json!({})).await.result().clone();
    let cursor = first["nextCursor"].as_str().expect("more").to_owned();
    let second = client.request("tasks/list", json!({ "cursor": cursor })).await.result().clone();
    let ids = |page: &Value| -> Vec<String> {
        let tasks = page["tasks"].as_array().expect("a list").iter();
        tasks.map(|task| task["taskId"].as_str().expect("an id").to_owned()).collect()
    };
    let mut all = [ids(&first), ids(&second)].concat();
    assert_eq!((all.len(), second.get("nextCursor")), (140, None));
    all.sort();
    all.dedup();
    assert_eq!(all.len(), 140, "each once");
}
