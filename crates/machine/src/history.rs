//! A machine's past: its checkpoints, going back, and branches.
//!
//!   m@0 ── m@1 ── m@2 ── m@3          roll back to m@1: 2 and 3 stay in the log, marked
//!            └── branch ── b@0        a branch is a machine of its own, with its own numbers

use crate::action::{Action, EarlyStep, ReplySender, Steps};
use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::host::{Host, HostInner, fresh_name};
use crate::machine::Machine;
use crate::observe::ObservedEvent;
use crate::pinned::PinnedImage;
use crate::steps::{self, Step};
use stasis_api::{Durability, EventKind, Name, Network, Parent, Timestamp};
use stasis_engine::{UnsavedState, fault};
use stasis_policy::budget::BudgetKind;
use stasis_protocol::{Order, Report, Variable};
use stasis_records::{Checkpoint, HeldImage, NewRecord, SyncTime};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum number of branches per call.
pub const MAX_BRANCHES: usize = 1000;

/// Options of new branches.
#[derive(Debug, Clone, Default)]
pub struct Branch {
    /// The checkpoint to start from; the current state if absent.
    pub seq: Option<u64>,
    pub names: Vec<Option<Name>>,
    /// Added to the parent's.
    pub tags: BTreeMap<String, String>,
    /// Reseed the program's own generators.
    pub reseed: bool,
    /// Their network; the source's if absent.
    pub network: Option<Network>,
}

/// The state that branches start from.
pub(crate) enum BranchOrigin {
    Saved(PinnedImage),
    /// It is being saved.
    Unsaved(UnsavedState),
}

impl Host {
    /// The checkpoints of a machine, oldest first.
    pub fn history(&self, machine: &Arc<Machine>) -> Result<Vec<Checkpoint>> {
        Ok(self.inner().records.checkpoints(machine.id)?)
    }

    /// Sets or removes the label of a checkpoint.
    pub fn label(&self, machine: &Arc<Machine>, seq: u64, label: Option<&str>) -> Result<()> {
        if label.is_some_and(|label| label.is_empty() || label.len() > 200) {
            return Err(Error::Invalid("a label has 1 to 200 bytes".into()));
        }
        let missing = || no_checkpoint(machine, seq);
        saved_if_last(machine, seq, || {
            let known = self.inner().records.label(machine.id, seq, label)?;
            known.then_some(()).ok_or_else(missing)
        })
    }

    /// Returns a machine to the state after `seq`, or to its beginning for `None`. Later
    /// instructions stay in the log, marked.
    pub fn roll_back(&self, machine: &Arc<Machine>, seq: Option<u64>) -> Result<()> {
        machine.request(|reply| Action::RollBack(seq, reply))
    }

    /// Undoes the last instructions that are not undone yet.
    pub fn undo(&self, machine: &Arc<Machine>, steps: Steps) -> Result<()> {
        let ahead = machine.is_next().then(|| machine.restore_before(steps.n)).flatten();
        machine.request(|reply| Action::Undo(EarlyStep { steps, ahead }, reply))
    }

    /// Redoes undone instructions, as long as nothing new ran.
    pub fn redo(&self, machine: &Arc<Machine>, steps: Steps) -> Result<()> {
        let ahead = machine.is_next().then(|| machine.restore_after(steps.n)).flatten();
        machine.request(|reply| Action::Redo(EarlyStep { steps, ahead }, reply))
    }

