//! Approval of a call that waits for a person, by the user of the client that runs the code.
//!
//!   run ─► the code calls a tool ─► the policy asks ─► elicitation ─► the answer is recorded
//!
//! Clients of a session are asked, if they support it and their token has the scope `approve`. A
//! user who dismisses the question leaves the call waiting; others can still answer it, and the
//! first answer counts.

use crate::call::CallContext;
use crate::confirm::{THOUGHT, can_ask};
use crate::error::Result;
use crate::text::{cut, first_line};
use rmcp::model::{ElicitRequestParams, ElicitResult, ElicitationAction};
use serde_json::json;
use stasis_api::{ApprovalAnswer, ApprovalChoice, ApprovalQuery, ToolCallInfo};
use stasis_machine::Machine;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::AbortHandle;

/// How often calls that wait are looked for while an instruction runs.
const EVERY: Duration = Duration::from_millis(500);
/// Characters of arguments in a question.
const SHOWN: usize = 2000;
const LONGEST_NOTE: usize = 1000;

/// Asks about the calls of one instruction, each once. Questions end with the call that follows it.
pub struct ApprovalAsker {
    /// Absent if the client cannot or may not answer.
    call: Option<CallContext>,
    machine: Arc<Machine>,
    seq: u64,
    asked: BTreeSet<u64>,
    questions: Vec<AbortHandle>,
}

impl Drop for ApprovalAsker {
    fn drop(&mut self) {
        self.questions.iter().for_each(AbortHandle::abort);
    }
}

impl ApprovalAsker {
    pub fn new(call: &CallContext, machine: &Arc<Machine>, seq: u64) -> ApprovalAsker {
        let can = call.may_approve && !call.is_stateless() && can_ask(call);
        let (call, machine) = (can.then(|| call.clone()), machine.clone());
        ApprovalAsker { call, machine, seq, asked: BTreeSet::new(), questions: Vec::new() }
    }

    /// Waits, then asks the user about calls that need approval. Never returns if the client cannot
    /// ask its user.
    pub async fn look(&mut self) {
        let Some(call) = &self.call else { return std::future::pending().await };
        tokio::time::sleep(EVERY).await;
        let (name, seq) = (self.machine.name().to_string(), self.seq);
        let query = ApprovalQuery { machine: Some(name), ..ApprovalQuery::default() };
        let found = call.block(move |call| Ok(call.host.approvals(&call.account, &query)?)).await;
        for waiting in found.unwrap_or_default().into_iter().filter(|found| found.seq == seq) {
            if self.asked.insert(waiting.id) {
                let work = ask(call.clone(), waiting);
                self.questions.push(tokio::spawn(work).abort_handle());
            }
        }
    }
}

async fn ask(call: CallContext, waiting: ToolCallInfo) {
    let Some(request) = form(&waiting) else { return };
    let asked = call.context.peer.create_elicitation_with_timeout(request, Some(THOUGHT));
    let Some(answer) = asked.await.ok().and_then(|said| answer_of(&said)) else { return };
    let done: Result<()> = call
        .block(move |call| {
            let by = format!("{} (MCP client)", call.account);
            Ok(call.host.answer(&call.account, waiting.id, by, answer).map(drop)?)
        })
        .await;
    if let Err(error) = done {
        tracing::info!(%error, "an approval was answered elsewhere");
    }
}

fn form(waiting: &ToolCallInfo) -> Option<ElicitRequestParams> {
    let schema = json!({
        "type": "object",
        "properties": {
            "answer": { "type": "string", "title": "Answer", "enum": ["allow", "deny"] },
            "note": { "type": "string", "title": "Note for the code", "maxLength": LONGEST_NOTE },
        },
        "required": ["answer"],
    });
    let message = format!(
        "Code on machine {} wants to call {}.{} with {}\n{}. Allow it?",
        waiting.machine,
        waiting.server,
        first_line(&waiting.tool, 200),
        cut(&waiting.arguments, SHOWN, "`stasis approvals`"),
        waiting.reason,
    );
    let requested_schema = serde_json::from_value(schema).ok()?;
    Some(ElicitRequestParams::FormElicitationParams { meta: None, message, requested_schema })
}

/// A form that was sent says what; a refusal to fill it in denies; a dismissal says nothing.
fn answer_of(said: &ElicitResult) -> Option<ApprovalAnswer> {
    let field = |name: &str| said.content.as_ref().and_then(|content| content[name].as_str());
    let note = field("note").map(|note| note.chars().take(LONGEST_NOTE).collect());
    let answer = match (&said.action, field("answer")) {
        (ElicitationAction::Accept, Some("allow")) => ApprovalChoice::Allow,
        (ElicitationAction::Accept, Some("deny")) | (ElicitationAction::Decline, _) => {
            ApprovalChoice::Deny
        }
        _ => return None,
    };
    Some(ApprovalAnswer { answer, note })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(value: serde_json::Value) -> Option<ApprovalChoice> {
        let said: ElicitResult = serde_json::from_value(value).expect("an answer");
        answer_of(&said).map(|own| own.answer)
    }

    #[test]
    fn only_a_clear_yes_allows() {
        let yes = json!({ "action": "accept", "content": { "answer": "allow" } });
        assert_eq!(said(yes), Some(ApprovalChoice::Allow));
        let no = json!({ "action": "accept", "content": { "answer": "deny", "note": "n" } });
        assert_eq!(said(no), Some(ApprovalChoice::Deny));
        assert_eq!(said(json!({ "action": "decline" })), Some(ApprovalChoice::Deny));
        for nothing in [json!({ "action": "cancel" }), json!({ "action": "accept" })] {
            assert_eq!(said(nothing), None);
        }
        let odd = json!({ "action": "accept", "content": { "answer": "perhaps" } });
        assert_eq!(said(odd), None);
    }
}
