//! Machines and instructions over HTTP.

use crate::server::root;
use serde_json::{Value, json};

#[test]
fn machines_are_made_from_any_kind_of_nothing_and_listed_newest_first() {
    let client = root();
    let mut names = Vec::new();
    for body in ["", "{}", "null", "{\"tags\":{\"kind\":\"listed\"}}"] {
        let made = client.send("POST", "/v1/machine/new", &[], body.as_bytes()).good();
        names.push(made["machine_name"].as_str().expect("a name").to_owned());
    }
    let by_get = client.get("/v1/machine/list").good();
    let by_post = client.post("/v1/machine/list", &json!({})).good();
    for list in [by_get, by_post] {
        let list = list["machines"].as_array().expect("machines").clone();
        let place = |name: &String| list.iter().position(|own| own["name"] == **name);
        let places: Vec<_> = names.iter().map(|name| place(name).expect("listed")).collect();
        assert!(places.is_sorted_by(|a, b| a > b), "{places:?}");
        let machine = &list[places[3]];
        assert_eq!(machine["tags"], json!({ "kind": "listed" }));
        for flag in ["running", "has_pending_instruction", "has_pending_instructions"] {
            assert_eq!(machine[flag], false, "{machine}");
        }
        assert!(machine["created_at"].as_str().expect("a time").ends_with('Z'));
        assert!(machine["expires_at"].is_null());
    }
}

#[test]
fn lists_are_filtered_and_come_in_pages() {
    let client = root();
    let tags = json!({ "tags": { "set": "paged" } });
    let names: Vec<Value> = (0..5)
        .map(|_| client.post("/v1/machine/new", &tags).good()["machine_name"].clone())
        .collect();
    let mut seen = Vec::new();
    let mut cursor = Value::Null;
    loop {
        let ask = json!({ "tags": { "set": "paged" }, "limit": 2, "cursor": cursor });
        let page = client.post("/v1/machine/list", &ask).good();
        seen.extend(page["machines"].as_array().expect("machines").iter().cloned());
        cursor = page["next"].clone();
        if cursor.is_null() {
            break;
        }
    }
    let seen: Vec<Value> = seen.iter().map(|machine| machine["name"].clone()).collect();
    assert_eq!(seen, names.iter().rev().cloned().collect::<Vec<_>>());
    let query = "tags=%7B%22set%22%3A%22paged%22%7D&state=swapped&limit=3";
    let some = client.get(&format!("/v1/machine/list?{query}")).good();
    assert_eq!(some["machines"].as_array().map(Vec::len), Some(3));
    let count = |more: Value| {
        let mut ask = json!({ "tags": { "set": "paged" } });
        ask.as_object_mut().expect("an object").extend(more.as_object().expect("more").clone());
        client.post("/v1/machine/list", &ask).good()["machines"].as_array().map(Vec::len)
    };
    let born = client.get(&format!("/v1/machine/{}", names[2].as_str().expect("a name"))).good();
    let born = born["created_at"].as_str().expect("a time");
    let (before, after) =
        (count(json!({ "created_before": born })), count(json!({ "created_after": born })));
    assert!(
        before.is_some_and(|n| n <= 2) && after.is_some_and(|n| n <= 2),
        "{before:?} {after:?}"
    );
    assert_eq!(count(json!({ "created_after": "2020-01-01T00:00:00Z" })), Some(5));
    assert_eq!(count(json!({ "created_before": "2020-01-01T00:00:00Z" })), Some(0));
    assert_eq!(count(json!({ "memory_mb_min": 4096, "memory_mb_max": 4096 })), Some(5));
    assert_eq!(count(json!({ "memory_mb_max": 4095 })), Some(0));
    let wrong = client.get("/v1/machine/list?created_after=yesterday");
    assert_eq!(wrong.code(400), "request.invalid");
    let none = json!({ "tags": { "set": "paged", "more": "x" } });
    assert_eq!(client.post("/v1/machine/list", &none).good()["machines"], json!([]));
}

