//! Operations of code that mcp-v8's policies and hooks decide: requests, files, programs, tools.
//!
//!   code ── Effect ──► driver ──► a thread of its own: hooks, policies ──► Execute, or a refusal
//!        ── Effected: the output ──► the rest of the hooks ──► Output, or Execute again
//!
//! Code asks here because hooks may change its request. Hostile code can skip the question: rules
//! that must hold against any code are enforced where requests leave the machine.

use crate::driver::Driver;
use crate::host::HostInner;
use crate::machine::Machine;
use crate::tools::{RequestedCall, answered, denied_words, failed, first_text, shortened};
use parking_lot::Mutex;
use serde_json::{Map, Value, json};
use stasis_api::{PolicyVerdict, RefusedAccess, Timestamp, ToolCallState};
use stasis_policy::v8::{V8Policies, V8Refused, V8Step, V8Walk};
use stasis_protocol::ToolAnswer;
use stasis_records::{CallEnd, NewCall};
use stasis_tools::{ToolFault, ToolOutcome};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Operations of one instruction that are under way, and all of them.
const MOST_OPEN: usize = 256;
const MOST: u64 = 100_000;
/// Bytes of an operation, and of all that are under way.
const LONGEST: usize = 8 << 20;
const ALL_OPEN: usize = 32 << 20;
const LONGEST_TOLD: usize = 200;
/// The category whose input has the headers of the connection, and their name in it.
const WITH_HEADERS: &str = "filesystem";
const HEADERS: &str = "mcp_headers";

/// Operations of the running instruction.
#[derive(Default)]
pub(crate) struct InstructionEffects {
    asked: AtomicU64,
    /// A refusal was reported; one instruction reports one.
    told_refusal: AtomicBool,
    open: Mutex<HashMap<u64, OpenOperation>>,
}

/// An operation whose output is awaited.
struct OpenOperation {
    walk: V8Walk,
    /// Bytes of its input.
    size: usize,
}

/// Bytes of a value as text.
fn size_of(value: &Value) -> usize {
    serde_json::to_vec(value).map_or(usize::MAX, |text| text.len())
}

/// Whether one more operation may be under way.
fn has_room(open: &HashMap<u64, OpenOperation>, size: usize) -> bool {
    let held: usize = open.values().map(|one| one.size).sum();
    open.len() < MOST_OPEN && held.saturating_add(size) <= ALL_OPEN
}

impl InstructionEffects {
    /// The answer to code about the next step of an operation.
    fn answer(
        &self,
        machine: &Machine,
        (category, policy): (&str, &str),
        walk: V8Walk,
        step: Result<V8Step, V8Refused>,
    ) -> ToolAnswer {
        match step {
            Ok(V8Step::Done(output)) => ToolAnswer::Output { output },
            Ok(V8Step::Execute { mut input, last }) => {
                // code is not told what its client sent
                without_headers(&mut input);
                let call = self.asked.fetch_add(1, Ordering::Relaxed);
                if !last {
                    let size = size_of(&input);
                    let mut open = self.open.lock();
                    if !has_room(&open, size) {
                        let said = format!(
                            "an instruction has at most {MOST_OPEN} operations under way, and {} \
                             MiB of them",
                            ALL_OPEN >> 20
                        );
                        return failed("tool.too_many", said);
                    }
                    open.insert(call, OpenOperation { walk, size });
                }
                ToolAnswer::Execute { call, input, last }
            }
            Err(refused) => {
                if !self.told_refusal.swap(true, Ordering::Relaxed) {
                    let reason = shortened(refused.0.clone(), LONGEST_TOLD);
                    machine.tell_refused(RefusedAccess {
                        access: format!("{category} {}", shortened(walk.about(), LONGEST_TOLD)),
                        verdict: PolicyVerdict::Deny,
                        reason,
                        policy: Some(policy.to_owned()),
                        rule: Some(category.to_owned()),
                        unreported: 0,
                    });
                }
                failed("policy.denied", refused)
            }
        }
    }
}

