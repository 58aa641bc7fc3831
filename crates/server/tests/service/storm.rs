//! A storm: twenty clients of two accounts call every route of the API on the same few machines, in
//! any order. No answer is a 500, every call is answered, the service stays up, and afterwards the
//! store has everything that its records name.
//!
//! Routes come from the service's own document, so a new one is part of this from its first day.
//! The seed is printed; `STASIS_SEED` repeats it, as far as threads can. A few seconds in every
//! run, minutes with `STASIS_SOAK=1`, or as many as `STASIS_STORM_MINUTES` says. With
//! `STASIS_STORM_AT="address token"` it comes over a service that runs elsewhere.

use crate::client::Client;
use crate::server::fresh_data;
use crate::worker::Worker;
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

const CLIENTS: u64 = 20;
/// Against hangs only: a call that takes longer is one that is never answered.
const DEADLINE: Duration = Duration::from_secs(150);
/// How long one listens where there is no end.
const LISTEN: Duration = Duration::from_millis(300);
/// Machines of one account; small, so that clients meet.
const NAMES: u64 = 4;

struct Seeded(fastrand::Rng);

impl Seeded {
    fn below(&mut self, end: u64) -> u64 {
        self.0.u64(..end)
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        self.0.choice(all).expect("something to pick from").clone()
    }
}

#[derive(Clone)]
struct Route {
    method: String,
    path: String,
    query: Vec<String>,
    /// It goes on until one of the two hangs up.
    endless: bool,
}

fn routes() -> Vec<Route> {
    let document = stasis_server::openapi();
    let mut all = Vec::new();
    for (path, methods) in document["paths"].as_object().expect("paths") {
        for (method, about) in methods.as_object().expect("methods") {
            let parameters = about["parameters"].as_array().into_iter().flatten();
            let query = parameters.filter(|one| one["in"] == "query");
            let query = query.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect();
            let endless = about["responses"].to_string().contains("text/event-stream")
                || path.ends_with("/repl");
            let (method, path) = (method.to_uppercase(), path.clone());
            all.push(Route { method, path, query, endless });
        }
    }
    all
}

const CODES: [&str; 10] = [
    "x = 1",
    "x",
    "print('y' * 100)",
    "open('/tmp/f1', 'w').write('z' * 5000)",
    "import time; time.sleep(0.02)",
    "1 / 0",
    "data = bytes(range(256)) * 4000",
    "import os, threading; len(os.listdir('/tmp'))",
    "import socket; socket.create_connection(('10.255.255.1', 80), 0.05)",
    "import os; os._exit(3)",
];

struct Storm<'a> {
    client: Client,
    account: &'static str,
    seeded: Seeded,
    routes: &'a [Route],
    /// A machine as a file, from the last export.
    exported: &'a Mutex<Vec<u8>>,
    answers: &'a AtomicU64,
}

/// The error; the first is enough.
type Failures = Mutex<Vec<String>>;

