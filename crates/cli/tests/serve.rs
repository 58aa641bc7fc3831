//! `stasis serve` as a program: what its environment says, and that it ends in order.

use stasis_sandbox::service::GIVEN_UP;
use stasis_testbed::collector::{Collector, CollectorMode};
use std::io::{BufRead, BufReader};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

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
    let collector = Collector::start(CollectorMode::Good);
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
fn commands_on_the_same_host_find_the_token_of_a_service() {
    let data = stasis_testbed::data_dir();
    let (mut child, place) = start(&mut stasis(data.path()));
    let whoami = |command: &mut Command, url: &str| {
        command.env_remove("STASIS_TOKEN").args(["--url", url, "whoami"]);
        command.output().expect("stasis runs")
    };
    let found = whoami(&mut stasis(data.path()), &place);
    assert!(found.status.success(), "{found:?}");
    let elsewhere = tempfile::tempdir().expect("a directory");
    let refused = whoami(&mut stasis(elsewhere.path()), &place);
    let said = String::from_utf8_lossy(&refused.stderr);
    assert!(said.starts_with("error[token.unknown]: no token was sent"), "{said}");
    assert!(said.contains("STASIS_TOKEN"), "{said}");
    child.kill().expect("killed");
    child.wait().expect("an end");
}

#[test]
fn a_service_starts_right_after_the_last_one_was_killed() {
    let data = stasis_testbed::data_dir();
    let (mut last, _) = start(&mut stasis(data.path()));
    for _ in 0..5 {
        last.kill().expect("killed");
        // not waited for: the kernel may still be freeing its memory
        let (next, _) = start(&mut stasis(data.path()));
        last.wait().expect("an end");
        last = next;
    }
    last.kill().expect("killed");
    last.wait().expect("an end");
}

