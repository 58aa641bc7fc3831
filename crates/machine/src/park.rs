//! A call that waits for a person. The instruction waits with it, for as long as it takes.
//!
//!   call ─► recorded as waiting ─► 2 s ─► image, recorded as parked ─► out of memory when idle
//!                                                │
//!   answer ─► recorded ─► the call is made ─► back into memory ─► the result ─► the code goes on
//!                                                │
//!   the service ended meanwhile ─► next start: parked instructions wait again, from the image
//!
//! The image is that of a machine whose agent waits for the answer on the control socket, as an
//! idle one waits for an order. It is no checkpoint: no branch, undo or export sees it. The record
//! that names it is removed before the answer is sent to the agent, so the instruction goes on
//! from it once, or not at all.
//!
//! If no image can be made, the machine stays in memory and waits there; the end of the service
//! then ends the instruction, and the call with it.

use crate::action::Action;
use crate::driver::Driver;
use crate::error::Result;
use crate::lines::OutputLines;
use crate::pinned::PinnedImage;
use crate::run::RunEnd;
use crate::state::StateEvent;
use crate::tools::{RequestedCall, denied_words, failed};
use crate::wake;
use serde::{Deserialize, Serialize};
use stasis_api::{EventKind, ImportedModule, Shown, Timestamp, ToolCallState};
use stasis_engine::fault;
use stasis_protocol::{Reason, ToolAnswer};
use stasis_records::{CallEnd, CallRecord, NewCall, ParkedMachine};
use stasis_sys::fds;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// How long a call waits before the machine is saved: a person who looks on answers sooner.
const SAVE_AFTER: Duration = Duration::from_secs(2);
/// How long it stays in memory then, unless machines leave sooner.
const SWAP_AFTER: Duration = Duration::from_secs(60);
/// A save that was refused is tried again after this long.
const RETRY: Duration = Duration::from_secs(60);
/// How long a call waits for an answer.
const EXPIRES: Duration = Duration::from_secs(7 * 24 * 3600);

/// A call of the running instruction that waits for an answer.
pub(crate) struct WaitingCall {
    /// Its number in the records.
    record: u64,
    call: RequestedCall,
    since: Instant,
    expires_at: Timestamp,
    /// When the machine is saved next, unless it is.
    save_at: Instant,
    /// Its answer is on record.
    answered: bool,
}

/// The image of a machine that waits, held.
pub(crate) struct ParkedState {
    image: PinnedImage,
}

/// The driver's notes on a parked instruction.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct ParkedProgress {
    /// How long it has run, in milliseconds.
    pub ran_ms: u64,
    pub shown: Vec<Shown>,
    pub modules: Vec<ImportedModule>,
    pub notes: Vec<String>,
}

impl Driver {
    /// Records a call that a person has to allow, and has its instruction wait.
    pub(crate) fn ask_person(&mut self, seq: u64, id: u64, call: RequestedCall, new: NewCall) {
        let expires_at = new.at + EXPIRES;
        let expires_at = Timestamp::from_millisecond(expires_at.as_millisecond());
        let expires_at = expires_at.unwrap_or(new.at);
        let waiting =
            NewCall { state: ToolCallState::Waiting, expires_at: Some(expires_at), ..new };
        let record = match self.host.records.add_call(self.machine.id, waiting) {
            Ok(record) => record,
            Err(error) => return self.reply(seq, id, failed("tool.not_recorded", error)),
        };
        let about = format!("approval {record}: {}.{}", call.server, call.tool);
        self.machine.event_about(EventKind::ApprovalRequested, &about);
        let since = Instant::now();
        let save_at = since + SAVE_AFTER;
        self.tools.waiting =
            Some(WaitingCall { record, call, since, expires_at, save_at, answered: false });
    }

