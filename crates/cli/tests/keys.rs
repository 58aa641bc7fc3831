//! Values of secrets and keys of tool servers are nowhere but where they belong: not in the data
//! directory, exports, the service's log, its traces, its metrics, or any answer, after a server
//! outside got one of them in a request.

use serde_json::json;
use stasis_testbed::collector::{Collector, CollectorMode};
use stasis_testbed::outside::OutsideNetwork;
use std::io::{BufRead, BufReader, Write};
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
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

/// The port of the server outside that gets the secret.
const PORT: u16 = 8099;
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

struct Service {
    child: Child,
    outside: OutsideNetwork,
    /// Heads of the requests that the server outside got.
    heads: Arc<Mutex<Vec<String>>>,
    collector: Collector,
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
        let (outside, heads) = (OutsideNetwork::make(), Arc::default());
        outside.names.lock().expect("no panic").insert("api.example".into(), outside.public);
        collect_heads(&outside, &heads);
        let collector = Collector::start(CollectorMode::Good);
        let resolv_conf = home.path().join("resolv.conf");
        std::fs::write(&resolv_conf, format!("nameserver {}\n", outside.there)).expect("written");
        // its own view of one file of the host: the resolver is the one outside
        let script = "mount --bind \"$1\" /etc/resolv.conf && shift && exec \"$@\"";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "-"]).arg(&resolv_conf).arg(STASIS);
        Service::configure(&mut command, &data, &home);
        command.args(["serve", "--listen", "127.0.0.1:0"]).env("STASIS_TOOLS", &tools);
        command.env("TOOL_KEY", VALUES[2]).env("HEADER_KEY", VALUES[3]).env("STASIS_LOG", "trace");
        command.env("RUST_LOG", "trace").env("STASIS_OTLP_ENDPOINT", collector.endpoint());
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(std::fs::File::create(&log).expect("a file"));
        let child = command.spawn().expect("it starts");
        let service = Service { child, outside, heads, collector, data, home, log };
        let patience = Instant::now() + Duration::from_secs(120);
        while !service.said().contains("listening on ") {
            assert!(Instant::now() < patience, "it never listened: {}", service.said());
            std::thread::sleep(Duration::from_millis(50));
        }
        service
    }

    fn command(data: &TempDir, home: &TempDir) -> Command {
        let mut command = Command::new(STASIS);
        Service::configure(&mut command, data, home);
        command
    }

    fn configure(command: &mut Command, data: &TempDir, home: &TempDir) {
        command.env("STASIS_CONFIG", "/dev/null").env("STASIS_DATA_DIR", data.path());
        command.env("HOME", home.path()).env_remove("XDG_CONFIG_HOME");
        command.env("STASIS_TIMEOUT_SECONDS", "300").current_dir(home.path());
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
        self.request(path, "")
    }

    /// The answer to a request, to which a body is sent if there is one. The caller has a trace.
    fn request(&self, path: &str, body: &str) -> String {
        let said = self.said();
        let at = said.split("listening on ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let token = std::fs::read_to_string(self.data.path().join("token")).expect("a token");
        let code = "import sys, urllib.request as r\nq = r.Request(sys.argv[1])\n\
                    q.add_header('authorization', 'Bearer ' + sys.argv[2])\n\
                    q.add_header('content-type', 'application/json')\n\
                    q.add_header('traceparent', sys.argv[3])\n\
                    q.data = sys.argv[4].encode() or None\n\
                    print(r.urlopen(q, timeout=300).read().decode())";
        let url = format!("{}{path}", at.expect("an address"));
        let caller = format!("00-{TRACE}-00f067aa0ba902b7-01");
        let words = ["-c", code, &url, token.trim(), &caller, body];
        let done = Command::new("python3").args(words).output();
        let done = done.expect("it runs");
        assert!(done.status.success(), "{path}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }
}

/// A server outside that keeps the heads of its requests.
fn collect_heads(outside: &OutsideNetwork, heads: &Arc<Mutex<Vec<String>>>) {
    let heads = heads.clone();
    outside.run(move || {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).expect("a port");
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = String::new();
                let mut reader = BufReader::new(stream.try_clone().expect("a stream"));
                while reader.read_line(&mut head).is_ok_and(|n| n > 0)
                    && !head.ends_with("\r\n\r\n")
                {}
                // a refused request leaves its connection without one
                if !head.is_empty() {
                    heads.lock().expect("no panic").push(head);
                }
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ngood");
            }
        });
    });
}

