//! Runs one instruction: sends it to the agent, reads output and reports, and ends it.
//!
//! Meanwhile the driver waits for the machine, for wake-ups (an interrupt, a line of input) and for
//! the timeout. After the timeout the instruction is interrupted. If it ignores the interrupts, the
//! tree is killed and the machine returns to its last checkpoint. The instruction's receipt records
//! it.

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::lines::OutputLines;
use crate::live::AgentEvent;
use crate::observe::ObservedEvent;
use crate::state::StateEvent;
use crate::tools::InstructionTools;
use stasis_api::{Chunk, EventKind, Exec, Instruction, Status, Stream, Timeout, Timestamp};
use stasis_engine::fault;
use stasis_protocol::{Done, Order, PreparedCode, Report};
use stasis_records::ParkedMachine;
use stasis_sys::libc;
use std::time::{Duration, Instant};

/// Interrupts sent before the tree is killed, and the minimum time between two: an interrupt that
/// arrives while the agent is about to start the code is ignored.
const INTERRUPTS: u32 = 3;
const REMIND: Duration = Duration::from_secs(1);
/// Maximum time for an agent entering memory before it is interrupted anyway.
const WAKING: Duration = Duration::from_secs(5);
/// Output is written to the records in batches of at most this many lines.
const BATCH: usize = 512;

/// The end of a run, as observed from outside.
pub(crate) enum RunEnd {
    Done(Done),
    /// The tree exited or was killed, and why.
    Crashed(String),
    /// The service ends, and the instruction waits on: the next one takes it up.
    Parked,
}

/// A pending interrupt.
pub(crate) struct Interrupt {
    /// Time of the last signal, and the number sent.
    at: Instant,
    sent: u32,
    /// The timeout it was sent for; none if a client requested it.
    pub timeout: Option<Duration>,
}

impl Driver {
    /// Runs one instruction to its end.
    pub(crate) fn instruction(&mut self, seq: u64) {
        let started = Instant::now();
        let waiting = self.machine.work().execs.remove(&seq);
        let (exec, queued_at) = waiting.map_or_else(
            || (Exec::default(), Timestamp::now()),
            |waiting| (waiting.exec, waiting.queued_at),
        );
        self.under_way = Some(begun(seq, exec.code.clone(), queued_at));
        let limits = self.machine.record().made.limits.or(self.host.settings.limits);
        let most = self.host.artifact_room(self.machine.id, limits);
        let room = self.host.settings.max_output;
        let mut lines = OutputLines::keeping(room, self.host.artifact_store.parts(most));
        self.artifacts.clear();
        self.imports = Default::default();
        self.tools = Default::default();
        self.runtime = None;
        let host = self.host.clone();
        host.traffic.ask(&mut self.asked, started);
        let parked = self.machine.work().parked.take_if(|parked| parked.seq == seq);
        let comes = self.live.is_none() && parked.is_none();
        let arrival = comes.then(|| host.traffic.arrive());
        if parked.is_none() {
            self.machine.event_at(EventKind::InstructionStarted, Some(seq));
        }
        self.machine.observe(ObservedEvent::TakenUp(seq));
        let ended = match &parked {
            None => self.run_code(seq, &exec, &mut lines),
            Some(parked) => self.run_parked(parked, &exec, &mut lines),
        };
        drop(arrival);
        self.count_processor();
        self.machine.observe(ObservedEvent::Ran);
        let result = match ended {
            Ok((RunEnd::Done(done), interrupt)) => {
                self.finish_done(seq, &exec, done, interrupt, &mut lines, started)
            }
            Ok((RunEnd::Parked, _)) => return self.leave_parked(),
            Ok((RunEnd::Crashed(why), _)) => {
                self.push(lines.finish());
                self.artifacts = self.artifacts_of(seq, &mut lines);
                self.finish_crashed(seq, &why, started, lines.count())
            }
            Err(error) => self.finish_unstarted(seq, &error, lines.count()),
        };
        self.close_calls();
        if let Err(error) = result {
            self.not_recorded(seq, &error);
        }
        self.is_over(seq);
    }

    fn run_code(
        &mut self,
        seq: u64,
        exec: &Exec,
        lines: &mut OutputLines,
    ) -> Result<(RunEnd, Option<Interrupt>)> {
        let at = Timestamp::now();
        self.host.records.start(self.machine.id, seq, at)?;
        if let Some(own) = &mut self.under_way {
            (own.status, own.started_at) = (Status::Running, Some(at));
        }
        fault::point("driver.instruction")?;
        self.ensure_live()?;
        for (stream, bytes) in std::mem::take(&mut self.early) {
            self.push(lines.take(stream, &bytes));
        }
        if let Some(feed) = &mut self.machine.work().feed {
            feed.may_ask = exec.input;
        }
        let ended = self.send_code(seq, exec, None, lines)?;
        match self.prepare(exec, &ended) {
            None => Ok(ended),
            prepared => self.send_code(seq, exec, prepared, lines),
        }
    }

