//! Decides what a machine does next. A pure value, tested without machines.
//!
//!   instructions wait in order, and run once they are on record; requests (swap, roll back, ...)
//!   go first; a checkpoint follows an instruction, before the next one runs or, where instructions
//!   are grouped, when nothing comes right after it; it gives way for a while when many machines
//!   are asked at once; idleness leads out of memory
//!
//! No I/O and no clock of its own: the driver passes the time in and acts on the answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Inputs of the rules.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub settle: Duration,
    pub at_risk: Duration,
    pub idle_swap: Option<Duration>,
    pub max_queue: usize,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep<W> {
    Request(W),
    /// Run the first instruction of the queue, which is removed from it.
    Run(u64),
    /// Save the state after `seq`.
    Checkpoint,
    SwapOut,
    /// Wait until then, or until a request.
    Wait(Option<Instant>),
}

/// The surroundings of a queue.
#[derive(Debug, Clone, Copy)]
pub struct QueueConditions {
    /// The machine is in memory.
    pub live: bool,
    /// Clients wait for many machines at once.
    pub crowded: bool,
}

#[derive(Debug)]
pub struct Queue<W> {
    rules: Rules,
    requests: VecDeque<W>,
    waiting: VecDeque<Waiting>,
    /// Work since the last checkpoint.
    unsaved: Option<Unsaved>,
    idle_since: Instant,
    /// Whether the machine is saved and swapped out without a request.
    saves: bool,
    /// No attempt before this time, after a refused checkpoint or swap.
    retry: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    seq: u64,
    exact: bool,
    /// Whether it may run. Later ones wait for it.
    on_record: bool,
}

#[derive(Debug, Clone, Copy)]
struct Unsaved {
    /// It needs a state of its own.
    exact: bool,
    /// When the first unsaved work was done.
    since: Instant,
    quiet_since: Instant,
    work: Duration,
}

