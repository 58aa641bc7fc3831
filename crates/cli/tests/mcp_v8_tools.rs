//! `stasis mcp-v8` with upstream MCP servers: flags, stub tools, calls from code, and keys that
//! stay out of the data directory.
//!
//! Needs what dev/setup.sh prepares: `STASIS_TEST_MCP` has the clients of npm, and
//! `STASIS_TEST_CLIENTS` is a Python with the package that serves tools.

use crate::v8::{Place, STASIS, front, request};
use serde_json::json;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../machine/tests/tools/server.py");
const KEY: &str = "k3y-of-the-issue-tracker-9c1f";

struct WebServer {
    child: Child,
    url: String,
}

impl Drop for WebServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn python() -> PathBuf {
    PathBuf::from(std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it"))
}

fn web_server(log: &Path) -> WebServer {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port");
    let mut command = Command::new(python());
    command.arg(SERVER).arg(free.port().to_string()).env("STASIS_TOOL_LOG", log);
    let child = command.stderr(Stdio::null()).spawn().expect("it starts");
    let patience = Instant::now() + Duration::from_secs(120);
    while TcpStream::connect(free).is_err() {
        assert!(Instant::now() < patience, "it never listened");
        std::thread::sleep(Duration::from_millis(50));
    }
    WebServer { child, url: format!("http://{free}/mcp") }
}

/// Every file below a directory that has these bytes.
fn files_with(dir: &Path, needle: &[u8]) -> Vec<PathBuf> {
    let (mut found, mut left) = (Vec::new(), vec![dir.to_owned()]);
    while let Some(here) = left.pop() {
        for entry in std::fs::read_dir(&here).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            if kind.is_dir() {
                left.push(entry.path());
            } else if kind.is_file() {
                let bytes = std::fs::read(entry.path()).unwrap_or_default();
                if bytes.windows(needle.len()).any(|part| part == needle) {
                    found.push(entry.path());
                }
            }
        }
    }
    found
}

#[test]
fn upstream_servers_and_stub_tools() {
    let place = Place::new();
    let log = place.data.path().join("calls");
    let web = web_server(&log);
    let config = json!([{
        "name": "issues", "transport": "stdio", "command": python(), "args": [SERVER],
        "env": { "STASIS_TOOL_LOG": log, "ISSUES_KEY": KEY },
    }]);
    let flags = [
        "--heap-store=dir".to_owned(),
        format!("--mcp-config={config}"),
        format!("--mcp-server=web=http:{}", web.url),
        "--mcp-stub-prefix=do__".to_owned(),
    ];
    let words = json!(flags).to_string();
    place.typescript("v8_tools.mjs", &["stdio", "", &words], &[]);
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    let own = front(&place, &flags);
    let url = format!("http://{}/mcp", own.address);
    place.typescript("v8_tools.mjs", &["http", &url, "[]"], &[]);
    assert_eq!(std::fs::read_to_string(&log).expect("calls"), "create_issue x\n".repeat(4));

    // the daemon may end: the servers are there again with the next run
    let pid = std::fs::read_to_string(place.data.path().join("stasis.pid"));
    let run = |code: &str| {
        let host = format!("host: {}", own.address);
        let head =
            format!("POST /api/exec?wait=60 HTTP/1.1\r\n{host}\r\ncontent-type: text/javascript");
        request(own.address, &head, code)
    };
    let stopped = place.command(Path::new(STASIS)).arg("stop").output().expect("it runs");
    assert!(stopped.status.success(), "{pid:?}");
    let code =
        "console.log((await mcp.callTool('issues', 'echo', {text: 'again'})).content[0].text)";
    let answer = run(code);
    assert!(answer.contains("\"output\":\"again\""), "{answer}");
    let _ = place.command(Path::new(STASIS)).arg("stop").output();
    let found = files_with(place.data.path(), KEY.as_bytes());
    assert!(found.is_empty(), "the key is in {found:?}");
}

#[test]
fn servers_that_cannot_be_used_stop_the_program() {
    let place = Place::new();
    let refused = |flags: &[&str]| {
        let mut command = place.command(Path::new(STASIS));
        command.arg("mcp-v8").args(flags).stdin(Stdio::null());
        let done = command.output().expect("it runs");
        assert!(!done.status.success(), "{flags:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let said = refused(&["--mcp-server", "a=stdio:/nowhere/server"]);
    assert!(said.contains("`a`") && said.contains("/nowhere/server"), "{said}");
    let said = refused(&["--mcp-server", "a=http:http://127.0.0.1:1/mcp"]);
    assert!(said.contains("cannot connect to tool server `a`"), "{said}");
    assert!(refused(&["--mcp-server", "a=ftp:x"]).contains("--mcp-server"));
    assert!(refused(&["--mcp-config", "{"]).contains("--mcp-config"));
    assert!(refused(&["--mcp-stubs", "perhaps"]).contains("true or false"));
}
