//! A machine's past: its checkpoints, going back, and branches.
//!
//!   m@0 ── m@1 ── m@2 ── m@3          roll back to m@1: 2 and 3 stay in the log, marked
//!            └── branch ── b@0        a branch is a machine of its own, with its own numbers

use crate::driver::Driver;
use crate::error::{Error, Result};
use crate::held::Held;
use crate::host::{Host, Inner, fresh_name};
use crate::life::Ahead;
use crate::machine::Machine;
use crate::observe::Moment;
use stasis_api::{EventKind, Name, Network, Parent, Timestamp};
use stasis_engine::fault;
use stasis_protocol::{Order, Report, Variable};
use stasis_store::{Checkpoint, HeldImage, NewRecord};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Branches made by one call.
pub const MAX_BRANCHES: usize = 1000;

/// What branches should be like.
#[derive(Debug, Clone, Default)]
pub struct Branch {
    /// The checkpoint to start from; the state now, if absent.
    pub seq: Option<u64>,
    pub names: Vec<Option<Name>>,
    /// Added to the parent's.
    pub tags: BTreeMap<String, String>,
    /// Seed the program's own generators anew.
    pub reseed: bool,
}

impl Host {
    /// The checkpoints of a machine, oldest first.
    pub fn history(&self, machine: &Arc<Machine>) -> Result<Vec<Checkpoint>> {
        Ok(self.inner().store.checkpoints(machine.id)?)
    }

    /// Names a checkpoint, or takes its name away.
    pub fn label(&self, machine: &Arc<Machine>, seq: u64, label: Option<&str>) -> Result<()> {
        if label.is_some_and(|label| label.is_empty() || label.len() > 200) {
            return Err(Error::Invalid("a label has 1 to 200 bytes".into()));
        }
        match self.inner().store.set_label(machine.id, seq, label)? {
            true => Ok(()),
            false => Err(no_checkpoint(machine, seq)),
        }
    }

    /// Takes a machine back to the state after `seq`; to its beginning for `None`. What came after
    /// stays in the log, marked.
    pub fn roll_back(&self, machine: &Arc<Machine>, seq: Option<u64>) -> Result<()> {
        machine.ask(move |driver| driver.roll_back(seq))
    }

    /// Takes a machine back to the state before the last instruction that is not undone yet.
    pub fn undo(&self, machine: &Arc<Machine>) -> Result<()> {
        machine.ask(Driver::undo)
    }

    /// Makes machines that start from another's state. The source is not disturbed beyond the
    /// moment a checkpoint of it takes.
    pub fn branch(&self, source: &Arc<Machine>, branch: Branch) -> Result<Vec<Arc<Machine>>> {
        if branch.names.is_empty() || branch.names.len() > MAX_BRANCHES {
            return Err(Error::Invalid(format!("one call makes 1 to {MAX_BRANCHES} branches")));
        }
        // held until the branches are recorded: the source may go meanwhile, and a collection come
        let (image, seq) = match branch.seq {
            Some(seq) => (self.checkpoint_image(source, seq)?, Some(seq)),
            None => source.ask(|driver| driver.current_image())?,
        };
        fault::point("branch.captured")?;
        let made = source.record().made.clone();
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
                ..made.clone()
            }
        };
        let machines = self.inner().in_turn(&made.account, || {
            self.inner().admit_machines(&made.account, branch.names.len())?;
            self.add_all(branch.names.into_iter().map(one).collect(), &image)
        })?;
        fault::point("branch.recorded")?;
        if machines.len() > 1 {
            self.inner().park_for_branches(&image.name(), machines.len());
        }
        Ok(machines)
    }

    pub(crate) fn checkpoint_image(&self, machine: &Arc<Machine>, seq: u64) -> Result<Held> {
        checkpoint_image(self.inner(), machine, seq)
    }

    /// The session's variables.
    pub fn vars(&self, machine: &Arc<Machine>) -> Result<Vec<Variable>> {
        machine.ask(Driver::variables)
    }

    /// Names that could stand at `cursor`, and where they begin; both count characters.
    pub fn complete(
        &self,
        machine: &Arc<Machine>,
        code: String,
        cursor: usize,
    ) -> Result<(usize, Vec<String>)> {
        machine.ask(move |driver| {
            driver.query(&Order::Complete { code, cursor }, |report| match report {
                Report::Complete { start, names } => Some((start, names)),
                _ => None,
            })
        })
    }
}

fn checkpoint_image(host: &Inner, machine: &Arc<Machine>, seq: u64) -> Result<Held> {
    let missing = || no_checkpoint(machine, seq);
    let found = host.store.checkpoint(machine.id, seq)?;
    host.hold(&found.ok_or_else(missing)?.image, missing)
}

