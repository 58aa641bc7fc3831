//! Rego in policies, evaluated by regorus in this process, within bounds.
//!
//!   text ─► compile: size, calls, a first evaluation ─► RegoModule
//!   input ─► a thread with its own stack and a deadline ─► allow, ask, deny, intercept
//!
//! Operators write the text. The input describes a machine's request, so its size is bounded, and
//! evaluating it has no effect but an answer. An evaluation that fails is a denial. Calls whose
//! results can be far larger than their arguments are refused when the text is compiled.

use crate::decide::{Access, Identity};
use crate::document::PolicyFault;
use crate::files::FileUse;
use crate::modules::ImportSource;
use regorus::utils::limits::ExecutionTimerConfig;
use regorus::{Engine, Value};
use serde_json::json;
use std::cell::Cell;
use std::net::SocketAddrV4;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

/// The longest text, and the longest input as JSON.
pub const LONGEST: usize = 64 << 10;
pub const LONGEST_INPUT: usize = 32 << 10;
/// The time limit of one evaluation by its own clock, and how long its caller waits.
const EVALUATION: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_millis(500);
const COMPILATION: Duration = Duration::from_secs(2);
/// Rules use each other as deep as there are rules.
const STACK: usize = 16 << 20;
const MOST_RULES: usize = 200;
const MOST_RUNNING: usize = 256;

/// Calls that make much of little, or that are no function of their arguments.
const REFUSED_CALLS: [&str; 9] = [
    "numbers.range",
    "numbers.range_step",
    "bits.lsh",
    "strings.render_template",
    "http.send",
    "opa.runtime",
    "rand.intn",
    "uuid.rfc4122",
    "net.lookup_ip_addr",
];

/// Evaluations that run, also those whose callers no longer wait.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

struct RunningEvaluation;

impl RunningEvaluation {
    fn begin() -> Result<RunningEvaluation, RegoFailure> {
        let before = RUNNING.fetch_add(1, Ordering::Relaxed);
        let own = RunningEvaluation;
        match before < MOST_RUNNING {
            true => Ok(own),
            false => Err(RegoFailure("too many evaluations of Rego at once".into())),
        }
    }
}

impl Drop for RunningEvaluation {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Rego that was read and checked.
#[derive(Debug, Clone)]
pub struct RegoModule {
    text: String,
    engine: Arc<Engine>,
    rules: Vec<(RegoRule, String)>,
}

impl PartialEq for RegoModule {
    fn eq(&self, other: &RegoModule) -> bool {
        self.text == other.text
    }
}

impl Eq for RegoModule {}

/// The rules of package `stasis` that decide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RegoRule {
    Allow,
    Ask,
    Deny,
    /// Whether the requests to a host have to be read.
    Intercept,
}

impl RegoRule {
    const ALL: [(RegoRule, &'static str); 4] = [
        (RegoRule::Allow, "data.stasis.allow"),
        (RegoRule::Ask, "data.stasis.ask"),
        (RegoRule::Deny, "data.stasis.deny"),
        (RegoRule::Intercept, "data.stasis.intercept"),
    ];
}

/// The answer of Rego: each rule that holds, with the reason that it gives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegoAnswer {
    pub allow: bool,
    pub ask: bool,
    pub deny: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RegoFailure(pub String);

impl std::fmt::Display for RegoFailure {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(&self.0)
    }
}

impl RegoModule {
    /// Reads the text of a policy, whose package is `stasis`.
    pub fn compile(text: &str) -> Result<RegoModule, PolicyFault> {
        let engine = compiled(&[("rego", text)]).map_err(|fault| PolicyFault(fault.0))?;
        let has = |(_, path): &(RegoRule, &str)| has_rule(&engine, path);
        let rules: Vec<_> = RegoRule::ALL.into_iter().filter(has).collect();
        if rules.is_empty() {
            let said = "rego: write `package stasis` and a rule `allow`, `ask` or `deny` in it";
            return Err(PolicyFault(said.into()));
        }
        let rules = rules.into_iter().map(|(rule, path)| (rule, path.to_owned())).collect();
        Ok(RegoModule { text: text.to_owned(), engine: Arc::new(engine), rules })
    }

    /// Evaluates the rules for an input.
    pub fn answer(&self, input: &serde_json::Value) -> Result<RegoAnswer, RegoFailure> {
        let of = |rule: RegoRule| self.rules.iter().filter(move |(own, _)| *own == rule);
        let wanted = [RegoRule::Deny, RegoRule::Ask, RegoRule::Allow];
        let wanted: Vec<_> = wanted.into_iter().flat_map(of).cloned().collect();
        let paths = wanted.iter().map(|(_, path)| path.clone()).collect();
        let values = evaluate(&self.engine, paths, input)?;
        let mut answer = RegoAnswer::default();
        for ((rule, _), value) in wanted.iter().zip(values) {
            match rule {
                RegoRule::Deny => answer.deny = reason(&value),
                RegoRule::Ask => answer.ask = value == Value::from(true),
                _ => answer.allow = value == Value::from(true),
            }
        }
        Ok(answer)
    }

