//! Rego: any text is read or refused, and any input of what was read has an answer in time.

use serde_json::Value;
use stasis_policy::rego::RegoModule;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

/// Far beyond what evaluations may take, so that a slow host is no finding.
const LONGEST: Duration = Duration::from_secs(30);

const MODULE: &str = r#"package stasis
allow if { some x in input.object.list; startswith(x, "a"); regex.match(`^a+$`, x) }
ask if { some key, value in input.object; value == "ask"; count(key) > 1 }
deny contains reason if { some key, value in input.object; reason := concat(key, [value, "!"]) }
"#;

static FIXED: LazyLock<RegoModule> = LazyLock::new(|| RegoModule::compile(MODULE).expect("Rego"));

pub fn seeds() -> Vec<Vec<u8>> {
    let inputs = [
        r#"{"subject": {"account": "a"}, "action": "tool", "object": {"list": ["aaa", "b"]}}"#,
        r#"{"object": {"x": {"y": "ask"}, "n": 1e300, "list": [[[[1]]], null, "a"]}}"#,
    ];
    let older = "package stasis\nallow { input.action == \"x\" }";
    inputs.into_iter().chain([MODULE, older]).map(|text| text.as_bytes().to_vec()).collect()
}

pub fn read(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let begun = Instant::now();
    match serde_json::from_str::<Value>(text) {
        // an answer or a failure, and no panic
        Ok(input) => drop(FIXED.answer(&input)),
        Err(_) => {
            if let Ok(module) = RegoModule::compile(text) {
                drop(module.answer(&Value::Null));
            }
        }
    }
    assert!(begun.elapsed() < LONGEST, "it took too long");
}
