//! Traces: what a caller's trace gets, from a real collector; and a collector that is not there.

use crate::client::{Client, PATIENCE, Reply};
use crate::server::{Running, fresh_data, serve_on};
use crate::socket::of_traced;
use serde_json::{Value, json};
use stasis_machine::Host;
use stasis_server::{BoundAddresses, Instruments, Listen, Options};
use stasis_testbed::collector::{CollectedSpan, Collector, CollectorMode};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const CALLER: &str = "00f067aa0ba902b7";

struct Traced {
    client: Client,
    instruments: Instruments,
    bound: BoundAddresses,
    running: Running,
}

fn serve(name: &str, collector: &Collector) -> Traced {
    let data = fresh_data(name);
    let instruments = Instruments::start(Some(&collector.endpoint())).expect("a way");
    let host = Arc::new(Host::open(stasis_testbed::settings(&data)).expect("a data directory"));
    let listen = vec![Listen::Tcp(SocketAddr::from(([127, 0, 0, 1], 0)))];
    let options = Options { listen, instruments: Some(instruments.clone()), ..Options::default() };
    let (bound, running) = serve_on(host, options);
    let token = std::fs::read_to_string(data.join("token")).expect("the first token");
    let client = Client::new(bound.tcp().expect("an address"), token.trim());
    Traced { client, instruments, bound, running }
}

