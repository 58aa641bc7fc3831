//! `stasis mcp-v8` as mcp-v8's users start it, and mcp-v8's surface of a service: standard streams
//! and ports, driven by the official clients, and killed.
//!
//! Needs what dev/setup.sh prepares: `STASIS_TEST_CLIENTS` is a Python with the client, and
//! `STASIS_TEST_MCP` has those of npm.

use crate::v8::{Place, STASIS, front, front_on, request};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

fn python(own: &Place, place: &str) {
    let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
    own.script(&PathBuf::from(python), &["v8.py", place], &[]);
}

fn typescript(own: &Place, transport: &str, mode: &str, place: &str, token: &str) {
    own.typescript("v8.mjs", &[transport, mode, place, token], &[]);
}

#[test]
fn the_official_client_over_both_transports() {
    let place = Place::new();
    python(&place, "stdio");
    let front = front(&place, &["--heap-store=dir"]);
    python(&place, &format!("http://{}", front.address));
    // a second one on the same data is no problem
    let stateless = crate::v8::front(&place, &[]);
    let host = format!("host: {}", stateless.address);
    let post = |more: &str| {
        let head = format!("POST /api/exec?wait=60 HTTP/1.1\r\n{host}\r\n{more}");
        request(stateless.address, &head, "console.log(6 * 7)")
    };
    let answer = post("content-type: text/javascript");
    assert!(
        answer.starts_with("HTTP/1.1 200 ") && answer.contains("\"output\":\"42\""),
        "{answer}"
    );
    // a page, or a name that leads here by chance, gets nothing
    let page = post("content-type: text/plain\r\norigin: https://evil.example");
    assert!(page.starts_with("HTTP/1.1 403 "), "{page}");
    let head = "GET /llms.txt HTTP/1.1\r\nhost: rebound.example";
    assert!(request(stateless.address, head, "").starts_with("HTTP/1.1 403 "));
    let head = format!("GET / HTTP/1.1\r\n{host}");
    assert!(request(stateless.address, &head, "").contains("location: /llms.txt"));
    let head = format!("GET /v1/machine/list HTTP/1.1\r\n{host}");
    assert!(request(stateless.address, &head, "").starts_with("HTTP/1.1 404 "));
}

#[test]
fn the_typescript_clients_over_all_transports() {
    let place = Place::new();
    typescript(&place, "stdio", "heap+fs", "", "");
    let front = front_on(&place, "--sse-port", &["--heap-store=dir", "--fs-store=dir"]);
    typescript(&place, "http", "heap+fs", &format!("http://{}/mcp", front.address), "");
    typescript(&place, "sse", "heap+fs", &format!("http://{}/sse", front.address), "");
}

#[test]
fn the_typescript_clients_against_a_service() {
    let service = Service::start();
    let (url, token) = (&service.url, service.token());
    typescript(&service.place, "http", "heap", &format!("{url}/mcp/v8"), &token);
    typescript(&service.place, "sse", "heap+fs", &format!("{url}/sse/v8-heap-fs"), &token);
}

/// `stasis serve`, which can be killed and started again.
struct Service {
    place: Place,
    child: Child,
    url: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start() -> Service {
        let place = Place::new();
        let (child, url) = Service::begin(&place);
        Service { place, child, url }
    }

