//! Tools of upstream servers, for instructions.
//!
//!   agent ── Tool ──► driver ── policy? ──► recorded ──► a thread of its own ──► hub ──► server
//!         ◄─ Tool ──         ◄─ wake-up ── recorded ◄────────────────────────────────────┘
//!
//! The machine's code can send any request, so an instruction has one under way at a time, and only
//! so many, of a bounded size. A call is recorded before it is sent and sent once, whatever happens
//! then. If its instruction ends first, the result is recorded and dropped.

use crate::driver::Driver;
use crate::effects::SharedEffects;
use crate::error::Result as HostResult;
use crate::host::HostInner;
use crate::machine::Machine;
use crate::park::{ParkedState, WaitingCall};
use serde_json::{Map, Value};
use stasis_api::{RefusedAccess, Timestamp, ToolCallState};
use stasis_policy::decide::{Access, Decision};
use stasis_protocol::{DescribedTool, Order, ToolAnswer, ToolRequest};
use stasis_records::{CallEnd, NewCall};
use stasis_tools::{ToolFault, ToolInfo, ToolOutcome, ToolScope};
use std::time::{Duration, Instant};

/// Requests of one instruction.
const MOST: u32 = 4000;
/// Bytes of the arguments of a call.
const LONGEST_ARGUMENTS: usize = 1 << 20;
/// Bytes of the arguments in the history of calls that need no approval.
const KEPT_ARGUMENTS: usize = 4 << 10;
/// Bytes of a name of a tool.
const LONGEST_NAME: usize = 128;
/// Bytes of an error in the history.
const KEPT_ERROR: usize = 1000;

/// Requests of the running instruction.
#[derive(Default)]
pub(crate) struct InstructionTools {
    asked: u32,
    /// A refusal was reported; one instruction reports one.
    told_refusal: bool,
    /// The request that is not answered yet.
    pub waits_for: Option<u64>,
    /// The code was interrupted since, and may ask for something else.
    pub abandoned: bool,
    /// The call that waits for a person.
    pub waiting: Option<WaitingCall>,
    /// The machine's image in the middle of the instruction, as long as it is on record.
    pub parked: Option<ParkedState>,
    /// How long the instruction waited for people.
    pub waited: Duration,
    /// When the instruction was taken up, and how long an earlier process ran it.
    pub begun: Option<Instant>,
    pub ran_before: Duration,
    /// Its operations under policies.
    pub effects: SharedEffects,
}

impl InstructionTools {
    /// How long the instruction has run, without the time it waited for people.
    pub fn ran(&self) -> Duration {
        let here = self.begun.map_or(Duration::ZERO, |begun| begun.elapsed());
        (self.ran_before + here).saturating_sub(self.waited)
    }
}

/// The answer to a request, on its way to the driver.
#[derive(Debug)]
pub(crate) struct FoundToolAnswer {
    pub id: u64,
    pub answer: ToolAnswer,
}

/// A call as code asks for it.
#[derive(Debug, Clone)]
pub(crate) struct RequestedCall {
    pub server: String,
    pub tool: String,
    pub arguments: Map<String, Value>,
}

pub(crate) fn failed(code: &str, message: impl ToString) -> ToolAnswer {
    ToolAnswer::Failed { code: code.to_owned(), message: message.to_string() }
}

impl Driver {
    /// Takes a request up. A second one while the first is under way is not from the agent, which
    /// waits, and has no answer.
    pub(crate) fn tool(&mut self, seq: u64, id: u64, what: ToolRequest) {
        // unless it was interrupted meanwhile
        if self.tools.waits_for.is_some() && !std::mem::take(&mut self.tools.abandoned) {
            return;
        }
        let counted = !matches!(what, ToolRequest::Effect { .. } | ToolRequest::Effected { .. });
        self.tools.waits_for = Some(id);
        self.tools.asked += u32::from(counted);
        if self.tools.asked > MOST {
            let said = format!("an instruction has at most {MOST} requests about tools");
            return self.reply(seq, id, failed("tool.too_many", said));
        }
        match what {
            ToolRequest::Cut(what) => {
                let said = format!("the arguments are too large: they have {what}");
                self.reply(seq, id, failed("tool.too_large", said));
            }
            ToolRequest::Servers => {
                let servers = self.host.tools.servers(&self.machine.tool_scope());
                self.reply(seq, id, ToolAnswer::Servers { servers });
            }
            ToolRequest::List { server, etag } => self.behind(seq, id, move |host, machine| {
                listed(host, machine, &server, etag.as_deref())
            }),
            ToolRequest::Call { server, tool, arguments } => {
                self.call(seq, id, RequestedCall { server, tool, arguments });
            }
            ToolRequest::Effect { category, input } => self.effect(seq, id, category, input),
            ToolRequest::Effected { call, output, error } => {
                let output = error.map_or(Ok(output.unwrap_or_default()), Err);
                self.effected(seq, id, call, output);
            }
        }
    }

