//! mcp-v8's policies and hooks give the documented answers.

use super::*;
use crate::http::HttpRequest;
use crate::modules::ImportSource;
use proptest::prelude::*;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::Mutex;
use std::time::Duration;

const FETCH: &str = r#"
    package mcp.fetch
    default allow = false
    allow if {
        input.operation == "fetch"
        input.method == "GET"
        input.url_parsed.host == "api.example.com"
        startswith(input.url_parsed.path, "/public/")
    }
"#;
const TOOLS: &str = r#"
    package mcp.tools
    allow if { input.server == "github"; not startswith(input.tool, "delete_") }
"#;
const MODULES: &str = r#"
    package mcp.modules
    allow if { input.specifier_type == "npm"; startswith(input.url_parsed.path, "/lodash") }
"#;

/// Without servers and scripts.
struct Nobody;

impl V8Outside for Nobody {
    fn post(&self, _: &str, _: &Value, _: Duration) -> Result<Value, String> {
        Err("no server".into())
    }

    fn script(&self, _: &V8Script, _: ScriptStep<'_>) -> Result<ScriptAnswer, String> {
        Err("no script".into())
    }
}

fn read(config: &Value) -> V8Policies {
    V8Policies::read(config, Arc::new(Nobody)).expect("policies")
}

fn who() -> Identity {
    Identity { machine: "work".into(), ..Identity::default() }
}

fn config(category: &str, mode: &str, texts: &[&str]) -> serde_json::Value {
    let policies: Vec<_> = texts
        .iter()
        .map(|text| json!({ "modules": [{ "name": "a.rego", "text": text }] }))
        .collect();
    json!({ category: { "mode": mode, "policies": policies } })
}

fn fetch(policies: &V8Policies, method: &str, host: &str, path: &str) -> bool {
    let what = HttpRequest { secure: true, method, path, headers: &[], http2: false };
    let address = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 443);
    let access = Access::Request { name: Some(host), address, own: false, what };
    policies.judge(&who(), &access).1.is_ok()
}

#[test]
fn documented_policies_give_the_documented_answers() {
    let policies = read(&config("fetch", "all", &[FETCH]));
    assert!(fetch(&policies, "GET", "api.example.com", "/public/a?b=1"));
    assert!(!fetch(&policies, "POST", "api.example.com", "/public/a"));
    assert!(!fetch(&policies, "GET", "other.example.com", "/public/a"));
    assert!(!fetch(&policies, "GET", "api.example.com", "/private"));
    assert!(policies.reads_requests());

    let tools = read(&config("mcp_tools", "all", &[TOOLS]));
    let call = |policies: &V8Policies, server: &str, tool: &str| {
        let arguments = json!({});
        policies.judge(&who(), &Access::Tool { server, tool, arguments: &arguments }).1.is_ok()
    };
    assert!(call(&tools, "github", "list") && !call(&tools, "github", "delete_repo"));
    assert!(!call(&tools, "gitlab", "list") && call(&policies, "any", "tool"));
    assert!(!fetch(&tools, "GET", "api.example.com", "/public/a"), "no fetch without a policy");

    let modules = read(&config("modules", "all", &[MODULES]));
    let import = |specifier: &str| {
        let source = ImportSource::of(specifier).expect("a source");
        modules.judge(&who(), &Access::Import { source, specifier }).1.is_ok()
    };
    assert!(import("npm:lodash@4") && !import("npm:react") && !import("https://esm.sh/lodash"));
}

#[test]
fn modes_follow_the_specification() {
    let (yes, no) = ("package mcp.fetch\nallow := true", "package mcp.fetch\nallow := false");
    let broken = "package mcp.fetch\nallow if { 1 / input.zero == 1 }";
    let answer = |mode: &str, texts: &[&str]| {
        let policies = read(&config("fetch", mode, texts));
        fetch(&policies, "GET", "a.example", "/")
    };
    assert!(answer("all", &[yes, yes]) && !answer("all", &[yes, no]));
    assert!(answer("any", &[no, yes]) && !answer("any", &[no, no]));
    assert!(answer("all", &[]) && answer("any", &[]));
    assert!(!answer("all", &[yes, broken]) && !answer("any", &[broken]));
}