/// The first machine finds its template in memory.
#[test]
fn a_service_holds_its_default_template_before_a_machine_wants_it() {
    const TEMPLATES: &str = "stasis_prepared{kind=\"template\"} ";
    let data = stasis_testbed::data_dir();
    let (mut child, place) = start(&mut stasis(data.path()));
    let token = std::fs::read_to_string(data.path().join("token")).expect("a token");
    let token = format!("authorization: Bearer {}", token.trim());
    let address = place.strip_prefix("http://").and_then(|at| at.parse().ok()).expect("an address");
    let is_held = || {
        let metrics = crate::rows::send(address, "GET /metrics", &[&token], "");
        assert_eq!(metrics.status, 200, "{}", metrics.body);
        let line = metrics.body.lines().find_map(|line| line.strip_prefix(TEMPLATES));
        line.is_some_and(|count| count != "0")
    };
    let since = Instant::now();
    while !is_held() {
        assert!(since.elapsed() < Duration::from_secs(60), "no template is held");
        std::thread::sleep(Duration::from_millis(20));
    }
    child.kill().expect("killed");
    child.wait().expect("an end");
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

/// Starts a service that logs as JSON, asks it something, ends it; all that it logged.
fn logged(data: &Path, filter: &str) -> Vec<serde_json::Value> {
    let mut command = stasis(data);
    command.args(["serve", "--listen", "127.0.0.1:0", "--log-format", "json", "--log", filter]);
    command.args(["--json"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("stasis runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
    let place: serde_json::Value = serde_json::from_str(&line).expect("JSON");
    let token = std::fs::read_to_string(data.join("token")).expect("a token");
    let url = place["url"].as_str().expect("an address");
    let asked = stasis(data).args(["--url", url, "--token", token.trim(), "whoami"]).output();
    assert!(asked.expect("stasis runs").status.success());
    let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(ended.success());
    let output = child.wait_with_output().expect("an end");
    let text = String::from_utf8(output.stderr).expect("text");
    text.lines().map(|line| serde_json::from_str(line).expect(line)).collect()
}

#[test]
fn logs_are_json_and_filtered_by_target() {
    let data = stasis_testbed::data_dir();
    let asked = |lines: &[serde_json::Value]| {
        lines.iter().filter(|line| line["path"] == "/v1/whoami").cloned().collect::<Vec<_>>()
    };
    let all = logged(data.path(), "warn,stasis_server=info");
    let found = asked(&all);
    assert_eq!(found.len(), 1, "{all:?}");
    assert_eq!((&found[0]["level"], &found[0]["status"]), (&"INFO".into(), &200.into()));
    assert_eq!((&found[0]["message"], &found[0]["account"]), (&"request".into(), &"root".into()));
    assert!(all.iter().all(|line| {
        line["target"]
            .as_str()
            .is_some_and(|target| target.starts_with("stasis_server") || line["level"] != "INFO")
    }));
    let others = logged(data.path(), "info,stasis_server::middleware=off");
    assert_eq!(asked(&others), [] as [serde_json::Value; 0], "{others:?}");
}

#[test]
fn a_filter_that_makes_no_sense_is_refused() {
    let data = tempfile::tempdir().expect("a directory");
    let refused = stasis(data.path()).env("STASIS_LOG", "debgu").arg("serve").output();
    let refused = refused.expect("stasis runs");
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("\"debgu\" is not a level or target=level"), "{said}");
}

#[test]
fn a_collector_that_cannot_be_spoken_to_is_refused_before_anything_starts() {
    let data = tempfile::tempdir().expect("a directory");
    let mut command = stasis(data.path());
    let refused = command.args(["serve", "--otlp-endpoint", "grpc://127.0.0.1:4317"]).output();
    let said = String::from_utf8(refused.expect("stasis runs").stderr).expect("text");
    assert!(said.contains("error[service.traces]") && said.contains("4318"), "{said}");
}

/// One thread's entry in `/proc`.
struct Thread {
    name: String,
    status: String,
}

impl Thread {
    fn all(pid: u32) -> Vec<Thread> {
        let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("tasks");
        let read = |path: std::path::PathBuf| {
            let status = std::fs::read_to_string(path.join("status")).ok()?;
            let name = std::fs::read_to_string(path.join("comm")).ok()?.trim().to_owned();
            Some(Thread { name, status })
        };
        // one may end meanwhile
        tasks.filter_map(|task| read(task.expect("a task").path())).collect()
    }

    fn field(&self, key: &str) -> &str {
        let line = self.status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
        line.unwrap_or_else(|| panic!("{key} of {}", self.name)).trim()
    }

    fn capabilities(&self, set: &str) -> u64 {
        u64::from_str_radix(self.field(set), 16).expect("a set")
    }

    /// Whether strangers talk to it.
    fn is_exposed(&self) -> bool {
        ["service", "stasis-egress"].contains(&self.name.as_str())
    }

    fn check(&self) {
        let name = &self.name;
        assert_eq!(self.field("NoNewPrivs"), "1", "{name}");
        for (capability, number) in GIVEN_UP.iter().flat_map(|group| group.capabilities) {
            let held = self.capabilities("CapBnd") | self.capabilities("CapPrm");
            assert_eq!(held >> number & 1, 0, "{name} has {capability}");
        }
        if self.is_exposed() {
            let sets = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
            assert_eq!(sets.map(|set| self.capabilities(set)), [0; 5], "{name}");
            assert_eq!(
                (self.field("Seccomp"), self.field("Seccomp_filters")),
                ("2", "1"),
                "{name}"
            );
        } else {
            // it could not capture otherwise
            assert_eq!(self.field("Seccomp"), "0", "{name}");
            assert!(name.starts_with("stasis"), "{name} is no thread of the engine");
        }
        let file_ids = self.field("Uid").split_whitespace().last().expect("ids");
        assert_eq!(file_ids, if name == "stasis-egress" { "65534" } else { "0" }, "{name}");
    }
}

#[test]
fn every_thread_has_the_rights_it_is_promised() {
    let data = stasis_testbed::data_dir();
    let (mut child, place) = start(&mut stasis(data.path()));
    let token = std::fs::read_to_string(data.path().join("token")).expect("a token");
    let run = |arguments: &[&str]| {
        let mut command = stasis(data.path());
        command.args(["--url", &place, "--token", token.trim()]).args(arguments);
        let done = command.output().expect("stasis runs");
        assert!(done.status.success(), "{arguments:?}: {done:?}");
        String::from_utf8(done.stdout).expect("text")
    };
    // a kernel without TUN has no egress
    let network = if stasis_sys::probe::has_tun() { "open" } else { "none" };
    run(&["machine", "new", "work", "--durability", "local", "--network", network]);
    assert_eq!(run(&["exec", "work", "x = 41; x + 1"]).trim(), "42");
    let file = data.path().join("file");
    std::fs::write(&file, "put").expect("written");
    run(&["cp", &file.display().to_string(), "work:/tmp/file"]);
    let threads = Thread::all(child.id());
    threads.iter().for_each(Thread::check);
    let exposed = threads.iter().filter(|thread| thread.is_exposed()).count();
    assert!(exposed >= 4, "{exposed} threads answer");
    let has = |name: &str| threads.iter().any(|thread| thread.name == name);
    assert!(has("stasis-driver"), "the machine is in memory");
    assert_eq!(has("stasis-egress"), network == "open");
    // what was captured comes back, and the rest of the engine's work goes on as well
    run(&["machine", "swap", "work"]);
    assert_eq!(run(&["exec", "work", "open('/tmp/file').read()"]).trim(), "'put'");
    run(&["branch", "work", "--name", "twig"]);
    assert_eq!(run(&["exec", "twig", "x"]).trim(), "41");
    let recipe = data.path().join("recipe.toml");
    std::fs::write(&recipe, "name = \"bare\"\nbase = \"host\"\nprepare = \"print(1)\"\n")
        .expect("written");
    run(&["template", "build", &recipe.display().to_string()]);
    run(&["machine", "new", "built", "--template", "bare"]);
    assert_eq!(run(&["exec", "built", "2 + 2"]).trim(), "4");
    run(&["rm", "work", "twig", "built"]);
    Thread::all(child.id()).iter().for_each(Thread::check);
    let ended = Command::new("kill").arg(child.id().to_string()).status().expect("kill runs");
    assert!(ended.success() && child.wait().expect("an end").success());
}

/// Gives a directory roots of its own: those of the seed are shared, and a build would change them.
fn own_roots(data: &Path) {
    let shared = data.join("roots").canonicalize().expect("roots");
    std::fs::remove_file(data.join("roots")).expect("a link");
    let copied = Command::new("cp").arg("-al").arg(shared).arg(data.join("roots")).status();
    assert!(copied.expect("cp runs").success());
}

/// A service is ready before templates that it prepares. A second build of the same one, asked for
/// meanwhile, finds what the first has built.
#[test]
fn templates_are_prepared_in_the_background() {
    let data = stasis_testbed::data_dir_of("javascript");
    own_roots(data.path());
    let ask = |words: &[&str]| stasis(data.path()).args(words).output().expect("stasis runs");
    let removed = ask(&["template", "rm", "javascript"]);
    assert!(removed.status.success(), "{removed:?}");
    let odd = ask(&["serve", "--prepare", "cobol"]);
    assert!(String::from_utf8_lossy(&odd.stderr).contains("python and javascript"), "{odd:?}");
    ask(&["stop"]);
    let mut command = stasis(data.path());
    command.args(["serve", "--prepare", "javascript", "--listen", "127.0.0.1:0"]);
    let mut child = command.stderr(Stdio::piped()).spawn().expect("stasis runs");
    let lines = BufReader::new(child.stderr.take().expect("a pipe")).lines();
    let mut said = lines.map(|line| line.expect("text"));
    let listens = said.by_ref().position(|line| line.contains("listening on"));
    assert!(listens.is_some(), "it says where it listens");
    let asked = std::thread::scope(|scope| {
        let own = scope.spawn(|| ask(&["machine", "new", "js", "--language", "javascript"]));
        let ready = said.by_ref().find(|line| line.contains("template is"));
        assert!(ready.is_some_and(|line| line.contains("ready")), "it was built");
        own.join().expect("no panic")
    });
    assert!(asked.status.success(), "{asked:?}");
    let value = ask(&["exec", "js", "1 + 1"]);
    assert_eq!(String::from_utf8_lossy(&value.stdout).trim(), "2", "{value:?}");
    child.kill().expect("killed");
    child.wait().expect("an end");
}