    pub(crate) fn reply(&self, seq: u64, id: u64, answer: ToolAnswer) {
        self.machine.take_tool(seq, FoundToolAnswer { id, answer });
    }

    /// Finds an answer on a thread of its own.
    pub(crate) fn behind(
        &self,
        seq: u64,
        id: u64,
        find: impl FnOnce(&HostInner, &Machine) -> ToolAnswer + Send + 'static,
    ) {
        let (machine, host) = (self.machine.clone(), self.host.clone());
        let run = move || {
            let answer = find(&host, &machine);
            machine.take_tool(seq, FoundToolAnswer { id, answer });
        };
        if let Err(said) = self.machine.helpers.spawn("stasis-tool", run) {
            self.reply(seq, id, failed("tool.busy", said));
        }
    }

    /// Judges a call, and makes it if that is allowed.
    fn call(&mut self, seq: u64, id: u64, call: RequestedCall) {
        let arguments = match self.checked(&call) {
            Ok(arguments) => arguments,
            Err(answer) => return self.reply(seq, id, answer),
        };
        if self.machine.has_tool_hooks() {
            return self.call_under_hooks(seq, id, call);
        }
        let decision = self.machine.admit_tool(&call);
        let explained = decision.explain();
        let reason = match (&explained.policy, &explained.rule) {
            (Some(policy), Some(rule)) => format!("policy `{policy}`: {rule}"),
            (Some(policy), None) => format!("policy `{policy}`: {}", explained.reason),
            (None, _) => explained.reason.clone(),
        };
        let new = NewCall {
            seq,
            request: id,
            server: call.server.clone(),
            tool: call.tool.clone(),
            arguments: match decision {
                Decision::Ask(_) => arguments,
                _ => shortened(arguments, KEPT_ARGUMENTS),
            },
            state: ToolCallState::Running,
            verdict: explained.verdict,
            reason: reason.clone(),
            at: Timestamp::now(),
            expires_at: None,
        };
        match decision {
            Decision::Allow(_) => match self.host.records.add_call(self.machine.id, new) {
                Ok(record) => self.make_call(seq, id, record, call),
                Err(error) => self.reply(seq, id, failed("tool.not_recorded", error)),
            },
            Decision::Ask(_) => self.ask_person(seq, id, call, new),
            Decision::Deny(..) => {
                let refused = NewCall { state: ToolCallState::Denied, ..new };
                let recorded = self.host.records.add_call(self.machine.id, refused);
                self.tell_denied(&call, explained);
                let said = match recorded {
                    Ok(_) => denied_words(&call, &reason),
                    Err(error) => error.to_string(),
                };
                self.reply(seq, id, failed("tool.denied", said));
            }
        }
    }

    /// The arguments as text, if the call can be judged at all.
    fn checked(&self, call: &RequestedCall) -> Result<String, ToolAnswer> {
        let fault = |fault: ToolFault| failed(fault.code(), fault);
        self.host.tools.has(&self.machine.tool_scope(), &call.server).map_err(fault)?;
        if call.tool.is_empty() || call.tool.len() > LONGEST_NAME {
            let said = format!("the name of a tool has 1 to {LONGEST_NAME} bytes");
            return Err(failed("tool.refused", said));
        }
        let text = serde_json::to_string(&call.arguments).unwrap_or_default();
        if text.len() > LONGEST_ARGUMENTS {
            let said = "the arguments are too large: they have more than 1 MiB";
            return Err(failed("tool.too_large", said));
        }
        Ok(text)
    }

    /// Makes a call that is on record as running.
    pub(crate) fn make_call(&self, seq: u64, id: u64, record: u64, call: RequestedCall) {
        self.behind(seq, id, move |host, machine| {
            let scope = machine.tool_scope();
            let _turn = host.turns.calls.take(&scope.account);
            let made = host.tools.call(&scope, &call.server, &call.tool, call.arguments);
            let (state, error) = match &made {
                Ok(outcome) if !outcome.is_error => (ToolCallState::Completed, None),
                Ok(outcome) => (ToolCallState::Failed, Some(first_text(outcome))),
                Err(fault) => (ToolCallState::Failed, Some(fault.to_string())),
            };
            let error = error.map(|error| shortened(error, KEPT_ERROR));
            let end = CallEnd { state, at: Timestamp::now(), error };
            if let Err(error) = host.records.end_call(record, end) {
                tracing::error!(machine = %machine.name(), seq, %error, "call not recorded");
            }
            answered(made)
        });
    }

