//! Parts of mcp-v8's policies beside Rego: remote servers, and scripts with hooks.
//!
//!   server   POST, JSON both ways, no redirects, at most so many bytes and so long
//!   script   a machine of its own, made for its text and found again by it
//!
//! A script never runs in this process, and never in the machine whose code it decides about. Its
//! machine has a network only if it may fetch, and its own files. A restart of the service, or a
//! day without a machine, starts the script anew.

use crate::TEMPLATE;
use parking_lot::{Condvar, Mutex};
use serde_json::{Value, json};
use stasis_api::{
    Checkpoints, Durability, Exec, Limits, Network, NewMachine, Status, Timeout, Timestamp,
};
use stasis_machine::{Error as HostError, Host, Machine, hand_over};
use stasis_policy::v8::{ScriptAnswer, ScriptStep, V8Outside, V8Script};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak, mpsc};
use std::time::{Duration, Instant};

const PROGRAM: &str = include_str!("hook.js");
/// Bytes of an answer.
const LARGEST: usize = 1 << 20;
/// Beyond the time limit of a script: its machine may have to be made or woken first.
const GRACE: Duration = Duration::from_secs(60);
/// Questions at once, of all machines.
const MOST_ASKED: usize = 128;
const LIFETIME: i64 = 24 * 3600;
const MEMORY_MB: u64 = 512;
/// Hooks run as the account that sets policies.
const ACCOUNT: &str = "root";

pub(crate) struct HookHost(pub Weak<Host>);

impl V8Outside for HookHost {
    fn post(&self, url: &str, body: &Value, timeout: Duration) -> Result<Value, String> {
        let (url, body) = (url.to_owned(), body.to_string());
        elsewhere(timeout, move || posted(&url, body, timeout))
    }

    fn script(&self, script: &V8Script, step: ScriptStep<'_>) -> Result<ScriptAnswer, String> {
        let host = self.0.upgrade().ok_or("the service ends")?;
        let (code, script) = (program(script, step), script.clone());
        elsewhere(script.timeout + GRACE, move || run(&host, &script, code))
    }
}

/// Questions that are under way. The threads that find their answers serve clients, too, so only so
/// many of them may wait for servers and scripts.
struct Asking {
    most: usize,
    now: Mutex<usize>,
    fewer: Condvar,
}

/// One question, until it is dropped.
struct AskingTurn<'a>(&'a Asking);

static ASKING: Asking = Asking::of(MOST_ASKED);

impl Asking {
    const fn of(most: usize) -> Asking {
        Asking { most, now: Mutex::new(0), fewer: Condvar::new() }
    }

    /// Room for one more, if there is some by then.
    fn take(&self, until: Instant) -> Option<AskingTurn<'_>> {
        let mut now = self.now.lock();
        while *now >= self.most {
            if self.fewer.wait_until(&mut now, until).timed_out() && *now >= self.most {
                return None;
            }
        }
        *now += 1;
        Some(AskingTurn(self))
    }
}

impl Drop for AskingTurn<'_> {
    fn drop(&mut self) {
        *self.0.now.lock() -= 1;
        self.0.fewer.notify_one();
    }
}

/// Does something on a thread with the service's rights: the caller's may be restricted.
fn elsewhere<T: Send + 'static>(
    limit: Duration,
    act: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let until = Instant::now() + limit + Duration::from_secs(1);
    let late = || Err(format!("no answer after {} ms", limit.as_millis()));
    let Some(turn) = ASKING.take(until) else { return late() };
    let (send, receive) = mpsc::sync_channel(1);
    hand_over(move || {
        // a question counts until it is answered, also after its caller gave up
        let _turn = turn;
        drop(send.send(act()));
    });
    let left = until.saturating_duration_since(Instant::now());
    receive.recv_timeout(left).unwrap_or_else(|_| late())
}

fn posted(url: &str, body: String, timeout: Duration) -> Result<Value, String> {
    static CLIENT: OnceLock<Result<reqwest::Client, String>> = OnceLock::new();
    let client = CLIENT.get_or_init(|| {
        let none = reqwest::redirect::Policy::none();
        let client = reqwest::Client::builder().redirect(none).no_proxy().pool_max_idle_per_host(0);
        client.build().map_err(|error| error.to_string())
    });
    let client = client.as_ref().map_err(String::clone)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let told = |error: reqwest::Error| error.without_url().to_string();
    runtime.block_on(async {
        let asked = client.post(url).header("content-type", "application/json").body(body);
        let mut answer = asked.timeout(timeout).send().await.map_err(told)?;
        if !answer.status().is_success() {
            return Err(format!("it answered with {}", answer.status().as_u16()));
        }
        let mut bytes = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(told)? {
            bytes.extend_from_slice(&piece);
            if bytes.len() > LARGEST {
                return Err(format!("its answer has more than {LARGEST} bytes"));
            }
        }
        serde_json::from_slice(&bytes).map_err(|error| error.to_string())
    })
}

