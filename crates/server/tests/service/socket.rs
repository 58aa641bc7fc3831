//! WebSockets, with the quirks of each published client.

use crate::client::{Client, PATIENCE};
use crate::server::{root, shared};
use serde_json::{Value, json};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::handshake::HandshakeError;
use tokio_tungstenite::tungstenite::{self, Message, WebSocket};

pub struct Socket(WebSocket<TcpStream>);

/// One to a machine of any service.
pub fn of(client: &Client, machine: &str) -> Socket {
    let token = format!("Bearer {}", client.token);
    let path = format!("/v1/machine/{machine}/repl");
    open_at(client.address, &path, &[("authorization", &token)]).expect("a WebSocket")
}

/// The same as part of a trace.
pub fn of_traced(client: &Client, machine: &str, parent: &str) -> Socket {
    let token = format!("Bearer {}", client.token);
    let path = format!("/v1/machine/{machine}/repl");
    let headers = [("authorization", token.as_str()), ("traceparent", parent)];
    open_at(client.address, &path, &headers).expect("a WebSocket")
}

/// Opens one; an HTTP status if it is refused.
fn open(path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    open_at(shared().address, path, headers)
}

fn open_at(at: SocketAddr, path: &str, headers: &[(&'static str, &str)]) -> Result<Socket, u16> {
    let stream = TcpStream::connect(at).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    let address = format!("ws://{at}{path}");
    let mut request = address.into_client_request().expect("a request");
    for (name, value) in headers {
        request.headers_mut().insert(*name, value.parse().expect("a header"));
    }
    match tungstenite::client(request, stream) {
        Ok((socket, _)) => Ok(Socket(socket)),
        Err(HandshakeError::Failure(tungstenite::Error::Http(reply))) => {
            Err(reply.status().as_u16())
        }
        Err(error) => panic!("{error}"),
    }
}

fn of_sdk(name: &str, sdk: &'static str) -> Result<Socket, u16> {
    let token = format!("Bearer {}", shared().token);
    let headers = [("authorization", token.as_str()), ("x-forevervm-sdk", sdk)];
    open(&format!("/v1/machine/{name}/repl"), &headers)
}

impl Socket {
    pub fn say(&mut self, message: &Value) {
        self.0.send(Message::text(message.to_string())).expect("sent");
    }

    /// As the JavaScript client sends it: no timeout.
    fn exec(&mut self, request_id: u64, code: &str) {
        let instruction = json!({ "code": code });
        self.say(&json!({ "type": "exec", "instruction": instruction, "request_id": request_id }));
    }

    fn hear(&mut self) -> Value {
        loop {
            match self.0.read().expect("a message") {
                Message::Text(text) => return serde_json::from_str(&text).expect("JSON"),
                Message::Ping(_) | Message::Pong(_) => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn connected(&mut self) -> String {
        let first = self.hear();
        assert_eq!(first["type"], "connected");
        first["machine_name"].as_str().expect("a name").to_owned()
    }

    /// Sends code; the number it got.
    pub fn received(&mut self, request_id: u64, code: &str) -> u64 {
        self.exec(request_id, code);
        let received = self.hear();
        assert_eq!(received["type"], "exec_received");
        received["seq"].as_u64().expect("a number")
    }

    /// Everything up to the result of one instruction, in the order that is promised.
    pub fn run(&mut self, request_id: u64, code: &str) -> (Vec<Value>, Value) {
        self.exec(request_id, code);
        let received = self.hear();
        assert_eq!(received["type"], "exec_received");
        assert_eq!(received["request_id"], request_id);
        let mut chunks = Vec::new();
        loop {
            let message = self.hear();
            assert_eq!(message["instruction_id"], received["seq"]);
            match message["type"].as_str() {
                Some("output") => chunks.push(message["chunk"].clone()),
                Some("result") => return (chunks, message["result"].clone()),
                other => panic!("{other:?}"),
            }
        }
    }
}

#[test]
fn a_new_machine_over_a_socket_and_again_by_its_name() {
    let mut socket = of_sdk("new", "javascript").expect("a socket");
    let name = socket.connected();
    let (chunks, result) = socket.run(0, "for i in range(5): print(i)\nx = 3");
    for (number, chunk) in chunks.iter().enumerate() {
        let data = number.to_string();
        assert_eq!(*chunk, json!({ "stream": "stdout", "data": data, "seq": number }));
    }
    assert_eq!((chunks.len(), &result["value"]), (5, &Value::Null));
    assert!(result.get("value").is_some() && result.get("error").is_none());
    let (_, failed) = socket.run(1, "1 / 0");
    assert!(failed["error"].as_str().expect("an error").contains("ZeroDivisionError"));
    assert!(failed.get("value").is_none());
    drop(socket);
    let mut again = of_sdk(&name, "python").expect("a socket");
    assert_eq!(again.connected(), name);
    assert_eq!(again.run(2, "x").1["value"], "3");
}

#[test]
fn instructions_of_one_socket_run_in_order_and_others_hear_nothing() {
    let name = root().machine();
    let mut one = of_sdk(&name, "javascript").expect("a socket");
    let mut other = of_sdk(&name, "javascript").expect("a socket");
    one.connected();
    other.connected();
    for request in 0..3 {
        one.exec(request, &format!("print({request})"));
    }
    let mut results = Vec::new();
    let mut acknowledged = Vec::new();
    while results.len() < 3 {
        let message = one.hear();
        match message["type"].as_str() {
            Some("exec_received") => acknowledged.push(message["seq"].clone()),
            Some("result") => results.push(message["instruction_id"].clone()),
            _ => assert!(acknowledged.contains(&message["instruction_id"])),
        }
    }
    assert_eq!(results, [0, 1, 2]);
    let (chunks, _) = other.run(0, "print('mine')");
    assert_eq!(chunks.len(), 1);
    assert_eq!(chunks[0]["data"], "mine");
}

#[test]
fn a_socket_is_refused_before_it_is_one() {
    for sdk in ["python", "rust"] {
        assert_eq!(of_sdk("no-such-machine", sdk).err(), Some(404));
    }
    assert_eq!(open("/v1/machine/new/repl", &[]).err(), Some(401));
    let wrong = [("authorization", "Bearer a.b"), ("x-forevervm-sdk", "javascript")];
    assert_eq!(open("/v1/machine/new/repl", &wrong).err(), Some(401));
    let token = format!("Bearer {}", shared().token);
    let foreign = [("authorization", token.as_str()), ("origin", "https://evil.example")];
    assert_eq!(open("/v1/machine/new/repl", &foreign).err(), Some(403));
    let plain = root().get("/v1/machine/new/repl");
    assert_eq!(plain.code(400), "request.websocket");
}

#[test]
fn the_javascript_client_gets_its_failures_as_results() {
    let mut socket = of_sdk("no-such-machine", "javascript").expect("a socket");
    assert_eq!(socket.connected(), "no-such-machine");
    for request in 0..2 {
        let (_, result) = socket.run(request, "1");
        let error = result["error"].as_str().expect("an error");
        assert!(error.contains("machine.not_found"), "{error}");
    }
}

#[test]
fn a_browser_puts_its_token_into_the_address() {
    let path = format!("/v1/machine/new/repl?_forevervm_jwt={}", shared().token);
    let mut socket = open(&path, &[]).expect("a socket");
    socket.connected();
    assert_eq!(socket.run(0, "1 + 1").1["value"], "2");
    let elsewhere = format!("/v1/whoami?_forevervm_jwt={}", shared().token);
    let nobody = crate::client::Client::new(shared().address, "");
    assert_eq!(nobody.get(&elsewhere).code(401), "token.unknown");
}

#[test]
fn the_rust_client_gets_what_it_can_take() {
    let name = root().machine();
    let token = format!("Bearer {}", shared().token);
    let quirks = [
        ("authorization", token.as_str()),
        ("x-forevervm-sdk", "rust"),
        // without its port
        ("host", "127.0.0.1"),
    ];
    let mut socket = open(&format!("/v1/machine/{name}/repl"), &quirks).expect("a socket");
    socket.connected();
    socket.exec(0, "for i in range(200): print(i)");
    // nothing before it has answered, and then not much at once
    let (mut since, mut lines) = (0, 0);
    assert!(matches!(socket.0.read().expect("a frame"), Message::Ping(_)));
    assert_eq!(socket.hear()["type"], "exec_received");
    while lines < 200 {
        match socket.0.read().expect("a frame") {
            Message::Ping(payload) => {
                let said: Value = serde_json::from_slice(&payload).expect("a message, too");
                assert_eq!(said["type"], "message");
                since = 0;
            }
            _ => (since, lines) = (since + 1, lines + 1),
        }
        assert!(since <= 20, "{since} lines at once");
    }
    assert_eq!(socket.hear()["type"], "result");
}

#[test]
fn thousands_of_lines_arrive_whole() {
    for sdk in ["javascript", "rust"] {
        let mut socket = of_sdk("new", sdk).expect("a socket");
        socket.connected();
        let (chunks, _) = socket.run(0, "for i in range(2000): print(i)");
        assert_eq!(chunks.len(), 2000);
        assert!(chunks.iter().enumerate().all(|(number, chunk)| chunk["seq"] == number));
    }
}

#[test]
fn unknown_messages_are_reported_and_harmless() {
    let mut socket = of_sdk("new", "python").expect("a socket");
    socket.connected();
    for wrong in ["", "{", "[]", "{\"type\":\"other\"}", "{\"type\":\"exec\"}", "\0"] {
        socket.0.send(Message::text(wrong)).expect("sent");
        let said = socket.hear();
        assert_eq!((&said["type"], &said["level"]), (&json!("message"), &json!("error")));
    }
    let code = json!({ "code": "1", "timeout_seconds": -5 });
    socket.say(&json!({ "type": "exec", "instruction": code, "request_id": 4 }));
    assert_eq!(socket.hear()["request_id"], 4);
    assert!(socket.hear()["result"]["error"].is_string());
    let exec = json!({ "type": "exec", "instruction": { "code": "2" }, "request_id": 5 });
    socket.0.send(Message::binary(exec.to_string().into_bytes())).expect("sent");
    assert_eq!(socket.hear()["type"], "exec_received");
    assert_eq!(socket.hear()["result"]["value"], "2");
}

#[test]
fn pings_are_answered_while_code_runs() {
    let mut socket = of_sdk("new", "python").expect("a socket");
    let name = socket.connected();
    socket.exec(0, "import time; time.sleep(600)");
    assert_eq!(socket.hear()["type"], "exec_received");
    socket.0.send(Message::Ping("x".into())).expect("sent");
    loop {
        match socket.0.read().expect("a frame") {
            Message::Pong(payload) => break assert_eq!(&payload[..], b"x"),
            // the service, too, checks periodically whether the client is connected
            Message::Ping(_) => {}
            other => panic!("{other:?}"),
        }
    }
    let interrupt = format!("/v1/machine/{name}/interrupt");
    while root().post(&interrupt, &json!({})).good()["interrupted"] == false {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(socket.hear()["type"], "result");
}

#[test]
fn code_continues_after_its_socket_closes() {
    let client = root();
    let mut socket = of_sdk("new", "javascript").expect("a socket");
    let name = socket.connected();
    socket.exec(0, "import time; time.sleep(0.3); x = 'done'");
    socket.hear();
    drop(socket);
    assert_eq!(client.run(&name, "x")["value"], "'done'");
}
