//! Going back, branching, looking into a session, and the store, over HTTP.

use crate::server::root;
use serde_json::json;

#[test]
fn back_to_a_checkpoint_and_to_the_beginning() {
    let client = root();
    let name = client.machine();
    let path = |rest: &str| format!("/v1/machine/{name}/{rest}");
    for code in ["x = 1", "x = 2"] {
        let body = json!({ "instruction": { "code": code }, "durability": "local" });
        let seq = client.post(&path("exec"), &body).good()["instruction_seq"].clone();
        client.get(&path(&format!("exec/{seq}/result"))).good();
    }
    let history = client.get(&path("history")).good()["checkpoints"].clone();
    assert_eq!((&history[0]["seq"], &history[0]["code"]), (&json!(0), &json!("x = 1")));
    assert_eq!(history[1]["seq"], 1);
    client.post(&path("rollback"), &json!({ "seq": 0 })).good();
    assert_eq!(client.run(&name, "x")["value"], "1");
    client.run(&name, "x = 3");
    client.post(&path("undo"), &json!({})).good();
    assert_eq!(client.run(&name, "x")["value"], "1");
    client.post(&path("rollback"), &json!({ "seq": null })).good();
    assert!(client.run(&name, "x")["error"].as_str().expect("no x").contains("NameError"));
    assert_eq!(
        client.post(&path("rollback"), &json!({ "seq": 77 })).code(404),
        "checkpoint.not_found"
    );
    assert_eq!(client.post(&path("rollback"), &json!({})).code(400), "request.json");
}

#[test]
fn branches_go_their_own_ways() {
    let client = root();
    let name = client.machine();
    client.run(&name, "x = [1]");
    let ask = json!({ "count": 3, "names": ["branch-of-test"], "tags": { "kind": "branch" } });
    let made = client.post(&format!("/v1/machine/{name}/branch"), &ask).good();
    let made = made["machines"].as_array().expect("machines").clone();
    assert_eq!((made.len(), &made[0]["name"]), (3, &json!("branch-of-test")));
    for machine in &made {
        assert_eq!(machine["parent"]["machine"], *name);
        assert_eq!(machine["tags"]["kind"], "branch");
    }
    assert_eq!(client.run("branch-of-test", "x.append(2) or x")["value"], "[1, 2]");
    assert_eq!(client.run(&name, "x")["value"], "[1]");
    let many = json!({ "count": 100_000 });
    let reply = client.post(&format!("/v1/machine/{name}/branch"), &many);
    assert_eq!(reply.code(400), "request.range");
}

#[test]
fn variables_and_completions() {
    let client = root();
    let name = client.machine();
    client.run(&name, "quantity = 5");
    let vars = client.get(&format!("/v1/machine/{name}/vars")).good();
    let var = vars["vars"].as_array().expect("vars").iter().find(|var| var["name"] == "quantity");
    assert_eq!(var.expect("the variable")["repr"], "5");
    let ask = json!({ "code": "quan", "cursor": 4 });
    let found = client.post(&format!("/v1/machine/{name}/complete"), &ask).good();
    assert_eq!(found["start"], 0);
    assert!(found["names"].as_array().expect("names").contains(&json!("quantity")));
}

#[test]
fn the_store_is_counted_collected_and_sound() {
    let client = root();
    let name = client.machine();
    client.run(&name, "1");
    client.delete(&format!("/v1/machine/{name}")).good();
    assert!(client.get("/v1/store/stats").good()["images"].as_u64().expect("a count") > 0);
    assert!(client.post("/v1/store/gc", &json!({})).good()["bytes"].is_u64());
    let checked = client.post("/v1/store/check", &json!({ "repair": false })).good();
    assert_eq!(checked, json!({ "complete": true, "findings": [] }));
}
