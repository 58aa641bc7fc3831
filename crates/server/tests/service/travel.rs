//! The past and relatives of machines over HTTP.

use crate::client::Client;
use crate::server::{fresh_data, root};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;

/// Runs code whose checkpoint is on disk when this returns.
fn keep(client: &Client, machine: &str, code: &str) {
    let body = json!({ "instruction": { "code": code }, "durability": "local" });
    let seq = client.post(&format!("/v1/machine/{machine}/exec"), &body).good()["instruction_seq"]
        .clone();
    let end = client.get(&format!("/v1/machine/{machine}/exec/{seq}/result")).good();
    assert!(end["result"]["error"].is_null(), "{end}");
}

fn branch(client: &Client, machine: &str) -> String {
    let made = client.post(&format!("/v1/machine/{machine}/branch"), &json!({})).good();
    made["machines"][0]["name"].as_str().expect("a name").to_owned()
}

#[test]
fn labels_changes_disk_and_looking_back() {
    let client = root();
    let name = client.machine();
    let path = |rest: &str| format!("/v1/machine/{name}/{rest}");
    keep(&client, &name, "x = 1\nopen('a.txt', 'w').write('one')");
    keep(&client, &name, "x = 2\nopen('a.txt', 'w').write('two')");
    let labelled = client.post(&path("label"), &json!({ "seq": 0, "label": "first" })).good();
    assert_eq!(labelled["checkpoints"][0]["label"], "first");
    let history = client.get(&path("history?files=true")).good()["checkpoints"].clone();
    assert_eq!(history[1]["variables"], json!(["x"]));
    assert_eq!(history[1]["files"]["changed"], 1);
    assert!(history[1]["files"]["names"][0].as_str().expect("a name").ends_with("a.txt"));
    let wrong = client.post(&path("label"), &json!({ "seq": 9, "label": "no" }));
    assert_eq!(wrong.code(404), "checkpoint.not_found");
    assert!(client.get(&path("disk")).good()["own_bytes"].as_u64().expect("bytes") > 0);

    let vars = client.get(&path("at/0/vars")).good()["vars"].clone();
    assert_eq!((&vars[0]["name"], &vars[0]["repr"]), (&json!("x"), &json!("1")));
    let home = client.run(&name, "import os; os.getcwd()")["value"].clone();
    let home = home.as_str().expect("a path").trim_matches('\'').to_owned();
    let file = client.get(&path(&format!("at/0/file?path={home}/a.txt")));
    assert_eq!((file.status, file.text().as_str()), (200, "one"));
    let listed = client.get(&path(&format!("at/1/files?path={home}"))).good();
    assert!(listed["files"].as_array().is_some_and(|files| !files.is_empty()), "{listed}");
    let missing = client.get(&path("at/0/file?path=/no/such"));
    assert_eq!(missing.code(404), "file.not_found");
    assert_eq!(client.get(&path("at/0/file?path=../../etc/passwd")).code(422), "request.invalid");
    assert_eq!(client.get(&path("at/7/vars")).code(404), "checkpoint.not_found");
    assert_eq!(client.run(&name, "x")["value"], "2");
}

#[test]
fn relatives_promotion_comparison_and_adoption() {
    let client = root();
    let name = client.machine();
    keep(&client, &name, "x = 1\ny = 1");
    let other = branch(&client, &name);
    keep(&client, &other, "x = 2\nz = [3]\nprint('hello')");
    let lineage = client.get(&format!("/v1/machine/{other}/lineage")).good();
    assert_eq!(lineage["ancestors"][0]["machine"], *name);
    assert_eq!(lineage["tree"]["children"][0]["machine"], *other);
    let families = client.get("/v1/lineage").good()["families"].clone();
    assert!(families.as_array().expect("a list").iter().any(|one| one["machine"] == *name));

    let ask = json!({ "left": format!("{name}@0"), "right": other });
    let found = client.post("/v1/compare", &ask).good();
    let names: Vec<&str> = found["variables"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|one| one["name"].as_str())
        .collect();
    assert_eq!((names.as_slice(), &found["base"]), (&["x", "z"][..], &json!(format!("{name}@0"))));

    let ask = json!({ "from": other, "variables": ["x", "z"] });
    let adopted = client.post(&format!("/v1/machine/{name}/adopt"), &ask).good();
    assert_eq!(adopted["variables"], json!(["x", "z"]), "{adopted}");
    assert_eq!(client.run(&name, "x, y, z")["value"], "(2, 1, [3])");

    let promoted = client.post(&format!("/v1/machine/{other}/promote"), &json!({})).good();
    assert_eq!(promoted["machine"]["name"], *name);
    assert_eq!(promoted["former"]["name"], *other);
    let not_one = client.post(&format!("/v1/machine/{other}/promote"), &json!({}));
    assert_eq!(not_one.code(409), "machine.state");
}