    /// Creates machines that start from another machine's state. The source is disturbed only for
    /// the moment of a checkpoint.
    pub fn branch(&self, source: &Arc<Machine>, branch: Branch) -> Result<Vec<Arc<Machine>>> {
        if branch.names.is_empty() || branch.names.len() > MAX_BRANCHES {
            return Err(Error::Invalid(format!("one call creates 1 to {MAX_BRANCHES} branches")));
        }
        let given = branch.network.as_ref();
        given.map_or(Ok(()), |network| self.inner().check_network(network))?;
        let (origin, seq) = self.origin(source, &branch)?;
        fault::point("branch.captured")?;
        let record = source.record().clone();
        let made = record.made.clone();
        self.inner().may_become(&record, branch.network.as_ref().unwrap_or(&made.network))?;
        let one = |name: Option<Name>| {
            let mut tags = made.tags.clone();
            tags.extend(branch.tags.clone());
            NewRecord {
                name: name.unwrap_or_else(fresh_name),
                created_at: Timestamp::now(),
                tags,
                parent: Some(Parent { machine: made.name.clone(), seq }),
                parent_id: Some(source.id),
                reseed: branch.reseed,
                network: branch.network.clone().unwrap_or(made.network.clone()),
                ..made.clone()
            }
        };
        let count = branch.names.len();
        let charge = self.inner().charge(source, BudgetKind::Branches, count as u64)?;
        let coming = self.inner().expect_machines(&made.account, count)?;
        let records: Vec<NewRecord> = branch.names.into_iter().map(one).collect();
        let machines = match &origin {
            BranchOrigin::Saved(image) => self.add_all(records, image)?,
            BranchOrigin::Unsaved(state) => {
                let add = |record| self.add_unsaved(record, source, state.clone());
                records.into_iter().map(add).collect::<Result<_>>()?
            }
        };
        drop(coming);
        charge.keep();
        fault::point("branch.recorded")?;
        if let BranchOrigin::Saved(image) = &origin
            && machines.len() > 1
        {
            self.inner().park_for_branches(image.id(), machines.len());
        }
        Ok(machines)
    }

    pub(crate) fn checkpoint_image(&self, machine: &Arc<Machine>, seq: u64) -> Result<PinnedImage> {
        saved_if_last(machine, seq, || checkpoint_image(self.inner(), machine, seq))
    }

    /// The session's variables.
    pub fn vars(&self, machine: &Arc<Machine>) -> Result<Vec<Variable>> {
        machine.request(Action::Variables)
    }

    /// Completions at `cursor`, and where they begin; both count characters.
    pub fn complete(
        &self,
        machine: &Arc<Machine>,
        code: String,
        cursor: usize,
    ) -> Result<(usize, Vec<String>)> {
        machine.request(|reply| Action::Complete(code, cursor, reply))
    }
}

/// Uses the state after an instruction. If the machine is in that state and it is not saved yet,
/// the caller waits until it is.
fn saved_if_last<T>(machine: &Arc<Machine>, seq: u64, with: impl Fn() -> Result<T>) -> Result<T> {
    let unsaved = {
        let work = machine.work();
        work.last_ran == Some(seq) && !work.queue.is_saved()
    };
    match with() {
        Err(Error::NoCheckpoint { .. }) if unsaved => {
            machine.request(Action::Checkpoint)?;
            with()
        }
        done => done,
    }
}

fn checkpoint_image(host: &HostInner, machine: &Arc<Machine>, seq: u64) -> Result<PinnedImage> {
    let missing = || no_checkpoint(machine, seq);
    let found = host.records.checkpoint_at(machine.id, seq)?;
    host.hold(found.ok_or_else(missing)?.image, missing)
}

fn seqs(checkpoints: Vec<Checkpoint>) -> Vec<u64> {
    checkpoints.into_iter().map(|one| one.seq).collect()
}

fn no_checkpoint(machine: &Arc<Machine>, seq: u64) -> Error {
    match machine.is_removed() {
        true => machine.removed(),
        false => Error::NoCheckpoint { machine: machine.name().to_string(), seq },
    }
}

impl Driver {
    /// Saves unsaved state.
    pub(crate) fn checkpoint_now(&mut self) -> Result<()> {
        self.machine.settled();
        let saved = self.machine.work().queue.is_saved();
        if saved { Ok(()) } else { self.checkpoint() }
    }

    /// An image of the current state, and the instruction it follows.
    pub(crate) fn current_image(&mut self) -> Result<(PinnedImage, Option<u64>)> {
        self.checkpoint_now()?;
        let (image, seq) = {
            let record = self.machine.record();
            (record.head_image, record.head_seq)
        };
        // stays recorded until the machine is removed
        Ok((self.host.hold(image, || self.machine.removed())?, seq))
    }

