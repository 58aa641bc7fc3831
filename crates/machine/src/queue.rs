//! Decides what a machine does next. A pure value, tested without machines.
//!
//!   instructions wait in order, and run once they are on record; requests (swap, roll back, ...)
//!   go first; a checkpoint follows an instruction, before the next one runs or, where instructions
//!   are grouped, when nothing comes right after it; it gives way for a while when many machines
//!   are asked at once; idleness leads out of memory
//!
//! No I/O and no clock of its own: the driver tells the time and acts on the answer.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// What the rules need to know.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    pub settle: Duration,
    pub at_risk: Duration,
    pub idle_swap: Option<Duration>,
    pub max_queue: usize,
}

/// What to do now.
#[derive(Debug, PartialEq, Eq)]
pub enum NextStep<W> {
    Request(W),
    /// Run the first instruction of the queue, which this takes out.
    Run(u64),
    /// Save the state after `seq`.
    Checkpoint,
    SwapOut,
    /// Nothing until then, or until something is asked.
    Wait(Option<Instant>),
}

/// How things stand around a queue.
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
    /// Not before then, after a checkpoint or swap that was refused.
    retry: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    seq: u64,
    exact: bool,
    /// Whether it may run. Those behind it wait for it.
    on_record: bool,
}

#[derive(Debug, Clone, Copy)]
struct Unsaved {
    /// It needs a state of its own.
    exact: bool,
    /// When the first of it was done.
    since: Instant,
    quiet_since: Instant,
    work: Duration,
}

/// A refused checkpoint is tried again after this long, or after the next instruction.
const RETRY: Duration = Duration::from_secs(60);
/// How long a checkpoint gives way to others, whether its machine is asked again meanwhile or not,
/// and how much more work may be at risk for that.
const GIVE_WAY: Duration = Duration::from_secs(2);
const MORE_RISK: Duration = Duration::from_millis(500);
/// How often a checkpoint that gives way looks whether it still must.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

impl<W> Queue<W> {
    pub fn new(rules: Rules, now: Instant) -> Queue<W> {
        Queue {
            rules,
            requests: VecDeque::new(),
            waiting: VecDeque::new(),
            unsaved: None,
            idle_since: now,
            retry: None,
        }
    }

    /// Keeps a place for an instruction that is being recorded, and may need a state of its own;
    /// whether there was room.
    pub fn reserve(&mut self, seq: u64, exact: bool) -> bool {
        let room = self.waiting.len() < self.rules.max_queue;
        if room {
            self.waiting.push_back(Waiting { seq, exact, on_record: false });
        }
        room
    }

    /// An instruction is on record: it runs when those before it are over. One without a place
    /// gets the last.
    pub fn offer(&mut self, seq: u64, exact: bool) {
        match self.waiting.iter_mut().find(|own| own.seq == seq) {
            Some(own) => own.on_record = true,
            None => self.waiting.push_back(Waiting { seq, exact, on_record: true }),
        }
    }

    /// Gives up the place of an instruction that was not recorded.
    pub fn withdraw(&mut self, seq: u64) {
        self.waiting.retain(|own| own.seq != seq);
    }

    /// Puts back what was taken out, before everything else.
    pub fn request_first(&mut self, request: W) {
        self.requests.push_front(request);
    }

    /// Takes out what is asked first, if it is what is wanted.
    pub fn take_request_if(&mut self, wanted: impl FnOnce(&W) -> bool) -> Option<W> {
        self.requests.pop_front_if(|first| wanted(first))
    }

    /// Whether an instruction waits, on record or about to be.
    pub fn has(&self, seq: u64) -> bool {
        self.waiting.iter().any(|own| own.seq == seq)
    }

    pub fn request(&mut self, request: W) {
        self.requests.push_back(request);
    }

    pub fn has_requests(&self) -> bool {
        !self.requests.is_empty()
    }