impl Driver {
    /// Whether an operation may take place, and how.
    pub(crate) fn effect(&mut self, seq: u64, id: u64, category: String, mut input: Value) {
        let effects = self.tools.effects.clone();
        if effects.asked.load(Ordering::Relaxed) > MOST {
            let said = format!("an instruction has at most {MOST} operations under policies");
            return self.reply(seq, id, failed("tool.too_many", said));
        }
        if size_of(&input) > LONGEST {
            let said = format!("the operation has more than {} MiB", LONGEST >> 20);
            return self.reply(seq, id, failed("tool.too_large", said));
        }
        self.behind(seq, id, move |host, machine| {
            let Some((policy, v8)) = machine.v8_policies() else {
                return failed("policy.none", "the machine has no policies of mcp-v8");
            };
            machine.add_headers(&category, &mut input);
            let Some(mut walk) = v8.walk(&category, machine.name().as_str(), input) else {
                let category = shortened(category, LONGEST_TOLD);
                let said = format!("{category} is not available: the policies do not mention it");
                return failed("policy.denied", said);
            };
            let step = in_turn(host, machine, || walk.begin());
            effects.answer(machine, (&category, &policy), walk, step)
        });
    }

    /// Goes on with the output of an operation.
    pub(crate) fn effected(&mut self, seq: u64, id: u64, call: u64, output: Result<Value, String>) {
        let effects = self.tools.effects.clone();
        self.behind(seq, id, move |host, machine| {
            let found = effects.open.lock().remove(&call);
            let Some(OpenOperation { mut walk, .. }) = found else {
                return failed("tool.refused", format!("no operation {call} is under way"));
            };
            let (category, policy) = (walk.category(), machine.v8_policies());
            let policy = policy.map(|(name, _)| name).unwrap_or_default();
            let step = in_turn(host, machine, || walk.executed(output));
            effects.answer(machine, (category, &policy), walk, step)
        });
    }

    /// Calls a tool under hooks, or under policies that wait for a server.
    pub(crate) fn call_under_hooks(&mut self, seq: u64, id: u64, call: RequestedCall) {
        let effects = self.tools.effects.clone();
        self.behind(seq, id, move |host, machine| {
            let Some((policy, v8)) = machine.v8_policies() else {
                return failed("policy.none", "the machine has no policies of mcp-v8");
            };
            let RequestedCall { server, tool, arguments } = call;
            let input = json!({ "operation": "mcp_call_tool", "server": server, "tool": tool,
                "arguments": arguments });
            let Some(mut walk) = v8.walk("mcp_tools", machine.name().as_str(), input) else {
                return failed("policy.none", "the policies do not mention tools");
            };
            let mut step = in_turn(host, machine, || walk.begin());
            loop {
                let input = match step {
                    Ok(V8Step::Execute { input, .. }) => input,
                    Ok(V8Step::Done(output)) => return outcome(output),
                    refused => {
                        let about = ("mcp_tools", policy.as_str());
                        return match effects.answer(machine, about, walk, refused) {
                            ToolAnswer::Failed { message, .. } => failed("tool.denied", message),
                            other => other,
                        };
                    }
                };
                let made = match called(&input) {
                    Some(call) => made_call(host, machine, (seq, id), call),
                    None => Err(failed("tool.refused", "a hook makes it something else")),
                };
                step = match made {
                    Ok(output) => in_turn(host, machine, || walk.executed(Ok(document(&output)))),
                    Err(ToolAnswer::Failed { code, message }) if code == "tool.denied" => {
                        return failed("tool.denied", message);
                    }
                    Err(ToolAnswer::Failed { message, .. }) => {
                        in_turn(host, machine, || walk.executed(Err(message)))
                    }
                    Err(other) => return other,
                };
            }
        });
    }
}

/// Asks policies and hooks, which may wait for a server or a script, fairly between accounts.
fn in_turn<T>(host: &HostInner, machine: &Machine, ask: impl FnOnce() -> T) -> T {
    let _turn = host.turns.questions.take(&machine.account());
    ask()
}

/// The call in an input that hooks may have changed.
fn called(input: &Value) -> Option<RequestedCall> {
    let text = |name: &str| input[name].as_str().map(str::to_owned);
    let arguments = match &input["arguments"] {
        Value::Null => Map::new(),
        Value::Object(arguments) => arguments.clone(),
        _ => return None,
    };
    Some(RequestedCall { server: text("server")?, tool: text("tool")?, arguments })
}

