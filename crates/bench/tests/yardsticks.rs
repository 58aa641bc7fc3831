//! The program for yardsticks, where none of them is installed. Needs root.

use std::process::Command;

#[test]
fn a_yardstick_that_is_missing_is_absent_with_the_reason() {
    let data = stasis_testbed::data_dir();
    let dir = tempfile::tempdir_in(data.path().parent().expect("a directory")).expect("a place");
    let template = dir.path().join("stasis-bench-machine");
    std::os::unix::fs::symlink(data.path(), template).expect("link the template");
    let nothing = dir.path().join("nothing");
    std::fs::create_dir(&nothing).expect("make a directory");
    let python = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())
        .map(|dir| dir.join("python3"))
        .find(|path| path.exists())
        .expect("a Python");
    // the template's name comes from the host's Python
    std::os::unix::fs::symlink(python, nothing.join("python3")).expect("link Python");
    let output = Command::new(env!("CARGO_BIN_EXE_stasis-yardsticks"))
        .args(["--json", "--quick", "--only", "criu_restore_ms,gvisor_restore_ms", "--dir"])
        .arg(dir.path())
        .env("PATH", &nothing)
        .env_remove("STASIS_ROOTFS")
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).expect("valid JSON");
    assert_eq!(json["absent"]["criu_restore_ms"], "criu: not installed", "{said}");
    assert_eq!(json["absent"]["gvisor_restore_ms"], "runsc: not installed", "{said}");
    assert!(json["criu_restore_ms"].is_null() && json.get("restore_ms").is_none());
}