#[test]
fn wrong_configurations_are_refused() {
    let script = json!({ "script": "function pre() {}" });
    let layer = json!({ "script": "function handle() {}" });
    for (config, hint) in [
        (json!([]), "no object"),
        (json!({ "shell": { "policies": [] } }), "no such category"),
        (json!({ "fetch": { "mode": "some", "policies": [] } }), "all or any"),
        (json!({ "fetch": {} }), "a list"),
        (json!({ "fetch": { "policies": [], "hooks": [] } }), "`hooks` is not known"),
        (json!({ "fetch": { "policies": [{ "url": "http://opa" }] } }), "no modules"),
        (json!({ "fetch": { "policies": [{ "remote": "ftp://opa" }] } }), "http://"),
        (json!({ "fetch": { "policies": [script] } }), "scripts are hooks"),
        (json!({ "modules": { "post": [script] } }), "no output"),
        (json!({ "fetch": { "pre": [script], "stack": ["@execute"] } }), "takes the place"),
        (json!({ "fetch": { "stack": ["@policy"] } }), "ends with"),
        (json!({ "fetch": { "stack": ["@shout", "@execute"] } }), "@shout"),
        (json!({ "fetch": { "stack": [layer, layer, "@execute"] } }), "once"),
        (json!({ "filesystem": { "stack": [{ "execute": layer }] } }), "no output"),
        (json!({ "fetch": { "pre": [{ "script": "", "timeout_ms": 0 }] } }), "timeout_ms"),
        (json!({ "fetch": { "pre": [{ "script": "", "capabilities": ["net"] }] } }), "fetch"),
        (json!({ "fetch": { "pre": [{ "script": "", "rule": "a b" }] } }), "a function"),
        (config("fetch", "all", &["package other\nallow := true"]), "no rule"),
        (config("fetch", "all", &["nonsense"]), "a.rego"),
    ] {
        let said = V8Policies::read(&config, Arc::new(Nobody)).expect_err(hint).to_string();
        assert!(said.contains(hint), "{config}: {said}");
    }
}

/// A server, and scripts whose steps are written down.
#[derive(Default)]
struct Written {
    answers: Mutex<Vec<Result<ScriptAnswer, String>>>,
    seen: Mutex<Vec<String>>,
    result: Option<Value>,
}

impl V8Outside for Written {
    fn post(&self, url: &str, body: &Value, _: Duration) -> Result<Value, String> {
        self.seen.lock().expect("seen").push(format!("{url} {body}"));
        let result = self.result.clone().ok_or("the server is away")?;
        Ok(json!({ "result": result }))
    }

    fn script(&self, _: &V8Script, step: ScriptStep<'_>) -> Result<ScriptAnswer, String> {
        let told = match step {
            ScriptStep::Call(arguments) => format!("call {}", arguments.len()),
            ScriptStep::Enter { input, .. } => format!("enter {}", input["url"]),
            ScriptStep::Resume { next: Ok(output), .. } => format!("output {output}"),
            ScriptStep::Resume { next: Err(said), .. } => format!("rejected {said}"),
        };
        self.seen.lock().expect("seen").push(told);
        self.answers.lock().expect("answers").remove(0)
    }
}

fn request(url: &str) -> Value {
    json!({ "operation": "fetch", "url": url, "method": "GET", "headers": {},
        "url_parsed": input::parsed(url, true) })
}

fn begun(policies: &V8Policies, url: &str) -> Result<V8Step, V8Refused> {
    policies.walk("fetch", "work", request(url)).expect("configured").begin()
}

#[test]
fn remote_servers_are_asked_as_documented() {
    let remote = json!({ "fetch": { "policies": [{ "remote": "http://opa:8181/" }] } });
    let asked = |result: Option<Value>| {
        let outside = Arc::new(Written { result, ..Written::default() });
        let policies = V8Policies::read(&remote, outside.clone()).expect("policies");
        assert!(policies.waits("fetch"));
        let answer = fetch(&policies, "GET", "a.example", "/x");
        let seen = outside.seen.lock().expect("seen").clone();
        assert!(seen[0].starts_with("http://opa:8181/v1/data/mcp/fetch {\"input\":{"), "{seen:?}");
        answer
    };
    assert!(asked(Some(json!({ "allow": true }))));
    for other in [json!({ "allow": false }), json!({ "allow": 1 }), json!({}), json!(true)] {
        assert!(!asked(Some(other)));
    }
    assert!(!asked(None), "a server that fails does not allow");
}

const HOOKS: &str = r#"
    package mcp.fetch
    pre := {"input": object.union(input, {"url": url})} if {
        startswith(input.url, "http://")
        url := concat("", ["https://", substring(input.url, 7, -1)])
    }
    pre := {"allow": false, "reason": "credentials in query string"} if {
        startswith(input.url, "https://")
        contains(input.url_parsed.query, "token=")
    }
    post := {"output": object.remove(input.output, ["secret"])} if { input.output.secret }
"#;

