//! Values of secrets and keys of tool servers are nowhere but where they belong: not in the data
//! directory, exports, the service's log, its metrics, or any answer.

use serde_json::json;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

const STASIS: &str = env!("CARGO_BIN_EXE_stasis");
const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../machine/tests/tools/server.py");
/// A secret's value, the secret of a client, and the keys of two tool servers.
const VALUES: [&str; 4] = [
    "v4lue-of-a-secret-77aa01",
    "s3cret-of-a-client-52bb02",
    "k3y-in-the-environment-9c03",
    "k3y-in-a-header-1d04",
];

struct Service {
    child: Child,
    data: TempDir,
    home: TempDir,
    log: PathBuf,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Service {
    fn start() -> Service {
        let (data, home) = (stasis_testbed::data_dir(), TempDir::new().expect("a directory"));
        let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
        let tools = home.path().join("tools.json");
        let config = json!({ "mcpServers": {
            "issues": {
                "command": PathBuf::from(python), "args": [SERVER],
                "env": {
                    "STASIS_TOOL_LOG": home.path().join("calls"), "ISSUES_KEY": "${TOOL_KEY}",
                },
            },
            // no server listens there: the failure must not show the header
            "web": {
                "url": "http://127.0.0.1:1/mcp",
                "headers": { "authorization": "Bearer ${HEADER_KEY}" },
            },
        } });
        std::fs::write(&tools, config.to_string()).expect("written");
        let log = home.path().join("log");
        let mut command = Service::command(&data, &home);
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("STASIS_TOOLS", &tools);
        command.env("TOOL_KEY", VALUES[2]).env("HEADER_KEY", VALUES[3]).env("STASIS_LOG", "debug");
        command.env("RUST_LOG", "debug").stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).expect("a file"));
        let child = command.spawn().expect("it starts");
        let service = Service { child, data, home, log };
        let patience = Instant::now() + Duration::from_secs(120);
        while !service.said().contains("listening on ") {
            assert!(Instant::now() < patience, "it never listened: {}", service.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        service
    }

    fn command(data: &TempDir, home: &TempDir) -> Command {
        let mut command = Command::new(STASIS);
        command.env("STASIS_CONFIG", "/dev/null").env("STASIS_DATA_DIR", data.path());
        command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
        command.env("STASIS_TIMEOUT_SECONDS", "300").current_dir(home.path());
        command
    }

    fn said(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn run_with(&self, words: &[&str], input: &str) -> Output {
        let mut command = Service::command(&self.data, &self.home);
        command.args(words).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("it runs");
        child.stdin.take().expect("a pipe").write_all(input.as_bytes()).expect("written");
        child.wait_with_output().expect("it ends")
    }

    /// All that a command prints; nothing of it is a key.
    fn run(&self, words: &[&str]) -> String {
        let done = self.run_with(words, "");
        let text = [done.stdout, done.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        for value in VALUES {
            assert!(!text.contains(value), "{words:?} tells {value}: {text}");
        }
        text
    }

    fn get(&self, path: &str) -> String {
        let said = self.said();
        let at = said.split("listening on ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let token = std::fs::read_to_string(self.data.path().join("token")).expect("a token");
        let code = "import sys, urllib.request as r\nq = r.Request(sys.argv[1])\n\
                    q.add_header('authorization', 'Bearer ' + sys.argv[2])\n\
                    print(r.urlopen(q, timeout=60).read().decode())";
        let url = format!("{}{path}", at.expect("an address"));
        let done = Command::new("python3").args(["-c", code, &url, token.trim()]).output();
        let done = done.expect("it runs");
        assert!(done.status.success(), "{path}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

/// The files below a directory that have these bytes.
fn files_with(dir: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(here) = left.pop() {
        for entry in std::fs::read_dir(&here).into_iter().flatten().flatten() {
            match entry.file_type().expect("a kind") {
                kind if kind.is_dir() => left.push(entry.path()),
                kind if kind.is_file() => {
                    let bytes = std::fs::read(entry.path()).unwrap_or_default();
                    if bytes.windows(needle.len()).any(|part| part == needle) {
                        found.push(entry.path());
                    }
                }
                _ => {}
            }
        }
    }
    found
}

/// Uses everything that has a key.
fn use_all(service: &Service) {
    let set = service.run_with(&["secret", "set", "API", "--host", "api.example"], VALUES[0]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let oauth = ["--oauth-token-url", "https://id.example/token", "--client-id", "app"];
    let words = [&["secret", "set", "CRM", "--host", "crm.example"][..], &oauth].concat();
    let set = service.run_with(&words, VALUES[1]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let policy = "[http]\nallow = ['GET api.example/*', 'GET crm.example/*']\n\
                  [secrets]\nallow = ['API', 'CRM']\n[tools]\nallow = ['*']\n";
    std::fs::write(service.home.path().join("p.toml"), policy).expect("written");
    service.run(&["policy", "set", "keys", "p.toml"]);
    service.run(&["machine", "new", "work", "--network", "policy:keys"]);
    let code = "import os, stasis\nprint(sorted(os.environ.items()))\n\
                print(stasis.tools.issues.environment())\n\
                try: stasis.tools.web.anything()\nexcept Exception as error: print(error)\n\
                import urllib.request\n\
                try: urllib.request.urlopen('https://crm.example/', timeout=20)\n\
                except Exception as error: print(error)\n'used'";
    let said = service.run(&["exec", "work", code]);
    assert!(said.contains("stasis-placeholder-") && said.contains("ISSUES_KEY"), "{said}");
    assert!(said.contains("cannot connect to tool server `web`"), "{said}");
}

#[test]
fn keys_are_nowhere_but_where_they_belong() {
    let mut service = Service::start();
    use_all(&service);
    service.run(&["branch", "work", "--name", "other"]);
    service.run(&["export", "work", "out.stasis"]);
    for words in [
        &["history", "work", "--json"][..],
        &["logs", "work@0"],
        &["secret", "ls", "--json"],
        &["secret", "ls", "work", "--json"],
        &["approvals", "--all", "--json"],
        &["policy", "show", "keys"],
        &["config"],
        &["tools", "ls"],
    ] {
        service.run(words);
    }
    let metrics = service.get("/metrics");
    assert!(metrics.contains("stasis_"), "{metrics}");
    let answers = [metrics, service.get("/v1/machine/work/calls"), service.get("/v1/secrets")];
    service.run(&["machine", "swap", "work"]);
    let pid = service.child.id().to_string();
    let ended = Command::new("kill").args(["-TERM", &pid]).status().expect("kill");
    assert!(ended.success() && service.child.wait().is_ok());
    let log = service.said();
    assert!(log.contains("tool server not reached"), "the log tells of failures: {log}");
    // the file that names variables is the operator's, and the key of secrets seals them
    for value in VALUES {
        assert!(!log.contains(value), "the log has {value}");
        assert!(answers.iter().all(|answer| !answer.contains(value)), "an answer has {value}");
        for dir in [service.data.path(), service.home.path()] {
            assert_eq!(files_with(dir, value.as_bytes()), Vec::<PathBuf>::new(), "{value}");
        }
    }
    // the search finds what is there
    assert!(!files_with(service.data.path(), b"stasis-placeholder-").is_empty());
    let key = service.home.path().join(".config/stasis/secret.key");
    let mode = std::fs::metadata(&key).expect("the key of secrets").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
