//! A service on a data directory of its own, and the bad way to it.

use crate::flaky;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;

pub struct Server {
    pub url: String,
    pub token: String,
    pub flaky_url: String,
    child: Mutex<Child>,
    data: tempfile::TempDir,
}

impl Server {
    pub fn start(page: &str) -> Server {
        let data = stasis_testbed::data_dir();
        let tools = with_tools(data.path());
        let mut child = Command::new(stasis_testbed::program())
            .arg("--data-dir")
            .arg(data.path())
            .args(["serve", "--listen", "127.0.0.1:0", "--allow-origin", page])
            // against hangs only: all languages are served at once
            .env("STASIS_TIMEOUT_SECONDS", "300")
            .env("STASIS_TOOLS", tools)
            .stderr(Stdio::piped())
            .spawn()
            .expect("`cargo build --workspace` makes the program");
        let mut log = BufReader::new(child.stderr.take().expect("a pipe")).lines();
        let line = log.by_ref().map_while(Result::ok).find(|line| line.starts_with("listening on"));
        let line = line.expect("the service starts");
        let url = line.rsplit(' ').next().expect("an address").to_owned();
        // a full pipe would stop the service
        std::thread::spawn(move || log.for_each(drop));
        let token = std::fs::read_to_string(data.path().join("token")).expect("a token");
        set_policy(data.path());
        let flaky_url = flaky::start(url.trim_start_matches("http://"));
        let token = token.trim().to_owned();
        Server { url, token, flaky_url, child: Mutex::new(child), data }
    }

    /// Ends the service as a signal from outside does.
    pub fn stop(&self) {
        let mut child = self.child.lock().expect("nobody panicked");
        let pid = child.id().to_string();
        let _ = Command::new("kill").args(["-TERM", &pid]).status();
        let _ = child.wait();
        let _ = std::fs::remove_dir_all(self.data.path());
    }
}

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../scenarios/issues.py");
const ASKS: &str = "[tools]\nallow = ['issues.*']\nask = ['issues.delete_issue']\n";

/// A file with an upstream server, for the scenario `approvals`.
fn with_tools(data: &Path) -> PathBuf {
    let text = format!(
        "{{\"mcpServers\": {{\"issues\": {{\"command\": \"python3\", \"args\": [\"{SERVER}\"]}}}}}}"
    );
    let file = data.join("tools-of-scenarios.json");
    std::fs::write(&file, text).expect("a file");
    file
}

/// A policy that asks a person about one of its tools.
fn set_policy(data: &Path) {
    let file = data.join("asks.toml");
    std::fs::write(&file, ASKS).expect("a file");
    let mut command = Command::new(stasis_testbed::program());
    command.env("STASIS_CONFIG", "/dev/null").arg("--data-dir").arg(data);
    let done = command.args(["policy", "set", "asks"]).arg(&file).output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