/// The files below a directory that have this text. There are gigabytes, so `grep` looks.
fn files_with(dir: &Path, needle: &str) -> Vec<PathBuf> {
    let found = Command::new("grep").args(["-rlaF", "-D", "skip", "--", needle]).arg(dir).output();
    let found = found.expect("grep runs");
    let said = String::from_utf8_lossy(&found.stderr);
    assert!(found.status.code().is_some_and(|code| code < 2), "grep: {said}");
    String::from_utf8_lossy(&found.stdout).lines().map(PathBuf::from).collect()
}

/// Uses everything that has a key.
fn use_all(service: &Service) {
    let bound = format!("api.example:{PORT}");
    let set = service.run_with(&["secret", "set", "API", "--host", &bound], VALUES[0]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let oauth = ["--oauth-token-url", "https://id.example/token", "--client-id", "app"];
    let words = [&["secret", "set", "CRM", "--host", "crm.example"][..], &oauth].concat();
    let set = service.run_with(&words, VALUES[1]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let policy = format!(
        "[http]\nallow = ['GET {bound}/*', 'GET crm.example/*']\n\
         [secrets]\nallow = ['API', 'CRM']\n[tools]\nallow = ['*']\n"
    );
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
    send_the_secret(service, &bound);
}

/// Has the machine send the secret: in a header, as basic authentication, in a query, and to a path
/// that the policy refuses, in an instruction with a trace.
fn send_the_secret(service: &Service, bound: &str) {
    let code = format!(
        "import base64, os, urllib.request as r\nkey = os.environ['STASIS_SECRET_API']\n\
         basic = base64.b64encode(f'me:{{key}}'.encode()).decode()\n\
         def ask(path='', method='GET', **headers):\n    \
         q = r.Request('http://{bound}/' + path, headers=headers, method=method)\n    \
         try: return r.urlopen(q, timeout=120).read().decode()\n    \
         except r.HTTPError as error: return error.code\n\
         [ask(X=key), ask(Authorization='Basic ' + basic), ask('?k=' + key),\n \
         ask(method='DELETE', X=key)]"
    );
    let body = json!({ "instruction": { "code": code, "timeout_seconds": 300 } }).to_string();
    let submitted = service.request("/v1/machine/work/exec", &body);
    let submitted: serde_json::Value = serde_json::from_str(&submitted).expect("JSON");
    let seq = &submitted["instruction_seq"];
    let result = service.get(&format!("/v1/machine/work/exec/{seq}/result"));
    assert!(result.contains("['good', 'good', 'good', 403]"), "{result}");
    let heads = service.heads.lock().expect("no panic").clone();
    assert_eq!(heads.len(), 3, "{heads:?}");
    assert!(heads[0].contains(VALUES[0]) && heads[2].contains(VALUES[0]), "{heads:?}");
    assert!(!heads.iter().any(|head| head.contains("stasis-placeholder-")), "{heads:?}");
}

/// The value in basic authentication.
fn encoded() -> String {
    let code = "import base64, sys; print(base64.b64encode(sys.argv[1].encode()).decode())";
    let done = Command::new("python3").args(["-c", code, &format!("me:{}", VALUES[0])]).output();
    String::from_utf8_lossy(&done.expect("it runs").stdout).trim().to_owned()
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
    let collector = &service.collector;
    assert!(!collector.trace(TRACE).is_empty(), "the machine's requests have a trace");
    for value in VALUES.map(str::to_owned).into_iter().chain([encoded()]) {
        let value = value.as_str();
        assert!(!log.contains(value), "the log has {value}");
        assert!(!collector.got(value.as_bytes()), "a trace has {value}");
        assert!(answers.iter().all(|answer| !answer.contains(value)), "an answer has {value}");
        for dir in [service.data.path(), service.home.path()] {
            assert_eq!(files_with(dir, value), Vec::<PathBuf>::new(), "{value}");
        }
    }
    // the search finds what is there
    assert!(!files_with(service.data.path(), "stasis-placeholder-").is_empty());
    assert!(collector.got(b"work") && log.contains("api.example"), "{log}");
    assert!(service.outside.names.lock().is_ok());
    let key = service.home.path().join(".config/stasis/secret.key");
    let mode = std::fs::metadata(&key).expect("the key of secrets").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}