    /// When something is to be done about a call that waits.
    pub(crate) fn parked_until(&self) -> Option<Instant> {
        let waiting = self.tools.waiting.as_ref()?;
        let now = Instant::now();
        if waiting.answered {
            return Some(now);
        }
        let left = waiting.expires_at.as_millisecond() - Timestamp::now().as_millisecond();
        let expiry = now + Duration::from_millis(left.max(0) as u64);
        let step = match (&self.tools.parked, &self.live) {
            (None, Some(_)) => waiting.save_at,
            (Some(_), Some(_)) => match self.swap_after() {
                Some(idle) => waiting.since + idle,
                None => expiry,
            },
            (_, None) => expiry,
        };
        Some(step.min(expiry))
    }

    /// Waits without a machine in memory.
    pub(crate) fn wait_out(&self, until: Option<Instant>) {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000).min(60_000) as i32);
        if fds::poll_many(&[self.wakeup.as_fd()], ms).is_ok_and(|ready| ready[0]) {
            crate::work::silence(&self.wakeup);
        }
    }

    /// Does what is due about a call that waits. Returns the end of the run here, if the service
    /// ends and leaves the instruction parked.
    pub(crate) fn tend_waiting(&mut self, seq: u64, lines: &mut OutputLines) -> Option<RunEnd> {
        let Some(waiting) = &self.tools.waiting else { return None };
        let (record, expired) = (waiting.record, waiting.expires_at <= Timestamp::now());
        let answered = waiting.answered
            || self.machine.work().feed.as_mut().is_some_and(|feed| {
                feed.answered.take_if(|answered| *answered == record).is_some()
            });
        if answered || expired {
            self.settle_answer(seq, expired);
            return None;
        }
        let swap = {
            let mut work = self.machine.work();
            work.queue.take_request_if(|action| matches!(action, Action::SwapOut(_)))
        };
        let closing = self.host.closing.load(Ordering::Relaxed);
        let (since, due) = (waiting.since, waiting.save_at <= Instant::now());
        let mut end = None;
        if self.tools.parked.is_none() && self.live.is_some() && (due || swap.is_some()) {
            end = self.park(seq, lines);
        }
        let is_idle = self.swap_after().is_some_and(|idle| since.elapsed() >= idle);
        let leaves = is_idle || swap.is_some() || closing;
        if self.tools.parked.is_some() && self.live.is_some() && leaves {
            self.let_go();
            self.machine.event_at(EventKind::MachineSwapped, Some(seq));
        }
        if let Some(Action::SwapOut(reply)) = swap {
            let stays = || self.broken("it cannot be saved while a call waits for approval");
            reply.give(if self.live.is_none() { Ok(()) } else { Err(stays()) });
        }
        end.or_else(|| (closing && self.live.is_none()).then_some(RunEnd::Parked))
    }

    /// Whether the host closes, which interrupts everything but an instruction that is parked.
    pub(crate) fn leaves_parked(&mut self) -> bool {
        let closing = self.host.closing.load(Ordering::Relaxed);
        let leaves = closing && self.tools.waiting.is_some() && self.tools.parked.is_some();
        if leaves && self.live.is_some() {
            self.let_go();
        }
        leaves
    }

    /// How long a machine that waits stays in memory.
    fn swap_after(&self) -> Option<Duration> {
        self.host.settings.idle_swap.map(|idle| idle.min(SWAP_AFTER))
    }

    /// Acts on the answer that is on record.
    fn settle_answer(&mut self, seq: u64, expired: bool) {
        let Some(waiting) = self.tools.waiting.take() else { return };
        let Some(id) = self.tools.waits_for else { return };
        self.tools.waited += waiting.since.elapsed();
        if expired && !waiting.answered {
            self.end_record(waiting.record, ToolCallState::Expired);
        }
        let found = self.host.records.call(waiting.record);
        let found = found.ok().flatten().map(|found| found.call);
        let call = waiting.call;
        let answer = match found.as_ref().map(|found| found.state) {
            Some(ToolCallState::Approved) => match self.host.records.start_call(waiting.record) {
                Ok(true) => return self.make_call(seq, id, waiting.record, call),
                Ok(false) => failed("tool.cancelled", "the call was cancelled"),
                Err(error) => failed("tool.not_recorded", error),
            },
            Some(ToolCallState::Denied) => {
                let found = found.as_ref();
                let by = found.and_then(|found| found.answered_by.clone()).unwrap_or_default();
                let note = found.and_then(|found| found.note.clone());
                let said = note.map_or(String::new(), |note| format!(": {note}"));
                failed("tool.denied", denied_words(&call, &format!("{by} denied it{said}")))
            }
            Some(ToolCallState::Expired) => {
                failed("tool.expired", denied_words(&call, "it was not answered in time"))
            }
            Some(ToolCallState::Running | ToolCallState::Unknown) => {
                self.end_record(waiting.record, ToolCallState::Unknown);
                unknown(&call)
            }
            _ => failed("tool.cancelled", "the call was cancelled"),
        };
        self.reply(seq, id, answer);
    }

    fn end_record(&self, record: u64, state: ToolCallState) {
        let end = CallEnd { state, at: Timestamp::now(), error: None };
        if let Err(error) = self.host.records.end_call(record, end) {
            tracing::error!(machine = %self.machine.name(), %error, "call not recorded");
        }
    }

    /// Saves the machine in the middle of its instruction. Returns the end of that, if it came.
    fn park(&mut self, seq: u64, lines: &mut OutputLines) -> Option<RunEnd> {
        let come = match &mut self.live {
            Some(live) => live.settle_within(1).and_then(|mut come| {
                come.extend(live.rest()?);
                Ok(come)
            }),
            None => return None,
        };
        let end = match come {
            Ok(come) => self.digest(seq, come, lines),
            Err(error) => Some(RunEnd::Crashed(error.to_string())),
        };
        if end.is_some() {
            return end;
        }
        self.push(lines.end_partial());
        self.save_output();
        let parked = self.save_parked(seq);
        let waiting = self.tools.waiting.as_mut()?;
        match parked {
            Ok(image) => self.tools.parked = Some(ParkedState { image }),
            Err(error) => {
                waiting.save_at = Instant::now() + RETRY;
                let said = format!("a call waits for approval and the machine stays: {error}");
                tracing::warn!(machine = %self.machine.name(), seq, "{said}");
                self.machine.event_about(EventKind::MachinePinned, &said);
            }
        }
        None
    }

    fn save_parked(&mut self, seq: u64) -> Result<PinnedImage> {
        let files = self.machine.work().files.clone();
        let _still = files.as_ref().map(|files| files.still());
        if !self.step(StateEvent::Save) {
            return Err(self.machine.removed());
        }
        let saved = self.capture_parked(seq);
        self.step(StateEvent::Saved);
        saved
    }

    fn capture_parked(&mut self, seq: u64) -> Result<PinnedImage> {
        let owner = self.machine.account();
        let Some(live) = &self.live else { return Err(self.broken("it is not in memory")) };
        let captured = live.capture_waiting(&self.host, &owner)?;
        let image = PinnedImage(captured.image);
        let shown = self.machine.work().feed.as_ref().map(|feed| feed.shown.clone());
        let waiting = self.tools.waiting.as_ref();
        let waits = waiting.map_or(Duration::ZERO, |waiting| waiting.since.elapsed());
        let record = waiting.map_or(0, |waiting| waiting.record);
        let progress = ParkedProgress {
            ran_ms: self.tools.ran().saturating_sub(waits).as_millis() as u64,
            shown: shown.unwrap_or_default(),
            modules: self.imports.modules.clone(),
            notes: self.notes.clone(),
        };
        let progress = serde_json::to_string(&progress).unwrap_or_default();
        fault::point("park.record")?;
        self.host.records.park(self.machine.id, (seq, record), &image, progress)?;
        Ok(image)
    }

    /// Brings a parked machine back into memory. Its agent is told that it is awake, and waits on.
    pub(crate) fn return_parked(&mut self) -> Result<()> {
        let Some(parked) = &self.tools.parked else { return Ok(()) };
        if self.live.is_some() {
            return Ok(());
        }
        let image = parked.image.0.id;
        if !self.step(StateEvent::Wake) {
            return Err(self.machine.removed());
        }
        let mut record = self.machine.record().clone();
        record.head_image = image;
        let refused = self.machine.refusal_sink();
        let mut live = wake::wake(&self.host, &record, Reason::Wake, None, refused)?;
        live.line.owes_end();
        let files = crate::files::MachineFiles::new(live.tree.inside()?);
        self.live = Some(live);
        self.open_files(Arc::new(files))
    }

    /// The instruction goes on, or is over: nothing continues from the image any more.
    pub(crate) fn unpark(&mut self) -> Result<()> {
        if self.tools.parked.is_some() {
            self.host.records.unpark(self.machine.id)?;
            self.tools.parked = None;
        }
        Ok(())
    }

    /// The code is about to be interrupted, and may go on in any way: nothing may continue from the
    /// image any more, and what it waited for is not for it.
    pub(crate) fn abandon_call(&mut self) -> Result<()> {
        self.return_parked()?;
        self.unpark()?;
        self.close_calls();
        self.tools.abandoned = true;
        Ok(())
    }

    /// The instruction is over: a call that waited does not any more.
    pub(crate) fn close_calls(&mut self) {
        if let Some(waiting) = self.tools.waiting.take() {
            self.end_record(waiting.record, ToolCallState::Cancelled);
        }
        if let Err(error) = self.unpark() {
            tracing::error!(machine = %self.machine.name(), %error, "still on record as parked");
        }
    }

    /// Takes an instruction up again that an earlier process left parked. It stays out of memory
    /// until there is an answer.
    pub(crate) fn take_up_parked(&mut self, parked: &ParkedMachine) -> Result<Duration> {
        let gone = || self.broken("the image of the waiting instruction is gone");
        let image = self.host.hold(parked.image, gone)?;
        let Some(record) = self.host.records.call(parked.call)? else {
            return Err(self.broken("the call it waits for is not on record"));
        };
        let progress: ParkedProgress = serde_json::from_str(&parked.progress).unwrap_or_default();
        let chunks = self.host.records.outputs(self.machine.id, parked.seq, 0)?;
        if let Some(feed) = &mut self.machine.work().feed {
            (feed.saved, feed.chunks, feed.shown) = (chunks.len(), chunks, progress.shown);
        }
        self.imports.modules = progress.modules;
        self.notes = progress.notes;
        self.tools.waits_for = Some(record.request);
        self.tools.parked = Some(ParkedState { image });
        let unreadable = || self.broken("the arguments of the call it waits for cannot be read");
        self.tools.waiting = Some(taken_up(record).ok_or_else(unreadable)?);
        self.step(StateEvent::Out);
        Ok(Duration::from_millis(progress.ran_ms))
    }
}

/// None, if the arguments are not on record as they were sent.
fn taken_up(record: CallRecord) -> Option<WaitingCall> {
    let now = Instant::now();
    let call = record.call;
    let arguments = serde_json::from_str(&call.arguments).ok()?;
    Some(WaitingCall {
        record: call.id,
        call: RequestedCall { server: call.server, tool: call.tool, arguments },
        since: now,
        expires_at: call.expires_at.unwrap_or(call.called_at),
        save_at: now,
        answered: call.state != ToolCallState::Waiting,
    })
}

fn unknown(call: &RequestedCall) -> ToolAnswer {
    let said = format!(
        "the service ended while {}.{} was under way: it may have taken effect, and is not \
         repeated",
        call.server, call.tool
    );
    failed("tool.unknown", said)
}