fn program(script: &V8Script, step: ScriptStep<'_>) -> String {
    let function = &script.function;
    let step = match step {
        ScriptStep::Call(arguments) => {
            json!({ "kind": "call", "function": function, "arguments": arguments })
        }
        ScriptStep::Enter { call, input } => {
            json!({ "kind": "enter", "function": function, "call": call, "input": input })
        }
        ScriptStep::Resume { call, next: Ok(output) } => {
            json!({ "kind": "resume", "function": function, "call": call, "output": output })
        }
        ScriptStep::Resume { call, next: Err(said) } => {
            json!({ "kind": "resume", "function": function, "call": call, "error": said })
        }
    };
    let own = json!({ "text": script.text, "name": script.name, "mayFetch": script.may_fetch,
        "hasFiles": script.has_files });
    format!("await (\n{PROGRAM})({own}, {step})")
}

/// The machine of a script; the same text has the same one.
fn machine(host: &Arc<Host>, script: &V8Script) -> Result<Arc<Machine>, HostError> {
    let own = json!([script.text, script.may_fetch, script.has_files]).to_string();
    let hash = blake3::hash(own.as_bytes()).to_hex();
    let name = format!("hook-{}", &hash.as_str()[..24]);
    if let Ok(found) = host.machine_of(ACCOUNT, &name) {
        return Ok(found);
    }
    let expires = Timestamp::from_second(Timestamp::now().as_second() + LIFETIME).ok();
    let network = if script.may_fetch { Network::Open } else { Network::None };
    let new = NewMachine {
        name: name.parse().ok(),
        tags: BTreeMap::from([("mcp-v8-hook".to_owned(), script.name.clone())]),
        limits: Limits { memory_mb: Some(MEMORY_MB), ..Limits::default() },
        template: Some(TEMPLATE.to_owned()),
        network: Some(network),
        checkpoints: Checkpoints::Grouped,
        durability: Durability::Memory,
        expires_at: expires,
        ..NewMachine::default()
    };
    // two at once: the second finds the first one's
    host.create(ACCOUNT, new).or_else(|_| host.machine_of(ACCOUNT, &name))
}

fn run(host: &Arc<Host>, script: &V8Script, code: String) -> Result<ScriptAnswer, String> {
    let told = |error: HostError| error.to_string();
    let machine = machine(host, script).map_err(told)?;
    let timeout = Timeout::Seconds(script.timeout.as_secs_f64());
    let exec = Exec { code, timeout, ..Exec::default() };
    let end = machine.submit(exec).and_then(|seq| machine.wait(seq)).map_err(told)?;
    let outcome = end.outcome.unwrap_or_default();
    if end.status != Status::Done {
        let limit = script.timeout.as_millis();
        let failed = outcome.error.map(|error| error.message);
        return Err(match end.status {
            Status::Interrupted => format!("it took longer than {limit} ms"),
            _ => failed.unwrap_or_else(|| "its machine failed".into()),
        });
    }
    let mut answer = outcome.data.and_then(|mut data| data.remove("application/json"));
    let answer = answer.as_mut().and_then(Value::as_object_mut);
    let answer = answer.ok_or("its answer is too large")?;
    if let Some(said) = answer.get("threw") {
        return Err(said.as_str().unwrap_or("it failed").to_owned());
    }
    if let Some(input) = answer.remove("next") {
        return Ok(ScriptAnswer::Next(input));
    }
    let returned = answer.remove("returned").ok_or("it has no answer")?;
    Ok(ScriptAnswer::Returned(Some(returned).filter(|value| !value.is_null())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_so_many_questions_are_under_way() {
        let asking = Asking::of(2);
        let soon = || Instant::now() + Duration::from_millis(20);
        let first = asking.take(soon()).expect("room");
        let _second = asking.take(soon()).expect("room");
        assert!(asking.take(soon()).is_none());
        std::thread::scope(|scope| {
            let third =
                scope.spawn(|| asking.take(Instant::now() + Duration::from_secs(60)).is_some());
            drop(first);
            assert!(third.join().expect("no panic"), "room that becomes free is used");
        });
        assert_eq!(*asking.now.lock(), 1);
    }
}
