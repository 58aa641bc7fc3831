//! Sections 1.4 and 1.5: every tool, with its success and its failure.

use super::{McpClient, Row, differs, fresh, words, works};
use serde_json::{Value, json};

pub const ROWS: &[Row] = &[
    works("1.4", "run_js", |bed| {
        let client = McpClient::open(bed.heap());
        let id = client.call("run_js", &json!({ "code": "1" }))["execution_id"].clone();
        assert_eq!(words(&id).len(), 36, "{id}");
        let failed = client.call("run_js", &json!({ "code": "1", "heap": "x" }));
        assert!(words(&failed["execution_id"]).starts_with("error: "), "{failed}");
    }),
    works("1.4", "get_execution", |bed| {
        let client = McpClient::open(bed.heap());
        let mut info = client.run(&json!({ "code": "console.log(1)" }));
        info.as_object_mut().expect("an object").remove("printed");
        let mut fields: Vec<_> = info.as_object().expect("fields").keys().cloned().collect();
        fields.sort_unstable();
        assert_eq!(
            fields,
            [
                "artifacts",
                "completed_at",
                "error",
                "execution_id",
                "fs",
                "heap",
                "result",
                "started_at",
                "status",
            ]
        );
        assert_eq!((&info["result"], words(&info["heap"]).len()), (&json!(""), 64));
        let none = client.call("get_execution", &json!({ "execution_id": "x" }));
        assert_eq!(none, json!({ "error": "Execution 'x' not found" }));
    }),
    works("1.4", "get_execution_output", |bed| {
        let client = McpClient::open(bed.heap());
        let id = client.run(&json!({ "code": "console.log('a\\nb')" }))["execution_id"].clone();
        let of = |mut more: Value| {
            more["execution_id"] = id.clone();
            client.call("get_execution_output", &more)
        };
        let page = of(json!({}));
        assert_eq!(
            (page.as_object().map(|page| page.len()), &page["data"]),
            (Some(12), &json!("a\nb"))
        );
        assert_eq!(of(json!({ "line_offset": 2, "line_limit": 1 }))["data"], "b");
        assert_eq!(of(json!({ "byte_offset": 0, "byte_limit": 2 }))["data"], "a\n");
        let none = client.call("get_execution_output", &json!({ "execution_id": "x" }));
        assert_eq!((&none["data"], &none["status"]), (&json!(""), &json!("unknown")));
    }),
    works("1.4", "cancel_execution", |bed| {
        let client = McpClient::open(bed.heap());
        let id = client.call("run_js", &json!({ "code": "await new Promise(() => {})" }));
        let asked = json!({ "execution_id": id["execution_id"] });
        assert_eq!(client.call("cancel_execution", &asked), json!({ "ok": true }));
        assert_eq!(client.ended(&id["execution_id"])["status"], "cancelled");
        let again = client.call("cancel_execution", &asked);
        assert_eq!(again["ok"], false);
        assert!(words(&again["error"]).ends_with("is not running (status: cancelled)"));
    }),
    works("1.4", "list_executions", |bed| {
        let client = McpClient::open(bed.heap());
        let id = client.run(&json!({ "code": "1" }))["execution_id"].clone();
        let all = client.call("list_executions", &json!({}))["executions"].clone();
        let own = all.as_array().expect("a list").iter().find(|one| one["execution_id"] == id);
        let own = own.expect("the run");
        assert_eq!(
            (&own["status"], own.as_object().map(|own| own.len())),
            (&json!("completed"), Some(4))
        );
    }),
    works("1.4", "get_artifact", |bed| {
        let client = McpClient::open(bed.heap());
        let emit = "artifact('a.bin', 'application/x', new Uint8Array([255, 0])); \
                    artifact('a.png', 'image/png', new Uint8Array([1])); \
                    artifact('a.wav', 'audio/wav', new ArrayBuffer(1)); \
                    artifact('a.txt', 'text/plain', 'é')";
        assert_eq!(client.run(&json!({ "code": emit }))["status"], "completed");
        for (key, encoding, block) in [
            ("a.bin", "base64", json!({ "type": "text", "text": "/wA=" })),
            ("a.png", "image", json!({ "type": "image", "data": "AQ==", "mimeType": "image/png" })),
            ("a.wav", "audio", json!({ "type": "audio", "data": "AA==", "mimeType": "audio/wav" })),
            ("a.txt", "utf-8", json!({ "type": "text", "text": "é" })),
        ] {
            let answer = client.raw("get_artifact", &json!({ "key": key }));
            let meta: Value =
                serde_json::from_str(words(&answer["result"]["content"][0]["text"])).expect("JSON");
            assert_eq!((&meta["encoding"], &meta["key"]), (&json!(encoding), &json!(key)));
            assert!(meta["size_bytes"].is_u64() && meta["execution_id"].is_string(), "{meta}");
            assert_eq!(answer["result"]["content"][1], block);
        }
        let none = client.call("get_artifact", &json!({ "key": "none" }));
        assert_eq!(none, json!({ "error": "artifact 'none' not found" }));
    }),
    works("1.4", "list_artifacts", |bed| {
        let client = McpClient::open(bed.heap());
        let keys = [fresh("z"), fresh("a")];
        for key in &keys {
            client.run(&json!({ "code": format!("artifact('{key}', 'a/b', '')") }));
        }
        let all = client.call("list_artifacts", &json!({}))["artifacts"].clone();
        let all: Vec<_> = all
            .as_array()
            .expect("a list")
            .iter()
            .map(|one| words(&one["key"]).to_owned())
            .collect();
        assert!(all.is_sorted() && keys.iter().all(|key| all.contains(key)), "{all:?}");
    }),
    works("1.4", "list_sessions", |bed| {
        let name = fresh("listed");
        bed.run(bed.heap(), &json!({ "code": "1", "session": name }));
        let all = McpClient::open(bed.heap()).call("list_sessions", &json!({}));
        assert!(all["sessions"].as_array().expect("names").contains(&json!(name)), "{all}");
    }),
    works("1.4", "list_session_snapshots", |bed| {
        let client = McpClient::open(bed.heap());
        let [first, second] = ["let a", "let b"].map(|code| client.run(&json!({ "code": code })));
        let log = client.call("list_session_snapshots", &json!({}))["entries"].clone();
        assert_eq!((&log[0]["index"], &log[0]["input_heap"]), (&json!(0), &Value::Null));
        assert_eq!(
            (&log[1]["input_heap"], &log[1]["output_heap"]),
            (&first["heap"], &second["heap"])
        );
        let some = client.call("list_session_snapshots", &json!({ "fields": "code,index" }));
        assert_eq!(some["entries"][1], json!({ "index": 1, "code": "let b" }));
    }),
    works("1.4", "get_heap_tags, set_heap_tags", |bed| {
        let client = McpClient::open(bed.heap());
        let tags = json!({ "a": "1" });
        let heap = client.run(&json!({ "code": "1", "tags": tags }))["heap"].clone();
        let get = || client.call("get_heap_tags", &json!({ "heap": heap }))["tags"].clone();
        assert_eq!(get(), tags);
        let set = json!({ "heap": heap, "tags": { "b": "2" } });
        assert_eq!(client.call("set_heap_tags", &set), json!({ "ok": true }));
        assert_eq!(get(), json!({ "b": "2" }), "all are replaced");
        let none = json!({ "heap": "0".repeat(64), "tags": {} });
        assert_eq!(client.call("set_heap_tags", &none)["ok"], false);
        assert!(client.call("get_heap_tags", &none)["tags"]["error"].is_string());
    }),
    works("1.4", "delete_heap_tags", |bed| {
        let client = McpClient::open(bed.heap());
        let tags = json!({ "a": "1", "b": "2", "c": "3" });
        let heap = client.run(&json!({ "code": "1", "tags": tags }))["heap"].clone();
        let get = || client.call("get_heap_tags", &json!({ "heap": heap }))["tags"].clone();
        let some = json!({ "heap": heap, "keys": "a, c" });
        assert_eq!(client.call("delete_heap_tags", &some), json!({ "ok": true }));
        assert_eq!(get(), json!({ "b": "2" }));
        client.call("delete_heap_tags", &json!({ "heap": heap }));
        assert_eq!(get(), json!({}));
        assert_eq!(client.call("delete_heap_tags", &json!({ "heap": "x" }))["ok"], false);
    }),
    works("1.4", "query_heaps_by_tags", |bed| {
        let client = McpClient::open(bed.heap());
        let own = fresh("tag");
        let tags = json!({ "by": own, "n": "1" });
        let heap = client.run(&json!({ "code": "1", "tags": tags }))["heap"].clone();
        let find = |tags: Value| client.call("query_heaps_by_tags", &json!({ "tags": tags }));
        let found = json!({ "results": [{ "heap": heap, "tags": tags }] });
        assert_eq!(find(json!({ "by": own })), found);
        assert_eq!(find(json!({ "by": own, "n": "2" })), json!({ "results": [] }));
    }),
    works("1.4", "fs_label, fs_ls, fs_pull", |bed| {
        let (client, label) = (McpClient::open(bed.both()), fresh("label"));
        let tree = tree(&client, "1");
        let at = json!({ "label": label, "ca_id": tree });
        let set = json!({ "name": label, "ca_id": tree, "message": "m" });
        assert_eq!(client.call("fs_label", &set), at);
        let one = json!({ "name": label, "ca_id": tree });
        let all = client.call("fs_ls", &json!({}))["labels"].clone();
        assert!(all.as_array().expect("labels").contains(&one), "{all}");
        assert_eq!(client.call("fs_pull", &json!({ "label": label })), at);
        let none = client.call("fs_pull", &json!({ "label": "none" }));
        assert_eq!(none, json!({ "error": "unknown label: none" }));
    }),
    works("1.4", "fs_push: advanced, rejected, detached, forced", |bed| {
        let (client, label) = (McpClient::open(bed.both()), fresh("label"));
        let [one, two] = ["1", "2"].map(|text| tree(&client, text));
        let push = |mut more: Value, tree: &Value| {
            more["ca_id"] = tree.clone();
            client.call("fs_push", &more)
        };
        let to = json!({ "label": label });
        let advanced = json!({ "status": "advanced", "label": label, "ca_id": one });
        assert_eq!(push(to.clone(), &one), advanced);
        let wrong = json!({ "label": label, "expected": two });
        let rejected = json!({ "status": "rejected", "label": label, "current": one });
        assert_eq!(push(wrong, &two), rejected);
        let right = json!({ "label": label, "expected": one });
        assert_eq!(push(right, &two)["status"], "advanced");
        assert_eq!(push(json!({ "label": label, "force": true }), &one)["status"], "advanced");
        let detached = json!({ "status": "detached", "ca_id": two });
        assert_eq!(push(json!({ "detach": true }), &two), detached);
        let long = json!({ "label": label, "message": "m".repeat(4097) });
        assert!(push(long, &one)["error"].is_string());
    }),
    differs(
        "1.4",
        "fs_push without `expected` moves the label",
        "the label must be new, so that no push is lost",
        |bed| {
            let (client, label) = (McpClient::open(bed.both()), fresh("label"));
            let [one, two] = ["1", "2"].map(|text| tree(&client, text));
            client.call("fs_push", &json!({ "label": label, "ca_id": one }));
            let second = client.call("fs_push", &json!({ "label": label, "ca_id": two }));
            assert_eq!(second["status"], "rejected");
        },
    ),
    works("1.4", "fs_log, fs_reset", |bed| {
        let (client, label) = (McpClient::open(bed.both()), fresh("label"));
        let [one, two, other] = ["1", "2", "3"].map(|text| tree(&client, text));
        client.call("fs_push", &json!({ "label": label, "ca_id": one }));
        client.call("fs_push", &json!({ "label": label, "ca_id": two, "expected": one }));
        let unlogged = json!({ "label": label, "ca_id": other });
        assert!(client.call("fs_reset", &unlogged)["error"].is_string());
        let back = json!({ "label": label, "ca_id": one });
        assert_eq!(client.call("fs_reset", &back), back);
        let allowed = json!({ "label": label, "ca_id": other, "allow_unlogged": true });
        assert_eq!(client.call("fs_reset", &allowed)["ca_id"], other);
        let log = client.call("fs_log", &json!({ "label": label }))["log"].clone();
        let ops: Vec<_> = log.as_array().expect("a log").iter().map(|one| &one["op"]).collect();
        assert_eq!(ops, ["create", "push", "reset", "reset"]);
        assert!(log[1]["at"].is_u64() && log[1]["from"] == one && log[1]["to"] == two, "{log}");
        let last = client.call("fs_log", &json!({ "label": label, "limit": 1 }));
        assert_eq!(last["log"].as_array().map(Vec::len), Some(1));
        assert!(client.call("fs_log", &json!({ "label": "none" }))["error"].is_string());
    }),
    works("1.4", "fs_merge: merged, conflict, prefer", |bed| {
        let client = McpClient::open(bed.both());
        let [base, ours, theirs, clash] =
            ["1\\n2\\n3\\n", "a\\n2\\n3\\n", "1\\n2\\nc\\n", "x\\n2\\n3\\n"]
                .map(|text| tree(&client, text));
        let merge = |theirs: &Value, prefer: Value| {
            let asked = json!({ "ours": ours, "theirs": theirs, "base": base, "prefer": prefer });
            client.call("fs_merge", &asked)
        };
        assert_eq!(merge(&theirs, Value::Null)["status"], "merged");
        let conflict = merge(&clash, Value::Null);
        let one = &conflict["conflicts"][0];
        assert_eq!(
            (&conflict["status"], &one["kind"], &one["path"]),
            (&json!("conflict"), &json!("text"), &json!("t"))
        );
        assert!(words(&one["markers"]).contains("<<<<<<<"), "{one}");
        assert_eq!(merge(&clash, json!("theirs"))["ca_id"], clash);
        assert!(merge(&json!("none"), Value::Null)["error"].is_string());
    }),
    works("1.4", "without heaps run_js has neither `heap` nor `tags`", |bed| {
        let fields = |address| {
            let tools = McpClient::open(address).tools();
            let run_js = tools.iter().find(|tool| tool["name"] == "run_js").expect("run_js");
            run_js["inputSchema"]["properties"].as_object().expect("fields").clone()
        };
        let (files, heap) = (fields(bed.files()), fields(bed.heap()));
        assert!(!files.contains_key("heap") && !files.contains_key("tags"));
        assert!(heap.contains_key("heap") && heap.contains_key("tags"));
    }),
    works("1.4", "run_js is described as its mode is", |bed| {
        let about = |address| {
            let tools = McpClient::open(address).tools();
            let run_js = tools.iter().find(|tool| tool["name"] == "run_js").expect("run_js");
            words(&run_js["description"]).to_owned()
        };
        let (none, heap, files, both) =
            (about(bed.stateless()), about(bed.heap()), about(bed.files()), about(bed.both()));
        assert!(none.contains("nothing persists") && !none.contains("execution_id"), "{none}");
        assert!(heap.contains("globalThis, timers") && !heap.contains("/work"), "{heap}");
        assert!(files.contains("/work") && !files.contains("globalThis"), "{files}");
        assert!(both.contains("/work") && both.contains("globalThis, timers"), "{both}");
    }),
    works("1.5", "three tools without state", |bed| {
        let tools = McpClient::open(bed.stateless()).tools();
        let names: Vec<_> = tools.iter().map(|tool| words(&tool["name"])).collect();
        assert_eq!(names, ["get_artifact", "list_artifacts", "run_js"]);
    }),
    works("1.5", "run_js answers with the output, or with output and error", |bed| {
        let client = McpClient::open(bed.stateless());
        let run = |code: &str| client.call("run_js", &json!({ "code": code }));
        assert_eq!(run("console.log(1); console.log(2)"), json!({ "output": "1\n2" }));
        let failed = run("console.log('x'); throw new Error('no')");
        assert_eq!(failed["output"], "x");
        assert!(words(&failed["error"]).starts_with("Error: no"), "{failed}");
        let limit = json!({ "code": "for (;;);", "execution_timeout_secs": 1 });
        assert_eq!(client.call("run_js", &limit)["error"], "Execution timed out");
        let odd = json!({ "code": "1", "execution_timeout_secs": 0 });
        assert!(client.call("run_js", &odd)["error"].is_string());
    }),
    works("1.5", "artifacts are listed, and inlined up to 8 MiB", |bed| {
        let client = McpClient::open(bed.stateless());
        let code = "artifact('s', 'text/plain', 'small'); \
                    artifact('l', 'text/plain', 'x'.repeat(9 << 20))";
        let answer = client.raw("run_js", &json!({ "code": code }))["result"]["content"].clone();
        let text: Value = serde_json::from_str(words(&answer[0]["text"])).expect("JSON");
        let of = |key: &str| {
            let list = text["artifacts"].as_array().expect("a list");
            list.iter().find(|one| one["key"] == key).cloned().expect("an artifact")
        };
        assert_eq!((&of("s")["inline"], &of("l")["inline"]), (&json!(true), &json!(false)));
        assert_eq!(answer[1], json!({ "type": "text", "text": "small" }));
        assert_eq!(
            (answer.as_array().map(Vec::len), &of("l")["size_bytes"]),
            (Some(2), &json!(9 << 20))
        );
    }),
];

/// A file tree with one file `t` that has this text.
fn tree(client: &McpClient, text: &str) -> Value {
    let code = format!("process.chdir('/work'); await fs.writeFile('t', '{text}')");
    let label = fresh("empty");
    let info = client.run(&json!({ "code": code, "fs": label }));
    assert_eq!(info["status"], "completed", "{info}");
    info["fs"].clone()
}
