//! The driver: the one thread that acts on a machine while there is work.
//!
//!   queue says ─► run an instruction, do what was asked, save, swap out, or wait
//!
//! It only executes: the queue decides what is next (`queue.rs`), the state says where that leads
//! (`state.rs`). If it panics, the machine rolls back to its last checkpoint, the running
//! instruction is recorded as lost, and the queue continues. If that fails too, all waiting callers
//! get an error, and the machine is swapped out.

use crate::action::{Action, ReplySender};
use crate::early_restore::EarlyRestore;
use crate::endings::Endings;
use crate::error::{ErrorContext, Result};
use crate::history::BranchOrigin;
use crate::host::HostInner;
use crate::imports::InstructionImports;
use crate::live::{AgentEvent, LiveMachine};
use crate::machine::Machine;
use crate::queue::{NextStep, QueueConditions};
use crate::state::{MachineState, StateEvent};
use crate::threads;
use crate::tools::InstructionTools;
use crate::traffic::LastRequestWindow;
use stasis_api::{Instruction, Status, Stream};
use stasis_engine::fault;
use stasis_protocol::Report;
use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub struct Driver {
    pub(crate) machine: Arc<Machine>,
    pub(crate) host: Arc<HostInner>,
    pub(crate) live: Option<LiveMachine>,
    pub(crate) wakeup: File,
    /// Output that came while no instruction ran; it belongs to the next one.
    pub(crate) early: Vec<(Stream, Vec<u8>)>,
    /// A note for the next receipt.
    pub(crate) notes: Vec<String>,
    /// The running instruction, as far as known before its end.
    pub(crate) under_way: Option<Instruction>,
    /// Data of the instruction that its record does not hold.
    pub(crate) artifacts: Vec<stasis_api::Artifact>,
    /// Modules and files the host fetched for it.
    pub(crate) imports: InstructionImports,
    /// Calls of tools that it makes.
    pub(crate) tools: InstructionTools,
    /// The recorded end of the instruction.
    pub(crate) ended: Status,
    /// Its run time, if it ran.
    pub(crate) runtime: Option<Duration>,
    pub(crate) asked: LastRequestWindow,
    /// Data that a rollback needs, and trees that earlier ones left.
    pub(crate) ahead: Option<EarlyRestore>,
    pub(crate) endings: Endings,
    /// Callers waiting to branch from the state about to be saved.
    pub(crate) wants_state: Option<ReplySender<(BranchOrigin, Option<u64>)>>,
    /// Whether an undo may be carried out while the machine is saved.
    pub(crate) yields: bool,
}

impl Driver {
    pub(crate) fn start(machine: Arc<Machine>, wakeup: File) -> Result<()> {
        let host = machine.host.clone();
        let mut driver = Driver {
            machine,
            host,
            live: None,
            wakeup,
            early: Vec::new(),
            notes: Vec::new(),
            under_way: None,
            artifacts: Vec::new(),
            imports: InstructionImports::default(),
            tools: InstructionTools::default(),
            ended: Status::Lost,
            runtime: None,
            asked: LastRequestWindow::default(),
            ahead: None,
            endings: Endings::default(),
            wants_state: None,
            yields: false,
        };
        let counted = driver.host.users.enter();
        let run = move || {
            while catch_unwind(AssertUnwindSafe(|| driver.run())).is_err() {
                let settled = catch_unwind(AssertUnwindSafe(|| driver.after_panic()));
                if settled.is_err() {
                    driver.give_up();
                }
            }
            // in this order: the driver owns the host
            drop(driver);
            drop(counted);
        };
        threads::spawn("stasis-driver", run).doing(|| "start a driver".into())
    }

    fn run(&mut self) {
        while let Some(next) = self.next() {
            match next {
                NextStep::Request(action) => {
                    let _ = fault::point("driver.asked");
                    self.act(action);
                }
                NextStep::Run(seq) => {
                    let state = self.machine.work().state();
                    self.passed(Some(state));
                    self.instruction(seq);
                }
                NextStep::Checkpoint => self.checkpoint_behind(),
                NextStep::SwapOut => drop(self.swap_out()),
                NextStep::Wait(until) => self.idle(until),
            }
        }
    }

    /// The next step; none when the machine is being removed, or is out of memory with an empty
    /// queue.
    fn next(&mut self) -> Option<NextStep<Action>> {
        let now = Instant::now();
        let crowded = self.host.traffic.is_crowded(now);
        let mut work = self.machine.work();
        let state = work.state();
        debug_assert!(
            !state.accepts() || state.is_in_memory() || work.queue.is_saved(),
            "unsaved, and not in memory"
        );
        if self.live.is_some() && !state.is_in_memory() {
            // it is being removed
            drop(work);
            self.passed(Some(state));
            self.let_go();
            return self.next();
        }
        let next = match state.accepts() {
            true if work.suspended => {
                let request = work.queue.take_request_if(|_| true);
                request.map_or(NextStep::Wait(None), NextStep::Request)
            }
            true => work.queue.next(now, QueueConditions { live: self.live.is_some(), crowded }),
            false => NextStep::Wait(None),
        };
        match &next {
            NextStep::Wait(_) if self.live.is_none() => {
                // under the same lock: a later request starts another driver
                work.set_driver(None);
                drop(work);
                self.machine.tell();
                return None;
            }
            // before another thread looks: the instruction always counts as waiting or as running
            NextStep::Run(seq) => {
                work.step(StateEvent::Take(*seq));
            }
            _ => {}
        }
        Some(next)
    }

