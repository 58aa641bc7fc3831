//! The states of a machine and their transitions. Pure: no lock, no clock, no I/O.
//!
//! ```text
//!        wake         awake           save
//!   swapped ──► waking ──► ready ◄──────────► saving
//!     │  ▲                  │ ▲      saved
//!     │  │             take │ │ over
//!     │  │                  ▼ │      save
//!     └──┼► starting ──► running ◄──────────► storing
//!   take │      │   awake   │        saved       │
//!        └────────────── ending ◄────────────────┘
//!              over              out
//! ```
//!
//! Without an instruction, `out` leads to swapped. `remove` leads from everywhere to leaving, which
//! only `stay` leads out of. [`crate::work::Work`] keeps the state under the machine's lock; only
//! the driver and the call that removes the machine change it.

/// What a machine does. The number is that of the instruction under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    /// Records and an image; nothing in memory.
    Swapped,
    /// On its way into memory, for a request.
    Waking,
    /// In memory; nothing runs.
    Ready,
    /// In memory; an image is being made.
    Saving,
    /// On its way into memory, for an instruction.
    Starting(u64),
    /// In memory; an instruction runs.
    Running(u64),
    /// In memory; an image with an instruction's effects is made before its end is reported.
    Storing(u64),
    /// Out of memory; the end of an instruction is being recorded.
    Ending(u64),
    /// It was decided that the machine goes ([`crate::leave`]).
    Leaving,
}

/// What happens to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent {
    /// The queue gave out an instruction.
    Take(u64),
    Wake,
    /// Its tree and its files are there.
    Awake,
    Save,
    /// The image is made, or was refused.
    Saved,
    /// Its tree is gone: swapped out, rolled back, ended or lost.
    Out,
    /// The end of the instruction is recorded, or never will be.
    Over,
    Remove,
    /// The machine could not be removed.
    Stay,
}

impl MachineState {
    /// Where an event leads; `None` where it cannot happen. Ends are never refused: whatever went
    /// wrong before, a driver can leave memory, end an instruction and give up a save.
    pub fn after(self, event: StateEvent) -> Option<MachineState> {
        use MachineState::*;
        Some(match (self, event) {
            (Leaving, StateEvent::Stay) => Swapped,
            (Leaving, StateEvent::Saved | StateEvent::Out | StateEvent::Over) => Leaving,
            (Leaving, _) | (_, StateEvent::Stay) => return None,
            (_, StateEvent::Remove) => Leaving,

            (Swapped, StateEvent::Take(seq)) => Starting(seq),
            (Ready, StateEvent::Take(seq)) => Running(seq),
            (Swapped, StateEvent::Wake) => Waking,
            (Starting(seq), StateEvent::Wake) => Starting(seq),
            (Waking, StateEvent::Awake) => Ready,
            (Starting(seq), StateEvent::Awake) => Running(seq),
            (Ready, StateEvent::Save) => Saving,
            (Running(seq), StateEvent::Save) => Storing(seq),
            (_, StateEvent::Take(_) | StateEvent::Wake | StateEvent::Awake | StateEvent::Save) => {
                return None;
            }

            (Saving, StateEvent::Saved) => Ready,
            (Storing(seq), StateEvent::Saved) => Running(seq),
            (other, StateEvent::Saved) => other,

            (Starting(seq) | Running(seq) | Storing(seq) | Ending(seq), StateEvent::Out) => {
                Ending(seq)
            }
            (Swapped | Waking | Ready | Saving, StateEvent::Out) => Swapped,

            (Starting(_) | Ending(_), StateEvent::Over) => Swapped,
            (Running(_), StateEvent::Over) => Ready,
            (Storing(_), StateEvent::Over) => Saving,
            (other @ (Swapped | Waking | Ready | Saving), StateEvent::Over) => other,
        })
    }

    /// The instruction under way.
    pub fn instruction(self) -> Option<u64> {
        match self {
            MachineState::Starting(seq) | MachineState::Running(seq) => Some(seq),
            MachineState::Storing(seq) | MachineState::Ending(seq) => Some(seq),
            MachineState::Swapped
            | MachineState::Waking
            | MachineState::Ready
            | MachineState::Saving
            | MachineState::Leaving => None,
        }
    }

    /// Whether anything can still be asked of the machine.
    pub fn accepts(self) -> bool {
        self != MachineState::Leaving
    }

    pub fn is_in_memory(self) -> bool {
        matches!(
            self,
            MachineState::Ready
                | MachineState::Saving
                | MachineState::Running(_)
                | MachineState::Storing(_)
        )
    }

    /// Whether it takes memory now or in a moment.
    pub fn takes_memory(self) -> bool {
        self != MachineState::Swapped
    }

    /// As clients see it.
    pub fn shown(self) -> stasis_api::State {
        match self {
            _ if self.instruction().is_some() => stasis_api::State::Running,
            _ if self.is_in_memory() => stasis_api::State::Ready,
            _ => stasis_api::State::Swapped,
        }
    }