    /// Whether the requests to a host have to be read. If that cannot be found out, they do.
    pub fn intercepts(&self, input: &serde_json::Value) -> bool {
        let rule = self.rules.iter().find(|(rule, _)| *rule == RegoRule::Intercept);
        let Some((_, path)) = rule else { return false };
        let values = evaluate(&self.engine, vec![path.clone()], input);
        values.map_or(true, |values| values != [Value::from(false)] && values != [Value::Undefined])
    }
}

/// The input for an access.
pub fn input(who: &Identity, access: &Access<'_>) -> serde_json::Value {
    let host = |name: Option<&str>, to: SocketAddrV4| match name {
        Some(name) => name.to_owned(),
        None => to.ip().to_string(),
    };
    let (action, object) = match *access {
        Access::Resolve { name } => ("resolve", json!({ "host": name })),
        Access::Connect { name, address, protocol, .. } => {
            let (ip, port) = (address.ip().to_string(), address.port());
            let host = host(name, address);
            let protocol = protocol.to_string();
            ("connect", json!({ "host": host, "address": ip, "port": port, "protocol": protocol }))
        }
        Access::Request { name, address, what, .. } => {
            let (path, query) = what.path.split_once('?').unwrap_or((what.path, ""));
            let headers: serde_json::Map<_, _> = what
                .headers
                .iter()
                .map(|(name, value)| ((*name).to_owned(), json!(value)))
                .collect();
            let scheme = if what.secure { "https" } else { "http" };
            (
                "request",
                json!({
                    "scheme": scheme, "host": host(name, address),
                    "address": address.ip().to_string(), "port": address.port(),
                    "method": what.method, "path": path, "query": query, "headers": headers,
                }),
            )
        }
        Access::Import { source, specifier } => {
            let source = match source {
                ImportSource::Npm => "npm",
                ImportSource::Jsr => "jsr",
                ImportSource::Web => "url",
            };
            ("import", json!({ "specifier": specifier, "source": source }))
        }
        Access::Secret { secret, host, port } => {
            ("secret", json!({ "secret": secret, "host": host, "port": port }))
        }
        Access::Tool { server, tool, arguments } => {
            ("tool", json!({ "server": server, "tool": tool, "arguments": arguments }))
        }
        Access::Create { template, limits } => {
            ("create", json!({ "template": template, "limits": limits }))
        }
        Access::File(FileUse { operation, path, below }) => {
            let operation = operation.to_string();
            ("file", json!({ "operation": operation, "path": path, "below": below }))
        }
        Access::Command(command) => {
            ("command", json!({ "command": command.text(), "words": command.words() }))
        }
    };
    let Identity { account, template, machine } = who;
    let subject = json!({ "account": account, "template": template, "machine": machine });
    json!({ "subject": subject, "action": action, "object": object })
}

/// The input for a host whose requests may have to be read.
pub fn target(name: Option<&str>, to: SocketAddrV4) -> serde_json::Value {
    let ip = to.ip().to_string();
    let object = json!({ "host": name.unwrap_or(&ip), "address": ip, "port": to.port() });
    json!({ "action": "intercept", "object": object })
}

/// A denial: `true`, a text, or a set or list of texts that is not empty.
fn reason(value: &Value) -> Option<String> {
    const LONGEST: usize = 200;
    let text = |value: &Value| match value {
        Value::String(text) => text.to_string(),
        _ => "denied by Rego".to_owned(),
    };
    let said = match value {
        Value::Undefined | Value::Null | Value::Bool(false) => return None,
        Value::Set(all) if all.is_empty() => return None,
        Value::Array(all) if all.is_empty() => return None,
        Value::Object(all) if all.is_empty() => return None,
        Value::Set(all) => all.iter().map(text).collect::<Vec<_>>().join("; "),
        Value::Array(all) => all.iter().map(text).collect::<Vec<_>>().join("; "),
        value => text(value),
    };
    Some(said.chars().filter(|c| !c.is_control()).take(LONGEST).collect())
}

