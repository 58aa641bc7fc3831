//! Tests of the queue, against rules and against a list.

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
fn a_temporary_machine_is_neither_saved_nor_swapped_out() {
    let now = Instant::now();
    let mut queue = queue(now);
    queue.stop_saving();
    queue.ran(now, Duration::from_secs(1), true);
    queue.offer(1, true);
    assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
    queue.ran(now, Duration::from_secs(1), true);
    let late = now + Duration::from_secs(86_400);
    assert_eq!(queue.next(late, LIVE), NextStep::Wait(None));
    queue.request("swap");
    assert_eq!(queue.next(late, LIVE), NextStep::Request("swap"));
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
    // a client waits for this machine as well and is served first, but not repeatedly
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
    // after an instruction that needs its own state, in any case
    queue.ran(now, Duration::ZERO, true);
    assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
    queue.offer(1, false);
    assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
    queue.saved();
    assert_eq!(queue.next(now, LIVE), NextStep::Run(1));
    // before an instruction that needs its own state, in any case
    queue.ran(now, Duration::ZERO, false);
    queue.offer(2, true);
    assert_eq!(queue.next(now, LIVE), NextStep::Checkpoint);
    // also under load, where work without a waiting client is postponed
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
        (0u16..2000, any::<(bool, bool)>())
            .prop_map(|(ms, (live, crowded))| Step::Next(ms, QueueConditions { live, crowded })),
    ]
}

proptest! {
    /// Against a list: every recorded instruction runs once, in order, or was cancelled; a
    /// machine with unsaved work never leaves memory; a wait never ends in the past.
    #[test]
    fn nothing_is_lost_or_run_twice(steps in prop::collection::vec(step(), 0..200)) {
        let mut now = Instant::now();
        let mut queue = Queue::new(RULES, now);
        // in order, with whether each is recorded
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