impl Storm<'_> {
    fn name(&mut self) -> String {
        format!("{}-{}", self.account, self.seeded.below(NAMES))
    }

    fn place(&mut self) -> String {
        let name = self.name();
        match self.seeded.below(2) {
            0 => name,
            _ => format!("{name}@{}", self.seeded.below(6)),
        }
    }

    fn code(&mut self) -> &'static str {
        // few end their process, or the others meet nothing but that
        let most = if self.seeded.below(6) == 0 { CODES.len() } else { CODES.len() - 1 };
        CODES[self.seeded.below(most as u64) as usize]
    }

    /// Policies belong to all accounts.
    fn policy(&mut self) -> String {
        format!("policy-{}", self.seeded.below(2))
    }

    fn network(&mut self) -> String {
        match self.seeded.below(4) {
            0 => "open".to_owned(),
            1 => format!("policy:{}", self.policy()),
            _ => "none".to_owned(),
        }
    }

    fn policy_document(&mut self) -> Value {
        let rule = self.seeded.pick(&["example.com", "*.example.org:443", "10.0.0.0/8"]);
        let other = self.seeded.pick(&["example.com", "*.example.net"]);
        match self.seeded.below(4) {
            0 => json!({ "network": { "allow": [rule], "deny": [other] } }),
            1 => json!({ "network": { "allow": [rule] }, "http": { "allow": [other] } }),
            2 => json!({ "network": { "allow": [rule] }, "secrets": { "allow": ["S"] },
                         "traffic": { "connections": 2 } }),
            _ => json!({ "description": "y".repeat(100), "modules": { "deny": ["left-pad"] } }),
        }
    }

    fn seq(&mut self) -> Value {
        match self.seeded.below(3) {
            0 => Value::Null,
            _ => self.seeded.below(6).into(),
        }
    }

    fn address(&mut self, route: &Route) -> String {
        let mut path = route.path.replace("{name}", &self.name());
        if route.path.starts_with("/v1/template/") {
            path = route.path.replace("{name}", "nobody-has-this");
        }
        if route.path.starts_with("/v1/policies/") {
            path = route.path.replace("{name}", &self.policy());
        }
        if route.path.starts_with("/v1/approvals/") {
            path = route.path.replace("{id}", &self.seeded.below(6).to_string());
        }
        path = path.replace("{seq}", &self.seeded.below(6).to_string());
        path = path.replace("{id}", &format!("{:064x}", self.seeded.below(3)));
        let mut query = Vec::new();
        for name in &route.query {
            let value = match name.as_str() {
                "path" => self.seeded.pick(&["/tmp/f1", "/tmp/f2", "/tmp", "/tmp/d/f"]).to_owned(),
                "history" | "files" => self.seeded.pick(&["true", "false"]).to_owned(),
                "root" => "false".to_owned(),
                "recursive" => "true".to_owned(),
                "durability" => self.seeded.pick(&["memory", "local"]).to_owned(),
                "name" => self.name(),
                "machine" => self.name(),
                "fetch" => "https://example.com/a".to_owned(),
                _ => continue,
            };
            query.push(format!("{name}={value}"));
        }
        if query.is_empty() { path } else { format!("{path}?{}", query.join("&")) }
    }

    fn body(&mut self, route: &Route) -> Vec<u8> {
        let last = route.path.rsplit('/').next().unwrap_or_default().to_owned();
        let body = match (route.method.as_str(), last.as_str()) {
            ("GET" | "DELETE", _) => return Vec::new(),
            ("PUT", "file") => return vec![b'f'; 1 + self.seeded.below(20_000) as usize],
            ("POST", "import") => return self.exported.lock().expect("one at a time").clone(),
            ("POST", "exec") => {
                let durability = self.seeded.pick(&["memory", "local"]);
                let instruction = json!({ "code": self.code(), "timeout_seconds": 20 });
                json!({ "instruction": instruction, "durability": durability })
            }
            ("POST", "new") => json!({ "name": self.name(), "network": self.network() }),
            ("PUT", _) if route.path.starts_with("/v1/policies/") => self.policy_document(),
            ("PUT", _) => json!({ "value": "v".repeat(20), "hosts": ["example.com"] }),
            ("POST", "input") => json!({ "line": "a line" }),
            ("POST", _) if route.path.starts_with("/v1/approvals/") => {
                json!({ "answer": self.seeded.pick(&["allow", "deny"]) })
            }
            ("POST", "branch") => match self.seeded.below(2) {
                0 => json!({ "names": [self.name()], "seq": self.seq() }),
                _ => json!({ "names": [self.name()], "vary": [{ "code": self.code() }] }),
            },
            ("POST", "explore") => {
                let candidates = json!([{ "code": "s = 1" }, { "code": "s = 2" }]);
                json!({ "candidates": candidates, "score": "s", "timeout_seconds": 20 })
            }
            ("POST", "promote") => json!({ "onto": self.name() }),
            ("POST", "rollback") => json!({ "seq": self.seq() }),
            ("POST", "label") => json!({ "seq": self.seeded.below(6), "label": "l" }),
            ("POST", "compare") => json!({ "left": self.place(), "right": self.place() }),
            ("POST", "adopt") => {
                let force = self.seeded.below(2) == 0;
                let (variables, files) = (json!(["x", "data"]), json!(["tmp/f1"]));
                json!({ "from": self.place(), "variables": variables, "files": files,
                        "force": force })
            }
            ("POST", "complete") => json!({ "code": "dat" }),
            ("POST", "build") => json!({ "recipe": "this is no recipe" }),
            ("POST", "token") => json!({ "account": self.account }),
            ("PATCH", _) => {
                let retention = json!({ "last": 1 + self.seeded.below(3) });
                let (limits, network) = (json!({ "pids": 100 }), self.network());
                match self.seeded.below(3) {
                    0 => json!({ "network": network }),
                    1 => json!({ "limits": limits }),
                    _ => json!({ "tags": { "t": "1" }, "retention": retention }),
                }
            }
            _ => json!({}),
        };
        body.to_string().into_bytes()
    }

    /// One call; what is wrong with its answer.
    fn call(&mut self) -> Option<String> {
        let route = self.seeded.pick(self.routes);
        let rare = ["/v1/import", "/v1/machine/{name}/explore", "/v1/machine/{name}/export"];
        if rare.contains(&route.path.as_str()) && self.seeded.below(4) > 0 {
            return None;
        }
        let (address, body) = (self.address(&route), self.body(&route));
        let said = format!("{} {address}", route.method);
        let begun = Instant::now();
        let (status, answer) = self.exchange(&route, &address, &body);
        self.answers.fetch_add(1, Ordering::Relaxed);
        if route.path.ends_with("/export") && status == 200 {
            *self.exported.lock().expect("one at a time") = answer.clone();
        }
        let text = || String::from_utf8_lossy(&answer[..answer.len().min(600)]).into_owned();
        match status {
            0 if route.endless => None,
            0 => Some(format!("{said}: no answer after {:?}", begun.elapsed())),
            500 => Some(format!("{said}: {}", text())),
            _ => None,
        }
    }

    /// Status and body; status 0 for none.
    fn exchange(&self, route: &Route, address: &str, body: &[u8]) -> (u16, Vec<u8>) {
        let Ok(mut stream) = TcpStream::connect(self.client.address) else {
            return (0, Vec::new());
        };
        let patience = if route.endless { LISTEN } else { DEADLINE };
        stream.set_read_timeout(Some(patience)).expect("a timeout");
        stream.set_write_timeout(Some(DEADLINE)).expect("a timeout");
        let mut head = format!("{} {address} HTTP/1.1\r\nconnection: close\r\n", route.method);
        head += &format!("host: {}\r\n", self.client.address);
        head += &format!("authorization: Bearer {}\r\n", self.client.token);
        let kind = match route.method.as_str() {
            _ if route.path.ends_with("/file") => "application/octet-stream",
            _ if route.path.ends_with("/import") => "application/octet-stream",
            _ => "application/json",
        };
        head += &format!("content-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(&[head.as_bytes(), body].concat());
        let (mut all, mut piece, end) = (Vec::new(), [0; 1 << 16], Instant::now() + patience);
        while let Ok(read @ 1..) = stream.read(&mut piece) {
            all.extend_from_slice(&piece[..read]);
            if Instant::now() > end {
                break;
            }
        }
        let text = String::from_utf8_lossy(&all[..all.len().min(64)]).into_owned();
        let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
        let at = all.windows(4).position(|four| four == b"\r\n\r\n").map_or(all.len(), |at| at + 4);
        (status, all.split_off(at))
    }
}

