//! The end of a run: its record, and the reset of its machine.
//!
//!   end ─► claimed by one thread ─► one transaction ─► answered ─► machine kept, rolled back or
//!           │                                                      removed
//!           └─ a second thread (a worker that was given up, `watch.rs`) only tidies up
//!
//! Every run gets an end. If the transaction fails, a shorter one that reports it is tried; if that
//! fails too, this process reports it until the next start of the service settles the record.

use crate::documents::{EXECUTION, HEAP, OUTPUT, RUNNING, put};
use crate::error::Result;
use crate::executions::{ExecutionInfo, KEPT, RunStep, RunningExecution, Stage, joined};
use crate::heaps::{Heap, SessionStep, fresh_key};
use crate::run::{Run, RunOrigin};
use crate::verdict::{unsaved, verdict};
use crate::{V8, V8Mode};
use stasis_api::{Instruction, Timestamp};
use stasis_machine::{DocumentChange, Machine};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Ends that could not be recorded, kept in memory.
const MOST_UNRECORDED: usize = 1000;
/// Ends between two looks for executions that are too old to keep.
const PRUNE_EVERY: u64 = 256;

impl V8 {
    /// Records the end of a run, and resets its machine for the next one.
    pub(crate) fn settle(
        &self,
        own: &Arc<RunningExecution>,
        place: Option<(&Arc<Machine>, RunOrigin)>,
        end: Result<Instruction>,
    ) {
        own.now(RunStep::Saving);
        let kept = self.recorded(own, place.map(|(machine, _)| machine), &end);
        let kept = kept.unwrap_or_else(|error| {
            tracing::error!(%error, id = own.info.execution_id, "cannot record the end of a run");
            self.give_up(own, &format!("the run ended, but that could not be recorded: {error}"));
            false
        });
        // its callers do not wait for the machine; the next run of its session and its slot do
        self.is_over(own);
        if let Some((machine, origin)) = place {
            self.leave(machine, origin, kept, own.run.mode);
        }
    }

    /// Ends a run without its effects, unless another thread has recorded its end already.
    pub(crate) fn give_up(&self, own: &Arc<RunningExecution>, words: &str) {
        if own.claim() {
            let mut info = own.info.clone();
            info.status = "failed".into();
            info.error = Some(words.to_owned());
            info.completed_at = Some(Timestamp::now().to_string());
            self.record_alone(own, info);
        }
        self.is_over(own);
    }

    fn record_alone(&self, own: &RunningExecution, info: ExecutionInfo) {
        let id = own.info.execution_id.clone();
        let recorded = put(EXECUTION, &id, &info).and_then(|put| {
            let over = DocumentChange::Remove { kind: RUNNING, key: id.clone() };
            Ok(self.host.change_documents(&own.account, vec![put, over])?)
        });
        if let Err(error) = recorded {
            tracing::error!(%error, id, "the end of a run is not recorded");
            let mut unrecorded = self.shared.unrecorded.lock();
            if unrecorded.len() < MOST_UNRECORDED {
                unrecorded.insert((own.account.clone(), id), info);
            }
        }
    }

    /// Notifies its waiters.
    fn is_over(&self, own: &RunningExecution) {
        let key = (own.account.clone(), own.info.execution_id.clone());
        self.shared.running.lock().remove(&key);
        own.stage.send_replace(Stage::Over);
    }

