//! Answers to calls that wait for a person.
//!
//!   answer ─► on record, once ─► the machine's driver ─► call or denial ─► the code goes on

use crate::error::{Error, Result};
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{
    ApprovalAnswer, ApprovalChoice, ApprovalQuery, EventKind, Timestamp, ToolCallInfo,
    ToolCallState,
};
use stasis_records::CallRecord;
use std::sync::Arc;

/// Calls in one list.
const MOST: u64 = 1000;
/// Characters of a note.
const LONGEST_NOTE: usize = 1000;
/// Bytes of arguments that a list shows.
const SHOWN_ARGUMENTS: usize = 4 << 10;

impl Host {
    /// Calls of an account that a person was asked about, the newest first.
    pub fn approvals(&self, account: &str, query: &ApprovalQuery) -> Result<Vec<ToolCallInfo>> {
        let all = query.all == Some(true);
        let found = self.inner().records.asked_calls(account, all, MOST)?;
        let own = |call: &ToolCallInfo| {
            query.machine.as_ref().is_none_or(|name| call.machine.as_str() == name)
        };
        Ok(found.into_iter().map(|found| short(found.call)).filter(own).collect())
    }

    /// One of them, with all of its arguments. Those of other accounts do not exist for it.
    pub fn approval(&self, account: &str, id: u64) -> Result<ToolCallInfo> {
        Ok(self.asked(account, id)?.call)
    }

    fn asked(&self, account: &str, id: u64) -> Result<CallRecord> {
        let found = self.inner().records.call(id)?;
        let own = |found: &CallRecord| {
            found.account == account && found.call.verdict == stasis_api::PolicyVerdict::Ask
        };
        found.filter(own).ok_or(Error::NoApproval(id))
    }

    /// Answers a call that waits, once. `by` says who.
    pub fn answer(
        &self,
        account: &str,
        id: u64,
        by: String,
        ApprovalAnswer { answer, note }: ApprovalAnswer,
    ) -> Result<ToolCallInfo> {
        if note.as_ref().is_some_and(|note| note.chars().count() > LONGEST_NOTE) {
            let said = format!("a note has at most {LONGEST_NOTE} characters");
            return Err(Error::Invalid(said));
        }
        let found = self.asked(account, id)?;
        let now = Timestamp::now();
        let in_time = found.call.expires_at.is_none_or(|expires| expires > now);
        let state = match answer {
            ApprovalChoice::Allow => ToolCallState::Approved,
            ApprovalChoice::Deny => ToolCallState::Denied,
        };
        let records = &self.inner().records;
        if !in_time || !records.answer_call(id, state, by, note, now)? {
            let state = self.asked(account, id)?.call.state;
            return Err(Error::ApprovalOver(
                id,
                if in_time { state } else { ToolCallState::Expired },
            ));
        }
        let machine = self.machines().into_iter().find(|machine| machine.id == found.machine);
        if let Some(machine) = machine {
            let about = format!("approval {id}: {}", state.word());
            machine.event_about(EventKind::ApprovalAnswered, &about);
            machine.hear_answer(id)?;
        }
        self.approval(account, id)
    }

    /// Calls of tools by a machine, the newest first.
    pub fn tool_calls(&self, machine: &Machine) -> Result<Vec<ToolCallInfo>> {
        let found = self.inner().records.calls(machine.id, MOST)?;
        Ok(found.into_iter().map(|found| short(found.call)).collect())
    }
}

fn short(call: ToolCallInfo) -> ToolCallInfo {
    let arguments = crate::tools::shortened(call.arguments, SHOWN_ARGUMENTS);
    ToolCallInfo { arguments, ..call }
}

impl Machine {
    /// Tells the driver that the answer to a call is on record.
    fn hear_answer(self: &Arc<Self>, id: u64) -> Result<()> {
        let mut work = self.work();
        if let Some(feed) = &mut work.feed {
            feed.answered = Some(id);
        }
        if work.state().accepts() { self.ensure_driver(&mut work) } else { Ok(()) }
    }
}
