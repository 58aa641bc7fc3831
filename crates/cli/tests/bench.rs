//! The real binary, as a user runs it. The measuring test needs root, a root file system and a
//! Python in it (`STASIS_ROOTFS`, `STASIS_TEST_PYTHON`, or those in `.dev`).

use std::path::Path;
use std::process::{Command, Output};

fn stasis(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stasis")).args(args).output().expect("stasis starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Cargo builds only this package's programs for these tests; the spawner belongs to another.
fn build_spawner() {
    let beside = Path::new(env!("CARGO_BIN_EXE_stasis")).parent().expect("a directory");
    let target = beside.parent().expect("a target directory");
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "-p", "stasis-spawner", "--target-dir"]).arg(target);
    if !cfg!(debug_assertions) {
        build.arg("--release");
    }
    assert!(build.status().expect("cargo starts").success(), "the spawner does not build");
}

#[test]
fn quick_restore_prints_one_json_object() {
    build_spawner();
    let output = stasis(&["bench", "engine", "--json", "--quick", "--only", "restore_ms"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    let restore = &json["restore_ms"];
    let (p50, p95) = (restore["p50"].as_f64().unwrap(), restore["p95"].as_f64().unwrap());
    assert!(0.0 < p50 && p50 <= p95, "{restore}");
    assert_eq!(restore["runs"], 5);
    assert_eq!(restore["bar"], 5.0);
    // what is said is rounded
    assert!(restore["met"] == (p50 <= 5.0) || p50 == 5.0, "{restore}");
    assert_eq!(json["quick"], true);
    assert!(json["host"]["kernel"].as_str().is_some_and(|kernel| !kernel.is_empty()));
    // nothing that was not asked for
    assert!(json.get("pause_ms").is_none() && json.get("restore_cold_ms").is_none());
}

#[test]
fn unknown_key_is_named_and_the_known_ones_are_listed() {
    let output = stasis(&["bench", "engine", "--only", "restore_ms,speed"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error[bench.unknown_key]: nothing is called `speed`\nhint: "),
        "{said}"
    );
    assert!(said.contains("chain_32_ratio"), "{said}");
}

#[test]
fn missing_root_comes_with_a_hint() {
    let output = stasis(&["bench", "engine", "--root", "/nowhere", "--python", "/usr/bin/python3"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(
        said.starts_with("error[bench.root]: /nowhere is not a root file system\nhint: "),
        "{said}"
    );
}

#[test]
fn missing_python_comes_with_a_hint() {
    let output = stasis(&["bench", "engine", "--root", "/", "--python", "/nowhere/python"]);
    assert_eq!(output.status.code(), Some(2));
    let said = text(&output.stderr);
    assert!(said.starts_with("error[bench.python]: no /nowhere/python inside /\nhint: "), "{said}");
}

#[test]
fn version_is_printed() {
    let output = stasis(&["--version"]);
    assert_eq!(text(&output.stdout), format!("stasis {}\n", env!("CARGO_PKG_VERSION")));
}