    /// Whether the machine's state is a heap now.
    fn recorded(
        &self,
        own: &Arc<RunningExecution>,
        machine: Option<&Arc<Machine>>,
        end: &Result<Instruction>,
    ) -> Result<bool> {
        let id = &own.info.execution_id;
        let keeps_files = own.run.mode.keeps_files();
        if keeps_files {
            self.make_room(&own.account)?;
        }
        let _keeping = keeps_files.then(|| self.shared.trees.read());
        let mut verdict = verdict(end, own);
        let mut changes = Vec::new();
        let mut info = own.info.clone();
        if let (Some(machine), Ok(end)) = (machine, end) {
            // if the machine is removed meanwhile, its output is lost
            let output = joined(&machine.outputs(end.seq, 0).unwrap_or_default());
            changes.push(DocumentChange::Put { kind: OUTPUT, key: id.clone(), value: output });
            if end.status.has_run() {
                match self.take_artifacts(&own.account, id, machine) {
                    Ok((emitted, added)) => {
                        changes.extend(added);
                        info.artifacts = emitted;
                    }
                    Err(error) => tracing::error!(%error, id, "cannot keep a run's artifacts"),
                }
            }
            if verdict.status == "completed" {
                match self.state_changes(own, machine, end.seq) {
                    Ok((heap, fs, added)) => {
                        (info.heap, info.fs) = (heap, fs);
                        changes.extend(added);
                    }
                    Err(error) => verdict = unsaved(&error),
                }
            }
        }
        info.status = verdict.status.to_owned();
        (info.error, info.result) = (verdict.error, verdict.result);
        info.completed_at = Some(Timestamp::now().to_string());
        changes.push(put(EXECUTION, id, &info)?);
        changes.push(DocumentChange::Remove { kind: RUNNING, key: id.clone() });
        changes.extend(self.prunes());
        if !own.claim() {
            // it was abandoned meanwhile, and its callers were informed
            return Ok(false);
        }
        self.host.change_documents(&own.account, changes).inspect_err(|_| own.release())?;
        Ok(info.heap.is_some())
    }

    /// The changes that remove old executions: with the first end of this process, and then seldom,
    /// because finding the oldest one to keep reads all that are kept.
    fn prunes(&self) -> Vec<DocumentChange> {
        let ends = self.shared.ends.fetch_add(1, Ordering::Relaxed);
        let kinds = [EXECUTION, OUTPUT].into_iter().filter(|_| ends.is_multiple_of(PRUNE_EVERY));
        kinds.map(|kind| DocumentChange::KeepLast { kind, count: KEPT }).collect()
    }

    /// A key for the state after an instruction, an id for its files, and what records them.
    fn state_changes(
        &self,
        own: &RunningExecution,
        machine: &Arc<Machine>,
        seq: u64,
    ) -> Result<(Option<String>, Option<String>, Vec<DocumentChange>)> {
        let Run { mode, tags, session, code, .. } = &own.run;
        let mut changes = Vec::new();
        let fs = mode.keeps_files().then(|| self.capture(&own.account, machine)).transpose()?;
        let heap = mode.keeps_heap().then(fresh_key);
        if let Some(key) = &heap {
            self.host.place(machine, Some(seq))?;
            let (name, number) = (machine.name().to_string(), machine.number());
            let tags = tags.clone().unwrap_or_default();
            let program = own.run.program_after(own.is_resident.load(Ordering::Relaxed));
            let heap = Heap { machine: name, number, seq, tags, program };
            changes.push(put(HEAP, key, &heap)?);
        }
        if let Some(session) = session {
            let (input, heap, fs) = (self.input(own)?, heap.clone(), fs.clone());
            let step = SessionStep { session, input, heap, fs, code };
            changes.extend(self.session_step(&own.account, step)?);
        }
        Ok((heap, fs, changes))
    }

    /// A machine whose new state has a key stays in it. Any other rolls back.
    fn leave(&self, machine: &Arc<Machine>, origin: RunOrigin, is_kept: bool, mode: V8Mode) {
        let done = match origin {
            _ if is_kept && mode.keeps_heap() => Ok(()),
            // a temporary machine ends by itself, should the host fail right now
            RunOrigin::Made if !mode.keeps_heap() => self.host.remove_temporary(machine),
            RunOrigin::Made => self.host.remove(machine),
            RunOrigin::At(seq) if machine.is_at(seq) => Ok(()),
            RunOrigin::At(seq) => self.host.roll_back(machine, Some(seq)),
        };
        if let Err(error) = done {
            // the next run from its heap starts from a branch of the recorded state
            tracing::warn!(%error, machine = %machine.name(), "cannot reset a machine after a run");
        }
    }
}