    /// Removes what will not be done any more.
    pub fn drop_requests(&mut self) -> VecDeque<W> {
        std::mem::take(&mut self.requests)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Takes an instruction out before it ran; whether it was there, on record.
    pub fn cancel(&mut self, seq: u64) -> bool {
        let at = self.waiting.iter().position(|own| own.seq == seq && own.on_record);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    /// Takes all that wait and are on record.
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

    /// Something was done to the machine from outside, which is to be saved.
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

    /// The state is saved, or is again one that is.
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

    /// What to do.
    pub fn next(
        &mut self,
        now: Instant,
        QueueConditions { live, crowded }: QueueConditions,
    ) -> NextStep<W> {
        if let Some(request) = self.requests.pop_front() {
            return NextStep::Request(request);
        }
        let may_save = live && self.retry.is_none_or(|retry| retry <= now);
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

    /// Whether the next instruction must not share a state with what is unsaved.
    fn parts(&self, unsaved: Unsaved) -> bool {
        self.waiting.front().is_some_and(|next| next.exact || unsaved.exact)
    }

    /// Whether so much is unsaved that it is saved before anything else.
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
        let due = match self.unsaved {
            // nothing is gained by waiting: the next instruction would have to
            Some(unsaved) if unsaved.exact => Some(unsaved.quiet_since),
            Some(unsaved) => Some(unsaved.quiet_since + self.rules.settle),
            None => self.rules.idle_swap.map(|idle| self.idle_since + idle),
        };
        due.map(|due| self.retry.map_or(due, |retry| due.max(retry)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const RULES: Rules = Rules {
        settle: Duration::from_millis(5),
        at_risk: Duration::from_millis(25),
        idle_swap: Some(Duration::from_secs(600)),
        max_queue: 8,
    };

    const LIVE: QueueConditions = QueueConditions { live: true, crowded: false };

    fn queue(now: Instant) -> Queue<&'static str> {
        Queue::new(RULES, now)
    }

    #[test]
    fn a_checkpoint_follows_when_it_is_quiet() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(1), false);
        assert_eq!(queue.next(now, LIVE), NextStep::Wait(Some(now + RULES.settle)));
        assert_eq!(queue.next(now + RULES.settle, LIVE), NextStep::Checkpoint);
        queue.saved();
        let idle = RULES.idle_swap.expect("a time");
        assert_eq!(queue.next(now + RULES.settle, LIVE), NextStep::Wait(Some(now + idle)));
        assert_eq!(queue.next(now + idle, LIVE), NextStep::SwapOut);
    }

    #[test]
    fn much_work_is_saved_before_the_next_instruction() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(20), false);
        queue.offer(1, false);
        assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
        queue.ran(now, Duration::from_millis(20), false);
        queue.offer(2, false);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
    }