#[test]
fn results_have_the_form_that_clients_rely_on() {
    let client = root();
    let name = client.machine();
    let of = |code: &str| {
        let mut result = client.run(&name, code);
        let runtime = result.as_object_mut().and_then(|own| own.remove("runtime_ms"));
        assert!(runtime.expect("a run time").is_u64());
        result
    };
    assert_eq!(of("x = 40"), json!({ "value": null }));
    assert_eq!(of("x + 2"), json!({ "value": "42" }));
    assert_eq!(of("print(123) or 567"), json!({ "value": "567" }));
    assert_eq!(of("'done'"), json!({ "value": "'done'" }));
    assert_eq!(of("None"), json!({ "value": null }));
    let failed = of("1 / 0");
    assert!(failed.get("value").is_none(), "{failed}");
    let text = failed["error"].as_str().expect("a traceback");
    assert!(text.contains("ZeroDivisionError") && text.contains("division by zero"), "{text}");
    let shows = "class P:\n    def _repr_png_(self): return b'\\x89PNG'\nP()";
    assert_eq!(of(shows)["data"], json!({ "png": "iVBORw==" }));
}

#[test]
fn a_timeout_keeps_the_state() {
    let client = root();
    let name = client.machine();
    client.run(&name, "import time; x = 7");
    for _ in 0..2 {
        let code = json!({ "instruction": { "code": "time.sleep(60)", "timeout_seconds": 0.3 } });
        let seq = client.post(&format!("/v1/machine/{name}/exec"), &code).good()["instruction_seq"]
            .clone();
        let result = client.get(&format!("/v1/machine/{name}/exec/{seq}/result")).good();
        let error = result["result"]["error"].as_str().expect("an error").to_owned();
        assert!(error.contains("Timed out"), "{error}");
    }
    assert_eq!(client.run(&name, "x")["value"], "7");
}

#[test]
fn numbers_begin_with_zero_and_each_instruction_can_be_looked_at() {
    let client = root();
    let name = client.machine();
    assert_eq!(client.submit(&name, "print('a'); print('b')"), 0);
    assert_eq!(client.submit(&name, "1"), 1);
    let of = |rest: &str| client.get(&format!("/v1/machine/{name}/exec{rest}")).good();
    let end = of("/1/wait");
    assert_eq!((&end["status"], &end["outcome"]["value"]), (&json!("done"), &json!("1")));
    assert_eq!(end["receipt"]["intact"], true);
    assert_eq!(of("/0")["outputs"], 2);
    assert_eq!(of("?from=1&limit=1")["instructions"][0]["seq"], 1);
    let out = of("/0/output?from=1");
    let chunk = json!({ "stream": "stdout", "data": "b", "seq": 1 });
    assert_eq!(out, json!({ "chunks": [chunk], "over": true }));
    assert_eq!(client.get(&format!("/v1/machine/{name}")).good()["instructions"], 2);
}

#[test]
fn the_same_key_runs_once() {
    let client = root();
    let name = client.machine();
    let path = format!("/v1/machine/{name}/exec");
    client.run(&name, "n = 0");
    let body = json!({ "instruction": { "code": "n += 1" } }).to_string();
    let keyed = || client.send("POST", &path, &["idempotency-key: k1"], body.as_bytes()).good();
    assert_eq!(keyed()["instruction_seq"], 1);
    assert_eq!(keyed()["instruction_seq"], 1);
    let in_body = json!({ "instruction": { "code": "n += 1" }, "idempotency_key": "k1" });
    assert_eq!(client.post(&path, &in_body).good()["instruction_seq"], 1);
    assert_eq!(client.run(&name, "n")["value"], "1");
}

