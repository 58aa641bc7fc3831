//! Headers that a setup adds to requests (`--fetch-header`): policies see marks, nothing that is
//! kept has the values, and they are there again after a restart. `egress/tests/intercept.rs` tests
//! how they leave a machine.

use serde_json::{Value, json};
use stasis_machine::HeaderRule;
use stasis_mcpv8::{V8, V8Mode, V8RunRequest, V8Setup};
use stasis_testbed::{TestHost, until};
use std::path::{Path, PathBuf};

const ACCOUNT: &str = "root";
const KEY: &str = "k3y-0f-a-header-51c7";

fn setup(policies: Value) -> V8Setup {
    let rule = format!("host=a.example,header=Authorization,value=Bearer {KEY}");
    let rules = vec![HeaderRule::short(&rule).expect("a rule")];
    V8Setup { policies: Some(policies), fetch_headers: rules, ..V8Setup::default() }
}

/// A script in the place of the network answers with the headers that it was given.
fn policies() -> Value {
    let recorded = "function handle(input) { return { status: 200, headers: {}, body: \
                    Buffer.from(JSON.stringify(input.headers)).toString('base64'), \
                    bodyEncoding: 'base64' } }";
    let text = "package mcp.fetch\nallow if input.headers.authorization == \
                \"Bearer stasis-placeholder\"";
    json!({ "fetch": {
        "stack": [{ "execute": { "script": recorded, "name": "recorded.js" } }],
        "policies": [{ "modules": [{ "name": "a.rego", "text": text }] }],
    } })
}

fn printed(v8: &V8, setup: &str, host: &str) -> String {
    let code = format!(
        "try {{ console.log(await (await fetch('http://{host}/')).text()) }} \
         catch (error) {{ console.log(error.message) }}"
    );
    let (code, setup) = (Some(code), Some(setup.to_owned()));
    let request = V8RunRequest { code, setup, mode: V8Mode::Files, ..V8RunRequest::default() };
    let id = v8.run(ACCOUNT, request).expect("accepted");
    until("the run is over", || v8.open_execution(ACCOUNT, &id).is_none());
    let (info, printed) = v8.finished(ACCOUNT, &id).expect("an execution");
    assert_eq!((&*info.status, &info.error), ("completed", &None), "{printed}");
    printed
}

fn file_with(dir: &Path, needle: &[u8]) -> Option<PathBuf> {
    let mut dirs = vec![dir.to_owned()];
    while let Some(here) = dirs.pop() {
        for entry in std::fs::read_dir(here).into_iter().flatten().flatten() {
            let kind = entry.file_type().expect("a kind");
            let bytes = || std::fs::read(entry.path()).unwrap_or_default();
            match kind.is_dir() {
                true => dirs.push(entry.path()),
                false if kind.is_file() && bytes().windows(needle.len()).any(|w| w == needle) => {
                    return Some(entry.path());
                }
                false => {}
            }
        }
    }
    None
}

#[test]
fn policies_see_marks_and_nothing_keeps_the_values() {
    let bed = TestHost::of("javascript");
    let v8 = V8::new(bed.host.clone());
    let (id, kept) = v8.put_setup(ACCOUNT, setup(policies())).expect("a setup");
    assert!(kept.fetch_headers.is_empty() && kept.private_headers.is_some());
    let check = |v8: &V8| {
        let said = printed(v8, &id, "a.example");
        // the policy saw the mark; hooks see what the code wrote
        assert!(said.starts_with('{') && !said.contains("uthorization"), "{said}");
        let said = printed(v8, &id, "b.example");
        assert!(said.starts_with("fetch denied by policy"), "{said}");
    };
    check(&v8);
    drop(v8);
    let bed = bed.reopen();
    let v8 = V8::new(bed.host.clone());
    check(&v8);
    assert_eq!(file_with(bed.dir.path(), KEY.as_bytes()), None, "the key is kept");
    let mark = b"stasis-placeholder";
    assert!(file_with(bed.dir.path(), mark).is_some(), "the search finds what is there");
}

#[test]
fn rules_that_cannot_be_used_are_refused() {
    let bed = TestHost::of("javascript");
    let v8 = V8::new(bed.host.clone());
    let refused = |account: &str, setup: V8Setup| {
        let said = v8.put_setup(account, setup).expect_err("refused").message;
        assert!(!said.contains(KEY), "{said}");
        said
    };
    let alone = V8Setup { policies: None, ..setup(policies()) };
    assert!(refused(ACCOUNT, alone).contains("need policies"));
    assert!(refused("other", setup(policies())).contains("account that runs the service"));
    let forged = V8Setup { private_headers: Some("0".repeat(64)), ..setup(policies()) };
    assert!(refused(ACCOUNT, forged).contains("not sent"));
    let mut odd = setup(policies());
    odd.fetch_headers[0].host = "*".into();
    assert!(refused(ACCOUNT, odd).contains("no host"));
    let mut many = setup(policies());
    many.fetch_headers = vec![many.fetch_headers[0].clone(); 101];
    assert!(refused(ACCOUNT, many).contains("at most 100"));
}