#[test]
fn rego_hooks_rewrite_deny_and_abstain() {
    let hook = json!({ "modules": [{ "name": "h.rego", "text": HOOKS }] });
    let policies = json!({ "fetch": { "pre": [hook], "post": [hook],
        "policies": [{ "modules": [{ "name": "a.rego", "text": "package mcp.fetch\n\
            allow if input.url_parsed.scheme == \"https\"" }] }] } });
    let policies = read(&policies);
    let mut walk = policies.walk("fetch", "work", request("http://a.example/")).expect("fetch");
    let Ok(V8Step::Execute { input, last: false }) = walk.begin() else { panic!("executed") };
    assert_eq!(
        (input["url"].as_str(), input["url_parsed"]["scheme"].as_str()),
        (Some("https://a.example/"), Some("https"))
    );
    let done = walk.executed(Ok(json!({ "status": 200, "secret": "s" })));
    assert_eq!(done, Ok(V8Step::Done(json!({ "status": 200 }))));
    let refused = begun(&policies, "https://a.example/?token=1").expect_err("refused");
    assert_eq!(refused.0, "fetch denied by pre hook (credentials in query string)");
    // what goes around `fetch` goes around its hooks, and does not leave the machine
    assert!(!fetch(&policies, "GET", "b.example", "/"));
    assert!(fetch(&policies, "GET", "a.example", "/"), "the one that was asked for");
    assert!(!fetch(&policies, "GET", "a.example", "/"), "and once");
}

fn stack(entries: Value, answers: Vec<Result<ScriptAnswer, String>>) -> (V8Policies, Arc<Written>) {
    let answers = Mutex::new(answers);
    let outside = Arc::new(Written { answers, ..Written::default() });
    let config = json!({ "fetch": { "stack": entries, "policies": [{ "modules": [{
        "name": "a.rego", "text": "package mcp.fetch\nallow if input.method == \"GET\"" }] }] } });
    (V8Policies::read(&config, outside.clone()).expect("policies"), outside)
}

#[test]
fn layers_call_next_never_once_and_often() {
    let layer = json!([{ "script": "async function handle(input, next) {}" }, "@execute"]);
    let next = |url: &str| Ok(ScriptAnswer::Next(request(url)));
    let returned = |value: Value| Ok(ScriptAnswer::Returned(Some(value)));
    // never: the operation does not take place
    let (cached, _) = stack(layer.clone(), vec![returned(json!({ "status": 304 }))]);
    let answer = begun(&cached, "https://a.example/");
    assert_eq!(answer, Ok(V8Step::Done(json!({ "status": 304 }))));
    // once, and again with another request after the first failed
    let again = vec![
        next("https://a.example/"),
        next("https://b.example/"),
        returned(json!({ "status": 201 })),
    ];
    let (policies, outside) = stack(layer.clone(), again);
    let mut walk = policies.walk("fetch", "work", request("https://a.example/")).expect("fetch");
    assert!(matches!(walk.begin(), Ok(V8Step::Execute { last: false, .. })));
    let second = walk.executed(Err("no route".into()));
    let Ok(V8Step::Execute { input, .. }) = second else { panic!("{second:?}") };
    assert_eq!(input["url"], "https://b.example/");
    assert_eq!(
        walk.executed(Ok(json!({ "status": 200 }))),
        Ok(V8Step::Done(json!({ "status": 201 })))
    );
    let seen = outside.seen.lock().expect("seen").clone();
    assert_eq!(seen[1..], ["rejected no route", "output {\"status\":200}"]);
    // the policies below a layer judge what it passes down
    let mut post = request("https://a.example/");
    post["method"] = json!("POST");
    let (policies, outside) =
        stack(layer.clone(), vec![Ok(ScriptAnswer::Next(post)), Err("it threw".into())]);
    let refused = begun(&policies, "https://a.example/").expect_err("refused");
    assert!(refused.0.contains("it threw"), "{refused}");
    assert!(outside.seen.lock().expect("seen")[1].contains("fetch denied by policy: POST"));
    // nothing is no output, and `operation` is pinned
    let (policies, _) = stack(layer.clone(), vec![Ok(ScriptAnswer::Returned(None))]);
    assert!(begun(&policies, "https://a.example/").is_err());
    let mut other = request("https://a.example/");
    other["operation"] = json!("connect");
    let (policies, outside) =
        stack(layer, vec![Ok(ScriptAnswer::Next(other)), Err("caught nothing".into())]);
    assert!(begun(&policies, "https://a.example/").is_err());
    assert!(outside.seen.lock().expect("seen")[1].contains("operation"));
}

