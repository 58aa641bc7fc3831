//! The private socket, the end of a service, and the next one on the same data.

use crate::client::{PATIENCE, Patient, Reply, exchange};
use crate::server::{fresh_data, start};
use serde_json::{Value, json};
use stasis_server::{Listen, Options};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

fn ask(socket: &Path, method: &str, path: &str, body: &Value) -> Reply {
    let body = body.to_string();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: stasis\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = UnixStream::connect(socket).expect("a connection");
    exchange(&mut stream, (head + &body).as_bytes())
}

fn run(socket: &Path, name: &str, code: &str) -> Value {
    let body = json!({ "instruction": { "code": code } });
    let accepted = ask(socket, "POST", &format!("/v1/machine/{name}/exec"), &body).good();
    let path = format!("/v1/machine/{name}/exec/{}/result", accepted["instruction_seq"]);
    ask(socket, "GET", &path, &json!({})).good()["result"].clone()
}

#[test]
fn alone_it_ends_by_itself_and_the_next_one_has_all_that_was() {
    let data = fresh_data("private");
    let socket = data.join("stasis.sock");
    let options = Options {
        listen: vec![Listen::Unix(socket.clone())],
        linger: Some(Duration::from_secs(5)),
        ..Options::default()
    };
    let (_, running) = start(&data, options.clone());
    // it is not idle before every request was sent, however long that takes
    let here = UnixStream::connect(&socket).expect("a connection");
    let mode = std::fs::metadata(&socket).expect("the socket").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(ask(&socket, "GET", "/v1/whoami", &json!({})).good()["account"], "root");
    assert!(!data.join("token").exists(), "nobody needs a token here");
    let made = ask(&socket, "POST", "/v1/machine/new", &json!({ "name": "kept" })).good();
    assert_eq!(made["machine_name"], "kept");
    run(&socket, "kept", "x = 'still here'");
    drop(here);
    running.join().expect("a thread").expect("a good end");
    assert!(!socket.exists());

    // what a killed service leaves behind does not stop the next one
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("a socket"));
    let (bound, running) = start(&data, Options { linger: None, ..options });
    let before = ask(&socket, "GET", "/v1/machine/kept", &json!({})).good();
    assert_eq!(before["state"], "swapped", "it wakes when it is needed");
    assert_eq!(run(&socket, "kept", "x")["value"], "'still here'");
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}

#[test]
fn a_stop_finishes_running_work_and_answers_waiters() {
    let data = fresh_data("stop");
    let socket = data.join("stasis.sock");
    let listen = vec![Listen::Unix(socket.clone())];
    let (bound, running) = start(&data, Options { listen, ..Options::default() });
    ask(&socket, "POST", "/v1/machine/new", &json!({ "name": "busy" })).good();
    let code = "import time; print('up', flush=True); time.sleep(3); 'whole'";
    let body = json!({ "instruction": { "code": code } });
    ask(&socket, "POST", "/v1/machine/busy/exec", &body).good();
    let mut waiting = UnixStream::connect(&socket).expect("a connection");
    waiting.set_deadline(PATIENCE);
    let path = "/v1/machine/busy/exec/0/stream-result";
    let head = format!("GET {path} HTTP/1.1\r\nhost: stasis\r\nconnection: close\r\n\r\n");
    waiting.write_all(head.as_bytes()).expect("sent");
    // the code runs, and the request is in: it hears what is put out
    let mut lines = BufReader::new(waiting).lines().map(|line| line.expect("text"));
    assert!(lines.any(|line| line.contains("\"up\"")));
    bound.stop.stop();
    assert!(lines.any(|line| line.contains("\"'whole'\"")), "the result is told");
    running.join().expect("a thread").expect("a good end");
}