    /// Executes one action.
    fn act(&mut self, action: Action) {
        match action {
            Action::Wake(reply) => reply.give(self.wake()),
            Action::SwapOut(reply) => reply.give(self.swap_out()),
            Action::Checkpoint(reply) => reply.give(self.checkpoint_now()),
            Action::Image(reply) => reply.give(self.current_image()),
            Action::State(reply) => self.current_state(reply),
            Action::StartLost(words) => self.start_lost(&words),
            Action::RollBack(seq, reply) => reply.give(self.roll_back(seq)),
            Action::Undo(request, reply) => self.undo_behind(request, reply),
            Action::Redo(request, reply) => reply.give(self.redo(request)),
            Action::Variables(reply) => reply.give(self.variables()),
            Action::Complete(code, cursor, reply) => reply.give(self.complete(code, cursor)),
            Action::Usage(reply) => reply.give(Ok(self.usage())),
            Action::Memory(reply) => reply.give(self.memory_kib()),
            Action::Limit(reply) => reply.give(self.apply_limits()),
            Action::Adopt(parcel, reply) => reply.give(self.adopt(&parcel)),
            Action::Discard(reply) => {
                self.let_go();
                self.machine.work().cancel_all();
                reply.give(Ok(()));
            }
        }
    }

    /// Applies an event to the machine's state; whether the state allows it.
    pub(crate) fn step(&self, event: StateEvent) -> bool {
        let state = self.machine.work().step(event);
        self.passed(state);
        state.is_some()
    }

    /// Fault point for tests, in any state.
    pub(crate) fn passed(&self, state: Option<MachineState>) {
        let _ = state.map(|state| fault::point(state.point()));
    }

    /// Rolls the machine back to its last checkpoint; the queue continues from there.
    fn after_panic(&mut self) {
        const WHY: &str = "an internal error";
        tracing::error!(machine = %self.machine.name(), "driver failed; its machine rolls back");
        // the agent is not queried: its answer may be the reason the driver failed
        self.live = None;
        self.wants_state = None;
        self.yields = false;
        let (under_way, outputs) = {
            let mut work = self.machine.work();
            let under_way = work.state().instruction();
            if let Some(seq) = under_way {
                work.execs.remove(&seq);
            }
            (under_way, work.feed.as_ref().map_or(0, |feed| feed.chunks.len() as u64))
        };
        match under_way {
            Some(seq) => {
                if let Err(error) = self.finish_crashed(seq, WHY, Instant::now(), outputs) {
                    self.not_recorded(seq, &error);
                }
                self.is_over(seq);
            }
            None => self.fall_back_between(WHY),
        }
    }

    /// The last resort: answers every waiting caller and drops the machine from memory. The records
    /// are settled as after a crash, if they can be written.
    fn give_up(&mut self) {
        const WHY: &str = "an internal error ended this before it was saved";
        self.live = None;
        let head = self.machine.record().head_seq;
        let (mut unsettled, requests) = {
            let mut work = self.machine.work();
            let mut unsettled = work.cancel_all();
            unsettled.extend(work.state().instruction());
            work.step(StateEvent::Out);
            work.step(StateEvent::Over);
            (work.last_ran, work.falls) = (head, work.falls + 1);
            (unsettled, work.queue.drop_requests())
        };
        drop(requests);
        let recover = AssertUnwindSafe(|| self.machine.recover(WHY));
        if !matches!(catch_unwind(recover), Ok(Ok(()))) {
            unsettled.extend(self.machine.work().cancel_all());
            self.machine.leave_unrecorded(unsettled, WHY);
        }
        self.machine.tell();
    }

    /// Waits; the machine may send data or exit meanwhile.
    fn idle(&mut self, until: Option<Instant>) {
        let Some(live) = &mut self.live else { return };
        let events = match live.wait(&self.wakeup, until) {
            Ok(events) => events,
            Err(error) => vec![AgentEvent::Gone(error.to_string())],
        };
        for one in events {
            match one {
                AgentEvent::Stdout(bytes) => self.keep_early(Stream::Stdout, bytes),
                AgentEvent::Stderr(bytes) => self.keep_early(Stream::Stderr, bytes),
                AgentEvent::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                AgentEvent::Report(_) => {}
                AgentEvent::Gone(why) => {
                    self.fall_back_between(&format!("{why} while no instruction ran"));
                    return;
                }
            }
        }
    }

    /// State that the agent renewed when the machine entered memory.
    pub(crate) fn note_fresh(&mut self, changed: &[String]) {
        if !changed.is_empty() {
            self.notes.push(format!("made fresh: {}", changed.join(", ")));
        }
    }

    pub(crate) fn keep_early(&mut self, stream: Stream, bytes: Vec<u8>) {
        let held: usize = self.early.iter().map(|(_, bytes)| bytes.len()).sum();
        if held + bytes.len() <= self.host.settings.max_output {
            self.early.push((stream, bytes));
        }
    }
}
