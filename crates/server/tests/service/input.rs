//! Instructions that ask for a line of input.

use crate::client::Client;
use crate::server::root;
use serde_json::{Value, json};

/// Submits code that may ask; its number.
fn submit(client: &Client, name: &str, code: &str) -> u64 {
    let instruction = json!({ "code": code, "timeout_seconds": 600 });
    let body = json!({ "instruction": instruction, "input": true });
    let accepted = client.post(&format!("/v1/machine/{name}/exec"), &body).good();
    accepted["instruction_seq"].as_u64().expect("a number")
}

/// Waits for a line of output, by its number.
fn line(client: &Client, name: &str, seq: u64, at: u64) -> Value {
    loop {
        let path = format!("/v1/machine/{name}/exec/{seq}/output?from={at}");
        let said = client.get(&path).good();
        if said["chunks"][0].is_object() || said["over"] == true {
            return said["chunks"][0].clone();
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn a_line_of_input_is_requested_and_delivered() {
    let client = root();
    let name = client.machine();
    let seq = submit(&client, &name, "print('a', end=''); who = input('name? '); print(who); who");
    let give = |line: Value| {
        let path = format!("/v1/machine/{name}/exec/{seq}/input");
        client.post(&path, &json!({ "line": line }))
    };
    assert_eq!(line(&client, &name, seq, 0)["data"], "a", "what was printed before comes first");
    let asked = line(&client, &name, seq, 1);
    assert_eq!((&asked["data"], &asked["prompt"]), (&json!("name? "), &json!(true)));
    assert_eq!(give("x".repeat(4097).into()).code(400), "request.invalid");
    assert_eq!(give("Ada".into()).good()["taken"], true);
    let end = client.get(&format!("/v1/machine/{name}/exec/{seq}/result")).good();
    assert_eq!(end["result"]["value"], "'Ada'");
    assert_eq!(line(&client, &name, seq, 2)["data"], "Ada");
    assert_eq!(give("late".into()).good()["taken"], false, "it is over");
}

#[test]
fn the_end_of_input_and_an_interrupt_end_the_wait() {
    let client = root();
    let name = client.machine();
    let seq = submit(&client, &name, "input()");
    line(&client, &name, seq, 0);
    client.post(&format!("/v1/machine/{name}/exec/{seq}/input"), &json!({ "line": null })).good();
    let end = client.get(&format!("/v1/machine/{name}/exec/{seq}/wait")).good();
    assert_eq!(end["outcome"]["error"]["name"], "EOFError", "{end}");
    let seq = submit(&client, &name, "input()");
    line(&client, &name, seq, 0);
    client.post(&format!("/v1/machine/{name}/interrupt"), &json!({})).good();
    let end = client.get(&format!("/v1/machine/{name}/exec/{seq}/wait")).good();
    assert_eq!(end["status"], "interrupted", "{end}");
    assert_eq!(client.run(&name, "1 + 1")["value"], "2");
}

#[test]
fn without_a_client_that_answers_there_is_no_input() {
    let client = root();
    let name = client.machine();
    let caught = "try:\n    input('? ')\nexcept EOFError as error:\n    said = str(error)\nsaid";
    let said = client.run(&name, caught)["value"].as_str().unwrap_or_default().to_owned();
    assert!(said.contains("no standard input"), "{said}");
}