#[test]
fn a_script_in_place_of_the_operation() {
    let entries = json!([{ "execute": { "script": "function handle() {}" } }]);
    let recorded = ScriptAnswer::Returned(Some(json!({ "status": 200 })));
    let (policies, _) = stack(entries, vec![Ok(recorded)]);
    let answer = begun(&policies, "https://a.example/");
    assert_eq!(answer, Ok(V8Step::Done(json!({ "status": 200 }))));
    assert!(!fetch(&policies, "GET", "a.example", "/"), "nothing leaves the machine");
}

#[test]
fn gates_change_nothing_and_have_no_output() {
    let gate = |answer: Value| {
        let outside = Arc::new(Written { result: Some(answer), ..Written::default() });
        let config = json!({ "modules": { "pre": [{ "remote": "http://opa" }] } });
        let policies = V8Policies::read(&config, outside.clone()).expect("policies");
        let access = Access::Import { source: ImportSource::Npm, specifier: "npm:lodash" };
        let denial = policies.judge(&who(), &access).1.err().map(|denial| denial.to_string());
        assert!(
            outside.seen.lock().expect("seen")[0].starts_with("http://opa/v1/data/mcp/modules/pre")
        );
        denial
    };
    assert_eq!(gate(json!(true)), None);
    assert_eq!(gate(Value::Null), None);
    assert_eq!(gate(json!(false)).as_deref(), Some("modules denied by pre hook"));
    let changed = json!({ "input": { "specifier": "x" } });
    assert!(gate(changed).is_some_and(|said| said.contains("only gate")));
    assert!(gate(json!("yes")).is_some_and(|said| said.contains("something else")));
}

#[test]
fn websockets_and_http2_have_their_own_documents() {
    let socket = r#"package mcp.websocket
        allow if { input.operation == "connect"; input.url == "wss://a.example/live"
            input.protocols == ["chat", "v2"]; input.headers.upgrade == "websocket" }"#;
    let http2 = r#"package mcp.http2
        allow if { input.operation == "connect"; input.url == "https://a.example" }
        allow if { input.operation == "request"; input.authority == "a.example"
            input.scheme == "https"; input.method == "POST"; input.path == "/svc/Call" }"#;
    let modules =
        |text: &str| json!({ "policies": [{ "modules": [{ "name": "a", "text": text }] }] });
    let policies = read(&json!({ "websocket": modules(socket), "http2": modules(http2) }));
    let send = |policies: &V8Policies, path: &str, headers: &[(&str, &str)], http2: bool| {
        let method = if http2 { "POST" } else { "GET" };
        let what = HttpRequest { secure: true, method, path, headers, http2 };
        let address = SocketAddrV4::new(Ipv4Addr::new(203, 0, 113, 7), 443);
        let access = Access::Request { name: Some("a.example"), address, own: false, what };
        policies.judge(&who(), &access).1.is_ok()
    };
    let live = [("upgrade", "websocket"), ("sec-websocket-protocol", "chat, v2")];
    assert!(send(&policies, "/live", &live, false) && !send(&policies, "/other", &live, false));
    assert!(send(&policies, "/svc/Call", &[], true) && !send(&policies, "/svc/Other", &[], true));
    assert!(!send(&policies, "/", &[], false), "no fetch without its policy");
    let fetch = read(&config("fetch", "all", &["package mcp.fetch\nallow := true"]));
    assert!(!send(&fetch, "/live", &live, false), "no WebSocket without its policy");
    assert!(send(&fetch, "/svc/Call", &[], true), "judged as every request");
}

fn answers() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!(true)),
        Just(json!(false)),
        Just(json!("text")),
        Just(json!({ "allow": true })),
        Just(json!({ "allow": false, "reason": "r" })),
        Just(json!({ "input": { "operation": "fetch", "url": "https://b.example/",
            "method": "GET" } })),
        Just(json!({ "input": 7 })),
        Just(json!([]))
    ]
}

proptest! {
    /// A hook that answers `false` or something else than it may denies, whatever the others say;
    /// and what is executed has been judged by the policies.
    #[test]
    fn a_hook_never_opens_what_policies_deny(answer in answers(), allowed: bool) {
        let outside = Arc::new(Written { result: Some(answer.clone()), ..Written::default() });
        let rule = format!("package mcp.fetch\nallow := {allowed}");
        let config = json!({ "fetch": { "pre": [{ "remote": "http://opa" }],
            "policies": [{ "modules": [{ "name": "a.rego", "text": rule }] }] } });
        let policies = V8Policies::read(&config, outside).expect("policies");
        let step = begun(&policies, "https://a.example/");
        let opens = matches!(&answer, Value::Null | Value::Bool(true))
            || answer.get("allow") == Some(&json!(true))
            || answer.get("input").is_some_and(Value::is_object);
        prop_assert_eq!(step.is_ok(), opens && allowed);
    }
}