    fn begin(place: &Place) -> (Child, String) {
        let mut command = place.command(Path::new(STASIS));
        command.args(["serve", "--listen", "127.0.0.1:0"]).stdin(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
        let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
        let mut said = Vec::new();
        let url = lines.by_ref().map_while(Result::ok).find_map(|line| {
            let url = line.strip_prefix("listening on ").map(|url| url.trim().to_owned());
            said.push(line);
            url
        });
        // what it says later is read, so that it never waits for a reader
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        (child, url.unwrap_or_else(|| panic!("it says where it listens: {said:#?}")))
    }

    /// SIGKILL, and a new start.
    fn crash(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("an end");
        (self.child, self.url) = Service::begin(&self.place);
    }

    fn token(&self) -> String {
        let token = std::fs::read_to_string(self.place.data.path().join("token"));
        token.expect("a token").trim().to_owned()
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Value {
        let host = self.url.strip_prefix("http://").expect("an address");
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\ncontent-type: application/json\r\n\
             authorization: Bearer {}",
            self.token()
        );
        let head = format!("{head}\r\nx-mcp-v8-mode: heap+fs");
        let answer = request(host.parse().expect("an address"), &head, body);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        assert!(head.starts_with("HTTP/1.1 20"), "{path}: {answer}");
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{path}: {error}: {answer}"))
    }

    fn submit(&self, body: &Value) -> String {
        let answer = self.ask("POST", "/api/exec", &body.to_string());
        answer["execution_id"].as_str().expect("an id").to_owned()
    }

    /// Runs code to its end; the execution with its output.
    fn run(&self, body: &Value) -> Value {
        self.ask("POST", "/api/exec?wait=120", &body.to_string())
    }

    fn until(&self, path: &str, what: impl Fn(&Value) -> bool) -> Value {
        let patience = Instant::now() + Duration::from_secs(120);
        loop {
            let found = self.ask("GET", path, "");
            if what(&found) {
                return found;
            }
            assert!(Instant::now() < patience, "{path}: {found}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn ended(&self, id: &str) -> Value {
        self.until(&format!("/api/executions/{id}"), |info| info["status"] != "running")
    }
}

#[test]
fn sessions_and_heaps_go_on_after_a_kill() {
    let mut service = Service::start();
    let of = |session: &str, code: &str| json!({ "code": code, "session": session });
    let timers = "globalThis.n = 1; globalThis.gen = (function* () { yield 1; yield 2 })(); \
                  gen.next(); globalThis.ticks = 0; setInterval(() => { ticks += 1 }, 5).unref()";
    let first = service.run(&of("s", timers));
    assert_eq!(first["status"], "completed", "{first}");
    // killed right after the answer: what was answered is there
    for wanted in 2..5 {
        let answered = service.run(&of(
            "s",
            "console.log(++n); process.chdir('/work'); await fs.writeFile('n', String(n))",
        ));
        assert_eq!(answered["output"], json!(wanted.to_string()), "{answered}");
        service.crash();
        let id = answered["execution_id"].as_str().expect("an id");
        let ended = service.ended(id);
        assert_eq!((&ended["heap"], &ended["fs"]), (&answered["heap"], &answered["fs"]));
        let code = "process.chdir('/work'); console.log(await fs.readFile('n', 'utf8'))";
        let tree = json!({ "code": code,
            "fs": answered["fs"] });
        assert_eq!(service.run(&tree)["output"], json!(wanted.to_string()));
    }
    // killed during a run, with one behind it that waits and one of another session
    let cut_off =
        service.submit(&of("s", "n = 100; console.log('begun'); await new Promise(() => {})"));
    let behind = service.submit(&of("s", "console.log('behind', n)"));
    let begun = |page: &Value| page["data"] == "begun";
    service.until(&format!("/api/executions/{cut_off}/output"), begun);
    let other = service.run(&of("t", "globalThis.kept = 'yes'"));
    service.crash();
    let lost = service.ended(&cut_off);
    assert_eq!((&lost["status"], &lost["heap"]), (&json!("failed"), &Value::Null), "{lost}");
    assert!(lost["error"].as_str().is_some_and(|error| !error.is_empty()), "{lost}");
    // one that had not begun says so, and did nothing
    let waited = service.ended(&behind);
    assert_eq!(waited["status"], "failed", "{waited}");
    assert!(waited["error"].as_str().expect("words").contains("run it again"), "{waited}");
    let check = "await new Promise((done) => setTimeout(done, 50)); \
                 console.log(n, gen.next().value, ticks > 0)";
    assert_eq!(service.run(&of("s", check))["output"], "4 2 true");
    assert_eq!(service.run(&of("t", "console.log(kept)"))["output"], "yes");
    let from = |heap: &Value| json!({ "code": "console.log(globalThis.n)", "heap": heap });
    assert_eq!(service.run(&from(&first["heap"]))["output"], "1");
    assert_eq!(service.run(&from(&other["heap"]))["output"], "undefined");
    let log = service.ask("GET", "/api/sessions/s/log?fields=index", "");
    assert_eq!(log["entries"].as_array().expect("entries").len(), 5, "{log}");
    let all = service.ask("GET", "/api/executions", "");
    let open = |one: &&Value| one["status"] == "running";
    assert_eq!(all["executions"].as_array().expect("a list").iter().filter(open).count(), 0);
}

/// SIGKILL for the daemon behind a data directory.
fn send_kill(place: &Place) {
    let socket = place.data.path().join("stasis.sock");
    let stream = UnixStream::connect(&socket).expect("a daemon");
    let (pid, ..) = stasis_sys::socket::peer_credentials(stream.as_fd()).expect("its pid");
    let killed = Command::new("kill").args(["-9", &pid.to_string()]).status();
    assert!(killed.expect("kill runs").success());
}

/// The same, until it is gone.
fn kill_daemon(place: &Place) {
    let socket = place.data.path().join("stasis.sock");
    send_kill(place);
    let patience = Instant::now() + Duration::from_secs(60);
    while UnixStream::connect(&socket).is_ok() {
        assert!(Instant::now() < patience, "the daemon goes on");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The message in an answer, as JSON or as an event.
fn message(answer: &str) -> Value {
    let lines = answer.lines().map(|line| line.strip_prefix("data:").unwrap_or(line).trim());
    let mut found = lines.filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let message = found.find(|message| message.get("result").is_some());
    message.unwrap_or_else(|| panic!("no result: {answer}"))
}

fn tool_call(id: u64, tool: &str, arguments: &Value) -> String {
    let params = json!({ "name": tool, "arguments": arguments });
    json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params }).to_string()
}

const GREETING: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{
    "protocolVersion":"2025-06-18","capabilities":{},
    "clientInfo":{"name":"test","version":"1"}}}"#;
const COUNT: &str = "globalThis.n = (globalThis.n ?? 0) + 1; console.log(n)";

/// The text of a tool's answer, which is JSON.
fn told(message: &Value) -> Value {
    let text = message["result"]["content"][0]["text"].as_str().expect("a text");
    serde_json::from_str(text).expect("JSON")
}

/// Runs code by a tool and waits for what it prints.
fn printed(mut call: impl FnMut(&str, Value) -> Value) -> Value {
    let id = told(&call("run_js", json!({ "code": COUNT })))["execution_id"].clone();
    let patience = Instant::now() + Duration::from_secs(60);
    loop {
        let page = told(&call("get_execution_output", json!({ "execution_id": id })));
        if page["status"] != "running" {
            assert_eq!(page["status"], "completed", "{page}");
            return page["data"].clone();
        }
        assert!(Instant::now() < patience, "{page}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A request that was under way is answered with 502, and every request after that works.
#[test]
fn the_daemon_is_back_when_a_cut_off_request_is_refused() {
    let place = Place::new();
    let front = front(&place, &["--heap-store=dir"]);
    let ask = |method: &str, path: &str, body: &Value| {
        let head = format!("{method} {path} HTTP/1.1\r\nhost: {}", front.address);
        request(front.address, &head, &body.to_string())
    };
    let run = |code: &str, session: &str| {
        ask("POST", "/api/exec?wait=60", &json!({ "code": code, "session": session }))
    };
    for count in 1..4 {
        let counted = run(COUNT, "s");
        assert!(counted.contains(&format!("\"output\":\"{count}\"")), "{counted}");
        let cut_off = std::thread::scope(|scope| {
            let endless =
                scope.spawn(|| run("await new Promise(() => setTimeout(() => {}, 1e6))", "e"));
            let patience = Instant::now() + Duration::from_secs(60);
            let is_running =
                || ask("GET", "/api/executions", &Value::Null).contains("\"status\":\"running\"");
            while !is_running() {
                assert!(Instant::now() < patience, "it never began");
                std::thread::sleep(Duration::from_millis(10));
            }
            send_kill(&place);
            endless.join().expect("an answer")
        });
        assert!(cut_off.starts_with("HTTP/1.1 502 "), "{cut_off}");
    }
}

/// Neither a client of the port nor one on standard streams notices that the daemon was killed.
#[test]
fn clients_go_on_after_a_kill_of_the_daemon() {
    let place = Place::new();
    let front = front(&place, &["--heap-store=dir"]);
    let rest = |session: &str| {
        let head = format!("POST /api/exec?wait=60 HTTP/1.1\r\nhost: {}", front.address);
        let body = json!({ "code": COUNT, "session": session }).to_string();
        request(front.address, &head, &body)
    };
    let post = |session: &str, body: &str| {
        let head = format!(
            "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\naccept: \
             application/json, text/event-stream\r\nmcp-protocol-version: 2025-06-18{session}",
            front.address
        );
        request(front.address, &head, body)
    };
    let greeted = post("", GREETING);
    let id = greeted.lines().find_map(|line| line.strip_prefix("mcp-session-id: "));
    let session = format!("\r\nmcp-session-id: {}", id.expect("a session").trim());
    post(&session, r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#);
    let by_port = |tool: &str, arguments| message(&post(&session, &tool_call(1, tool, &arguments)));

    let mut stdio = place.command(Path::new(STASIS));
    stdio.args(["mcp-v8", "--heap-store=dir"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stdio = stdio.spawn().expect("it starts");
    let mut input = stdio.stdin.take().expect("piped");
    let mut lines = BufReader::new(stdio.stdout.take().expect("piped")).lines();
    let mut ask = |line: &str| {
        writeln!(input, "{}", line.replace('\n', " ")).expect("sent");
        let mut said = lines.by_ref().map_while(Result::ok);
        message(&said.find(|line| line.contains("\"result\"")).expect("an answer"))
    };
    ask(GREETING);
    let mut by_streams = |tool: &str, arguments| ask(&tool_call(1, tool, &arguments));

    for count in 1..4 {
        let count = count.to_string();
        let answer = rest("s");
        assert!(answer.contains(&format!("\"output\":\"{count}\"")), "{answer}");
        assert_eq!(printed(by_port), *count);
        assert_eq!(printed(&mut by_streams), *count);
        kill_daemon(&place);
    }
    drop(input);
    let _ = stdio.wait();
}

#[test]
fn flags_that_mean_something_else_say_so_and_others_are_refused() {
    let place = Place::new();
    let run = |flags: &[&str]| {
        let mut command = place.command(Path::new(STASIS));
        let done =
            command.arg("mcp-v8").args(flags).stdin(Stdio::null()).output().expect("it runs");
        (done.status.success(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (fine, said) = run(&["--cluster-port", "4000", "--harden-freeze-ops", "--stateless"]);
    assert!(fine, "{said}");
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with("--")).collect();
    assert_eq!(lines.len(), 2, "{said}");
    let unknown = r#"{"shell": {"policies": []}}"#;
    for flags in [&["--policies-json", unknown][..], &["--fetch-header=x"], &["--unknown"]] {
        let (fine, said) = run(flags);
        assert!(!fine && said.starts_with("error["), "{flags:?}: {said}");
    }
    let mut command = place.command(Path::new(STASIS));
    let printed = command.args(["mcp-v8", "--print-openapi"]).output().expect("it runs");
    let document: Value = serde_json::from_slice(&printed.stdout).expect("JSON");
    assert_eq!(document["openapi"], "3.0.3");
}
