//! What a machine should do next: a pure value, so that it can be tested without machines.
//!
//!   instructions wait in order; wishes (swap, roll back, ...) go first; a checkpoint follows an
//!   instruction when nothing comes right after it, and gives way for a while when many machines
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
pub enum Next<W> {
    Wish(W),
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
pub struct Around {
    /// The machine is in memory.
    pub live: bool,
    /// Many machines are asked at once, with somebody waiting for each.
    pub crowded: bool,
}

#[derive(Debug)]
pub struct Queue<W> {
    rules: Rules,
    wishes: VecDeque<W>,
    waiting: VecDeque<u64>,
    /// Work since the last checkpoint.
    unsaved: Option<Unsaved>,
    idle_since: Instant,
    /// Not before then, after a checkpoint or swap that was refused.
    retry: Option<Instant>,
}

#[derive(Debug, Clone, Copy)]
struct Unsaved {
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
            wishes: VecDeque::new(),
            waiting: VecDeque::new(),
            unsaved: None,
            idle_since: now,
            retry: None,
        }
    }

    /// Adds an instruction; whether there was room.
    pub fn offer(&mut self, seq: u64) -> bool {
        let room = self.waiting.len() < self.rules.max_queue;
        if room {
            self.waiting.push_back(seq);
        }
        room
    }

    pub fn wish(&mut self, wish: W) {
        self.wishes.push_back(wish);
    }

    /// Takes away what nobody will do any more.
    pub fn drop_wishes(&mut self) -> VecDeque<W> {
        std::mem::take(&mut self.wishes)
    }

    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    pub fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Takes an instruction out before it ran; whether it was there.
    pub fn cancel(&mut self, seq: u64) -> bool {
        let at = self.waiting.iter().position(|own| *own == seq);
        at.and_then(|at| self.waiting.remove(at)).is_some()
    }

    /// Takes all that wait.
    pub fn cancel_all(&mut self) -> Vec<u64> {
        self.waiting.drain(..).collect()
    }

    /// An instruction ended after `work`.
    pub fn ran(&mut self, now: Instant, work: Duration) {
        self.unsaved = Some(self.unsaved_with(now, work));
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
        let (since, before) =
            self.unsaved.map_or((now, Duration::ZERO), |old| (old.since, old.work));
        Unsaved { since, quiet_since: now, work: before + work }
    }

    /// Somebody uses the machine: it is not idle.
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
    pub fn next(&mut self, now: Instant, Around { live, crowded }: Around) -> Next<W> {
        if let Some(wish) = self.wishes.pop_front() {
            return Next::Wish(wish);
        }
        let may_save = live && self.retry.is_none_or(|retry| retry <= now);
        if may_save && self.unsaved.is_some_and(|unsaved| self.is_risky(unsaved, now, crowded)) {
            return Next::Checkpoint;
        }
        if let Some(seq) = self.waiting.pop_front() {
            return Next::Run(seq);
        }
        if !live {
            return Next::Wait(None);
        }
        let due = self.due();
        match due {
            Some(due) if due > now => Next::Wait(Some(due)),
            Some(due) if crowded && now < due + GIVE_WAY => Next::Wait(Some(now + LOOK_AGAIN)),
            Some(_) if self.unsaved.is_some() => Next::Checkpoint,
            Some(_) => Next::SwapOut,
            None => Next::Wait(None),
        }
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

    /// When the next thing is due that nobody has to ask for.
    fn due(&self) -> Option<Instant> {
        let due = match self.unsaved {
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

    const LIVE: Around = Around { live: true, crowded: false };

    fn queue(now: Instant) -> Queue<&'static str> {
        Queue::new(RULES, now)
    }

    #[test]
    fn a_checkpoint_follows_when_it_is_quiet() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(1));
        assert_eq!(queue.next(now, LIVE), Next::Wait(Some(now + RULES.settle)));
        assert_eq!(queue.next(now + RULES.settle, LIVE), Next::Checkpoint);
        queue.saved();
        let idle = RULES.idle_swap.expect("a time");
        assert_eq!(queue.next(now + RULES.settle, LIVE), Next::Wait(Some(now + idle)));
        assert_eq!(queue.next(now + idle, LIVE), Next::SwapOut);
    }

    #[test]
    fn much_work_is_saved_before_the_next_instruction() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(20));
        assert!(queue.offer(1));
        assert_eq!(queue.next(now, LIVE), Next::Run(1));
        queue.ran(now, Duration::from_millis(20));
        assert!(queue.offer(2));
        assert_eq!(queue.next(now, LIVE), Next::Checkpoint);
    }

    #[test]
    fn a_refusal_does_not_stop_the_queue() {
        let now = Instant::now();
        let mut queue = queue(now);
        queue.ran(now, Duration::from_secs(1));
        assert_eq!(queue.next(now, LIVE), Next::Checkpoint);
        queue.refused(now);
        assert!(queue.offer(1));
        assert_eq!(queue.next(now, LIVE), Next::Run(1));
        assert_eq!(queue.next(now, LIVE), Next::Wait(Some(now + RETRY)));
    }

    #[test]
    fn a_checkpoint_gives_way_to_a_crowd_but_not_for_ever() {
        let now = Instant::now();
        let crowd = Around { live: true, crowded: true };
        let mut queue = queue(now);
        queue.ran(now, Duration::from_millis(30));
        let due = now + RULES.settle;
        assert_eq!(queue.next(due, crowd), Next::Wait(Some(due + LOOK_AGAIN)));
        assert_eq!(queue.next(due, LIVE), Next::Checkpoint);
        assert_eq!(queue.next(due + GIVE_WAY, crowd), Next::Checkpoint);
        // somebody waits for this machine, too, and is served first: but not again and again
        assert!(queue.offer(1) && queue.offer(2));
        assert_eq!(queue.next(due, crowd), Next::Run(1));
        queue.ran(due, Duration::from_millis(1));
        assert_eq!(queue.next(now + GIVE_WAY, crowd), Next::Checkpoint);
        queue.saved();
        queue.ran(due, MORE_RISK + RULES.at_risk);
        assert_eq!(queue.next(due, crowd), Next::Checkpoint);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Offer,
        Cancel(u64),
        Wish,
        Ran(u16),
        Touched,
        Saved,
        Refused,
        Next(u16, Around),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            Just(Step::Offer),
            (0u64..40).prop_map(Step::Cancel),
            Just(Step::Wish),
            (0u16..50).prop_map(Step::Ran),
            Just(Step::Touched),
            Just(Step::Saved),
            Just(Step::Refused),
            (0u16..2000, any::<(bool, bool)>())
                .prop_map(|(ms, (live, crowded))| Step::Next(ms, Around { live, crowded })),
        ]
    }

    proptest! {
        /// Against a list: every instruction runs once, in order, or was cancelled; a machine
        /// with unsaved work never leaves memory; a wait is never over already.
        #[test]
        fn nothing_is_lost_or_run_twice(steps in prop::collection::vec(step(), 0..200)) {
            let mut now = Instant::now();
            let mut queue = Queue::new(RULES, now);
            let mut model: VecDeque<u64> = VecDeque::new();
            let mut seq = 0;
            for step in steps {
                match step {
                    Step::Offer => {
                        let room = queue.offer(seq);
                        prop_assert_eq!(room, model.len() < RULES.max_queue);
                        if room { model.push_back(seq); }
                        seq += 1;
                    }
                    Step::Cancel(seq) => {
                        let there = model.contains(&seq);
                        model.retain(|own| *own != seq);
                        prop_assert_eq!(queue.cancel(seq), there);
                    }
                    Step::Wish => queue.wish("swap"),
                    Step::Ran(ms) => queue.ran(now, Duration::from_millis(ms.into())),
                    Step::Touched => queue.touched(now),
                    Step::Saved => queue.saved(),
                    Step::Refused => queue.refused(now),
                    Step::Next(ms, around) => {
                        now += Duration::from_millis(ms.into());
                        let live = around.live;
                        match queue.next(now, around) {
                            Next::Run(seq) => prop_assert_eq!(Some(seq), model.pop_front()),
                            Next::SwapOut => {
                                prop_assert!(live && queue.is_saved() && model.is_empty());
                            }
                            Next::Checkpoint => prop_assert!(live && !queue.is_saved()),
                            Next::Wait(until) => {
                                prop_assert!(model.is_empty());
                                prop_assert!(until.is_none_or(|until| until > now));
                            }
                            Next::Wish(_) => {}
                        }
                    }
                }
            }
            prop_assert_eq!(queue.cancel_all(), Vec::from(model));
        }
    }
}
