//! Targets of undo and redo: a pure decision over instructions and states, tested without machines.
//!
//!   ran      0   1   2   3   4        undo 1 from 4 ─► state 3
//!   states   0   1           4        undo 1 from 4 where 2, 3 and 4 share a state ─► refused
//!                                     unless told; it leads to state 1 and takes three along
//!
//! An instruction is undone or redone with its whole state, or not at all.

/// The target of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// To the state after this instruction; to the beginning for `None`.
    To(Option<u64>),
    /// The wanted state was never kept. The nearest one beyond includes more instructions.
    Shared(Option<u64>),
    /// The state after this instruction was kept once, but was removed.
    Freed(u64),
    /// There are only this many instructions.
    Only(usize),
}

/// `n` instructions back. `ran` has the instructions whose effects are in the state, newest first,
/// at least `n + 1` if there are as many; `states` the kept ones, in order; `freed` is the newest
/// one that was removed.
pub fn back(ran: &[u64], states: &[u64], freed: Option<u64>, n: usize) -> Step {
    if ran.len() < n || ran.is_empty() {
        return Step::Only(ran.len());
    }
    let Some(wanted) = ran.get(n).copied() else { return Step::To(None) };
    match states.partition_point(|state| *state <= wanted).checked_sub(1).map(|at| states[at]) {
        Some(state) if state == wanted => Step::To(Some(state)),
        _ if freed.is_some_and(|freed| freed >= wanted) => Step::Freed(wanted),
        before => Step::Shared(before),
    }
}

/// `n` instructions forward. `undone` has the instructions that can be redone, `states` the states
/// after the current one, both in order.
pub fn forward(undone: &[u64], states: &[u64], n: usize) -> Step {
    let Some(wanted) = n.checked_sub(1).and_then(|at| undone.get(at)).copied() else {
        return Step::Only(undone.len());
    };
    match states.iter().copied().find(|state| *state >= wanted) {
        Some(state) if state == wanted => Step::To(Some(state)),
        Some(beyond) => Step::Shared(Some(beyond)),
        None => Step::Freed(wanted),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn one_back_is_one_instruction() {
        assert_eq!(back(&[4, 3, 2], &[2, 3, 4], None, 1), Step::To(Some(3)));
        // 3 did not run: it was cancelled
        assert_eq!(back(&[4, 2], &[2, 4], None, 1), Step::To(Some(2)));
        assert_eq!(back(&[0], &[0], None, 1), Step::To(None));
        assert_eq!(back(&[], &[], None, 1), Step::Only(0));
        assert_eq!(back(&[1, 0], &[0, 1], None, 3), Step::Only(2));
    }

    #[test]
    fn what_shares_a_state_is_not_parted() {
        assert_eq!(back(&[4, 3, 2], &[1, 4], None, 1), Step::Shared(Some(1)));
        assert_eq!(back(&[2, 1], &[2], None, 1), Step::Shared(None));
        assert_eq!(back(&[4, 3], &[1, 4], Some(3), 1), Step::Freed(3));
        assert_eq!(forward(&[2, 3, 4], &[4], 1), Step::Shared(Some(4)));
    }

    proptest! {
        /// If every instruction has its state, `n` back and `n` forward returns to the start, and
        /// each step covers exactly `n`.
        #[test]
        fn forward_undoes_back(
            all in prop::collection::btree_set(0u64..1000, 1..50),
            n in 1usize..60,
        ) {
            let all: Vec<u64> = all.into_iter().collect();
            let ran: Vec<u64> = all.iter().rev().copied().collect();
            let to = match back(&ran, &all, None, n) {
                Step::To(to) => to,
                Step::Only(has) => {
                    prop_assert!(has < n);
                    return Ok(());
                }
                other => return Err(TestCaseError::fail(format!("{other:?}"))),
            };
            let undone: Vec<u64> =
                all.iter().copied().filter(|seq| to.is_none_or(|to| *seq > to)).collect();
            prop_assert_eq!(undone.len(), n);
            prop_assert_eq!(forward(&undone, &undone, n), Step::To(all.last().copied()));
        }

        /// Whichever states were kept, no step claims to be exact if it is not.
        #[test]
        fn a_step_is_exact_or_says_so(
            all in prop::collection::btree_set(0u64..100, 1..30),
            kept in prop::collection::vec(any::<bool>(), 30),
            n in 1usize..30,
        ) {
            let all: Vec<u64> = all.into_iter().collect();
            let states: Vec<u64> =
                all.iter().zip(kept).filter(|(_, kept)| *kept).map(|(seq, _)| *seq).collect();
            let ran: Vec<u64> = all.iter().rev().copied().collect();
            let taken = |to: Option<u64>| {
                ran.iter().filter(|seq| to.is_none_or(|to| **seq > to)).count()
            };
            match back(&ran, &states, None, n) {
                Step::To(to) => prop_assert_eq!(taken(to), n),
                Step::Shared(to) => prop_assert!(taken(to) > n),
                Step::Only(has) => prop_assert!(has < n),
                Step::Freed(_) => prop_assert!(false, "nothing was freed"),
            }
        }
    }
}