fn eventually(so: impl Fn() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !so() {
        assert!(Instant::now() < end, "it never was so");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A trace of a caller's own, by a letter.
fn trace(letter: char) -> String {
    letter.to_string().repeat(32)
}

fn parent(letter: char) -> String {
    format!("00-{}-{CALLER}-01", trace(letter))
}

impl Traced {
    fn exec(&self, machine: &str, code: &str, header: &str) -> (u64, Reply) {
        let body = json!({ "instruction": { "code": code, "timeout_seconds": 600 } }).to_string();
        let path = format!("/v1/machine/{machine}/exec");
        let reply = self.client.send("POST", &path, &[header], body.as_bytes());
        (reply.good()["instruction_seq"].as_u64().expect("a number"), reply)
    }

    fn result(&self, machine: &str, seq: u64) -> Value {
        self.client.get(&format!("/v1/machine/{machine}/exec/{seq}/result")).good()
    }

    /// The spans of a trace, once there are as many of each name as these.
    fn spans(&self, collector: &Collector, letter: char, names: &[&str]) -> Vec<CollectedSpan> {
        let end = Instant::now() + PATIENCE;
        let mut wanted: Vec<&str> = names.to_vec();
        wanted.sort_unstable();
        loop {
            self.instruments.flush();
            let spans = collector.trace(&trace(letter));
            let mut found: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
            // a host that is short of memory may have moved the machine out meanwhile
            found.retain(|name| *name != "wake" || wanted.contains(name));
            found.sort_unstable();
            if found == wanted {
                return spans;
            }
            assert!(Instant::now() < end, "{found:?}, not {wanted:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Spans that were sent or dropped, as the metrics say.
    fn count(&self, what: &str) -> u64 {
        let metrics = self.client.get("/metrics").text();
        let name = format!("stasis_trace_spans_{what}_total ");
        let found = metrics.lines().find_map(|line| line.strip_prefix(&name));
        found.expect("a count").parse().expect("a number")
    }

    fn mcp(&self, header: &str, meta: &Value) -> Reply {
        self.client.tool_with("run_code", json!({ "code": "6 * 7" }), meta.clone(), &[header])
    }
}

const EXEC: &str = "POST /v1/machine/{name}/exec";
const WAY: [&str; 6] = [EXEC, "instruction", "queue", "wake", "run", "checkpoint"];

fn one<'a>(spans: &'a [CollectedSpan], name: &str) -> &'a CollectedSpan {
    spans.iter().find(|span| span.name == name).expect("a span of this name")
}

/// Every span but the request's hangs on the instruction's, lasts, and says whose it is.
fn check_way(spans: &[CollectedSpan], machine: &str, seq: u64, reason: &str) {
    let (request, instruction) = (one(spans, EXEC), one(spans, "instruction"));
    assert_eq!(request.parent, CALLER);
    assert_eq!(request.attributes["http.response.status_code"], "200");
    assert_eq!(instruction.parent, request.id);
    assert_eq!(instruction.attributes["stasis.status"], "done");
    for part in ["queue", "wake", "run", "checkpoint"].map(|name| one(spans, name)) {
        assert_eq!(part.parent, instruction.id, "{part:?}");
        assert_eq!(part.attributes["stasis.machine"], machine);
        assert_eq!(part.attributes["stasis.seq"], seq.to_string());
        assert_eq!(part.attributes["stasis.account"], request.attributes["stasis.account"]);
        assert!(part.nanoseconds.0 <= part.nanoseconds.1 && !part.failed, "{part:?}");
    }
    assert_eq!(one(spans, "wake").attributes["stasis.reason"], reason);
    let order = ["queue", "wake", "run"].map(|name| one(spans, name).nanoseconds);
    assert!(order[0].1 <= order[1].0 && order[1].1 <= order[2].0, "{order:?}");
    assert!(spans.iter().all(|span| span.service == "stasis"), "{spans:?}");
}

#[test]
fn a_callers_trace_gets_the_whole_way_of_an_instruction() {
    let collector = Collector::start(CollectorMode::Good);
    let own = serve("traces", &collector);
    let machine = own.client.machine();
    let header = format!("traceparent: {}", parent('a'));
    let (seq, reply) = own.exec(&machine, "print('sec' + 'ret-output'); 'secret-code'", &header);
    assert!(reply.head.contains(&format!("traceparent: 00-{}-", trace('a'))), "{}", reply.head);
    assert_eq!(own.result(&machine, seq)["result"]["value"], "'secret-code'");
    let spans = own.spans(&collector, 'a', &WAY);
    check_way(&spans, &machine, seq, "new");
    assert!(reply.head.contains(&one(&spans, EXEC).id), "{}", reply.head);

    own.client.post(&format!("/v1/machine/{machine}/swap"), &json!({})).good();
    let header = format!("traceparent: {}", parent('b'));
    let (seq, _) = own.exec(&machine, "1", &header);
    own.result(&machine, seq);
    check_way(&own.spans(&collector, 'b', &WAY), &machine, seq, "wake");

    on_the_disk_before_the_answer(&own, &collector, &machine);
    in_messages_of_a_websocket(&own, &collector, &machine);
    in_tools_of_mcp(&own, &collector);
    requests_without_spans(&own, &collector, &machine);

    // what the end of the service finds is sent, too
    let header = format!("traceparent: {}", parent('f'));
    own.client.send("GET", "/v1/whoami", &[&header], b"").good();
    own.bound.stop.stop();
    own.running.join().expect("a thread").expect("a good end");
    eventually(|| collector.trace(&trace('f')).len() == 1);
    for secret in ["secret-code", "secret-output"] {
        assert!(!collector.got(secret.as_bytes()), "{secret}");
    }
    assert!(collector.got(machine.as_bytes()));
}

/// The checkpoint comes before the end of the instruction, and is its own part all the same.
fn on_the_disk_before_the_answer(own: &Traced, collector: &Collector, machine: &str) {
    let body = json!({ "instruction": { "code": "2" }, "durability": "local" }).to_string();
    let header = format!("traceparent: {}", parent('1'));
    let path = format!("/v1/machine/{machine}/exec");
    own.client.send("POST", &path, &[&header], body.as_bytes()).good();
    let spans = own.spans(collector, '1', &[EXEC, "instruction", "queue", "run", "checkpoint"]);
    let (run, saved) = (one(&spans, "run").nanoseconds, one(&spans, "checkpoint").nanoseconds);
    assert!(run.1 <= saved.0 && saved.1 <= one(&spans, "instruction").nanoseconds.1);
}

fn in_messages_of_a_websocket(own: &Traced, collector: &Collector, machine: &str) {
    let mut socket = of_traced(&own.client, machine, &parent('c'));
    socket.connected();
    socket.say(&json!({ "type": "exec", "instruction": { "code": "1" }, "request_id": 1 }));
    socket.say(&json!({ "type": "exec", "instruction": { "code": "2" }, "request_id": 2,
        "traceparent": parent('d') }));
    // the two may share a checkpoint; each trace shows it
    let way = ["instruction", "queue", "run", "checkpoint"];
    let spans = own.spans(collector, 'd', &way);
    assert_eq!(one(&spans, "instruction").parent, CALLER);
    let opened = "GET /v1/machine/{name}/repl";
    let spans = own.spans(collector, 'c', &[opened, way[0], way[1], way[2], way[3]]);
    assert_eq!(one(&spans, "instruction").parent, one(&spans, opened).id);
}

fn in_tools_of_mcp(own: &Traced, collector: &Collector) {
    let mut meta = json!({ "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": { "name": "test", "version": "1" } });
    let header = format!("traceparent: {}", parent('2'));
    let reply = own.mcp(&header, &meta);
    assert!(reply.status == 200 && reply.text().contains("42"), "{}\n{}", reply.head, reply.text());
    let way = ["POST /mcp", "instruction", "queue", "wake", "run", "checkpoint"];
    let spans = own.spans(collector, '2', &way);
    assert_eq!(one(&spans, "instruction").parent, one(&spans, "POST /mcp").id);
    // what the call itself says counts more than the request that carries it
    meta["traceparent"] = parent('3').into();
    assert!(own.mcp("x-request-id: mcp", &meta).text().contains("42"));
    let spans = own.spans(collector, '3', &way[1..]);
    assert_eq!(one(&spans, "instruction").parent, CALLER);
}

/// Strangers, callers who do not want it, and broken words get no span of theirs.
fn requests_without_spans(own: &Traced, collector: &Collector, machine: &str) {
    let header = format!("traceparent: {}", parent('4'));
    let stranger = Client::new(own.client.address, "no.body");
    assert_eq!(stranger.send("GET", "/v1/whoami", &[&header], b"").status, 401);
    let unwanted = format!("traceparent: 00-{}-{CALLER}-00", trace('5'));
    let (seq, reply) = own.exec(machine, "3", &unwanted);
    assert!(reply.head.contains(&format!("traceparent: 00-{}-", trace('5'))), "{}", reply.head);
    own.result(machine, seq);
    let (seq, reply) = own.exec(machine, "4", &format!("traceparent: 00-{}-x-01", trace('6')));
    assert!(reply.head.contains("traceparent: 00-"), "{}", reply.head);
    own.result(machine, seq);
    // all of these were over before this one began
    let header = format!("traceparent: {}", parent('e'));
    own.client.send("GET", "/v1/whoami", &[&header], b"").good();
    own.spans(collector, 'e', &["GET /v1/whoami"]);
    for letter in ['4', '5', '6'] {
        assert_eq!(collector.trace(&trace(letter)), [], "{letter}");
    }
    assert!(own.count("sent") > 20);
}

#[test]
fn an_unresponsive_collector_delays_no_request() {
    let collector = Collector::start(CollectorMode::Rude);
    let own = serve("traces-lost", &collector);
    let machine = own.client.machine();
    for number in 0..20 {
        assert_eq!(own.client.run(&machine, &format!("{number}"))["value"], number.to_string());
    }
    eventually(|| {
        own.instruments.flush();
        own.count("dropped") > 20
    });
    assert_eq!(own.count("sent"), 0);
    own.bound.stop.stop();
    own.running.join().expect("a thread").expect("a good end");
}