/// One token for each of the accounts; the first may also collect and check.
fn tokens(root: &Client) -> Vec<(&'static str, String)> {
    let token = |account: &'static str| {
        let made = root.post("/v1/token", &json!({ "account": account })).good();
        (account, made["token"].as_str().expect("a token").to_owned())
    };
    vec![("root", root.token.clone()), token("one"), token("two")]
}

fn storm(at: SocketAddr, tokens: &[(&'static str, String)], seed: u64, time: Duration) -> Ended {
    let routes = routes();
    let (failures, exported) = (Failures::default(), Mutex::default());
    let (answers, end) = (AtomicU64::new(0), Instant::now() + time);
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (account, token) = match number {
                0 | 1 => &tokens[0],
                _ => &tokens[1 + number as usize % 2],
            };
            let client = Client::new(at, token);
            let (routes, exported, answers) = (&routes[..], &exported, &answers);
            let seed = seed.wrapping_mul(1000) + number;
            let seeded = Seeded(fastrand::Rng::with_seed(seed));
            let mut own = Storm { client, account, seeded, routes, exported, answers };
            let failures = &failures;
            scope.spawn(move || {
                while Instant::now() < end && failures.lock().expect("a list").is_empty() {
                    if let Some(failure) = own.call() {
                        failures.lock().expect("a list").push(failure);
                    }
                }
            });
        }
    });
    (answers.into_inner(), failures.into_inner().expect("a list"))
}