/// A refused checkpoint is retried after this time, or after the next instruction.
const RETRY: Duration = Duration::from_secs(60);
/// How long a checkpoint is postponed in favour of other machines, and how much more work may be
/// unsaved meanwhile.
const GIVE_WAY: Duration = Duration::from_secs(2);
const MORE_RISK: Duration = Duration::from_millis(500);
/// How often a postponed checkpoint is reconsidered.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl<W> Queue<W> {
    pub fn new(rules: Rules, now: Instant) -> Queue<W> {
        Queue {
            rules,
            requests: VecDeque::new(),
            waiting: VecDeque::new(),
            unsaved: None,
            idle_since: now,
            saves: true,
            retry: None,
        }
    }

    /// From now on the machine is saved and swapped out only on request.
    pub fn stop_saving(&mut self) {
        self.saves = false;
    }

    /// Reserves a slot for an instruction that is being recorded, and may need a state of its own;
    /// whether there was one.
    pub fn reserve(&mut self, seq: u64, exact: bool) -> bool {
        let room = self.waiting.len() < self.rules.max_queue;
        if room {
            self.waiting.push_back(Waiting { seq, exact, on_record: false });
        }
        room
    }

    /// An instruction is recorded: it runs after the ones before it. Without a reserved slot it
    /// goes last.
    pub fn offer(&mut self, seq: u64, exact: bool) {
        match self.waiting.iter_mut().find(|own| own.seq == seq) {
            Some(own) => own.on_record = true,
            None => self.waiting.push_back(Waiting { seq, exact, on_record: true }),
        }
    }

    /// Releases the slot of an instruction that was not recorded.
    pub fn withdraw(&mut self, seq: u64) {
        self.waiting.retain(|own| own.seq != seq);
    }

    /// Puts a removed request back at the front.
    pub fn request_first(&mut self, request: W) {
        self.requests.push_front(request);
    }

    /// Removes the first request if it matches.
    pub fn take_request_if(&mut self, wanted: impl FnOnce(&W) -> bool) -> Option<W> {
        self.requests.pop_front_if(|first| wanted(first))
    }

    /// Whether an instruction waits, recorded or about to be.
    pub fn has(&self, seq: u64) -> bool {
        self.waiting.iter().any(|own| own.seq == seq)
    }

    pub fn request(&mut self, request: W) {
        self.requests.push_back(request);
    }

    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Removes requests that will not run.
    pub fn drop_requests(&mut self) -> VecDeque<W> {
        std::mem::take(&mut self.requests)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Removes an instruction before it ran; whether it was in the queue and recorded.
    pub fn cancel(&mut self, seq: u64) -> bool {
        let at = self.waiting.iter().position(|own| own.seq == seq && own.on_record);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    /// Removes all waiting and recorded instructions.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        let (taken, kept) = self.waiting.iter().partition(|own| own.on_record);
        self.waiting = kept;
        let taken: VecDeque<Waiting> = taken;
        taken.into_iter().map(|own| own.seq).collect()
    }

    /// An instruction ended after `work`; it may need a state of its own.
    pub fn ran(&mut self, now: Instant, work: Duration, exact: bool) {
        let unsaved = self.unsaved_with(now, work);
        self.unsaved = Some(Unsaved { exact: exact || unsaved.exact, ..unsaved });
        self.idle_since = now;
        self.retry = None;
    }

    /// The machine was changed from outside and must be saved.
    pub fn touched(&mut self, now: Instant) {
        self.unsaved = Some(self.unsaved_with(now, Duration::ZERO));
        self.used(now);
        self.retry = None;
    }

    fn unsaved_with(&self, now: Instant, work: Duration) -> Unsaved {
        let fresh = Unsaved { exact: false, since: now, quiet_since: now, work: Duration::ZERO };
        let old = self.unsaved.unwrap_or(fresh);
        Unsaved { quiet_since: now, work: old.work + work, ..old }
    }

    /// The machine is in use, not idle.
    pub fn used(&mut self, now: Instant) {
        self.idle_since = now;
    }

    /// The state is saved, or the machine is back at a saved one.
    pub fn saved(&mut self) {
        self.unsaved = None;
    }

    pub fn is_saved(&self) -> bool {
        self.unsaved.is_none()
    }

    /// A checkpoint or swap was refused.
    pub fn refused(&mut self, now: Instant) {
        self.retry = Some(now + RETRY);
    }

    /// The next step.
    pub fn next(
        &mut self,
        now: Instant,
        QueueConditions { live, crowded }: QueueConditions,
    ) -> NextStep<W> {
        if let Some(request) = self.requests.pop_front() {
            return NextStep::Request(request);
        }
        let may_save = live && self.saves && self.retry.is_none_or(|retry| retry <= now);
        let goes_first =
            |unsaved: Unsaved| self.parts(unsaved) || self.is_risky(unsaved, now, crowded);
        if may_save && self.unsaved.is_some_and(goes_first) {
            return NextStep::Checkpoint;
        }
        match self.waiting.pop_front_if(|first| first.on_record) {
            Some(first) => return NextStep::Run(first.seq),
            None if !self.waiting.is_empty() => return NextStep::Wait(None),
            None => {}
        }
        if !live {
            return NextStep::Wait(None);
        }
        let due = self.due();
        match due {
            Some(due) if due > now => NextStep::Wait(Some(due)),
            Some(due) if crowded && now < due + GIVE_WAY => NextStep::Wait(Some(now + LOOK_AGAIN)),
            Some(_) if self.unsaved.is_some() => NextStep::Checkpoint,
            Some(_) => NextStep::SwapOut,
            None => NextStep::Wait(None),
        }
    }

    /// Whether the next instruction must not share a state with unsaved work.
    fn parts(&self, unsaved: Unsaved) -> bool {
        self.waiting.front().is_some_and(|next| next.exact || unsaved.exact)
    }

    /// Whether so much is unsaved that saving comes first.
    fn is_risky(&self, unsaved: Unsaved, now: Instant, crowded: bool) -> bool {
        match crowded {
            false => unsaved.work >= self.rules.at_risk,
            true => {
                unsaved.work >= self.rules.at_risk.saturating_add(MORE_RISK)
                    || now >= unsaved.since + GIVE_WAY
            }
        }
    }

    /// When the next automatic step is due.
    fn due(&self) -> Option<Instant> {
        if !self.saves {
            return None;
        }
        let due = match self.unsaved {
            // waiting would gain nothing: the next instruction would wait as well
            Some(unsaved) if unsaved.exact => Some(unsaved.quiet_since),
            Some(unsaved) => Some(unsaved.quiet_since + self.rules.settle),
            None => self.rules.idle_swap.map(|idle| self.idle_since + idle),
        };
        due.map(|due| self.retry.map_or(due, |retry| due.max(retry)))
    }
}

#[cfg(test)]
mod tests;