    /// The converted form of code that the agent could not parse.
    fn prepare(&self, exec: &Exec, ended: &(RunEnd, Option<Interrupt>)) -> Option<PreparedCode> {
        match ended {
            (RunEnd::Done(done), None) if done.unparsed => {
                let programs = self.host.settings.spawner.parent()?;
                let _turn = self.host.turns.parsers.take(&self.machine.account());
                self.machine.language().prepare(programs, &exec.code)
            }
            _ => None,
        }
    }

    fn send_code(
        &mut self,
        seq: u64,
        exec: &Exec,
        prepared: Option<PreparedCode>,
        lines: &mut OutputLines,
    ) -> Result<(RunEnd, Option<Interrupt>)> {
        let order = Order::Exec(stasis_protocol::ExecOrder {
            seq,
            code: exec.code.clone(),
            max_bytes: self.host.settings.max_result,
            max_whole: self.host.settings.max_artifact,
            input: exec.input,
            fetch: true,
            tools: true,
            prepared,
        });
        if let Some(live) = &mut self.live
            && let Err(error) = live.line.send(&order)
        {
            return Ok((RunEnd::Crashed(error.to_string()), None));
        }
        self.machine.observe(ObservedEvent::Running);
        self.listen(seq, self.time_limit(exec), lines)
    }

    fn time_limit(&self, exec: &Exec) -> Option<Duration> {
        match exec.timeout {
            Timeout::Default => self.host.settings.timeout,
            Timeout::Seconds(seconds) => Duration::try_from_secs_f64(seconds).ok(),
            Timeout::Never => None,
        }
    }

    /// Reads events until the instruction is over. An interrupt waits until the agent is awake,
    /// because it would be ignored before.
    fn listen(
        &mut self,
        seq: u64,
        limit: Option<Duration>,
        lines: &mut OutputLines,
    ) -> Result<(RunEnd, Option<Interrupt>)> {
        let begun = Instant::now();
        self.tools.begun = Some(begun);
        let mut watch = self.watch_processor();
        let mut interrupt: Option<Interrupt> = None;
        loop {
            let deadline = self.deadline(limit);
            let wake = match &interrupt {
                None if self.is_deaf(begun) => Some(begun + WAKING),
                None if self.tools.waiting.is_some() => self.parked_until(),
                None => deadline,
                Some(last) => Some(last.at + REMIND),
            };
            let end = match self.hear(watch.sooner(wake)) {
                Ok(events) => self.digest(seq, events, lines),
                Err(why) => Some(RunEnd::Crashed(why)),
            };
            let end = end.or_else(|| self.pass_answers(seq).err().map(crashed));
            if let Some(end) = end.or_else(|| self.tend_waiting(seq, lines)) {
                return Ok((end, interrupt));
            }
            let (asked, removed) = {
                let work = self.machine.work();
                (work.interrupt, !work.state().accepts())
            };
            if removed {
                return Ok((RunEnd::Crashed("the machine was removed".into()), interrupt));
            }
            if asked && self.leaves_parked() {
                return Ok((RunEnd::Parked, interrupt));
            }
            let now = Instant::now();
            let over = self.is_over_budget(&mut watch);
            let timed_out = deadline.is_some_and(|deadline| now >= deadline);
            match interrupt.as_mut() {
                None if (asked || timed_out || over) && !self.is_deaf(begun) => {
                    if let Err(error) = self.abandon_call() {
                        return Ok((crashed(error), interrupt));
                    }
                    self.signal();
                    let timeout = limit.filter(|_| timed_out && !asked);
                    interrupt = Some(Interrupt { at: now, sent: 1, timeout });
                }
                Some(last) if now >= last.at + REMIND && last.sent < INTERRUPTS => {
                    self.signal();
                    (last.at, last.sent) = (now, last.sent + 1);
                }
                Some(last) if now >= last.at + REMIND => {
                    let why = "it ignored an interrupt and was killed".to_owned();
                    return Ok((RunEnd::Crashed(why), interrupt));
                }
                _ => {}
            }
        }
    }

    /// When the time is up. An instruction does not run while it waits for a person.
    fn deadline(&self, limit: Option<Duration>) -> Option<Instant> {
        let left = limit?.saturating_sub(self.tools.ran());
        if self.tools.waiting.is_some() { None } else { Instant::now().checked_add(left) }
    }

    /// Waits for the machine, or for a wake-up if it is parked. Fails with why it crashed.
    fn hear(&mut self, wake: Option<Instant>) -> std::result::Result<Vec<AgentEvent>, String> {
        match &mut self.live {
            Some(live) => live.wait(&self.wakeup, wake).map_err(|error| error.to_string()),
            None if self.tools.parked.is_some() => {
                self.wait_out(wake);
                Ok(Vec::new())
            }
            None => Err("its process ended".into()),
        }
    }

    /// Whether the agent is on its way into memory, where it would not hear an interrupt.
    fn is_deaf(&self, begun: Instant) -> bool {
        self.live.as_ref().is_some_and(|live| !live.awake) && begun.elapsed() < WAKING
    }

