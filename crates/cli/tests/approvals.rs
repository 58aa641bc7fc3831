//! Calls of tools that wait for a person, with a real daemon that is killed meanwhile.

use crate::common::kept::Kept;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

const SERVER: &str = "../machine/tests/tools/server.py";

fn kept() -> Kept {
    let mut kept = Kept::new();
    let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
    let server = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(SERVER);
    let log = kept.world.path("calls");
    let issues = json!({
        "command": PathBuf::from(python), "args": [server], "env": {"STASIS_TOOL_LOG": log},
    });
    let file = kept.world.path("tools.json");
    std::fs::write(&file, json!({"mcpServers": {"issues": issues}}).to_string()).expect("a file");
    kept.world.set("STASIS_TOOLS", &file.to_string_lossy());
    let policy = "[tools]\nallow = [\"issues.*\"]\nask = [\"issues.delete_issue\"]\n";
    std::fs::write(kept.world.path("careful.toml"), policy).expect("a file");
    kept.well(&["policy", "set", "careful", "careful.toml"]);
    kept.well(&["machine", "new", "work", "--network", "policy:careful"]);
    kept
}

fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + Duration::from_secs(300);
    while !holds() {
        assert!(Instant::now() < patience, "it never happened: {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn an_approval_outlives_a_kill() {
    let kept = kept();
    let code = "import stasis; x = 20\nsaid = stasis.tools.issues.delete_issue(3)\n(said, x + 1)";
    kept.well(&["exec", "work", "--detach", code]);
    let waiting = || kept.run(&["approvals", "--json"]).json()["approvals"].clone();
    until("it waits", || waiting().as_array().is_some_and(|all| all.len() == 1));
    let id = waiting()[0]["id"].to_string();
    kept.well(&["machine", "swap", "work"]);
    kept.kill();
    // nothing is lost, and nothing was sent
    let seen: Value = waiting();
    assert_eq!(seen[0]["state"], "waiting", "{seen}");
    assert!(!kept.world.path("calls").exists());
    kept.kill();
    kept.well(&["approve", &id]);
    assert_eq!(kept.well(&["logs", "work@0", "--follow"]), "('deleted 3', 21)\n");
    assert_eq!(kept.run(&["approve", &id]).code(), 4);
    assert_eq!(kept.run(&["deny", "999"]).code(), 3);
    let calls = std::fs::read_to_string(kept.world.path("calls")).expect("calls");
    assert_eq!(calls, "delete_issue 3\n");
    assert_eq!(kept.well(&["exec", "work", "x"]), "20\n");
}

/// The official client asks its user, and the answer reaches the code.
#[test]
fn the_user_of_an_mcp_client_answers() {
    let kept = kept();
    let python = std::env::var_os("STASIS_TEST_CLIENTS").expect("`make setup` prepares it");
    let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp/elicit.py");
    let mut command = Command::new("timeout");
    command.arg("300").arg(python).arg(script).env("STASIS_CONFIG", "/dev/null");
    command.env("STASIS", env!("CARGO_BIN_EXE_stasis")).env("HOME", kept.world.path("."));
    command.env("STASIS_DATA_DIR", kept.data.path());
    let done = command.output().expect("it runs");
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let calls = std::fs::read_to_string(kept.world.path("calls")).expect("calls");
    assert_eq!(calls, "delete_issue 1\n");
    let all = kept.run(&["approvals", "--all", "--json"]).json()["approvals"].clone();
    let states: Vec<_> = all.as_array().expect("a list").iter().map(|one| &one["state"]).collect();
    assert_eq!(states, ["denied", "denied", "completed"]);
    assert_eq!(all[2]["answered_by"], "root (MCP client)");
}
