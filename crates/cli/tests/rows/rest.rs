//! Section 2: the routes.

use super::{Bed, Row, differs, fresh, send, words, works};
use serde_json::{Value, json};

const JSON: &[&str] = &["content-type: application/json"];

pub const ROWS: &[Row] = &[
    works("2", "GET /", |bed| {
        let answer = send(bed.stateless(), "GET /", &[], "");
        assert_eq!(answer.status, 308);
        assert!(answer.head.contains("location: /llms.txt"), "{}", answer.head);
    }),
    works("2", "GET /llms.txt, /docs", |bed| {
        for path in ["GET /llms.txt", "GET /docs"] {
            let answer = send(bed.stateless(), path, &[], "");
            assert_eq!(answer.status, 200);
            assert!(answer.head.contains("content-type: text/markdown"), "{}", answer.head);
            assert!(answer.head.contains("x-content-type-options: nosniff"), "{}", answer.head);
        }
    }),
    works("2", "GET /api/version", |bed| {
        let version = send(bed.stateless(), "GET /api/version", &[], "").json();
        assert_eq!(version, json!({ "version": env!("CARGO_PKG_VERSION") }));
    }),
    works("2", "POST /api/exec: JSON, 202 and an id", |bed| {
        let body = json!({ "code": "1", "heap": null, "fs": null, "session": null,
            "heap_memory_max_mb": 64, "execution_timeout_secs": 5, "tags": null });
        for kinds in [JSON, &[]] {
            let answer = send(bed.heap(), "POST /api/exec", kinds, &body.to_string());
            assert_eq!(
                (answer.status, answer.json().as_object().map(|own| own.len())),
                (202, Some(1))
            );
        }
    }),
    works("2", "POST /api/exec: a script, with its options in the query", |bed| {
        let session = fresh("script");
        for printed in ["1", "2"] {
            let line = format!(
                "POST /api/exec?wait=60&session={session}&execution_timeout_secs=9&\
                 heap_memory_max_mb=64"
            );
            let code = "globalThis.n = (globalThis.n ?? 0) + 1; console.log(n)";
            let answer = send(bed.heap(), &line, &["content-type: text/javascript"], code);
            assert_eq!(answer.json()["output"], printed, "{}", answer.body);
        }
    }),
    works("2", "POST /api/exec: 400 and 415", |bed| {
        let status = |kind: &str, body: &str| {
            let kind = format!("content-type: {kind}");
            let answer = send(bed.heap(), "POST /api/exec", &[&kind], body);
            assert!(answer.json()["error"].is_string(), "{}", answer.body);
            answer.status
        };
        assert_eq!(status("application/json", "{"), 400);
        assert_eq!(status("application/json", "{}"), 400);
        assert_eq!(status("multipart/form-data; boundary=x", ""), 415);
        // too large as code, and too large as a body
        assert_eq!(status("text/plain", &" ".repeat(9 << 20)), 400);
        assert_eq!(status("text/plain", &" ".repeat(24 << 20)), 400);
    }),
    differs(
        "2",
        "POST /api/exec: 500 for syntax errors",
        "the run fails, with line and column; a request that cannot be met is 400 or 404",
        |bed| {
            let info = bed.run(bed.heap(), &json!({ "code": "let = ;" }));
            assert_eq!(info["status"], "failed");
            assert!(words(&info["error"]).starts_with("SyntaxError"), "{info}");
            let unknown = json!({ "code": "1", "heap": "0".repeat(64) }).to_string();
            assert_eq!(send(bed.heap(), "POST /api/exec", JSON, &unknown).status, 404);
        },
    ),
    differs(
        "2",
        "POST /api/exec from any web page",
        "a page of another origin is refused before its code is read",
        |bed| {
            for header in ["origin: https://evil.example", "origin: null"] {
                let kinds = ["content-type: text/plain", header];
                assert_eq!(send(bed.heap(), "POST /api/exec", &kinds, "1").status, 403);
            }
        },
    ),
    works("2", "GET /api/executions", |bed| {
        let id = bed.run(bed.stateless(), &json!({ "code": "1" }))["execution_id"].clone();
        let all = send(bed.stateless(), "GET /api/executions", &[], "").json();
        let all = all["executions"].as_array().expect("a list").clone();
        let own = all.iter().find(|one| one["execution_id"] == id).expect("the run");
        let mut fields: Vec<_> = own.as_object().expect("fields").keys().collect();
        fields.sort_unstable();
        assert_eq!(fields, ["completed_at", "execution_id", "started_at", "status"]);
    }),
    works("2", "GET /api/executions/{id}", |bed| {
        let id = bed.run(bed.heap(), &json!({ "code": "1" }))["execution_id"].clone();
        let path = format!("GET /api/executions/{}", words(&id));
        let info = send(bed.heap(), &path, &[], "").json();
        assert_eq!((&info["status"], &info["artifacts"]), (&json!("completed"), &json!([])));
        assert_eq!(send(bed.heap(), "GET /api/executions/none", &[], "").status, 404);
    }),
    works("2", "GET /api/executions/{id}/output", |bed| {
        let id = bed.run(bed.heap(), &json!({ "code": "console.log(1)" }))["execution_id"].clone();
        let path = format!("GET /api/executions/{}/output", words(&id));
        let page = send(bed.heap(), &path, &[], "").json();
        assert_eq!(
            (&page["data"], page.as_object().map(|page| page.len())),
            (&json!("1"), Some(12))
        );
        let none = send(bed.heap(), "GET /api/executions/none/output", &[], "");
        assert_eq!((none.status, &none.json()["status"]), (200, &json!("unknown")));
    }),
    works("2", "POST /api/executions/{id}/cancel", |bed| {
        let body = json!({ "code": "await new Promise(() => {})" }).to_string();
        let id = send(bed.heap(), "POST /api/exec", JSON, &body).json()["execution_id"].clone();
        let path = format!("POST /api/executions/{}/cancel", words(&id));
        let done = send(bed.heap(), &path, &[], "");
        assert_eq!((done.status, done.json()), (200, json!({ "ok": true })));
        let none = send(bed.heap(), "POST /api/executions/none/cancel", &[], "");
        assert_eq!((none.status, &none.json()["ok"]), (400, &json!(false)));
    }),
    works("2", "GET /api/artifacts, /api/artifacts/{key}", |bed| {
        let key = fresh("chart");
        let code = format!("artifact('{key}', 'image/svg+xml', '<svg/>')");
        bed.run(bed.stateless(), &json!({ "code": code }));
        let all = send(bed.stateless(), "GET /api/artifacts", &[], "").json();
        let all = all["artifacts"].as_array().expect("a list").clone();
        assert!(all.iter().any(|one| one["key"] == key && one["size_bytes"] == 6));
        let one = send(bed.stateless(), &format!("GET /api/artifacts/{key}"), &[], "");
        assert_eq!((one.status, &*one.body), (200, "<svg/>"));
        for header in ["image/svg+xml", "content-disposition: attachment", "nosniff"] {
            assert!(one.head.contains(header), "{header}: {}", one.head);
        }
        assert_eq!(send(bed.stateless(), "GET /api/artifacts/none", &[], "").status, 404);
    }),
    differs(
        "2",
        "GET /api/cli, /api/cli/{platform}",
        "no client programs are carried: the list is empty",
        |bed| {
            assert_eq!(send(bed.heap(), "GET /api/cli", &[], "").json()["assets"], json!([]));
            assert_eq!(send(bed.heap(), "GET /api/cli/linux-x86_64", &[], "").status, 404);
        },
    ),
    works("2", "GET and POST /api/fs/labels", |bed| {
        let (label, tree) = (fresh("label"), tree(bed, "1"));
        let body = json!({ "name": label, "ca_id": tree });
        let at = json!({ "label": label, "ca_id": tree });
        assert_eq!(post(bed, "labels", &body), (200, at));
        let all = send(bed.both(), "GET /api/fs/labels", &[], "").json()["labels"].clone();
        assert!(all.as_array().expect("labels").contains(&body), "{all}");
        assert_eq!(post(bed, "labels", &json!({ "name": label, "ca_id": "x" })).0, 400);
        assert_eq!(send(bed.heap(), "GET /api/fs/labels", &[], "").status, 400);
    }),
    works("2", "GET /api/fs/labels/{label} and its log", |bed| {
        let (label, tree) = (fresh("label"), tree(bed, "1"));
        post(bed, "push", &json!({ "label": label, "ca_id": tree }));
        let get = |path: &str| send(bed.both(), &format!("GET /api/fs/labels/{path}"), &[], "");
        assert_eq!(get(&label).json(), json!({ "label": label, "ca_id": tree }));
        assert_eq!(get("none").status, 404);
        let log = get(&format!("{label}/log?limit=5")).json();
        assert_eq!((&log["label"], &log["log"][0]["op"]), (&json!(label), &json!("create")));
        assert_eq!(get("none/log").status, 400);
    }),
    works("2", "POST /api/fs/push: 200, 409, 400", |bed| {
        let label = fresh("label");
        let [one, two] = ["1", "2"].map(|text| tree(bed, text));
        assert_eq!(post(bed, "push", &json!({ "label": label, "ca_id": one })).0, 200);
        let stale = json!({ "label": label, "ca_id": two, "expected": two });
        let rejected = json!({ "status": "rejected", "label": label, "current": one });
        assert_eq!(post(bed, "push", &stale), (409, rejected));
        let detached = json!({ "status": "detached", "ca_id": two });
        assert_eq!(post(bed, "push", &json!({ "ca_id": two, "detach": true })), (200, detached));
        assert_eq!(post(bed, "push", &json!({ "ca_id": two })).0, 400);
    }),
    works("2", "POST /api/fs/reset", |bed| {
        let (label, tree) = (fresh("label"), tree(bed, "1"));
        post(bed, "push", &json!({ "label": label, "ca_id": tree }));
        let at = json!({ "label": label, "ca_id": tree });
        assert_eq!(post(bed, "reset", &at), (200, at.clone()));
        assert_eq!(post(bed, "reset", &json!({ "label": "none", "ca_id": tree })).0, 400);
    }),
    works("2", "POST /api/fs/merge", |bed| {
        let [one, two] = ["1", "2"].map(|text| tree(bed, text));
        let merge = |body: &Value| post(bed, "merge", body);
        let same = merge(&json!({ "ours": one, "theirs": one }));
        assert_eq!(same, (200, json!({ "status": "merged", "ca_id": one })));
        let clash = merge(&json!({ "ours": one, "theirs": two }));
        assert_eq!((clash.0, &clash.1["status"]), (200, &json!("conflict")));
        assert_eq!(merge(&json!({ "ours": one, "theirs": "none" })).0, 400);
    }),
    works("2", "GET /api-doc/openapi.json, with the operation ids", |bed| {
        let document = send(bed.stateless(), "GET /api-doc/openapi.json", &[], "").json();
        assert_eq!(
            (&document["openapi"], &document["info"]["version"]),
            (&json!("3.0.3"), &json!("0.1.0"))
        );
        let paths = document["paths"].as_object().expect("paths");
        let operations = paths.values().flat_map(|path| path.as_object().expect("a path").values());
        let ids: Vec<_> = operations.filter_map(|one| one["operationId"].as_str()).collect();
        for id in "version_handler exec_handler list_executions_handler get_execution_handler \
                   get_execution_output_handler cancel_execution_handler list_artifacts_handler \
                   get_artifact_handler cli_index_handler cli_download_handler fs_labels_handler \
                   fs_set_label_handler fs_resolve_handler fs_log_handler fs_push_handler \
                   fs_reset_handler fs_merge_handler"
            .split_whitespace()
        {
            assert!(ids.contains(&id), "{id}");
        }
    }),
    works("2", "no CORS headers; errors are {\"error\"}", |bed| {
        let answer = send(bed.stateless(), "GET /api/executions/none", &[], "");
        assert!(!answer.head.contains("access-control"), "{}", answer.head);
        assert_eq!(answer.json(), json!({ "error": "Execution 'none' not found" }));
    }),
    differs(
        "2",
        "no sessions, tags, waiting or streaming over REST",
        "they are there, beside polling",
        |bed| {
            let session = fresh("rest");
            let tags = json!({ "by": session });
            let body = json!({ "code": "console.log(1)", "session": session, "tags": tags });
            let info = bed.run(bed.heap(), &body);
            let get = |path: &str| send(bed.heap(), &format!("GET {path}"), &[], "");
            let all = get("/api/sessions").json()["sessions"].clone();
            assert!(all.as_array().expect("names").contains(&json!(session)));
            let log = get(&format!("/api/sessions/{session}/log")).json();
            assert_eq!(log["entries"][0]["output_heap"], info["heap"]);
            let heap = words(&info["heap"]);
            assert_eq!(get(&format!("/api/heaps/{heap}/tags")).json()["tags"], tags);
            let id = words(&info["execution_id"]);
            let lines = get(&format!("/api/executions/{id}/stream")).body;
            assert!(lines.starts_with("{\"data\":\"1\"}\n{\"execution\":"), "{lines}");
        },
    ),
];

fn post(bed: &Bed, path: &str, body: &Value) -> (u16, Value) {
    let answer = send(bed.both(), &format!("POST /api/fs/{path}"), JSON, &body.to_string());
    (answer.status, answer.json())
}

/// A file tree with one file.
fn tree(bed: &Bed, text: &str) -> Value {
    let code = format!("process.chdir('/work'); await fs.writeFile('t', '{text}')");
    let info = bed.run(bed.both(), &json!({ "code": code, "fs": fresh("empty") }));
    assert_eq!(info["status"], "completed", "{info}");
    info["fs"].clone()
}
