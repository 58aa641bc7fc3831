//! The published Python client of foreverVM, as it is, through every call it has.

use crate::server::shared;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A Python with the clients: as prepared by dev/setup.sh, or made here.
fn python() -> PathBuf {
    if let Some(path) = std::env::var_os("STASIS_TEST_CLIENTS") {
        return path.into();
    }
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("clients");
    let python = home.join("bin/python");
    if !home.join("ready").exists() {
        let requirements = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dev/clients.txt");
        run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&home));
        run(Command::new(&python).args(["-m", "pip", "install", "-q", "-r"]).arg(requirements));
        std::fs::write(home.join("ready"), "").expect("written");
    }
    python
}

fn run(command: &mut Command) {
    let output = command.output().expect("a program");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{said}", String::from_utf8_lossy(&output.stdout));
}

#[test]
fn forevervm_sdk_for_python() {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients/forevervm_python.py");
    let server = shared();
    let base = format!("http://{}", server.address);
    run(Command::new(python()).arg(script).args([&base, &server.token]));
}

/// forkd's own client and its MCP server, at the address that has forkd's routes alone; and our
/// own set of that server's tools.
#[test]
fn forkd_for_python_and_its_mcp_server() {
    let server = shared();
    let base = format!("http://{}", server.forkd);
    for script in ["forkd_python.py", "forkd_mcp.py"] {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/clients").join(script);
        let service = format!("http://{}", server.address);
        run(Command::new(python()).arg(script).args([&base, &server.token, &service]));
    }
}