/// Reads modules, each with the name that errors call it by. Text of the older language is read
/// as such if it is not of the newer one.
pub fn compiled(modules: &[(&str, &str)]) -> Result<Engine, RegoFailure> {
    let mut bytes = 0;
    for (name, text) in modules {
        bytes += text.len();
        if bytes > LONGEST {
            return Err(RegoFailure(format!("{name}: Rego has at most {LONGEST} bytes")));
        }
        if let Some(call) = REFUSED_CALLS.iter().find(|call| text.contains(**call)) {
            return Err(RegoFailure(format!("{name}: `{call}` is not available in policies")));
        }
    }
    let modules: Vec<_> =
        modules.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect();
    let read = move || {
        let newer = prepared(&modules, false);
        newer.or_else(|fault| prepared(&modules, true).map_err(|_| fault))
    };
    within(COMPILATION, read)?
}

fn prepared(modules: &[(String, String)], older: bool) -> Result<Engine, RegoFailure> {
    let mut engine = Engine::new();
    engine.set_rego_v0(older);
    let check_interval = NonZeroU32::MIN.saturating_add(15);
    engine.set_execution_timer_config(ExecutionTimerConfig { limit: EVALUATION, check_interval });
    for (name, text) in modules {
        engine.add_policy(name.clone(), text.clone()).map_err(told)?;
    }
    let rules: usize = engine.get_modules().iter().map(|module| module.policy.len()).sum();
    if rules > MOST_RULES {
        return Err(RegoFailure(format!("Rego has at most {MOST_RULES} rules")));
    }
    engine.set_input(Value::new_object());
    // analysed once, for all evaluations
    engine.eval_query("1 == 1".to_owned(), false).map_err(told)?;
    Ok(engine)
}

/// Whether modules have a rule.
pub fn has_rule(engine: &Engine, path: &str) -> bool {
    let (engine, path) = (engine.clone(), path.to_owned());
    let found = move || {
        let mut engine = engine;
        let Err(error) = engine.eval_rule(path) else { return true };
        !error.to_string().contains("not a valid rule path")
    };
    within(COMPILATION, found).unwrap_or(false)
}

/// The values of rules for an input.
pub fn evaluate(
    engine: &Arc<Engine>,
    rules: Vec<String>,
    input: &serde_json::Value,
) -> Result<Vec<Value>, RegoFailure> {
    evaluate_within(engine, rules, input, LONGEST_INPUT)
}

/// The same, for an input of so many bytes.
pub fn evaluate_within(
    engine: &Arc<Engine>,
    rules: Vec<String>,
    input: &serde_json::Value,
    longest: usize,
) -> Result<Vec<Value>, RegoFailure> {
    let text = serde_json::to_string(input).map_err(|error| RegoFailure(error.to_string()))?;
    if text.len() > longest {
        let said = format!("Rego judges requests of at most {longest} bytes");
        return Err(RegoFailure(said));
    }
    let engine = engine.clone();
    let evaluate = move || -> Result<Vec<Value>, RegoFailure> {
        let mut engine = Engine::clone(&engine);
        engine.set_input(Value::from_json_str(&text).map_err(told)?);
        rules.into_iter().map(|rule| engine.eval_rule(rule).map_err(told)).collect()
    };
    within(DEADLINE, evaluate)?
}

/// An error about the text, without the picture of it.
fn told(error: impl std::fmt::Display) -> RegoFailure {
    let said = error.to_string();
    let lines = said.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.filter(|line| !line.starts_with('|')).collect();
    RegoFailure(lines.join(" ").chars().take(300).collect())
}

type Job = Box<dyn FnOnce() + Send>;

thread_local! {
    /// The thread that evaluates for this one, if it is idle. It ends with this one. It is not
    /// shared: it has the restrictions of the thread that started it.
    static EVALUATOR: Cell<Option<mpsc::SyncSender<Job>>> = const { Cell::new(None) };
}

/// A thread that does jobs, with a stack that fits.
fn evaluator() -> Result<mpsc::SyncSender<Job>, RegoFailure> {
    let (send, jobs) = mpsc::sync_channel::<Job>(1);
    let started = std::thread::Builder::new().name("stasis-rego".into()).stack_size(STACK);
    let started = started.spawn(move || jobs.into_iter().for_each(|job| job()));
    started.map_err(|error| RegoFailure(format!("no thread for Rego: {error}")))?;
    Ok(send)
}

