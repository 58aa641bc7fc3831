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

/// A machine's activity. The number is that of the current instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MachineState {
    /// Records and an image; nothing in memory.
    Swapped,
    /// Entering memory, for a request.
    Waking,
    /// In memory; nothing runs.
    Ready,
    /// In memory; an image is being made.
    Saving,
    /// Entering memory, for an instruction.
    Starting(u64),
    /// In memory; an instruction runs.
    Running(u64),
    /// In memory; an image with an instruction's effects is made before its end is reported.
    Storing(u64),
    /// Out of memory; the end of an instruction is being recorded, or a call of it waits for a
    /// person.
    Ending(u64),
    /// Its removal was decided ([`crate::removal`]).
    Leaving,
}

/// An event of a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateEvent {
    /// The queue released an instruction.
    Take(u64),
    Wake,
    /// Its tree and its files exist.
    Awake,
    Save,
    /// The image exists, or was refused.
    Saved,
    /// Its tree has ended: swapped out, rolled back, killed or lost.
    Out,
    /// The end of the instruction is recorded, or never will be.
    Over,
    Remove,
    /// The machine could not be removed.
    Stay,
}

impl MachineState {
    /// The next state, or `None` where the event cannot happen. Ends are never refused: whatever
    /// failed before, a driver can leave memory, end an instruction and abandon a save.
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
            (Starting(seq) | Ending(seq), StateEvent::Wake) => Starting(seq),
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

    /// The current instruction.
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

    /// Whether the machine still accepts requests.
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

    /// Whether it uses memory now or is about to.
    pub fn takes_memory(self) -> bool {
        self != MachineState::Swapped
    }

    /// The state shown to clients.
    pub fn shown(self) -> stasis_api::State {
        match self {
            _ if self.instruction().is_some() => stasis_api::State::Running,
            _ if self.is_in_memory() => stasis_api::State::Ready,
            _ => stasis_api::State::Swapped,
        }
    }

    /// The fault point a driver passes when it enters this state.
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

    /// The table in ARCHITECTURE.md.
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
        /// An instruction, once taken, stays current until it is over; nothing runs in a machine
        /// that is leaving; memory is entered only through `awake`.
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

        /// From every state, a failed driver reaches one in which the machine is usable: out of
        /// memory, with no current instruction.
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
