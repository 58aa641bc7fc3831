//! The tools as a client sees them, over both kinds of revisions.

use crate::common::{NEW, PATIENCE, Service, text};
use serde_json::{Value, json};
use stasis_api::{PolicyDocument, PolicyRules};
use std::path::Path;

/// Compares with a file beside the tests; with `STASIS_BLESS` set, writes it.
fn snapshot(name: &str, value: &Value) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let text = serde_json::to_string_pretty(value).expect("JSON") + "\n";
    if std::env::var_os("STASIS_BLESS").is_some() {
        std::fs::write(&path, &text).expect("write the snapshot");
    }
    let kept = std::fs::read_to_string(&path).expect("a snapshot");
    assert!(kept == text, "{name} differs; STASIS_BLESS=1 takes what is there now:\n{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn listed_tools() {
    let service = Service::start().await;
    let client = service.session("/mcp", "root").await;
    snapshot("stasis.json", client.request("tools/list", json!({})).await.result());
    let all = service.session("/mcp/all", "root").await;
    snapshot("all.json", all.request("tools/list", json!({})).await.result());
    let prompts = client.request("prompts/list", json!({})).await;
    assert_eq!(prompts.result()["prompts"][0]["name"], "work-with-machines");
    let params = json!({ "name": "work-with-machines", "arguments": { "task": "count" } });
    let prompt = client.request("prompts/get", params).await;
    let words = prompt.result()["messages"][0]["content"]["text"].as_str().expect("text");
    assert!(words.ends_with("The task: count"), "{words}");
    let client = service.session("/mcp/forevervm", "root").await;
    snapshot("forevervm.json", client.request("tools/list", json!({})).await.result());
    let client = service.session("/mcp/forkd", "root").await;
    snapshot("forkd.json", client.request("tools/list", json!({})).await.result());
    assert_eq!(client.request("resources/list", json!({})).await.result()["resources"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn state_stays_and_history_returns() {
    let service = Service::start().await;
    let client = service.client();
    let about = client.request("server/discover", json!({})).await;
    let versions = about.result()["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&NEW.into()), "{versions:?}");

    let first = client.call("run_code", json!({ "code": "x = 40\nprint('hi')" })).await;
    let data = &first["structuredContent"];
    let machine = data["machine"].as_str().expect("a name");
    assert_eq!((&data["stdout"], &data["status"]), (&"hi".into(), &"done".into()));
    assert_eq!(data["address"], format!("{machine}@0"));
    assert_eq!(data["receipt"]["intact"], true);
    assert_eq!(first["isError"], false);
    assert!(text(&first).starts_with("hi\n") && text(&first).contains(&format!("{machine}@0")));

    // instructions that follow each other at once share a checkpoint
    let saved = async || {
        let past = client.call("show_history", json!({ "machine": machine })).await;
        past["structuredContent"]["instructions"][0]["checkpoint"] == true
    };
    let patience = std::time::Instant::now() + PATIENCE;
    while !saved().await {
        assert!(std::time::Instant::now() < patience, "there is no checkpoint");
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    let second = client.run(machine, "x += 2\nx").await;
    assert_eq!(second["structuredContent"]["value"], "42");
    let variables = client.call("list_variables", json!({ "machine": machine })).await;
    assert_eq!(variables["structuredContent"]["variables"][0]["name"], "x");

    let branch = json!({ "machine": machine, "n": 2, "names": ["way-one"] });
    let branches = client.call("branch_machine", branch).await;
    assert_eq!(branches["structuredContent"]["machines"].as_array().expect("two").len(), 2);
    assert_eq!(client.run("way-one", "x + 1").await["structuredContent"]["value"], "43");

    let undone = client.call("undo", json!({ "machine": machine })).await;
    assert_eq!(undone["isError"], false, "{undone}");
    assert_eq!(client.run(machine, "x").await["structuredContent"]["value"], "40");
    let start = client.call("roll_back", json!({ "machine": machine })).await;
    assert_eq!(start["isError"], false, "{start}");
    let gone = client.run(machine, "x").await;
    assert_eq!(gone["structuredContent"]["error"]["name"], "NameError");

    let history = client.call("show_history", json!({ "machine": machine })).await;
    let past = history["structuredContent"]["instructions"].as_array().expect("a list");
    let undone: Vec<_> = past.iter().map(|one| one["undone"] == true).collect();
    assert_eq!(undone, [true, true, true, false], "{history}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_keeps_the_output() {
    let service = Service::start().await;
    let client = service.client();
    let result = client.call("run_code", json!({ "code": "print('before')\n1 / 0" })).await;
    assert_eq!(result["isError"], true);
    let data = &result["structuredContent"];
    assert_eq!(
        (&data["stdout"], &data["error"]["name"]),
        (&"before".into(), &"ZeroDivisionError".into())
    );
    assert!(text(&result).contains("before") && text(&result).contains("ZeroDivisionError"));

    let unknown = client.run("nobody", "1").await;
    assert_eq!(unknown["isError"], true);
    assert!(text(&unknown).starts_with("error[machine.not_found]"), "{unknown}");
    let odd = client.call("run_code", json!({ "kode": "1" })).await;
    assert!(text(&odd).starts_with("error[request.invalid]"), "{odd}");
    let reply = client.request("tools/call", json!({ "name": "x", "arguments": {} })).await;
    assert_eq!(reply.last()["error"]["code"], -32602);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plot_is_an_image_beside_text() {
    let service = Service::start().await;
    let client = service.client();
    let code = "import base64\nclass Dot:\n    def _repr_png_(self):\n        return \
                base64.b64decode('iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9Q\
                DwADhgGAWjR9awAAAABJRU5ErkJggg==')\nprint('drawn')\nDot()";
    let result = client.call("run_code", json!({ "code": code })).await;
    let content = result["content"].as_array().expect("content");
    assert!(text(&result).starts_with("drawn"), "{result}");
    assert_eq!(
        (&content[1]["type"], &content[1]["mimeType"]),
        (&"image".into(), &"image/png".into())
    );
    assert!(content[1]["data"].as_str().expect("base64").starts_with("iVBOR"), "{result}");
    assert_eq!(result["structuredContent"]["images"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn charts_of_plotly_and_vega_are_images_too() {
    let service = Service::start().await;
    let client = service.client();
    let images = |result: &Value| {
        let content = result["content"].as_array().expect("content").iter();
        content.filter(|one| one["type"] == "image" && one["mimeType"] == "image/png").count()
    };
    let threads = "len(__import__('os').listdir('/proc/self/task'))";
    let before = client.call("run_code", json!({ "code": threads })).await;
    let name = before["structuredContent"]["machine"].as_str().expect("a name");
    for chart in [
        "import plotly.express as px; px.bar(x=['a', 'b'], y=[1, 2], title='<b>Bars</b>')",
        "import plotly.graph_objects as go; go.Figure(go.Scatter(y=[1, None, 3])).show()",
        "px.histogram(x=[1, 2, 2, 3])",
        "px.pie(names=['a', 'b'], values=[1, 3])",
        "px.imshow([[1, 2], [3, 4]], text_auto=True)",
        "px.line(x=['2026-01-01', '2026-02-01'], y=[1, 2], log_y=True).add_hline(y=1.5)",
        "import altair as alt; alt.Chart(alt.Data(values=[{'a': 1}])).mark_bar().encode(x='a:Q')",
    ] {
        let result = client.run(name, chart).await;
        assert_eq!((&result["isError"], images(&result)), (&json!(false), 1), "{chart}: {result}");
    }
    // a renderer with threads of its own is no part of the state
    let value = |result: &Value| result["structuredContent"]["value"].clone();
    assert_eq!(value(&client.run(name, threads).await), value(&before));
    let result = client.run(name, "go.Figure(go.Scatter3d(x=[1], y=[1], z=[1]))").await;
    assert_eq!(images(&result), 0);
    assert!(text(&result).contains("draw it with matplotlib"), "{result}");
}

#[tokio::test(flavor = "multi_thread")]
async fn long_output_is_cut_and_whole_in_a_resource() {
    let service = Service::start().await;
    let client = service.client();
    let code = "for n in range(20000): print('line', n)";
    let result = client.call("run_code", json!({ "code": code })).await;
    let shown = text(&result);
    assert!(shown.contains("characters cut; whole in stasis://") && shown.len() < 32_000);
    assert!(shown.contains("line 0\n") && shown.contains("line 19999"));
    let machine = result["structuredContent"]["machine"].as_str().expect("a name");
    let uri = format!("stasis://machine/{machine}/instruction/0");
    let whole = client.request("resources/read", json!({ "uri": uri })).await;
    let whole = whole.result()["contents"][0]["text"].as_str().expect("text").to_owned();
    assert!(whole.contains("line 10000"));
}

#[tokio::test(flavor = "multi_thread")]
async fn code_names_its_language_or_none() {
    let service = Service::of("javascript").await;
    let client = service.client();
    let run = |arguments: Value| client.call("run_code", arguments);
    let new = run(json!({ "code": "const x = [1, 2]; x.length", "language": "JavaScript" })).await;
    let data = &new["structuredContent"];
    assert_eq!(data["value"], "2", "{new}");
    let machine = &data["machine"];
    for language in ["javascript", "typescript"] {
        let again = json!({ "machine": machine, "code": "x.at(-1)", "language": language });
        assert_eq!(run(again).await["structuredContent"]["value"], "2");
    }
    let other = run(json!({ "machine": machine, "code": "x[-1]", "language": "python" })).await;
    assert_eq!(other["isError"], true);
    assert!(text(&other).contains("runs javascript, not python"), "{other}");
    let none = run(json!({ "code": "1", "language": "cobol" })).await;
    assert!(text(&none).contains("unknown language `cobol`"), "{none}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shell_and_packages_follow_the_language_of_the_machine() {
    let service = Service::of("javascript").await;
    let client = service.client();
    let new = json!({ "name": "lab", "template": "javascript" });
    let made = client.call("create_machine", new).await;
    assert_eq!(made["isError"], false, "{made}");
    let command = "for x in {1..3}; do\necho \"$x\"\ndone; exit 3";
    let shell = client.call("run_shell", json!({ "machine": "lab", "command": command })).await;
    let data = &shell["structuredContent"];
    assert_eq!((&data["stdout"], &data["value"]), (&"1\n2\n3".into(), &"3".into()), "{shell}");
    assert_eq!(shell["isError"], true);

    let packages = json!({ "machine": "lab", "packages": ["left-pad@1.3", "@scope/name"] });
    client.run("lab", "const usual = process.env.PATH; process.env.PATH = '/nowhere'").await;
    let refused = client.call("install_packages", packages.clone()).await;
    let error = &refused["structuredContent"]["error"];
    assert_eq!(
        (&refused["isError"], &error["name"]),
        (&true.into(), &"packages.no_installer".into())
    );
    assert!(error["message"].as_str().expect("words").contains("has no npm"), "{refused}");
    let npm = "require('node:fs').writeFileSync('/tmp/npm', \
               '#!/bin/sh\\necho npm \"$@\"\\nexit 4', { mode: 0o755 }); \
               process.env.PATH = `/tmp:${usual}`";
    client.run("lab", npm).await;
    let installed = client.call("install_packages", packages).await;
    let data = &installed["structuredContent"];
    assert_eq!(data["stdout"], "npm install --fetch-retries 1 -- left-pad@1.3 @scope/name");
    assert_eq!((&data["value"], &installed["isError"]), (&"4".into(), &true.into()), "{installed}");
    let odd = json!({ "machine": "lab", "packages": ["--global"] });
    let odd = client.call("install_packages", odd).await;
    assert!(text(&odd).starts_with("error[request.invalid]"), "{odd}");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_commands_are_held_to_policies() {
    let service = Service::start().await;
    let client = service.client();
    client.call("create_machine", json!({ "name": "lab" })).await;
    let rules = |allow: &[&str]| {
        let allow = allow.iter().map(|rule| (*rule).to_owned()).collect();
        Some(PolicyRules { allow, ..PolicyRules::default() })
    };
    let document = PolicyDocument {
        accounts: vec![service.bed.host.machines()[0].account()],
        files: rules(&["/home/user/*"]),
        commands: rules(&["echo *", "pip install six"]),
        ..PolicyDocument::default()
    };
    let set = || service.bed.host.set_policy("guarded".parse().expect("a name"), document);
    tokio::task::block_in_place(set).expect("set");
    for (tool, arguments, fails) in [
        ("run_shell", json!({ "command": "echo good day" }), false),
        ("run_shell", json!({ "command": "echo good day; id" }), true),
        ("run_shell", json!({ "command": "id" }), true),
        ("install_packages", json!({ "packages": ["requests"] }), true),
        ("write_file", json!({ "path": "a", "content": "x" }), false),
        ("write_file", json!({ "path": "/tmp/a", "content": "x" }), true),
        ("read_file", json!({ "path": "a" }), false),
        ("read_file", json!({ "path": "/etc/passwd" }), true),
        ("read_file", json!({ "path": "/etc" }), true),
        ("list_files", json!({}), false),
        ("list_files", json!({ "path": "/etc" }), true),
    ] {
        let mut arguments = arguments;
        arguments["machine"] = "lab".into();
        let reply = client.call(tool, arguments.clone()).await;
        assert_eq!(reply["isError"], fails, "{tool} {arguments}: {reply}");
        assert_eq!(text(&reply).contains("error[policy.refused]"), fails, "{reply}");
    }
    let params = json!({ "uri": "stasis://machine/lab/file/etc/passwd" });
    let resource = client.request("resources/read", params).await;
    let said = resource.last()["error"]["message"].as_str().expect("an error").to_owned();
    assert!(said.contains("policy `guarded` refuses it"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn machines_are_made_found_changed_and_removed() {
    let service = Service::start().await;
    let client = service.client();
    let new = json!({ "name": "lab", "tags": { "for": "test" }, "memory_mb": 512 });
    let made = client.call("create_machine", new).await;
    assert_eq!(made["structuredContent"]["memory_mb"], 512, "{made}");
    let tags = json!({ "machine": "lab", "set": { "a": "b" }, "remove": ["for"] });
    let tagged = client.call("tag_machine", tags).await;
    assert_eq!(tagged["structuredContent"]["tags"], json!({ "a": "b" }));
    let shell = client
        .call(
            "run_shell",
            json!({ "machine": "lab", "command": "for x in {1..3}; do\necho $x\ndone; exit 3" }),
        )
        .await;
    let data = &shell["structuredContent"];
    assert_eq!((&data["stdout"], &data["value"]), (&"1\n2\n3".into(), &"3".into()), "{shell}");
    assert_eq!(shell["isError"], true);
    let swapped = client.call("swap_machine", json!({ "machine": "lab" })).await;
    assert_eq!(swapped["structuredContent"]["done"], true, "{swapped}");
    let seen = client.call("inspect_machine", json!({ "machine": "lab" })).await;
    assert_eq!(seen["structuredContent"]["state"], "swapped");
    let list = client.call("list_machines", json!({ "tags": { "a": "b" } })).await;
    assert_eq!(list["structuredContent"]["machines"][0]["name"], "lab");
    let listed = client.request("resources/list", json!({})).await;
    assert_eq!(listed.result()["resources"][0]["uri"], "stasis://machine/lab");
    let params = json!({ "uri": "stasis://machine/lab/transcript" });
    let transcript = client.request("resources/read", params).await;
    let words = transcript.result()["contents"][0]["text"].as_str().expect("text").to_owned();
    assert!(words.starts_with("# lab\n\n## lab@0 (done)"), "{words}");
    let deleted = client.call("delete_machine", json!({ "machine": "lab" })).await;
    assert_eq!(deleted["isError"], false);
    let list = client.call("list_machines", json!({})).await;
    assert_eq!(list["structuredContent"]["machines"], json!([]));
    let idle = client.call("interrupt_machine", json!({ "machine": "lab" })).await;
    assert!(text(&idle).starts_with("error[machine.not_found]"));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_two_of_forevervm() {
    let service = Service::start().await;
    let client = service.session("/mcp/forevervm", "root").await;
    let made = client.call("create-python-repl", json!({})).await;
    let repl = text(&made).to_owned();
    let run = async |code: &str| {
        let arguments = json!({ "pythonCode": code, "replId": repl });
        let result = client.call("run-python-in-repl", arguments).await;
        let said: Value = serde_json::from_str(text(&result)).expect("JSON in text");
        (said, result["isError"] == true)
    };
    let (said, failed) = run("print('a')\n6 * 7").await;
    assert_eq!((&said["output"], &said["result"], failed), (&"a".into(), &"42".into(), false));
    assert_eq!(said["replId"], repl);
    let (said, failed) = run("print('b')\n1 / 0").await;
    assert_eq!((&said["output"], &said["result"], failed), (&"b".into(), &"".into(), true));
    assert!(said["error"].as_str().expect("words").starts_with("Error: "), "{said}");
    let params = json!({ "name": "run-python-in-repl", "arguments": { "code": "1" } });
    let odd = client.request("tools/call", params).await;
    assert_eq!(odd.last()["error"]["code"], -32603);
    let unknown = client.call("nothing", json!({})).await;
    assert_eq!(unknown["isError"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_and_listed() {
    let service = Service::start().await;
    let client = service.client();
    client.call("create_machine", json!({ "name": "lab" })).await;
    let write = async |path: &str, more: Value| {
        let mut arguments = json!({ "machine": "lab", "path": path });
        arguments
            .as_object_mut()
            .expect("arguments")
            .extend(more.as_object().cloned().expect("more"));
        client.call("write_file", arguments).await
    };
    let text: String = (0..60_000).map(|n| format!("{n:05}\n")).collect();
    let wrote = write("/tmp/deep/in/a b.txt", json!({ "content": text })).await;
    assert_eq!(wrote["structuredContent"]["file"]["size"], 360_000, "{wrote}");
    write("/tmp/deep/raw", json!({ "content": "/wA=", "encoding": "base64" })).await;
    let ran = client.run("lab", "len(open('/tmp/deep/in/a b.txt').read())").await;
    assert_eq!(ran["structuredContent"]["value"], "360000", "code sees it");

    let read = async |path: &str, from: u64| {
        let arguments = json!({ "machine": "lab", "path": path, "from": from });
        client.call("read_file", arguments).await["structuredContent"].clone()
    };
    let (mut all, mut from) = (String::new(), 0);
    loop {
        let piece = read("/tmp/deep/in/a b.txt", from).await;
        all += piece["content"].as_str().expect("text");
        let Some(next) = piece["next"].as_u64() else { break };
        from = next;
    }
    assert!(all == text, "in pieces");
    let raw = read("/tmp/deep/raw", 0).await;
    assert_eq!((&raw["encoding"], &raw["content"]), (&"base64".into(), &"/wA=".into()));
    let listed = client.call("list_files", json!({ "machine": "lab", "path": "/tmp/deep" })).await;
    let kinds: Vec<_> = listed["structuredContent"]["files"]
        .as_array()
        .expect("files")
        .iter()
        .map(|file| file["kind"].clone())
        .collect();
    assert_eq!(kinds, ["directory", "file"], "{listed}");
    let uri = "stasis://machine/lab/file/tmp/deep/in/a%20b.txt";
    let resource = client.request("resources/read", json!({ "uri": uri })).await;
    assert!(resource.result()["contents"][0]["text"] == text, "as a resource");
    for path in ["/tmp/none", "/etc/../../x", "/proc/1/mem"] {
        let refused = client.call("read_file", json!({ "machine": "lab", "path": path })).await;
        assert_eq!(refused["isError"], true, "{path}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ways_are_tried_compared_and_taken() {
    let service = Service::start().await;
    let client = service.client();
    client.call("create_machine", json!({ "name": "lab" })).await;
    client.run("lab", "x = 1").await;
    let candidates = ["x = 5", "x = 9", "raise ValueError('no')"];
    let arguments = json!({ "machine": "lab", "candidates": candidates, "score": "x" });
    let explored = client.call("explore", arguments).await;
    let data = &explored["structuredContent"];
    assert_eq!((&data["best"], &data["machine"]), (&1.into(), &"lab".into()), "{explored}");
    assert_eq!(client.run("lab", "x").await["structuredContent"]["value"], "9");

    client.call("branch_machine", json!({ "machine": "lab", "names": ["try"] })).await;
    client.run("try", "y = [1, 2]\nopen('/tmp/y', 'w').write('y')").await;
    let arguments = json!({ "left": "lab", "right": "try" });
    let compared = client.call("compare_machines", arguments).await["structuredContent"].clone();
    let names: Vec<_> = compared["variables"]
        .as_array()
        .expect("variables")
        .iter()
        .map(|one| one["name"].clone())
        .collect();
    assert!(names.contains(&"y".into()), "{compared}");
    let arguments =
        json!({ "machine": "lab", "from": "try", "variables": ["y"], "files": ["/tmp/y"] });
    let adopted = client.call("adopt", arguments).await;
    assert_eq!(adopted["isError"], false, "{adopted}");
    let both = client.run("lab", "(y, open('/tmp/y').read())").await;
    assert_eq!(both["structuredContent"]["value"], "([1, 2], 'y')");
    client.run("try", "z = 3").await;
    let promoted = client.call("promote_branch", json!({ "machine": "try" })).await;
    assert_eq!(promoted["structuredContent"]["former"], "try", "{promoted}");
    assert_eq!(client.run("lab", "z").await["structuredContent"]["value"], "3");
}