    /// The same for a branch: answers before the state is on disk, if saving takes long.
    pub(crate) fn current_state(&mut self, reply: ReplySender<(BranchOrigin, Option<u64>)>) {
        self.wants_state = Some(reply);
        let saved = self.current_image();
        if let Some(reply) = self.wants_state.take() {
            reply.give(saved.map(|(image, seq)| (BranchOrigin::Saved(image), seq)));
        }
    }

    /// Restores the earlier state while the current one is saved.
    pub(crate) fn undo(&mut self, EarlyStep { steps, ahead }: EarlyStep) -> Result<()> {
        self.machine.settled();
        self.ahead = ahead.or_else(|| self.machine.restore_before(steps.n));
        let was_live = self.live.is_some();
        let undone = self.checkpoint_now().and_then(|()| {
            let to = self.undone_state(steps)?;
            self.roll_back(to)
        });
        self.come_back(was_live && undone.is_ok());
        undone
    }

    /// The machine must be at the state that an undo or a rollback produced.
    pub(crate) fn redo(&mut self, EarlyStep { steps, ahead }: EarlyStep) -> Result<()> {
        let was_live = self.live.is_some();
        // the state that an undo left may still be on its way to disk
        self.endings.wait_saved();
        self.ahead = ahead.or_else(|| self.machine.restore_after(steps.n));
        let redone = self.checkpoint_now().and_then(|()| {
            let to = self.redone_state(steps)?;
            self.go_forward(to)
        });
        self.come_back(was_live && redone.is_ok());
        redone
    }

    /// Brings a machine back that was in memory. If that fails, the next instruction reports it.
    pub(crate) fn come_back(&mut self, wanted: bool) {
        if wanted && self.ensure_live().and_then(|()| self.answered()).is_err() {
            self.let_go();
        }
        self.ahead = None;
    }

    /// The target state of an undo.
    pub(crate) fn undone_state(&self, steps: Steps) -> Result<Option<u64>> {
        let id = self.machine.id;
        let ran = self.host.records.ran(id, None, steps.n as u64 + 1)?;
        let states = seqs(self.host.records.checkpoints(id)?);
        let freed = self.machine.record().freed_seq;
        match steps::back(&ran, &states, freed, steps.n) {
            Step::To(to) => Ok(to),
            Step::Shared(to) if steps.grouped => Ok(to),
            Step::Shared(to) => {
                let taken = self.host.records.ran(id, to, u64::MAX)?.len();
                Err(self.shared("undo", steps.n, taken))
            }
            Step::Freed(seq) => Err(no_checkpoint(&self.machine, seq)),
            Step::Only(has) => Err(Error::TooFar { what: "undo", has }),
        }
    }

    /// The target state of a redo.
    fn redone_state(&self, steps: Steps) -> Result<Checkpoint> {
        let id = self.machine.id;
        let undone = self.host.records.undone(id)?;
        let mut states = self.host.records.undone_checkpoints(id)?;
        let numbers: Vec<u64> = states.iter().map(|one| one.seq).collect();
        let to = match steps::forward(&undone, &numbers, steps.n) {
            Step::To(Some(to)) => to,
            Step::Shared(Some(to)) if steps.grouped => to,
            Step::Shared(to) => {
                let taken = undone.iter().filter(|seq| to.is_none_or(|to| **seq <= to)).count();
                return Err(self.shared("redo", steps.n, taken));
            }
            Step::Freed(seq) => return Err(no_checkpoint(&self.machine, seq)),
            Step::To(None) | Step::Only(_) => {
                return Err(Error::TooFar { what: "redo", has: undone.len() });
            }
        };
        states.retain(|one| one.seq == to);
        states.pop().ok_or_else(|| no_checkpoint(&self.machine, to))
    }

    fn shared(&self, what: &'static str, asked: usize, taken: usize) -> Error {
        Error::Shared { what, machine: self.machine.name().to_string(), asked, taken }
    }

