//! Sections 1.1 to 1.3 and 1.7 to 1.9: transports, capabilities, forms, sessions, tasks, stubs.

use super::{Bed, McpClient, Row, differs, fresh, send, words, works};
use crate::v8::front;
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Stdio;

pub const ROWS: &[Row] = &[
    works("1.1", "stdio: newline-delimited JSON-RPC, logs on standard error", stdio),
    works("1.1", "Streamable HTTP at /mcp: POST, GET and DELETE", streamable),
    works("1.1", "POST needs both media types in Accept; answers are events", accept),
    works("1.1", "HTTP+SSE: GET /sse names where to post", sse),
    differs(
        "1.1",
        "POST /message",
        "the stream names /sse/<set>/messages, and clients post where it says",
        |bed| assert_eq!(send(bed.heap(), "POST /message", &[], "{}").status, 404),
    ),
    works("1.1", "an unlisted Host gets 403; a port does not matter; * allows all", hosts),
    differs(
        "1.1",
        "Origin is not checked without --allowed-origins",
        "a page of another origin is refused also by default",
        origins,
    ),
    works("1.1", "revisions 2024-11-05 and 2025-06-18", |bed| {
        for version in ["2024-11-05", "2025-06-18"] {
            let greeting = McpClient::with(bed.heap(), version, &[]).greeting;
            assert_eq!(greeting["protocolVersion"], version);
        }
    }),
    works("1.2", "capabilities: tools, resources, tasks", |bed| {
        let greeting = McpClient::with(bed.heap(), "2025-11-25", &[]).greeting;
        for name in ["tools", "resources", "tasks"] {
            assert!(greeting["capabilities"][name].is_object(), "{name}: {greeting}");
        }
    }),
    works("1.2", "instructions say what persists, and name the resources", |bed| {
        let said = |address| McpClient::open(address).greeting["instructions"].clone();
        let [none, heap, files] = [bed.stateless(), bed.heap(), bed.files()].map(said);
        for text in [&none, &heap, &files] {
            assert!(words(text).starts_with("JavaScript execution service"), "{text}");
            assert!(words(text).contains("docs://"), "{text}");
        }
        assert!(none != heap && heap != files && words(&files).contains("/work"));
    }),
    works("1.2", "four resources, and docs://tools by mode", resources),
    works("1.2", "an unknown URI is a JSON-RPC error", |bed| {
        let client = McpClient::open(bed.heap());
        let odd = client.request("resources/read", &json!({ "uri": "docs://x" }));
        assert_eq!(odd["error"]["message"], "Unknown resource URI: docs://x");
    }),
    works("1.3", "a result is one text block with a JSON object", |bed| {
        let answer = McpClient::open(bed.heap()).raw("list_executions", &json!({}));
        let content = answer["result"]["content"].as_array().expect("blocks");
        assert_eq!((content.len(), &content[0]["type"]), (1, &json!("text")));
        assert!(answer["result"].get("structuredContent").is_none());
    }),
    differs(
        "1.3",
        "failures are in the JSON, and isError is never set",
        "they are marked as errors as well, so that clients see them",
        |bed| {
            let answer = McpClient::open(bed.heap()).raw(
                "get_execution",
                &json!({
                "execution_id": "none" }),
            );
            let text = words(&answer["result"]["content"][0]["text"]);
            assert_eq!(text, r#"{"error":"Execution 'none' not found"}"#);
            assert_eq!(answer["result"]["isError"], true);
        },
    ),
    works("1.3", "bad arguments and unknown tools are JSON-RPC errors", |bed| {
        let client = McpClient::open(bed.heap());
        assert_eq!(client.raw("get_execution", &json!({}))["error"]["code"], -32602);
        assert!(client.raw("nothing", &json!({}))["error"]["code"].is_i64());
    }),
    works("1.3", "tools that a mode hides can be called, and say what is not configured", |bed| {
        let client = McpClient::open(bed.heap());
        assert!(client.tools().iter().all(|tool| tool["name"] != "fs_ls"));
        assert!(words(&client.call("fs_ls", &json!({}))["error"]).contains("not configured"));
    }),
    works("1.3", "optional parameters are nullable; one page, sorted by name", |bed| {
        let tools = McpClient::open(bed.both()).tools();
        let names: Vec<_> = tools.iter().map(|tool| words(&tool["name"])).collect();
        assert!(names.is_sorted() && names.len() == 20, "{names:?}");
        let run_js = tools.iter().find(|tool| tool["name"] == "run_js").expect("run_js");
        let fields = run_js["inputSchema"]["properties"].as_object().expect("fields");
        for name in ["code", "file", "heap", "fs"] {
            assert_eq!(fields[name]["type"], json!(["string", "null"]), "{name}");
        }
        assert!(run_js["inputSchema"].get("required").is_none());
    }),
    works("1.7", "X-MCP-Session-Id of initialize names the session", |bed| {
        let name = fresh("named");
        let open = || {
            let header = format!("x-mcp-session-id: {name}");
            McpClient::with(bed.heap(), "2025-06-18", &[&header])
        };
        assert_eq!(open().printed("globalThis.kept = 1; console.log(kept)"), "1");
        assert_eq!(open().printed("console.log(kept)"), "1");
    }),
    differs(
        "1.7",
        "without the header there is no session",
        "the connection is one, so that plain clients keep their state",
        |bed| {
            let [one, other] = [0, 1].map(|_| McpClient::open(bed.heap()));
            assert_eq!(one.printed("globalThis.kept = 1"), "");
            assert_eq!(one.printed("console.log(kept)"), "1");
            assert_eq!(other.printed("console.log(globalThis.kept)"), "undefined");
        },
    ),
    works("1.7", "--session-id and --session-fork-from", forks),
    works("1.7", "REST has a field `session`", |bed| {
        let run = |code: &str, session: &str| {
            bed.run(bed.heap(), &json!({ "code": code, "session": session }))["output"].clone()
        };
        let name = fresh("rest");
        assert_eq!(run("globalThis.kept = 2", &name), "");
        assert_eq!(run("console.log(kept)", &name), "2");
    }),
    works("1.9", "a WebAssembly module has a stub that says how to call it", stubs),
];

fn stdio(bed: &Bed) {
    let mut command = bed.place.command(Path::new(crate::v8::STASIS));
    command.arg("mcp-v8").stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let params = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "rows", "version": "1" } });
    for (id, method, params) in [
        (1, "initialize", params),
        (2, "tools/call", json!({ "name": "run_js", "arguments": { "code": "console.log(3)" } })),
    ] {
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        writeln!(input, "{message}").expect("sent");
        let line = lines.by_ref().map_while(Result::ok).find(|line| line.contains("\"result\""));
        let answer: Value = serde_json::from_str(&line.expect("a line")).expect("JSON");
        assert_eq!(answer["id"], id);
        if id == 2 {
            assert_eq!(answer["result"]["content"][0]["text"], r#"{"output":"3"}"#);
        }
    }
    drop(input);
    assert!(child.wait().expect("an end").success());
}

