//! The end of a run: what is recorded, and what becomes of its machine.
//!
//!   end ─► claimed by one thread ─► one transaction ─► machine kept, rolled back or removed
//!           └─ whoever comes second (a worker that was given up, `watch.rs`) only tidies up
//!
//! Every run gets an end. If the transaction fails, a shorter one that only says so is tried; if
//! that fails too, this process says it until the next start of the service settles the record.

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

/// Ends that could not be recorded and are remembered here.
const MOST_UNRECORDED: usize = 1000;

impl V8 {
    /// Records how a run ended, and leaves its machine as the next run needs it.
    pub(crate) fn settle(
        &self,
        own: &Arc<RunningExecution>,
        place: Option<(&Arc<Machine>, RunOrigin)>,
        end: Result<Instruction>,
    ) {
        own.now(RunStep::Saving);
        let kept = self.recorded(own, place.map(|(machine, _)| machine), &end);
        let kept = kept.unwrap_or_else(|error| {
            tracing::error!(%error, id = own.info.execution_id, "a run's end is not on record");
            self.give_up(own, &format!("the run ended, but that could not be recorded: {error}"));
            false
        });
        if let Some((machine, origin)) = place {
            own.now(RunStep::Leaving);
            self.leave(machine, origin, kept, own.run.mode);
        }
        self.is_over(own);
    }

    /// Ends a run without what it did, unless another thread has recorded its end already.
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
            tracing::error!(%error, id, "a run's end is on no record");
            let mut unrecorded = self.shared.unrecorded.lock();
            if unrecorded.len() < MOST_UNRECORDED {
                unrecorded.insert((own.account.clone(), id), info);
            }
        }
    }

    /// Those who wait for it are told.
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
            // a machine that somebody removes meanwhile takes its output along
            let output = joined(&machine.outputs(end.seq, 0).unwrap_or_default());
            changes.push(DocumentChange::Put { kind: OUTPUT, key: id.clone(), value: output });
            if end.status.has_run() {
                match self.take_artifacts(&own.account, id, machine) {
                    Ok((emitted, added)) => {
                        changes.extend(added);
                        info.artifacts = emitted;
                    }
                    Err(error) => tracing::error!(%error, id, "a run's artifacts are not kept"),
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
        changes.push(DocumentChange::KeepLast { kind: EXECUTION, count: KEPT });
        changes.push(DocumentChange::KeepLast { kind: OUTPUT, count: KEPT });
        if !own.claim() {
            // it was given up meanwhile, and its callers were told so
            return Ok(false);
        }
        self.host.change_documents(&own.account, changes).inspect_err(|_| own.release())?;
        Ok(info.heap.is_some())
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
            changes.push(put(HEAP, key, &Heap { machine: name, number, seq, tags })?);
        }
        if let Some(session) = session {
            let (input, heap, fs) = (self.input(own)?, heap.clone(), fs.clone());
            let step = SessionStep { session, input, heap, fs, code };
            changes.extend(self.session_step(&own.account, step)?);
        }
        Ok((heap, fs, changes))
    }

    /// A machine whose new state has a key stays in it. Any other goes back to where it was.
    fn leave(&self, machine: &Arc<Machine>, origin: RunOrigin, is_kept: bool, mode: V8Mode) {
        let done = match origin {
            _ if is_kept && mode.keeps_heap() => Ok(()),
            RunOrigin::Made => self.host.remove(machine),
            RunOrigin::At(seq) if machine.is_at(seq) => Ok(()),
            RunOrigin::At(seq) => self.host.roll_back(machine, Some(seq)),
        };
        if let Err(error) = done {
            // the next run from its heap starts from a branch of the recorded state
            tracing::warn!(%error, machine = %machine.name(), "a machine stays as a run left it");
        }
    }
}