    /// Saves the left state first, so that it can be redone. If the capture is refused, that state
    /// is lost, with the reason.
    pub(crate) fn roll_back(&mut self, seq: Option<u64>) -> Result<()> {
        if let Err(error) = self.checkpoint_now() {
            tracing::warn!(machine = %self.machine.name(), %error, "not to be redone");
        }
        let image = self.state_image(seq)?;
        fault::point("rollback.decided")?;
        let recorded = self.host.records.roll_back(self.machine.id, &image, seq, self.sync_time());
        self.is_kept(recorded, seq)?;
        self.go_to(&image, seq, EventKind::MachineRolledBack)
    }

    /// The image of the state after an instruction, or of the beginning.
    pub(crate) fn state_image(&self, seq: Option<u64>) -> Result<PinnedImage> {
        match seq {
            None => {
                let start = self.machine.record().start_image;
                self.host.hold(start, || self.machine.removed())
            }
            Some(seq) => checkpoint_image(&self.host, &self.machine, seq),
        }
    }

    fn go_forward(&mut self, to: Checkpoint) -> Result<()> {
        let missing = || no_checkpoint(&self.machine, to.seq);
        let image = self.host.hold(to.image, missing)?;
        fault::point("rollback.decided")?;
        let recorded = self.host.records.redo(self.machine.id, &image, to.seq, self.sync_time());
        self.is_kept(recorded, Some(to.seq))?;
        self.go_to(&image, Some(to.seq), EventKind::MachineRedone)
    }

    /// Of going back and forward: behind the answer, unless answers are to be on disk.
    pub(crate) fn sync_time(&self) -> SyncTime {
        match self.machine.record().made.durability {
            Durability::Local => SyncTime::First,
            _ => SyncTime::Behind,
        }
    }

    pub(crate) fn is_kept(
        &self,
        recorded: stasis_records::Result<()>,
        seq: Option<u64>,
    ) -> Result<()> {
        match (recorded, seq) {
            (Err(stasis_records::Error::Missing(_)), Some(seq)) => {
                Err(no_checkpoint(&self.machine, seq))
            }
            (recorded, _) => Ok(recorded?),
        }
    }

    /// The records now name another state, so the machine moves to it. Not before: a refused
    /// request leaves the machine unchanged.
    pub(crate) fn go_to(
        &mut self,
        image: &PinnedImage,
        seq: Option<u64>,
        kind: EventKind,
    ) -> Result<()> {
        self.let_go_behind();
        self.early.clear();
        let mut work = self.machine.work();
        work.last_ran = seq;
        work.ended = None;
        work.rolled_back = true;
        work.falls += 1;
        drop(work);
        self.moved_to(image.id(), seq);
        fault::point("rollback.recorded")?;
        self.machine.observe(ObservedEvent::RolledBack);
        self.machine.event_at(kind, seq);
        Ok(())
    }

    pub(crate) fn variables(&mut self) -> Result<Vec<Variable>> {
        self.query(&Order::Vars, |report| match report {
            Report::Vars { vars } => Some(vars),
            _ => None,
        })
    }

    /// Completions of the code at a character, and where they begin.
    pub(crate) fn complete(&mut self, code: String, cursor: usize) -> Result<(usize, Vec<String>)> {
        self.query(&Order::Complete { code, cursor }, |report| match report {
            Report::Complete { start, names } => Some((start, names)),
            _ => None,
        })
    }

    /// Sends the agent an order that is not an instruction; wakes the machine.
    pub(crate) fn query<T>(
        &mut self,
        order: &Order,
        wanted: impl Fn(Report) -> Option<T>,
    ) -> Result<T> {
        self.machine.check_order(order)?;
        self.wake()?;
        let Some(live) = &mut self.live else { return Err(self.broken("it is not in memory")) };
        let answer = live.ask(order, wanted);
        if answer.is_err() {
            // a half-read answer must not be taken for the next order's
            self.fall_back_between("its agent did not answer");
        }
        answer
    }
}