fn streamable(bed: &Bed) {
    let client = McpClient::open(bed.heap());
    let session = client.session_header();
    // a stream of news stays open: its head is enough
    let mut stream = TcpStream::connect(bed.heap()).expect("a connection");
    let head = format!(
        "GET /mcp HTTP/1.1\r\nhost: {}\r\naccept: text/event-stream\r\n{session}\r\n\r\n",
        bed.heap()
    );
    stream.write_all(head.as_bytes()).expect("sent");
    let mut line = String::new();
    BufReader::new(&stream).read_line(&mut line).expect("a head");
    assert!(line.starts_with("HTTP/1.1 200 "), "{line}");
    assert!((200..300).contains(&send(bed.heap(), "DELETE /mcp", &[&session], "").status));
    let gone = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/list" });
    let kinds = [
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        &*session,
    ];
    assert_eq!(send(bed.heap(), "POST /mcp", &kinds, &gone.to_string()).status, 404);
}

fn accept(bed: &Bed) {
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "rows", "version": "1" } } });
    let json = "content-type: application/json";
    let refused = send(bed.heap(), "POST /mcp", &[json, "accept: text/html"], &hello.to_string());
    assert_eq!(refused.status, 406);
    let both = [json, "accept: application/json, text/event-stream"];
    let answer = send(bed.heap(), "POST /mcp", &both, &hello.to_string());
    assert!(answer.head.contains("content-type: text/event-stream"), "{}", answer.head);
    assert!(answer.body.lines().any(|line| line.starts_with("data:")), "{}", answer.body);
}

