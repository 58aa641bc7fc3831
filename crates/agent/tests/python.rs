//! Runs the agent's own tests, with the interpreter that `STASIS_TEST_PYTHON` names.

use std::process::Command;

fn python() -> String {
    std::env::var("STASIS_TEST_PYTHON").unwrap_or_else(|_| "python3".to_owned())
}

/// How many tests unittest says it ran: `Ran 12 tests in 0.5s`.
fn ran(output: &str) -> Option<u32> {
    let line = output.lines().find(|line| line.starts_with("Ran "))?;
    line.split(' ').nth(1)?.parse().ok()
}

#[test]
fn the_agent_passes_its_tests() {
    let tests = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/python");
    let output = Command::new(python())
        .args(["-B", "-m", "unittest", "discover", "-s", tests, "-t", tests])
        .output()
        .expect("the interpreter starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    assert!(ran(&said).is_some_and(|count| count > 0), "no test ran: {said}");
}

#[test]
fn every_file_of_the_agent_is_carried() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("python");
    let mut found = Vec::new();
    for dir in ["", "stasis_agent/"] {
        for entry in std::fs::read_dir(root.join(dir)).expect("the directory is there") {
            let name = entry.expect("an entry").file_name().into_string().expect("a name");
            found.extend(name.ends_with(".py").then(|| format!("{dir}{name}")));
        }
    }
    let mut carried: Vec<_> =
        stasis_agent::default().files().iter().map(|(path, _)| *path).collect();
    found.sort();
    carried.sort();
    assert_eq!(found, carried);
}