#[test]
fn varied_branches_are_reported_as_they_end() {
    let client = root();
    let name = client.machine();
    client.run(&name, "x = 5");
    let path = format!("/v1/machine/{name}/branch");
    let vary = json!([
        { "code": "x * k", "variables": { "k": 2 } },
        { "code": "print('out')\nraise KeyError" },
        { "code": "x", "limits": { "pids": 60 }, "tags": { "n": "3" } },
    ]);
    let all = client.post(&path, &json!({ "vary": vary })).good();
    let ends = all["ends"].as_array().expect("ends");
    assert_eq!(ends[0]["instruction"]["outcome"]["value"], "10");
    assert_eq!(ends[1]["instruction"]["outcome"]["error"]["name"], "KeyError");
    assert_eq!(ends[1]["output"][0]["data"], "out");
    assert_eq!(all["machines"][2]["limits"]["pids"], 60);

    let reply = client.post(&path, &json!({ "vary": vary, "stream": true, "reseed": true }));
    let text = reply.text();
    let lines: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let kinds: Vec<&str> = lines.iter().filter_map(|line| line["type"].as_str()).collect();
    assert_eq!(kinds, ["branches", "end", "end", "end", "over"]);

    let wide = json!({ "vary": [{ "code": "1", "limits": { "memory_mb": 900_000 } }] });
    assert_eq!(client.post(&path, &wide).code(409), "branch.limit");
    let odd = json!({ "vary": [{ "variables": { "a b": 1 } }] });
    assert_eq!(client.post(&path, &odd).code(422), "request.invalid");
}

#[test]
fn the_best_of_several_is_kept() {
    let client = root();
    let name = client.machine();
    client.run(&name, "n = 0");
    let ask = json!({ "candidates": [{ "code": "n = 1" }, { "code": "n = 2" }], "score": "-n" });
    let explored = client.post(&format!("/v1/machine/{name}/explore"), &ask).good();
    assert_eq!(explored["best"]["name"], *name);
    assert_eq!(explored["candidates"][1]["score"], -2.0);
    assert_eq!(client.run(&name, "n")["value"], "1");
}

#[test]
fn a_rule_of_retention_is_kept() {
    let client = root();
    let name = client.machine();
    let path = format!("/v1/machine/{name}");
    for n in 0..3 {
        keep(&client, &name, &format!("n = {n}"));
    }
    let body = json!({ "retention": { "last": 1 } }).to_string();
    let set = client.send("PATCH", &path, &[], body.as_bytes()).good();
    assert_eq!(set["retention"], json!({ "last": 1, "labelled": true, "older": "removed" }));
    client.post("/v1/store/gc", &json!({})).good();
    let history = client.get(&format!("{path}/history")).good()["checkpoints"].clone();
    assert_eq!(history.as_array().map(Vec::len), Some(1), "{history}");
    assert_eq!(client.post(&format!("{path}/undo"), &json!({})).code(404), "checkpoint.not_found");
}