    /// Reports a refusal, once for each instruction.
    fn tell_denied(&mut self, call: &RequestedCall, explained: stasis_api::Explanation) {
        if std::mem::replace(&mut self.tools.told_refusal, true) {
            return;
        }
        self.machine.tell_refused(RefusedAccess {
            access: format!("tool {}.{}", call.server, call.tool),
            verdict: explained.verdict,
            reason: explained.reason,
            policy: explained.policy,
            rule: explained.rule,
            unreported: 0,
        });
    }

    /// Passes an answer that has come on to the code.
    pub(crate) fn pass_tool(&mut self, seq: u64) -> HostResult<()> {
        let come = self.machine.work().feed.as_mut().and_then(|feed| feed.tool.take());
        let Some(FoundToolAnswer { id, answer }) = come else { return Ok(()) };
        if self.tools.waits_for != Some(id) {
            return Ok(());
        }
        // before the agent goes on: from then on nothing may continue from the image
        self.return_parked()?;
        self.unpark()?;
        self.tools.waits_for = None;
        match &mut self.live {
            Some(live) => live.line.send(&Order::Tool { seq, id, answer }),
            None => Ok(()),
        }
    }
}

impl Machine {
    /// Leaves an answer for the driver, if the instruction is still under way.
    pub(crate) fn take_tool(&self, seq: u64, reply: FoundToolAnswer) {
        let mut work = self.work();
        if let Some(feed) = work.feed.as_mut().filter(|feed| feed.seq == seq) {
            feed.tool = Some(reply);
            work.wake_driver();
        }
    }

    /// Has its code use a lent set of servers, beside those of its account. Not on record: the
    /// surface that lends them says so again before each instruction, and after a restart.
    pub fn use_tools(&self, set: Option<&str>) {
        *self.tool_set.lock() = set.map(str::to_owned);
    }

    pub(crate) fn tool_scope(&self) -> ToolScope {
        ToolScope::of(&self.account(), self.tool_set.lock().as_deref())
    }

    /// Whether its code may call a tool. A machine without a policy may call what the operator has
    /// given its account.
    pub(crate) fn decide_tool(&self, call: &RequestedCall) -> Decision {
        let RequestedCall { server, tool, arguments } = call;
        let arguments = Value::Object(arguments.clone());
        self.decide(&Access::Tool { server, tool, arguments: &arguments })
    }
}

/// The error that a denied call raises.
pub(crate) fn denied_words(call: &RequestedCall, reason: &str) -> String {
    format!("{}.{} is not allowed: {reason}", call.server, call.tool)
}

fn listed(host: &HostInner, machine: &Machine, server: &str, etag: Option<&str>) -> ToolAnswer {
    let scope = machine.tool_scope();
    let _turn = host.turns.calls.take(&scope.account);
    match host.tools.list(&scope, server) {
        Ok(list) if etag == Some(list.etag.as_str()) => ToolAnswer::Unchanged,
        Ok(list) => ToolAnswer::Tools {
            etag: list.etag.clone(),
            tools: list.tools.iter().map(described).collect(),
            left_out: list.left_out.clone(),
        },
        Err(fault) => failed(fault.code(), fault),
    }
}

fn described(tool: &ToolInfo) -> DescribedTool {
    DescribedTool {
        name: tool.name.clone(),
        description: tool.description.clone(),
        input_schema: tool.input_schema.clone(),
        output_schema: tool.output_schema.clone(),
    }
}

pub(crate) fn answered(made: Result<ToolOutcome, ToolFault>) -> ToolAnswer {
    match made {
        Ok(ToolOutcome { content, structured, is_error }) => {
            ToolAnswer::Result { content, structured, is_error }
        }
        Err(fault) => failed(fault.code(), fault),
    }
}

/// The error text of a failed tool.
pub(crate) fn first_text(outcome: &ToolOutcome) -> String {
    let text = outcome.content.iter().find_map(|block| block["text"].as_str());
    text.unwrap_or("the tool failed").to_owned()
}

/// The beginning of a text.
pub(crate) fn shortened(mut text: String, most: usize) -> String {
    if text.len() > most {
        text.truncate(text.floor_char_boundary(most));
        text.push('…');
    }
    text
}