    /// Goes on with an instruction that an earlier process left waiting for a person.
    fn run_parked(
        &mut self,
        parked: &ParkedMachine,
        exec: &Exec,
        lines: &mut OutputLines,
    ) -> Result<(RunEnd, Option<Interrupt>)> {
        if let Some(own) = &mut self.under_way {
            let known = self.host.records.instruction(self.machine.id, parked.seq)?;
            own.status = Status::Running;
            own.started_at = known.and_then(|known| known.started_at);
        }
        match self.take_up_parked(parked) {
            Ok(ran) => self.tools.ran_before = ran,
            Err(error) => return Ok((RunEnd::Crashed(error.to_string()), None)),
        }
        let chunks = self.machine.work().feed.as_ref().map_or(0, |feed| feed.chunks.len());
        lines.go_on_from(chunks as u64);
        self.listen(parked.seq, self.time_limit(exec), lines)
    }

    /// The service ends while the instruction is parked: it stays on record as running.
    fn leave_parked(&mut self) {
        self.tools = InstructionTools::default();
        let state = {
            let mut work = self.machine.work();
            work.suspended = true;
            work.step(StateEvent::Over)
        };
        self.passed(state);
        self.machine.tell();
    }

    /// Passes on what has come for the code.
    fn pass_answers(&mut self, seq: u64) -> Result<()> {
        self.pass_input(seq)?;
        self.pass_fetched(seq)?;
        self.pass_tool(seq)
    }

    fn signal(&self) {
        if let Some(live) = &self.live {
            let _ = live.tree.signal(libc::SIGINT);
        }
    }

    /// Handles the agent's events. Returns the end of the instruction if it was among them.
    pub(crate) fn digest(
        &mut self,
        seq: u64,
        events: Vec<AgentEvent>,
        lines: &mut OutputLines,
    ) -> Option<RunEnd> {
        let mut end = None;
        for one in events {
            match one {
                AgentEvent::Stdout(bytes) => self.push(lines.take(Stream::Stdout, &bytes)),
                AgentEvent::Stderr(bytes) => self.push(lines.take(Stream::Stderr, &bytes)),
                AgentEvent::Report(Report::Awake { changed, .. }) => self.note_fresh(&changed),
                AgentEvent::Report(Report::Display { seq: own, data, .. }) if own == seq => {
                    let account = self.machine.account();
                    if let Some(feed) = &mut self.machine.work().feed {
                        feed.show(&account, data);
                    }
                    self.machine.tell();
                }
                AgentEvent::Report(Report::Input { seq: own, prompt }) if own == seq => {
                    self.ask_for_input(prompt, lines);
                }
                AgentEvent::Report(Report::Fetch { seq: own, id, what }) if own == seq => {
                    self.fetch(seq, id, what);
                }
                AgentEvent::Report(Report::Tool { seq: own, id, what }) if own == seq => {
                    self.tool(seq, id, what);
                }
                AgentEvent::Report(Report::Part { seq: own, name, kind, text, last })
                    if own == seq =>
                {
                    if let Some(parts) = lines.parts() {
                        parts.piece(name, kind, &text, last);
                    }
                }
                AgentEvent::Report(Report::Done(done)) if done.seq == seq => {
                    end = Some(RunEnd::Done(done));
                }
                AgentEvent::Report(_) => {}
                AgentEvent::Gone(why) => {
                    end.get_or_insert(RunEnd::Crashed(why));
                }
            }
        }
        end
    }

    /// New lines for followers and, in batches, for the records.
    pub(crate) fn push(&mut self, chunks: Vec<Chunk>) {
        if chunks.is_empty() {
            return;
        }
        let mut work = self.machine.work();
        let Some(feed) = &mut work.feed else { return };
        feed.chunks.extend(chunks);
        let full = feed.chunks.len() - feed.saved >= BATCH;
        drop(work);
        self.machine.tell();
        if full {
            self.save_output();
        }
    }

    /// Records new output.
    pub(crate) fn save_output(&self) {
        let Some((seq, batch)) = self.unsaved_output() else { return };
        if let Err(error) = self.host.records.output(self.machine.id, seq, batch)
            && !self.machine.is_removed()
        {
            tracing::error!(machine = %self.machine.name(), seq, %error, "output not recorded");
        }
    }

    /// Unrecorded output of the running instruction; the caller records it.
    pub(crate) fn unsaved_output(&self) -> Option<(u64, Vec<Chunk>)> {
        let mut work = self.machine.work();
        let feed = work.feed.as_mut()?;
        let batch = feed.chunks[feed.saved..].to_vec();
        feed.saved = feed.chunks.len();
        Some((feed.seq, batch))
    }
}

fn crashed(error: Error) -> RunEnd {
    RunEnd::Crashed(error.to_string())
}

/// An instruction that was taken up, as far as known.
pub(crate) fn begun(seq: u64, code: String, queued_at: Timestamp) -> Instruction {
    Instruction {
        seq,
        code,
        status: Status::Queued,
        queued_at,
        started_at: None,
        finished_at: None,
        outputs: 0,
        rolled_back: false,
        outcome: None,
        receipt: None,
    }
}