    /// The failure point a driver passes when it comes into this state.
    pub fn point(self) -> &'static str {
        match self {
            MachineState::Swapped => "state.swapped",
            MachineState::Waking => "state.waking",
            MachineState::Ready => "state.ready",
            MachineState::Saving => "state.saving",
            MachineState::Starting(_) => "state.starting",
            MachineState::Running(_) => "state.running",
            MachineState::Storing(_) => "state.storing",
            MachineState::Ending(_) => "state.ending",
            MachineState::Leaving => "state.leaving",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SEQ: u64 = 7;
    const STATES: [MachineState; 9] = [
        MachineState::Swapped,
        MachineState::Waking,
        MachineState::Ready,
        MachineState::Saving,
        MachineState::Starting(SEQ),
        MachineState::Running(SEQ),
        MachineState::Storing(SEQ),
        MachineState::Ending(SEQ),
        MachineState::Leaving,
    ];
    const EVENTS: [(&str, StateEvent); 9] = [
        ("take", StateEvent::Take(SEQ)),
        ("wake", StateEvent::Wake),
        ("awake", StateEvent::Awake),
        ("save", StateEvent::Save),
        ("saved", StateEvent::Saved),
        ("out", StateEvent::Out),
        ("over", StateEvent::Over),
        ("remove", StateEvent::Remove),
        ("stay", StateEvent::Stay),
    ];

    fn name(state: MachineState) -> &'static str {
        state.point().trim_start_matches("state.")
    }

    /// The table as ARCHITECTURE.md has it.
    fn table() -> String {
        let row = |cells: Vec<&str>| format!("| {} |\n", cells.join(" | "));
        let head = std::iter::once("state").chain(EVENTS.map(|(name, _)| name)).collect();
        let mut text = row(head) + &"|---".repeat(EVENTS.len() + 1) + "|\n";
        for state in STATES {
            let cell = |(_, event)| match state.after(event) {
                None => "",
                Some(next) if next == state => "·",
                Some(next) => name(next),
            };
            text += &row(std::iter::once(name(state)).chain(EVENTS.map(cell)).collect());
        }
        text
    }

    /// With STASIS_WRITE_DOCUMENT=1 it writes the table.
    #[test]
    fn the_table_in_the_document_is_the_code() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../ARCHITECTURE.md");
        let page = std::fs::read_to_string(path).expect("ARCHITECTURE.md");
        let start = page.find("| state | take |").expect("the table of states");
        let len = page[start..].find("\n\n").expect("its end") + 1;
        if std::env::var_os("STASIS_WRITE_DOCUMENT").is_some() {
            let page = [&page[..start], &table(), &page[start + len..]].concat();
            std::fs::write(path, page).expect("written");
            return;
        }
        assert_eq!(&page[start..start + len], table());
    }

    fn event() -> impl Strategy<Value = StateEvent> {
        let take = (0u64..100).prop_map(StateEvent::Take);
        let other = (1..EVENTS.len()).prop_map(|at| EVENTS[at].1);
        prop_oneof![1 => take, 3 => other]
    }

    proptest! {
        /// An instruction, once taken, stays under way until it is over, whatever happens; nothing
        /// runs in a machine that leaves; memory is entered only over `awake`.
        #[test]
        fn an_instruction_is_never_lost(events in prop::collection::vec(event(), 0..200)) {
            let mut state = MachineState::Swapped;
            for event in events {
                let Some(next) = state.after(event) else { continue };
                match (state.instruction(), next.instruction()) {
                    (Some(before), Some(now)) => prop_assert_eq!(before, now),
                    (Some(_), None) => {
                        prop_assert!(matches!(event, StateEvent::Over | StateEvent::Remove));
                    }
                    (None, Some(now)) => prop_assert_eq!(event, StateEvent::Take(now)),
                    (None, None) => {}
                }
                if !state.is_in_memory() && next.is_in_memory() {
                    prop_assert_eq!(event, StateEvent::Awake);
                }
                let left = state == MachineState::Leaving && next != state;
                prop_assert!(!left || event == StateEvent::Stay);
                prop_assert!(next.is_in_memory() <= next.takes_memory());
                state = next;
            }
        }

        /// From everywhere a driver that failed comes to a state from which the machine can be
        /// used: out of memory, with nothing under way.
        #[test]
        fn a_failed_driver_leads_back(events in prop::collection::vec(event(), 0..50)) {
            let mut state = MachineState::Swapped;
            for event in events {
                state = state.after(event).unwrap_or(state);
            }
            let out = state.after(StateEvent::Out).and_then(|state| state.after(StateEvent::Over));
            let is_leaving = state == MachineState::Leaving;
            let end = if is_leaving { MachineState::Leaving } else { MachineState::Swapped };
            prop_assert_eq!(out, Some(end));
        }
    }
}