    #[test]
    fn a_refusal_does_not_stop_the_queue() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_secs(1), false);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
        queue.refused(now);
        queue.offer(1, false);
        assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
        assert_eq!(queue.next(now, LIVE), NextStep::Wait(Some(now + RETRY)));
    }

    #[test]
    fn a_checkpoint_gives_way_to_a_crowd_but_not_for_ever() {
        let now = Instant::now();
        let crowd = QueueConditions { live: true, crowded: true };
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(30), false);
        let due = now + RULES.settle;
        assert_eq!(queue.next(due, crowd), NextStep::Wait(Some(due + LOOK_AGAIN)));
        assert_eq!(queue.next(due, LIVE), NextStep::Checkpoint);
        assert_eq!(queue.next(due + GIVE_WAY, crowd), NextStep::Checkpoint);
        // a client waits for this machine, too, and is served first: but not again and again
        queue.offer(1, false);
        queue.offer(2, false);
        assert_eq!(queue.next(due, crowd), NextStep::Run(1));
        queue.ran(due, Duration::from_millis(1), false);
        assert_eq!(queue.next(now + GIVE_WAY, crowd), NextStep::Checkpoint);
        queue.saved();
        queue.ran(due, MORE_RISK + RULES.at_risk, false);
        assert_eq!(queue.next(due, crowd), NextStep::Checkpoint);
    }

    #[test]
    fn an_exact_instruction_shares_its_state_with_no_other() {
        let now = Instant::now();
        let mut queue = queue(now);
        // after one that needs its own, whatever comes
        queue.ran(now, Duration::ZERO, true);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
        queue.offer(1, false);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
        queue.saved();
        assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
        // before one that needs its own, whatever was
        queue.ran(now, Duration::ZERO, false);
        queue.offer(2, true);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
        // also in a crowd, where what nobody waits for gives way
        let crowd = QueueConditions { live: true, crowded: true };
        assert_eq!(queue.next(now, crowd), NextStep::Checkpoint);
        queue.saved();
        assert_eq!(queue.next(now, crowd), NextStep::Run(2));
        queue.touched(now);
        queue.offer(3, true);
        assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
    }

    #[test]
    fn an_instruction_that_is_not_on_record_holds_up_those_behind_it() {
        let now = Instant::now();
        let mut queue = queue(now);
        assert!((0..3).all(|seq| queue.reserve(seq, true)));
        queue.offer(1, true);
        assert_eq!(queue.next(now, LIVE), NextStep::Wait(None));
        assert!(!queue.cancel(0), "it may yet run");
        queue.offer(0, true);
        assert_eq!(queue.next(now, LIVE), NextStep::Run(0));
        assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
        queue.withdraw(2);
        assert_eq!(queue.waiting(), 0);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Reserve(bool),
        Offer(u64),
        Withdraw(u64),
        Cancel(u64),
        Request,
        Ran(u16, bool),
        Touched,
        Saved,
        Refused,
        Next(u16, QueueConditions),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            any::<bool>().prop_map(Step::Reserve),
            any::<bool>().prop_map(Step::Reserve),
            (0u64..40).prop_map(Step::Offer),
            (0u64..40).prop_map(Step::Offer),
            (0u64..40).prop_map(Step::Withdraw),
            (0u64..40).prop_map(Step::Cancel),
            Just(Step::Request),
            (0u16..50, any::<bool>()).prop_map(|(ms, exact)| Step::Ran(ms, exact)),
            Just(Step::Touched),
            Just(Step::Saved),
            Just(Step::Refused),
            (0u16..2000, any::<(bool, bool)>()).prop_map(|(ms, (live, crowded))| Step::Next(
                ms,
                QueueConditions { live, crowded }
            )),
        ]
    }

    proptest! {
        /// Against a list: every instruction that is on record runs once, in order, or was
        /// cancelled; a machine with unsaved work never leaves memory; a wait is never over
        /// already.
        #[test]
        fn nothing_is_lost_or_run_twice(steps in prop::collection::vec(step(), 0..200)) {
            let mut now = Instant::now();
            let mut queue = Queue::new(RULES, now);
            // in order, with whether each is on record
            let mut model: VecDeque<(u64, bool)> = VecDeque::new();
            let mut seq = 0;
            for step in steps {
                match step {
                    Step::Reserve(exact) => {
                        let room = queue.reserve(seq, exact);
                        prop_assert_eq!(room, model.len() < RULES.max_queue);
                        if room { model.push_back((seq, false)); }
                        seq += 1;
                    }
                    Step::Offer(seq) => {
                        if let Some(own) = model.iter_mut().find(|own| own.0 == seq) {
                            own.1 = true;
                            queue.offer(seq, true);
                        }
                    }
                    Step::Withdraw(seq) => {
                        model.retain(|own| own.0 != seq);
                        queue.withdraw(seq);
                    }
                    Step::Cancel(seq) => {
                        let there = model.contains(&(seq, true));
                        model.retain(|own| *own != (seq, true));
                        prop_assert_eq!(queue.cancel(seq), there);
                    }
                    Step::Request => queue.request("swap"),
                    Step::Ran(ms, exact) => {
                        queue.ran(now, Duration::from_millis(ms.into()), exact);
                    },
                    Step::Touched => queue.touched(now),
                    Step::Saved => queue.saved(),
                    Step::Refused => queue.refused(now),
                    Step::Next(ms, around) => {
                        now += Duration::from_millis(ms.into());
                        let live = around.live;
                        match queue.next(now, around) {
                            NextStep::Run(seq) => {
                                prop_assert_eq!(Some((seq, true)), model.pop_front());
                            }
                            NextStep::SwapOut => {
                                prop_assert!(live && queue.is_saved() && model.is_empty());
                            }
                            NextStep::Checkpoint => prop_assert!(live && !queue.is_saved()),
                            NextStep::Wait(until) => {
                                prop_assert!(model.front().is_none_or(|first| !first.1));
                                prop_assert!(until.is_none_or(|until| until > now));
                            }
                            NextStep::Request(_) => {}
                        }
                    }
                }
            }
            let on_record = model.iter().filter(|own| own.1).map(|own| own.0);
            prop_assert_eq!(queue.cancel_all(), on_record.collect::<Vec<_>>());
            prop_assert_eq!(queue.waiting(), model.iter().filter(|own| !own.1).count());
        }
    }
}
