//! The real binary, as a user runs it. The measuring test needs root.

use std::process::{Command, Output};

fn stasis(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_stasis")).args(args).output().expect("stasis starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The two programs that are installed, in a directory with nothing else, without the variables
/// that a checkout has. The template is there, as after the first run.
#[test]
fn an_installed_pair_measures_on_its_own() {
    let data = stasis_testbed::data_dir();
    let dir = tempfile::tempdir_in(data.path().parent().expect("a directory")).expect("a place");
    let installed = dir.path().join("bin");
    std::fs::create_dir(&installed).expect("make a directory");
    let programs = [env!("CARGO_BIN_EXE_stasis").into(), stasis_testbed::spawner()];
    for program in programs {
        let name = program.file_name().expect("a name");
        std::fs::copy(&program, installed.join(name)).expect("copy a program");
    }
    let template = dir.path().join("stasis-bench-machine");
    std::os::unix::fs::symlink(data.path(), template).expect("link the template");
    let output = Command::new(installed.join("stasis"))
        .args(["bench", "engine", "--json", "--quick", "--only", "restore_ms", "--dir"])
        .arg(dir.path())
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
        .env("HOME", dir.path())
        .current_dir(&installed)
        .output()
        .expect("stasis starts");
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

/// A bench of the real binary on a data directory that has the template.
fn measured(words: &[&str]) -> serde_json::Value {
    let data = stasis_testbed::data_dir_of("javascript");
    let output = Command::new(env!("CARGO_BIN_EXE_stasis"))
        .arg("bench")
        .args(words)
        .args(["--json", "--runs", "1", "--quick", "--dir"])
        .arg(data.path())
        .env("STASIS_CONFIG", "/dev/null")
        .output()
        .expect("stasis starts");
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    serde_json::from_slice(&output.stdout).expect("valid JSON")
}

#[test]
fn machines_of_another_language_have_bars_of_their_own() {
    let json = measured(&["machine", "--language", "javascript", "--only", "create_ms,wake_ms"]);
    for (key, bar) in [("create_ms", 6.0), ("wake_ms", 12.0)] {
        assert!(json[key]["p50"].as_f64().is_some_and(|p50| p50 > 0.0), "{json}");
        assert_eq!(json[key]["bar"], bar);
    }
    assert!(json.get("exec_ms").is_none());
}

#[test]
fn runs_through_mcp_v8_are_counted() {
    let only = "session_runs_per_s,session_loaded_ms,resumed_run_ms,fresh_runs_per_s";
    let json = measured(&["mcp-v8", "--sessions", "3", "--only", only]);
    for key in only.split(',') {
        assert!(json[key]["p50"].as_f64().is_some_and(|p50| p50 > 0.0), "{json}");
    }
    assert_eq!(
        (&json["session_runs_per_s"]["bar"], &json["fresh_runs_per_s"]["bar"]),
        (&800.0.into(), &400.0.into())
    );
    let output = stasis(&["bench", "mcp-v8", "--sessions", "65"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn yardsticks_are_not_in_the_installed_program() {
    for (bench, key) in [("engine", "criu_restore_ms"), ("machine", "jupyter_exec_ms")] {
        let output = stasis(&["bench", bench, "--only", key]);
        assert_eq!(output.status.code(), Some(2));
        assert!(text(&output.stderr).starts_with("error[bench.unknown_key]: "), "{key}");
    }
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
