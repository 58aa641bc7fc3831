//! Section 1.6: what a run is.

use super::{Bed, McpClient, Row, differs, fresh, send, words, works};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

pub const ROWS: &[Row] = &[
    works("1.6", "code or file, not both; neither runs nothing", |bed| {
        let client = McpClient::open(bed.stateless());
        let both = client.call("run_js", &json!({ "code": "1", "file": "/x" }));
        assert_eq!(both["error"], "run_js: provide either `code` or `file`, not both");
        assert_eq!(client.call("run_js", &json!({})), json!({ "output": "" }));
    }),
    works("1.6", "`file` only with --allow-run-js-file or a policy", |bed| {
        let client = McpClient::open(bed.stateless());
        for arguments in [
            json!({ "file": "/etc/passwd" }),
            json!({ "file": "/x", "opened": { "path": "/x", "text": "console.log(1)" } }),
        ] {
            let said = client.call("run_js", &arguments);
            for name in ["--allow-run-js-file", "run_js_file"] {
                assert!(words(&said["error"]).contains(name), "{said}");
            }
        }
    }),
    works("1.6", "heap, else the session's latest, else a fresh one", |bed| {
        let client = McpClient::open(bed.heap());
        let count = "globalThis.n = (globalThis.n ?? 0) + 1; console.log(n)";
        let first = client.run(&json!({ "code": count }));
        assert_eq!((&first["printed"], &client.printed(count)), (&json!("1"), &json!("2")));
        let from = json!({ "code": count, "heap": first["heap"] });
        assert_eq!(client.run(&from)["printed"], "2");
        let empty = json!({ "code": count, "heap": "" });
        assert_eq!(client.run(&empty)["printed"], "3", "an empty heap is none");
        assert_eq!(bed.run(bed.heap(), &json!({ "code": count }))["output"], "1");
    }),
    differs(
        "1.6",
        "a heap that cannot be read starts fresh",
        "it is an error: state is not lost silently",
        |bed| {
            let client = McpClient::open(bed.heap());
            for heap in [&*"0".repeat(64), "../../etc/passwd", "/dev/zero"] {
                let said = client.call("run_js", &json!({ "code": "1", "heap": heap }));
                assert!(words(&said["execution_id"]).starts_with("error: "), "{said}");
            }
        },
    ),
    works("1.6", "fs: a tree or a label, else the session's latest", |bed| {
        let client = McpClient::open(bed.files());
        let write = "process.chdir('/work'); await fs.writeFile('a', 'one')";
        let read = "process.chdir('/work'); console.log(await fs.exists('a'))";
        let tree = client.run(&json!({ "code": write }))["fs"].clone();
        assert_eq!(words(&tree).len(), 64, "{tree}");
        assert_eq!(client.printed(read), "true");
        let label = fresh("label");
        let of = |fs: &Value| client.run(&json!({ "code": read, "fs": fs }))["printed"].clone();
        assert_eq!(of(&json!(label)), "false", "an unknown label is empty");
        client.call("fs_push", &json!({ "ca_id": tree, "label": label }));
        assert_eq!((of(&json!(label)), of(&tree)), (json!("true"), json!("true")));
    }),
    differs(
        "1.6",
        "without session and fs there is no mount, and files are the host's",
        "/work starts empty, and the host's files are never visible",
        |bed| {
            let code = "process.chdir('/work'); console.log((await fs.readdir('.')).length)";
            assert_eq!(bed.run(bed.files(), &json!({ "code": code }))["output"], "0");
            let own = bed.place.data.path().display().to_string();
            let code = format!("console.log(await fs.exists('{own}'))");
            assert_eq!(bed.run(bed.files(), &json!({ "code": code }))["output"], "false");
        },
    ),
    works("1.6", "statuses", |bed| {
        let client = McpClient::open(bed.heap());
        let ended = |code: &str, limit: u64| {
            client.run(&json!({ "code": code, "execution_timeout_secs": limit }))["status"].clone()
        };
        // a loaded host may need a second for anything
        assert_eq!(ended("1", 60), "completed");
        assert_eq!(ended("throw 1", 60), "failed");
        assert_eq!(ended("await new Promise(() => {})", 1), "timed_out");
    }),
    works("1.6", "a hot loop ends at its limit, in JavaScript and in a timer", |bed| {
        for code in ["for (;;);", "setInterval(() => {}, 5)", "setTimeout(() => { for (;;); }, 1)"]
        {
            let since = Instant::now();
            let limit = json!({ "code": code, "execution_timeout_secs": 1 });
            let info = bed.run(bed.heap(), &limit);
            assert_eq!(info["error"], "Execution timed out", "{code}: {info}");
            assert!(since.elapsed() < Duration::from_secs(30), "{code}");
        }
    }),
    works("1.6", "a run that fails has no heap, no files and no entry in the log", |bed| {
        let client = McpClient::open(bed.both());
        let first = client.run(&json!({ "code": "globalThis.n = 1" }));
        for code in ["n = 2; throw new Error('x')", "n = 2; process.abort()", "n = 2; for (;;);"] {
            let info = client.run(&json!({ "code": code, "execution_timeout_secs": 1 }));
            assert_eq!((&info["heap"], &info["fs"]), (&Value::Null, &Value::Null), "{code}");
        }
        let second = client.run(&json!({ "code": "console.log(n)" }));
        assert_eq!(second["printed"], "1");
        let log = client.call("list_session_snapshots", &json!({}))["entries"].clone();
        assert_eq!(log.as_array().map(Vec::len), Some(2));
        assert_eq!(log[1]["input_heap"], first["heap"]);
    }),
    works("1.6", "the fields of a page of lines", |bed| {
        let page = page_of(bed, "for (let i = 1; i < 4; i++) console.log(i)", "?line_limit=2");
        let numbers = ["start_line", "end_line", "next_line_offset", "total_lines"];
        assert_eq!(numbers.map(|name| page[name].as_u64()), [1, 2, 3, 3].map(Some));
        let bytes = ["start_byte", "end_byte", "next_byte_offset", "total_bytes"];
        assert_eq!(bytes.map(|name| page[name].as_u64()), [0, 4, 4, 6].map(Some));
        assert_eq!((&page["has_more"], &page["status"]), (&json!(true), &json!("completed")));
        let empty = page_of(bed, "1", "");
        assert_eq!(numbers.map(|name| empty[name].as_u64()), [0, 0, 1, 0].map(Some));
    }),
    differs(
        "1.6",
        "line_offset 0 reports start_line 0, and repeats a line on the next page",
        "0 is answered as 1, and a page that is not the last ends with a newline",
        |bed| {
            let page = page_of(bed, "console.log('a\\nb')", "?line_offset=0&line_limit=1");
            assert_eq!((&page["start_line"], &page["next_line_offset"]), (&json!(1), &json!(2)));
            assert_eq!(page["data"], "a\n");
        },
    ),
    works("1.6", "byte_offset: a page of bytes, with its newline", |bed| {
        let page = page_of(bed, "console.log('ab')", "?byte_offset=1");
        assert_eq!((&page["data"], &page["start_byte"]), (&json!("b\n"), &json!(1)));
    }),
    differs(
        "1.6",
        "output of less than 4096 bytes is invisible until the run ends",
        "each line can be read at once",
        |bed| {
            let client = McpClient::open(bed.heap());
            let code = "console.log('early'); await new Promise(() => {})";
            let id = client.call("run_js", &json!({ "code": code }));
            let asked = json!({ "execution_id": id["execution_id"] });
            let since = Instant::now();
            while client.call("get_execution_output", &asked)["data"] != "early" {
                assert!(since.elapsed() < Duration::from_secs(60));
                std::thread::sleep(Duration::from_millis(10));
            }
            client.call("cancel_execution", &asked);
        },
    ),
    works("1.6", "times are RFC 3339 in UTC, with parts of a second", |bed| {
        let info = bed.run(bed.stateless(), &json!({ "code": "1" }));
        for name in ["started_at", "completed_at"] {
            let time = words(&info[name]);
            assert!(time.ends_with('Z') && time.contains('.') && time.as_bytes()[10] == b'T');
        }
    }),
];

/// A page of what code printed.
fn page_of(bed: &Bed, code: &str, query: &str) -> Value {
    let info = bed.run(bed.heap(), &json!({ "code": code }));
    let path = format!("GET /api/executions/{}/output{query}", words(&info["execution_id"]));
    send(bed.heap(), &path, &[], "").json()
}