#[test]
fn running_code_is_interrupted_and_waiting_code_cancelled() {
    let client = root();
    let name = client.machine();
    let running = client.submit(&name, "import time\nprint('up', flush=True)\ntime.sleep(60)");
    let waiting = client.submit(&name, "1");
    let exec = format!("/v1/machine/{name}/exec");
    let cancel = |seq: u64| client.post(&format!("{exec}/{seq}/cancel"), &json!({})).good();
    assert_eq!(cancel(waiting), json!({ "cancelled": true }));
    assert_eq!(cancel(waiting), json!({ "cancelled": false }));
    while client.get(&format!("{exec}/{running}/output")).good()["chunks"] == json!([]) {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let interrupt = format!("/v1/machine/{name}/interrupt");
    assert_eq!(client.post(&interrupt, &json!({})).good(), json!({ "interrupted": true }));
    let end = client.get(&format!("{exec}/{running}/wait")).good();
    assert_eq!(end["status"], "interrupted");
    assert_eq!(client.get(&format!("{exec}/{waiting}/wait")).good()["status"], "cancelled");
    assert_eq!(client.post(&interrupt, &json!({})).good(), json!({ "interrupted": false }));
}

#[test]
fn a_machine_leaves_memory_and_comes_back_as_it_was() {
    let client = root();
    let name = client.machine();
    client.run(&name, "kept = [1, 2, 3]");
    let act = |what: &str| {
        client.post(&format!("/v1/machine/{name}/{what}"), &json!({})).good()["state"].clone()
    };
    assert_eq!(act("swap"), "swapped");
    assert_eq!(client.run(&name, "kept")["value"], "[1, 2, 3]");
    assert_eq!(act("swap"), "swapped");
    assert_eq!(act("wake"), "ready");
}

#[test]
fn a_machine_is_changed_and_removed() {
    let client = root();
    let new = json!({ "name": "changed-and-removed", "memory_mb": 512 });
    let name = client.post("/v1/machine/new", &new).good()["machine_name"].clone();
    assert_eq!(name, "changed-and-removed");
    assert_eq!(client.post("/v1/machine/new", &new).code(409), "machine.name_taken");
    let path = "/v1/machine/changed-and-removed";
    let change = json!({ "tags": { "a": "b" }, "expires_at": "2999-01-01T00:00:00Z" });
    let changed = client.send("PATCH", path, &[], change.to_string().as_bytes()).good();
    assert_eq!(changed["tags"], change["tags"]);
    assert_eq!(changed["expires_at"], change["expires_at"]);
    let wrong = client.send("PATCH", path, &[], b"{\"limits\":{\"memory_mb\":1}}");
    assert_eq!(wrong.code(400), "request.range");
    assert_eq!(client.delete(path).good(), json!({ "removed": "changed-and-removed" }));
    assert_eq!(client.get(path).code(404), "machine.not_found");
    assert_eq!(client.delete(path).code(404), "machine.not_found");
}

#[test]
fn ten_megabytes_of_code_run() {
    let client = root();
    let name = client.machine();
    let code = format!("x = '{}'\nlen(x)", "a".repeat(10 << 20));
    assert_eq!(client.run(&name, &code)["value"], (10 << 20).to_string());
}

/// A machine that cannot be captured stays in memory with the reason, until the cause is removed.
#[test]
fn a_machine_that_cannot_be_saved_is_pinned_and_goes_on() {
    let client = root();
    let name = client.machine();
    let path = |rest: &str| format!("/v1/machine/{name}/{rest}");
    client.run(&name, "x = 41");
    let code = "import os, socket; kept = socket.socket(socket.AF_UNIX); kept.bind(b'/tmp/\\xff')";
    client.run(&name, code);
    for ask in ["swap", "branch"] {
        assert_eq!(client.post(&path(ask), &json!({})).code(409), "capture.refused");
    }
    let about = client.get(&format!("/v1/machine/{name}")).good();
    assert_eq!(about["state"], "ready");
    assert!(about["pinned"].as_str().is_some_and(|why| why.contains("UTF-8")), "{about}");
    assert_eq!(client.run(&name, "x + 1")["value"], "42");
    client.run(&name, "kept.close(); os.remove(b'/tmp/\\xff')");
    client.post(&path("swap"), &json!({})).good();
    let about = client.get(&format!("/v1/machine/{name}")).good();
    assert_eq!((&about["state"], &about["pinned"]), (&json!("swapped"), &json!(null)));
    assert_eq!(client.run(&name, "x + 1")["value"], "42");
}