/// Makes a call that hooks and policies of mcp-v8 allow, if the machine's other policies do. A
/// call that a person has to allow is refused: it cannot wait in the middle of hooks.
fn made_call(
    host: &HostInner,
    machine: &Machine,
    (seq, request): (u64, u64),
    call: RequestedCall,
) -> Result<ToolOutcome, ToolAnswer> {
    let known = host.tools.has(&machine.tool_scope(), &call.server);
    known.map_err(|fault: ToolFault| failed(fault.code(), fault))?;
    let decision = machine.admit_tool(&call);
    let explained = decision.explain();
    if !decision.is_allowed() {
        return Err(failed("tool.denied", denied_words(&call, &explained.reason)));
    }
    let new = NewCall {
        seq,
        request,
        server: call.server.clone(),
        tool: call.tool.clone(),
        arguments: shortened(Value::Object(call.arguments.clone()).to_string(), 4 << 10),
        state: ToolCallState::Running,
        verdict: explained.verdict,
        reason: explained.reason,
        at: Timestamp::now(),
        expires_at: None,
    };
    let record = host.records.add_call(machine.id, new);
    let record = record.map_err(|error| failed("tool.not_recorded", error))?;
    let _turn = host.turns.calls.take(&machine.account());
    let made = host.tools.call(&machine.tool_scope(), &call.server, &call.tool, call.arguments);
    let (state, error) = match &made {
        Ok(outcome) if !outcome.is_error => (ToolCallState::Completed, None),
        Ok(outcome) => (ToolCallState::Failed, Some(first_text(outcome))),
        Err(fault) => (ToolCallState::Failed, Some(fault.to_string())),
    };
    let error = error.map(|error| shortened(error, 1000));
    if let Err(error) =
        host.records.end_call(record, CallEnd { state, at: Timestamp::now(), error })
    {
        tracing::error!(machine = %machine.name(), seq, %error, "call not recorded");
    }
    made.map_err(|fault| answered(Err(fault)))
}

fn document(outcome: &ToolOutcome) -> Value {
    json!({ "content": outcome.content, "structuredContent": outcome.structured,
        "isError": outcome.is_error })
}

/// An output that hooks have left.
fn outcome(mut output: Value) -> ToolAnswer {
    let content = output["content"].take();
    let Value::Array(content) = content else {
        return failed("tool.refused", "a hook leaves no content");
    };
    let structured = Some(output["structuredContent"].take()).filter(|value| !value.is_null());
    ToolAnswer::Result { content, structured, is_error: output["isError"] == Value::Bool(true) }
}

fn without_headers(input: &mut Value) {
    if let Value::Object(fields) = input {
        fields.remove(HEADERS);
    }
}

impl Machine {
    /// Shows the headers of a connection to mcp-v8's policies, in place of earlier ones.
    pub fn show_headers(&self, headers: &BTreeMap<String, String>) {
        *self.shown_headers.lock() = match headers.is_empty() {
            true => Value::Null,
            false => json!(headers),
        };
    }

    /// Puts the headers of the connection in an input, and never those that code names.
    fn add_headers(&self, category: &str, input: &mut Value) {
        without_headers(input);
        let headers = self.shown_headers.lock();
        if let (WITH_HEADERS, Value::Object(fields), Value::Object(_)) =
            (category, input, &*headers)
        {
            fields.insert(HEADERS.to_owned(), headers.clone());
        }
    }

    /// mcp-v8's policies that the machine is held to, with the name that they are in force by.
    pub(crate) fn v8_policies(&self) -> Option<(String, V8Policies)> {
        let levels = self.policy_levels();
        let found = levels.iter().find_map(|level| Some((level.name.to_string(), level.v8()?)));
        found.map(|(name, v8)| (name, v8.clone()))
    }

    /// Whether calls of tools take their time: they have hooks, or a server decides.
    pub(crate) fn has_tool_hooks(&self) -> bool {
        self.v8_policies().is_some_and(|(_, v8)| v8.waits("mcp_tools"))
    }
}

/// Shared between the driver and the threads that find answers.
pub(crate) type SharedEffects = Arc<InstructionEffects>;
