//! Reports of machines do not make the service grow, however large they are.

use crate::client::Client;
use crate::server::fresh_data;
use crate::worker::Worker;
use serde_json::json;
use std::time::Duration;

/// Writes to the agent's own line, as a hostile program can.
const FLOOD: &str = r#"
import os, time
line = 500
os.write(line, b'{"type":"display","seq":1,"data":{"application/json":[')
piece = memoryview(b'[],' * 20000)
sent = 0
while sent < 90 << 20:
    sent += os.write(line, piece)
time.sleep(600)
"#;

fn machines(client: &Client, code: &str, seconds: u64) -> Vec<String> {
    let begin = |_| {
        let name = client.machine();
        client.run(&name, "import os");
        let body = json!({ "instruction": { "code": code, "timeout_seconds": seconds } });
        client.post(&format!("/v1/machine/{name}/exec"), &body).good();
        name
    };
    (0..4).map(begin).collect()
}

#[test]
fn four_machines_with_endless_reports() {
    let data = fresh_data("reports");
    let worker = Worker::start(&data);
    let client = &worker.client;
    client.run(&client.machine(), "1");
    let before = worker.resident_mib();
    let flooding = machines(client, FLOOD, 20);
    let mut most = 0;
    let over = |name: &String| {
        let machine = client.get(&format!("/v1/machine/{name}")).good();
        machine["has_pending_instructions"] == false
    };
    while !flooding.iter().all(over) {
        most = most.max(worker.resident_mib().saturating_sub(before));
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(most < 200, "the service grew by {most} MiB");
    // each of them still answers, and so do others
    for name in flooding.iter().chain([&client.machine()]) {
        assert_eq!(client.run(name, "6 * 7")["value"], "42", "{name}");
    }
    let after = worker.resident_mib().saturating_sub(before);
    assert!(after < 100, "{after} MiB stay");
}

/// Displays are kept until their instruction ends: of all of them together only so much.
#[test]
fn displays_of_many_machines_are_bounded() {
    let data = fresh_data("displays");
    let worker = Worker::start(&data);
    let client = &worker.client;
    client.run(&client.machine(), "1");
    let before = worker.resident_mib();
    let code = "for _ in range(10): display({'text/plain': 'x' * (4 << 20)}, raw=True)\n'end'";
    let shown = machines(client, code, 600);
    for name in &shown {
        let end = client.get(&format!("/v1/machine/{name}/exec/1/wait")).good();
        assert_eq!(end["outcome"]["value"], "'end'", "{}", end["outcome"]["error"]);
        let all = end["outcome"]["shown"].to_string();
        assert!(all.len() < 20 << 20, "{} bytes", all.len());
        assert!(all.contains("bytes of a display were cut"), "nothing was cut");
    }
    let grown = worker.resident_mib().saturating_sub(before);
    assert!(grown < 300, "{grown} MiB");
}

/// A result that is too large in itself costs its contents, and not the machine's state.
#[test]
fn a_result_of_too_many_values_is_cut() {
    let worker = Worker::start(&fresh_data("values"));
    let client = &worker.client;
    let name = client.machine();
    client.run(&name, "kept = 1");
    let code = "display({'application/json': [[]] * 300_000}, raw=True)\nkept";
    let seq = client.submit(&name, code);
    let end = client.get(&format!("/v1/machine/{name}/exec/{seq}/wait")).good();
    assert_eq!(end["outcome"]["value"], "1", "{end}");
    let shown = end["outcome"]["shown"].to_string();
    assert!(shown.contains("more than 200,000 values"), "{}", &shown[..shown.len().min(500)]);
    assert_eq!(client.run(&name, "kept")["value"], "1");
}
