//! `stasis mcp-v8` with `file` of `run_js`: files of the host that a flag or a policy allows, over
//! both transports.

use crate::rows::{McpClient, send};
use crate::v8::{Place, STASIS, front};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Stdio;

/// Scripts below the data directory of a place: one to run, and one that a policy denies.
fn scripts(place: &Place) -> PathBuf {
    let dir = place.data.path().canonicalize().expect("a path").join("own");
    for name in ["open", "shut"] {
        std::fs::create_dir_all(dir.join(name)).expect("made");
        let code = format!("console.log('{name}')");
        std::fs::write(dir.join(name).join("a.js"), code).expect("written");
    }
    symlink("../shut/a.js", dir.join("open/link.js")).expect("a link");
    symlink("open/a.js", dir.join("to-open.js")).expect("a link");
    dir
}

fn policies(rule: &Path) -> String {
    let url = format!("file://{}", rule.display());
    let policies = json!({ "run_js_file": { "policies": [{ "url": url }] } });
    format!("--policies-json={policies}")
}

/// Calls of run_js over standard streams; the JSON in each answer.
fn over_streams(place: &Place, flags: &[&str], calls: &[Value]) -> Vec<Value> {
    let mut command = place.command(Path::new(STASIS));
    command.arg("mcp-v8").args(flags).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let mut input = child.stdin.take().expect("piped");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut ask = |message: Value| {
        writeln!(input, "{message}").expect("sent");
        let mut answers = lines.by_ref().map_while(Result::ok);
        let found = answers.find_map(|line| {
            let answer: Value = serde_json::from_str(&line).expect("JSON");
            (answer["id"] == message["id"]).then_some(answer)
        });
        found.expect("an answer")
    };
    let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": {},
        "clientInfo": { "name": "files", "version": "1" } });
    ask(json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello }));
    let one = |(n, arguments): (usize, &Value)| {
        let params = json!({ "name": "run_js", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": n + 1, "method": "tools/call",
            "params": params });
        let answer = ask(call);
        let text = answer["result"]["content"][0]["text"].as_str();
        serde_json::from_str(text.unwrap_or_else(|| panic!("{answer}"))).expect("JSON")
    };
    let answers = calls.iter().enumerate().map(one).collect();
    drop(input);
    child.wait().expect("an end");
    answers
}

#[test]
fn files_run_where_a_flag_allows_them() {
    let place = Place::new();
    let dir = scripts(&place);
    let allowed = front(&place, &["--allow-run-js-file"]);
    let client = McpClient::open(allowed.address);
    let file = |path: PathBuf| json!({ "file": path });
    for (path, output) in
        [("open/a.js", "open"), ("open/link.js", "shut"), ("open/../to-open.js", "open")]
    {
        assert_eq!(client.call("run_js", &file(dir.join(path)))["output"], output, "{path}");
    }
    let mut both = file(dir.join("open/a.js"));
    both["code"] = "1".into();
    let said = client.call("run_js", &both);
    assert_eq!(said["error"], "run_js: provide either `code` or `file`, not both");
    // a client names a file, and never its text
    let lie = json!({ "path": "/x", "text": "console.log('mine')" });
    let said = client.call("run_js", &json!({ "file": dir.join("none.js"), "opened": lie }));
    assert!(said["error"].as_str().expect("words").contains("none.js: No such file"), "{said}");
    for path in [dir.clone(), "/proc/self/environ".into(), "/dev/zero".into()] {
        let said = client.call("run_js", &file(path));
        assert!(said["error"].as_str().expect("words").ends_with("no regular file"), "{said}");
    }
    // another setup's flag is not this one's
    let plain = front(&place, &["--heap-store=dir"]);
    let said = McpClient::open(plain.address).call("run_js", &file(dir.join("open/a.js")));
    let words = said["execution_id"].as_str().expect("words");
    assert!(words.starts_with("error: run_js: `file` is disabled"), "{said}");

    let calls = [file(dir.join("to-open.js")), json!({ "code": "console.log(7)" })];
    let answers = over_streams(&place, &["--allow-run-js-file"], &calls);
    assert_eq!((&answers[0]["output"], &answers[1]["output"]), (&json!("open"), &json!("7")));
    let answers = over_streams(&place, &[], &calls);
    assert!(answers[0]["error"].as_str().expect("words").contains("--allow-run-js-file"));
}

#[test]
fn a_policy_decides_about_the_real_path() {
    let place = Place::new();
    let dir = scripts(&place);
    let rule = dir.join("files.rego");
    let text = format!(
        "package mcp.run_js_file\nallow if {{ input.operation == \"read\"\n\
         startswith(input.path, \"{}/\")\nnot input.mcp_headers.tenant == \"b\" }}",
        dir.join("open").display()
    );
    std::fs::write(&rule, text).expect("written");
    let flag = policies(&rule);
    let own = front(&place, &[&flag]);
    let client = McpClient::open(own.address);
    let call = |client: &McpClient, path: &str| client.call("run_js", &json!({ "file": path }));
    let at = |path: &str| dir.join(path).display().to_string();
    for path in ["open/a.js", "to-open.js", "shut/../open/a.js"] {
        assert_eq!(call(&client, &at(path))["output"], "open", "{path}");
    }
    let denied = format!("run_js denied by policy: {} is not allowed", at("shut/a.js"));
    for path in ["shut/a.js", "open/link.js", "open/../shut/a.js"] {
        assert_eq!(call(&client, &at(path))["error"], denied, "{path}");
    }
    // a denied path says nothing about whether it exists
    let gone = format!("run_js denied by policy: {} is not allowed", at("shut/none.js"));
    assert_eq!(call(&client, &at("open/../shut/none.js"))["error"], gone);
    let missing = call(&client, &at("open/none.js"))["error"].clone();
    assert!(missing.as_str().expect("words").contains("No such file"), "{missing}");
    let other = McpClient::with(own.address, "2025-06-18", &["x-mcp-tenant: b"]);
    let denied = format!("run_js denied by policy: {} is not allowed", at("open/a.js"));
    assert_eq!(call(&other, &at("open/a.js"))["error"], denied);

    // a flag wins over the policy, and a client cannot choose the setup of another process
    let open = front(&place, &[&flag, "--allow-run-js-file"]);
    assert_eq!(call(&McpClient::open(open.address), &at("shut/a.js"))["output"], "shut");
    for setup in ["", "0"] {
        let header = format!("x-mcp-v8-setup: {setup}");
        let client = McpClient::with(own.address, "2025-06-18", &[&header]);
        let denied = format!("run_js denied by policy: {} is not allowed", at("shut/a.js"));
        assert_eq!(call(&client, &at("shut/a.js"))["error"], denied, "{setup:?}");
        let kind = ["content-type: text/javascript", &header];
        let answer =
            send(own.address, "POST /api/exec?wait=60", &kind, "console.log(typeof fetch)");
        assert_eq!(answer.json()["output"], "undefined", "{}", answer.body);
    }
}
