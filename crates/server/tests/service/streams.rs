//! Output while it comes: lines of JSON, and server-sent events that go on after a break.

use crate::server::root;
use serde_json::{Value, json};

#[test]
fn lines_of_output_and_then_the_result() {
    let client = root();
    let name = client.machine();
    let code = "for i in range(10): print(i)\nimport sys\nprint('schön 🦀', file=sys.stderr)\n'done'";
    let seq = client.submit(&name, code);
    for from in [0, 4] {
        let path = format!("/v1/machine/{name}/exec/{seq}/stream-result?from={from}");
        let text = client.get(&path).text();
        assert!(text.is_ascii() && text.ends_with("}\n") && !text.contains("\n\n"), "{text}");
        let lines: Vec<Value> =
            text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines.len(), 12 - from);
        for (line, number) in lines.iter().zip(from..10) {
            let chunk = json!({ "stream": "stdout", "data": number.to_string(), "seq": number });
            let expected = json!({ "type": "output", "chunk": chunk, "instruction_id": seq });
            assert_eq!(*line, expected);
        }
        assert_eq!(lines[10 - from]["chunk"]["data"], "schön 🦀");
        let last = &lines[11 - from];
        assert_eq!((&last["type"], &last["result"]["value"]), (&json!("result"), &json!("'done'")));
    }
}

#[test]
fn a_stream_is_there_while_the_code_runs() {
    let client = root();
    let name = client.machine();
    let code = "import time\nfor i in range(3):\n    print(i, flush=True)\n    time.sleep(0.2)";
    let seq = client.submit(&name, code);
    let text = client.get(&format!("/v1/machine/{name}/exec/{seq}/stream-result")).text();
    assert_eq!(text.lines().count(), 4, "{text}");
}

#[test]
fn events_go_on_where_they_broke_off() {
    let client = root();
    let name = client.machine();
    let seq = client.submit(&name, "for i in range(5): print(i)");
    let path = format!("/v1/machine/{name}/exec/{seq}/events");
    let all = client.get(&path);
    assert!(all.head.contains("content-type: text/event-stream"), "{}", all.head);
    assert_eq!(all.text().matches("event: output").count(), 5);
    assert_eq!(all.text().matches("event: result").count(), 1);
    let rest = client.send("GET", &path, &["last-event-id: 2"], b"").text();
    assert_eq!(rest.matches("event: output").count(), 2, "{rest}");
    assert!(rest.contains("id: 3") && rest.contains("id: 4"), "{rest}");
}

#[test]
fn much_output_comes_whole() {
    let client = root();
    let name = client.machine();
    let seq = client.submit(&name, "for i in range(20000): print(i, 'x' * 80)");
    let text = client.get(&format!("/v1/machine/{name}/exec/{seq}/stream-result")).text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 20_001);
    for (number, line) in lines[..20_000].iter().enumerate() {
        let line: Value = serde_json::from_str(line).expect("JSON");
        assert_eq!(line["chunk"]["seq"], number);
    }
}
