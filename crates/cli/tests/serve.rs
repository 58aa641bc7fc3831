//! `stasis serve` as a program: what its environment says, and that it ends in order.

use stasis_testbed::collector::{Collector, Mood};
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

const STASIS: &str = env!("CARGO_BIN_EXE_stasis");

fn stasis(data: &Path) -> Command {
    let mut command = Command::new(STASIS);
    command.arg("--data-dir").arg(data).env("STASIS_CONFIG", "/dev/null").stdin(Stdio::null());
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("OTEL_")) {
        command.env_remove(name);
    }
    command
}

/// Starts a service; what it says on its way to its address is read.
fn start(command: &mut Command) -> (Child, String) {
    command.args(["serve", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("stasis runs");
    let mut lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let place = lines.by_ref().find_map(|line| {
        line.expect("text").strip_prefix("listening on ").map(|place| place.trim().to_owned())
    });
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    (child, place.expect("it says where it listens"))
}

#[test]
fn the_usual_variables_turn_traces_on_and_a_good_end_sends_the_last() {
    let data = stasis_testbed::data_dir();
    let collector = Collector::start(Mood::Good);
    let mut command = stasis(data.path());
    command.env("OTEL_EXPORTER_OTLP_ENDPOINT", collector.endpoint());
    // so that nothing is sent before the end
    command.env("OTEL_SERVICE_NAME", "box").env("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let (mut child, place) = start(&mut command);
    let token = std::fs::read_to_string(data.path().join("token")).expect("a token");
    let asked = stasis(data.path())
        .args(["--url", &place, "--token", token.trim(), "whoami"])
        .output()
        .expect("stasis runs");
    assert!(asked.status.success(), "{asked:?}");
    assert_eq!(collector.spans(), []);
    let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(ended.success());
    assert!(child.wait().expect("an end").success());
    let spans = collector.spans();
    let asked = spans.iter().find(|span| span.name == "GET /v1/whoami").expect("the request");
    assert_eq!((asked.service.as_str(), asked.parent.as_str()), ("box", ""));
}

#[test]
fn a_program_that_starts_it_reads_where_it_is() {
    let data = stasis_testbed::data_dir();
    let mut command = stasis(data.path());
    command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--forkd-listen", "127.0.0.1:0"]);
    command.stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("stasis runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let place: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let token = std::fs::read_to_string(place["token_file"].as_str().expect("a file"));
    let (url, token) = (place["url"].as_str().expect("an address"), token.expect("a token"));
    assert!(place["forkd_url"].as_str().expect("an address").starts_with("http://127.0.0.1:"));
    let asked = stasis(data.path())
        .args(["--url", url, "--token", token.trim(), "whoami"])
        .output()
        .expect("stasis runs");
    assert!(asked.status.success(), "{asked:?}");
    let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(ended.success() && child.wait().expect("an end").success());
}

#[test]
fn a_service_manager_that_waits_hears_when_it_listens() {
    let data = stasis_testbed::data_dir();
    let place = data.path().join("notify");
    let told = UnixDatagram::bind(&place).expect("a socket");
    let hidden = format!("stasis-test-{}", std::process::id());
    let name = SocketAddr::from_abstract_name(&hidden).expect("a name");
    let also_told = UnixDatagram::bind_addr(&name).expect("a socket");
    for (socket, place) in [(told, place.display().to_string()), (also_told, format!("@{hidden}"))]
    {
        let (mut child, _) = start(stasis(data.path()).env("NOTIFY_SOCKET", place));
        // only so that a failure ends
        socket.set_read_timeout(Some(Duration::from_secs(120))).expect("a bound");
        let mut said = [0; 64];
        let len = socket.recv(&mut said).expect("it says something");
        assert_eq!(&said[..len], b"READY=1");
        let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
        assert!(ended.success() && child.wait().expect("an end").success());
    }
}

#[test]
fn a_collector_that_cannot_be_spoken_to_is_refused_before_anything_starts() {
    let data = tempfile::tempdir().expect("a directory");
    let mut command = stasis(data.path());
    let refused = command.args(["serve", "--otlp-endpoint", "grpc://127.0.0.1:4317"]).output();
    let said = String::from_utf8(refused.expect("stasis runs").stderr).expect("text");
    assert!(said.contains("error[service.traces]") && said.contains("4318"), "{said}");
}