/// Runs something on another thread, and waits for it so long. A thread that takes longer ends by
/// its own clock, and its answer is dropped.
fn within<T: Send + 'static>(
    deadline: Duration,
    act: impl FnOnce() -> T + Send + 'static,
) -> Result<T, RegoFailure> {
    let running = RunningEvaluation::begin()?;
    let (send, receive) = mpsc::sync_channel(1);
    let job: Job = Box::new(move || {
        let value = act();
        drop(running);
        // a caller that waits no longer has taken this for a denial
        let _ = send.send(value);
    });
    let idle = EVALUATOR.take().map_or_else(evaluator, Ok)?;
    // one whose last job panicked has ended
    let idle = match idle.send(job) {
        Ok(()) => idle,
        Err(mpsc::SendError(job)) => {
            let fresh = evaluator()?;
            let _ = fresh.send(job);
            fresh
        }
    };
    let answer = receive.recv_timeout(deadline).map_err(|error| match error {
        RecvTimeoutError::Disconnected => RegoFailure("Rego failed".into()),
        RecvTimeoutError::Timeout => {
            RegoFailure(format!("Rego took longer than {} ms", deadline.as_millis()))
        }
    })?;
    EVALUATOR.set(Some(idle));
    Ok(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
        package stasis

        default allow := false

        allow if {
            input.action == "request"
            input.object.method in {"GET", "HEAD"}
            endswith(input.object.host, ".example.com")
        }

        ask if {
            input.action == "tool"
            startswith(input.object.tool, "delete_")
        }

        deny contains "no secrets in queries" if {
            input.action == "request"
            contains(input.object.query, "token=")
        }
    "#;

    fn request(host: &str, query: &str) -> serde_json::Value {
        let object = json!({ "method": "GET", "host": host, "query": query });
        json!({ "action": "request", "object": object })
    }

    #[test]
    fn rules_of_the_package_decide() {
        let module = RegoModule::compile(GOOD).expect("Rego");
        let answer = |input| module.answer(&input).expect("an answer");
        let allowed = answer(request("a.example.com", ""));
        assert_eq!(allowed, RegoAnswer { allow: true, ask: false, deny: None });
        assert_eq!(answer(request("a.example.org", "")), RegoAnswer::default());
        let denied = answer(request("a.example.com", "token=1"));
        assert_eq!(denied.deny.as_deref(), Some("no secrets in queries"));
        let tool = json!({ "action": "tool", "object": { "tool": "delete_all" } });
        assert!(answer(tool).ask && !module.intercepts(&request("a", "")));
    }

    #[test]
    fn the_older_language_is_read_too() {
        let old = "package stasis\nallow { input.action == \"connect\" }\ndeny[x] { x := \"no\" }";
        let module = RegoModule::compile(old).expect("Rego of before");
        let answer = module.answer(&json!({ "action": "connect" })).expect("an answer");
        assert_eq!(answer, RegoAnswer { allow: true, ask: false, deny: Some("no".into()) });
    }

    #[test]
    fn what_cannot_be_used_is_refused_with_a_reason() {
        for (text, hint) in [
            ("package stasis\nallow if {", "rego"),
            ("package other\nallow := true", "package stasis"),
            ("package stasis\nother := true", "allow"),
            ("package stasis\nallow := count(numbers.range(1, 1000000000)) > 1", "numbers.range"),
            ("package stasis\nallow if http.send({}).status == 200", "http.send"),
        ] {
            let said = RegoModule::compile(text).expect_err(text).to_string();
            assert!(said.contains(hint), "{text}: {said}");
        }
        let long = format!("package stasis\nallow := true\n{}", "# x\n".repeat(LONGEST / 4));
        assert!(RegoModule::compile(&long).is_err());
        let many: String = (0..=MOST_RULES).map(|n| format!("r{n} := {n}\n")).collect();
        let many = format!("package stasis\nallow := true\n{many}");
        assert!(RegoModule::compile(&many).expect_err("many").to_string().contains("200 rules"));
    }

    #[test]
    fn time_and_input_are_bounded() {
        let slow = "package stasis\nallow if {\n some a in input.l\n some b in input.l\n \
                    some c in input.l\n some d in input.l\n a + b + c + d == -1\n}";
        let module = RegoModule::compile(slow).expect("Rego");
        let list: Vec<u32> = (0..2000).collect();
        let failed = module.answer(&json!({ "l": list })).expect_err("it takes too long");
        assert!(failed.0.contains("time") || failed.0.contains("longer"), "{failed}");
        let large = json!({ "l": "x".repeat(LONGEST_INPUT) });
        assert!(module.answer(&large).expect_err("too large").0.contains("at most"));
    }

    /// Rules that use each other as deep as there may be rules.
    #[test]
    fn the_stack_is_large_enough() {
        let mut text = String::from("package stasis\nallow if f0(input.x)\n");
        for n in 0..MOST_RULES - 2 {
            text += &format!("f{n}(x) if {{ ((((f{}(x))))) }}\n", n + 1);
        }
        text += &format!("f{}(x) if x == 1\n", MOST_RULES - 2);
        let module = RegoModule::compile(&text).expect("Rego");
        let answer = module.answer(&json!({ "x": 1 }));
        assert!(answer.is_err() || answer.is_ok_and(|answer| answer.allow));
    }
}