#[test]
fn a_machine_leaves_as_a_file_and_comes_back() {
    let client = root();
    let name = client.machine();
    keep(&client, &name, "x = 'carried'");
    let file = client.get(&format!("/v1/machine/{name}/export?history=true&root=false"));
    assert_eq!(file.status, 200, "{}", file.head);
    let made = client.send("POST", "/v1/import?name=from-a-file", &[], &file.body).good();
    assert_eq!(made["machine_name"], "from-a-file");
    assert_eq!(client.run("from-a-file", "x")["value"], "'carried'");
    let again = client.send("POST", "/v1/import?name=from-a-file", &[], &file.body);
    assert_eq!(again.code(409), "machine.name_taken");
    // in the middle, in its head, and in its first bytes
    for length in [file.body.len() / 2, 1000, 9] {
        let refused = client.send("POST", "/v1/import?name=half", &[], &file.body[..length]);
        assert_eq!(refused.code(422), "import.truncated");
        let said = refused.json()["message"].as_str().expect("a message").to_owned();
        assert!(said.contains(&format!("after {length} bytes")), "{said}");
    }
    assert_eq!(
        client.send("POST", "/v1/import", &[], b"no machine, but long").code(422),
        "bundle.magic"
    );
}

/// A client that is cut off while it sends may not hear why, and browsers then ask again.
#[test]
fn a_file_that_is_refused_at_its_beginning_is_read_to_its_end() {
    let client = root();
    let long = vec![b'x'; 32 << 20];
    let mut stream = TcpStream::connect(client.address).expect("a connection");
    let mut send = |method: &str, path: &str, body: &[u8]| {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
             content-length: {}\r\n\r\n",
            client.address,
            client.token,
            body.len()
        );
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body)).expect("all sent");
        let mut status = [0; 12];
        stream.read_exact(&mut status).expect("an answer");
        let mut rest = vec![0; 64 << 10];
        let _ = stream.read(&mut rest).expect("the rest of the answer");
        String::from_utf8_lossy(&status).into_owned()
    };
    assert_eq!(send("POST", "/v1/import", &long), "HTTP/1.1 422");
    assert_eq!(send("GET", "/v1/machine/list", b""), "HTTP/1.1 200", "on the same connection");
}

/// A machine's file contains everything it needs, so it starts where its template does not exist.
/// Unneeded parts are removed again.
#[test]
fn a_machine_comes_up_on_a_host_that_has_nothing_of_it() {
    let client = root();
    let name = client.machine();
    keep(&client, &name, "import json\nx = {'a': 1}\nopen('f.txt', 'w').write('file')");
    keep(&client, &name, "x['b'] = 2");
    let file = client.get(&format!("/v1/machine/{name}/export?history=true"));
    assert_eq!(file.status, 200, "{}", file.head);
    let data = fresh_data("empty");
    std::fs::remove_dir_all(&data).expect("an empty place");
    let host = stasis_testbed::open(&data);
    let roots = || {
        let all = std::fs::read_dir(data.join("roots")).expect("a list").flatten();
        all.filter(|entry| entry.file_name().to_string_lossy().starts_with("host-")).count()
    };

    // cut off in the middle of its root: nothing is there
    let cut = &file.body[..file.body.len() - 1_000_000];
    let refused = host.import("test", None, &mut &cut[..]).map(drop).expect_err("cut off");
    assert_eq!((refused.code(), roots()), ("import.unfit", 0), "{refused}");

    let moved = host.import("someone", None, &mut &file.body[..]).expect("import");
    let value = |code: &str| stasis_testbed::value(&moved, code);
    assert_eq!(value("json.dumps(x), open('f.txt').read()"), "('{\"a\": 1, \"b\": 2}', 'file')");
    let command = "import subprocess\nsubprocess.run(['sh', '-c', 'echo $((6 * 7))'], \
                   capture_output=True, text=True).stdout";
    assert_eq!(value(command), "'42\\n'");
    host.roll_back(&moved, Some(0)).expect("back");
    assert_eq!(value("x"), "{'a': 1}");
    host.collect().expect("collect");
    assert_eq!(roots(), 2, "a directory and its description");
    assert!(host.check_store(false).expect("check").findings.is_empty());

    host.remove(&moved).expect("remove");
    let template = host.templates().expect("templates").remove(0);
    assert!(template.name.starts_with("imported-"), "{template:?}");
    host.remove_template(&template.name).expect("remove");
    host.collect().expect("collect");
    assert_eq!(roots(), 0);
    assert!(host.close().is_empty());
}