fn no_checkpoint(machine: &Arc<Machine>, seq: u64) -> Error {
    match machine.is_removed() {
        true => machine.removed(),
        false => Error::NoCheckpoint { machine: machine.name().to_string(), seq },
    }
}

impl Driver {
    /// Saves what is not saved yet.
    pub(crate) fn checkpoint_now(&mut self) -> Result<()> {
        let saved = self.machine.work().queue.is_saved();
        if saved { Ok(()) } else { self.checkpoint() }
    }

    /// An image of the state now, and the instruction it is the state after.
    pub(crate) fn current_image(&mut self) -> Result<(Held, Option<u64>)> {
        self.checkpoint_now()?;
        let (image, seq) = {
            let record = self.machine.record();
            (record.head_image.clone(), record.head_seq)
        };
        // on record until the machine goes
        Ok((self.host.hold(&image, || self.machine.removed())?, seq))
    }

    /// While the state to be left is saved, the one before it is brought into memory.
    fn undo(&mut self) -> Result<()> {
        let was_live = self.live.is_some();
        let owner = self.machine.account();
        let before = self.likely_before()?;
        self.ahead = before.and_then(|image| Ahead::start(&self.host, &image, owner));
        let undone = self.checkpoint_now().and_then(|()| {
            let checkpoints = self.host.store.checkpoints(self.machine.id)?;
            let Some(last) = checkpoints.last() else {
                return Err(Error::Invalid("there is nothing to undo".into()));
            };
            let before = checkpoints.iter().rev().find(|one| one.seq < last.seq);
            let freed = self.machine.record().freed_seq.filter(|seq| *seq < last.seq);
            if let Some(seq) = freed.filter(|seq| before.is_none_or(|one| one.seq < *seq)) {
                return Err(no_checkpoint(&self.machine, seq));
            }
            self.roll_back(before.map(|one| one.seq))
        });
        if was_live && undone.is_ok() {
            // if that fails, the next instruction meets it
            let awake = self.ensure_live().and_then(|()| self.answered());
            if awake.is_err() {
                self.let_go();
            }
        }
        self.ahead = None;
        undone
    }

    /// The image an undo will go back to, if the machine is in memory and nothing unusual happens.
    fn likely_before(&self) -> Result<Option<String>> {
        if self.live.is_none() || self.machine.record().made.network != Network::None {
            return Ok(None);
        }
        let Some(last) = self.last_ran() else { return Ok(None) };
        let checkpoints = self.host.store.checkpoints(self.machine.id)?;
        let before = checkpoints.into_iter().rev().find(|one| one.seq < last);
        Ok(before.map(|one| one.image))
    }

    fn roll_back(&mut self, seq: Option<u64>) -> Result<()> {
        let image = match seq {
            None => {
                let start = self.machine.record().start_image.clone();
                self.host.hold(&start, || self.machine.removed())?
            }
            Some(seq) => checkpoint_image(&self.host, &self.machine, seq)?,
        };
        fault::point("rollback.decided")?;
        match (self.host.store.roll_back(self.machine.id, &image, seq), seq) {
            (Err(stasis_store::Error::Missing(_)), Some(seq)) => {
                return Err(no_checkpoint(&self.machine, seq));
            }
            (recorded, _) => recorded?,
        }
        // not before it is recorded: a rollback that is refused leaves the machine as it is
        self.let_go_behind();
        self.early.clear();
        let mut work = self.machine.work();
        work.last_ran = seq;
        work.rolled_back = true;
        work.falls += 1;
        drop(work);
        self.moved_to(image.name(), seq);
        fault::point("rollback.recorded")?;
        self.machine.observe(Moment::FellBack);
        self.machine.event_at(EventKind::MachineRolledBack, seq);
        Ok(())
    }

    pub(crate) fn variables(&mut self) -> Result<Vec<Variable>> {
        self.query(&Order::Vars, |report| match report {
            Report::Vars { vars } => Some(vars),
            _ => None,
        })
    }

    /// Asks the agent something that is no instruction; the machine is woken for it.
    pub(crate) fn query<T>(
        &mut self,
        order: &Order,
        wanted: impl Fn(Report) -> Option<T>,
    ) -> Result<T> {
        self.wake()?;
        let Some(live) = &mut self.live else { return Err(self.broken("it is not in memory")) };
        let answer = live.ask(order, wanted);
        if answer.is_err() {
            // a half-read answer must not be taken for that of the next order
            self.fell = Some(self.fall_back("its agent did not answer", None).words);
        }
        answer
    }
}