fn sse(bed: &Bed) {
    let mut stream = TcpStream::connect(bed.heap()).expect("a connection");
    let head = format!("GET /sse HTTP/1.1\r\nhost: {}\r\n\r\n", bed.heap());
    stream.write_all(head.as_bytes()).expect("sent");
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let place = lines.find_map(|line| line.strip_prefix("data:").map(|at| at.trim().to_owned()));
    let place = place.expect("an endpoint");
    let hello = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {
        "protocolVersion": "2024-11-05", "capabilities": {},
        "clientInfo": { "name": "rows", "version": "1" } } });
    let kind = ["content-type: application/json"];
    let posted = send(bed.heap(), &format!("POST {place}"), &kind, &hello.to_string());
    assert_eq!(posted.status, 202, "{place}");
    let answer = lines.find_map(|line| line.strip_prefix("data:").map(str::to_owned));
    assert!(answer.expect("an answer").contains("protocolVersion"));
}

fn hosts(bed: &Bed) {
    let get = |address, host: &str| {
        send(address, "GET /llms.txt", &[&format!("host: {host}")], "").status
    };
    for host in ["localhost", "127.0.0.1:9", "[::1]:3000"] {
        assert_eq!(get(bed.stateless(), host), 200, "{host}");
    }
    assert_eq!(get(bed.stateless(), "rebound.example"), 403);
    let all = front(&bed.place, &["--allowed-hosts=*"]);
    assert_eq!(get(all.address, "rebound.example"), 200);
    let blank = front(&bed.place, &["--allowed-hosts= , "]);
    assert_eq!((get(blank.address, "localhost"), get(blank.address, "x")), (200, 403));
}

fn origins(bed: &Bed) {
    let get = |address, origin: &str| {
        send(address, "GET /api/executions", &[&format!("origin: {origin}")], "").status
    };
    assert_eq!(get(bed.stateless(), "https://app.example"), 403);
    let listed = front(&bed.place, &["--allowed-origins=https://app.example"]);
    assert_eq!(get(listed.address, "https://app.example"), 200);
    assert_eq!(get(listed.address, "https://evil.example"), 403);
}

fn resources(bed: &Bed) {
    for (address, mode, count) in [(bed.stateless(), "stateless", 3), (bed.both(), "heap+fs", 20)] {
        let client = McpClient::open(address);
        let list = client.request("resources/list", &json!({}))["result"]["resources"].clone();
        let list = list.as_array().expect("resources").clone();
        let kinds: Vec<_> =
            list.iter().map(|one| (words(&one["uri"]), words(&one["mimeType"]))).collect();
        let (markdown, json_type) = ("text/markdown", "application/json");
        assert_eq!(
            kinds,
            [
                ("docs://readme", markdown),
                ("docs://llms-txt", markdown),
                ("docs://openapi", json_type),
                ("docs://tools", json_type),
            ]
        );
        for (uri, kind) in kinds {
            let read = client.request("resources/read", &json!({ "uri": uri }));
            let content = &read["result"]["contents"][0];
            assert_eq!((&content["mimeType"], &content["uri"]), (&json!(kind), &json!(uri)));
            if uri == "docs://tools" {
                let list: Value = serde_json::from_str(words(&content["text"])).expect("JSON");
                assert_eq!(
                    (&list["mode"], list["tools"].as_array().map(Vec::len)),
                    (&json!(mode), Some(count))
                );
                assert!(list["tools"][0]["input_schema"].is_object(), "{list}");
            }
        }
    }
}

fn forks(bed: &Bed) {
    let (from, to) = (fresh("from"), fresh("to"));
    let run = |session: &str, code: &str| {
        bed.run(bed.heap(), &json!({ "code": code, "session": session }))["output"].clone()
    };
    run(&from, "globalThis.n = 5");
    for _ in 0..2 {
        let flags = ["--heap-store=dir", "--session-id", &*to, "--session-fork-from", &*from];
        let (fine, _, said) = bed.program(&flags, &[]);
        assert!(fine, "{said}");
        run(&to, "n += 1");
    }
    assert_eq!(run(&to, "console.log(n)"), "7", "a second fork changes nothing");
    assert_eq!(run(&from, "console.log(n)"), "5");
    assert!(!bed.program(&["--session-fork-from=x"], &[]).0);
}

fn stubs(bed: &Bed) {
    let path = bed.place.data.path().join("answer.wasm");
    std::fs::write(&path, super::flags::ANSWER).expect("written");
    let flag = format!("--wasm-module=answer={}", path.display());
    let own = front(&bed.place, &[&flag]);
    let client = McpClient::open(own.address);
    let tools = client.tools();
    let stub = tools.last().expect("tools");
    assert_eq!(stub["name"], "runjs__wasm__answer");
    assert!(words(&stub["description"]).contains("f()"), "{stub}");
    let answer = client.raw("runjs__wasm__answer", &json!({}));
    assert!(words(&answer["result"]["content"][0]["text"]).contains("run_js"), "{answer}");
}