/// How many answers there were, and what went wrong.
type Ended = (u64, Vec<String>);

/// Every machine answers, and the store has what it needs.
fn is_sound(at: SocketAddr, tokens: &[(&'static str, String)]) {
    for (_, token) in tokens {
        let client = Client::new(at, token);
        let listed = client.post("/v1/machine/list", &json!({ "limit": 100 })).good();
        for one in listed["machines"].as_array().expect("machines") {
            let name = one["name"].as_str().expect("a name");
            client.post(&format!("/v1/machine/{name}/interrupt"), &json!({}));
            let result = client.run(name, "40 + 2");
            assert_eq!(result["value"], "42", "{name}: {result}");
        }
    }
    let root = Client::new(at, &tokens[0].1);
    root.post("/v1/store/gc", &json!({})).good();
    let checked = root.post("/v1/store/check", &json!({})).good();
    assert_eq!(checked["findings"], json!([]), "{checked}");
    root.get("/v1/lineage").good();
}

fn elsewhere() -> Option<(SocketAddr, String)> {
    let given = std::env::var("STASIS_STORM_AT").ok()?;
    let (at, token) = given.split_once(' ').expect("an address and a token");
    Some((at.parse().expect("an address"), token.to_owned()))
}

#[test]
fn clients_on_every_route_at_once() {
    let soak = std::env::var_os("STASIS_SOAK").is_some();
    let given: Option<u64> = std::env::var("STASIS_SEED").ok().and_then(|seed| seed.parse().ok());
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let seed = given.unwrap_or_else(|| now.map_or(1, |now| now.as_secs() % 1_000_000));
    let minutes = std::env::var("STASIS_STORM_MINUTES").ok();
    let minutes: Option<u64> = minutes.and_then(|text| text.parse().ok());
    let time = match (minutes, soak) {
        (Some(minutes), _) => Duration::from_secs(60 * minutes),
        (None, true) => Duration::from_secs(240),
        (None, false) => Duration::from_secs(6),
    };
    println!("STASIS_SEED={seed}");
    if let Some((at, token)) = elsewhere() {
        let tokens = tokens(&Client::new(at, &token));
        let (answers, failures) = storm(at, &tokens, seed, time);
        println!("{answers} answers");
        assert!(failures.is_empty(), "STASIS_SEED={seed}: {failures:#?}");
        return is_sound(at, &tokens);
    }
    let data = fresh_data("storm");
    let worker = Worker::start(&data);
    let tokens = tokens(&worker.client);
    let (answers, failures) = storm(worker.client.address, &tokens, seed, time);
    println!("{answers} answers");
    assert!(failures.is_empty(), "STASIS_SEED={seed}: {failures:#?}");
    is_sound(worker.client.address, &tokens);
    drop(worker);
    // as the next process finds it
    is_sound(Worker::start(&data).client.address, &tokens);
}
