//! Running the real program, and comparing all it says with what it said before.
//!
//! `STASIS_BLESS=1` writes what it says now into `tests/snapshots`; the difference is for review.

#![allow(dead_code, reason = "each test file uses a part")]

pub mod fake;
pub mod kept;
pub mod terminal;

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// A command in an empty world: its own home, and none of our settings.
pub struct World {
    pub dir: tempfile::TempDir,
    env: Vec<(String, String)>,
}

impl World {
    pub fn new() -> World {
        World { dir: tempfile::tempdir().expect("a directory"), env: Vec::new() }
    }

    /// A world that talks to a service.
    pub fn of(url: &str) -> World {
        let mut world = World::new();
        world.set("STASIS_URL", url);
        world
    }

    pub fn set(&mut self, name: &str, value: &str) {
        self.env.push((name.into(), value.into()));
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn run(&self, args: &[&str]) -> Said {
        self.run_with(args, "")
    }

    /// Starts the program with pipes to it.
    pub fn start(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().expect("the program starts")
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let home = self.dir.path();
        // a background job ignores Ctrl-C, and so do its children
        let mut command = Command::new("/usr/bin/env");
        command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_stasis")]);
        command.args(args).env_clear().current_dir(home).env("HOME", home);
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.envs(self.env.iter().cloned());
        command
    }

    /// Runs the program with something on its standard input.
    pub fn run_with(&self, args: &[&str], input: &str) -> Said {
        let mut child = self.start(args);
        let mut stdin = child.stdin.take().expect("a pipe");
        // it may end without reading
        let _ = stdin.write_all(input.as_bytes());
        drop(stdin);
        self.said(args, child.wait_with_output().expect("the program ends"))
    }

    pub fn said(&self, args: &[&str], output: Output) -> Said {
        Said { args: args.join(" "), output, home: self.dir.path().to_owned() }
    }
}

/// The program's output.
pub struct Said {
    args: String,
    output: Output,
    home: PathBuf,
}

impl Said {
    pub fn code(&self) -> i32 {
        self.output.status.code().expect("it was not killed")
    }

    pub fn stdout(&self) -> String {
        String::from_utf8_lossy(&self.output.stdout).into_owned()
    }

    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout())
            .unwrap_or_else(|error| panic!("{error}: {}{}", self.stdout(), self.stderr()))
    }

    /// All of it, with what differs from run to run made equal.
    pub fn whole(&self) -> String {
        let part = |name: &str, text: String| match text.is_empty() {
            true => String::new(),
            false => format!("--- {name}\n{}\n", text.trim_end_matches('\n')),
        };
        let text = format!(
            "$ stasis {}\n{}{}--- {}\n",
            self.args,
            part("stdout", self.stdout()),
            part("stderr", self.stderr()),
            match self.output.status.signal() {
                Some(signal) => format!("ended by signal {signal}"),
                None => format!("exit {}", self.code()),
            }
        );
        let text = text.replace(&*self.home.to_string_lossy(), "HOME");
        text.replace(env!("CARGO_PKG_VERSION"), "VERSION")
    }
}

/// Compares with the snapshot of that name.
pub fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    if std::env::var_os("STASIS_BLESS").is_some() {
        std::fs::write(&path, text).expect("the snapshot is written");
        return;
    }
    let wanted = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(text == wanted, "{name} differs.\n=== wanted\n{wanted}\n=== said\n{text}");
}
