//! Requests made up from the service's own document: none is answered with a failure of ours, every
//! answer is what the document says, what it allows is accepted and what it excludes is refused.
//!
//! schemathesis makes them, from a seed, so that a run can be repeated. Its short form tries every
//! parameter at its bounds and a few requests besides; `STASIS_SOAK=1` makes it hundreds.

use crate::client::Client;
use crate::published::{made_by_pip, script};
use crate::server::{fresh_data, start};
use serde_json::json;
use stasis_server::{Listen, Options};
use std::net::SocketAddr;
use std::process::Command;

#[test]
fn requests_from_the_document() {
    let data = fresh_data("fuzzed");
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let (bound, running) = start(&data, Options { listen, ..Options::default() });
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    for name in ["fuzzed", "changed"] {
        client.post("/v1/machine/new", &json!({ "name": name })).good();
    }
    assert_eq!(client.run("fuzzed", "x = 1\nprint(x)")["value"], json!(null));
    assert_eq!(client.run("fuzzed", "x + 1")["value"], "2");
    let count = if std::env::var_os("STASIS_SOAK").is_some() { "300" } else { "3" };
    let mut fuzz = Command::new(made_by_pip("STASIS_TEST_SCHEMATHESIS", "schemathesis", "st"));
    fuzz.arg("--config-file").arg(script("schemathesis.toml")).arg("run");
    fuzz.arg(format!("http://{}/openapi.json", client.address));
    fuzz.args(["-H", &format!("authorization: Bearer {}", client.token)]);
    fuzz.args(["--seed", "1", "--phases", "coverage,fuzzing"]);
    fuzz.args(["--max-examples", count, "--request-timeout", "300", "--suppress-health-check"]);
    fuzz.args(["all", "--warnings", "off", "--no-color"]).current_dir(&data);
    let done = fuzz.output().expect("schemathesis");
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
    assert!(said.contains("No issues found"), "{said}");
    // the token and the machine were not lost on the way, which would have made it easy
    client.get("/v1/machine/fuzzed").good();
    bound.stop.stop();
    running.join().expect("a thread").expect("a good end");
}
