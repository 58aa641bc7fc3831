//! Executions as clients see them: status, output, cancellation and waiting.
//!
//! An execution that is not over is read from its machine, one that is over from the records. At
//! least the newest 10,000 of an account are kept.

use crate::V8;
use crate::artifacts::ArtifactMeta;
use crate::documents::{EXECUTION, OUTPUT};
use crate::error::{Error, Result};
use crate::pages::{OutputPage, PageRequest, page};
use crate::queue::WaitingRun;
use crate::run::Run;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use stasis_api::{Chunk, Timestamp};
use stasis_machine::Machine;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use tokio::sync::watch;

/// Executions of an account that are kept, at least.
pub(crate) const KEPT: u64 = 10_000;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionInfo {
    pub execution_id: String,
    /// `running` (also while it waits), `completed`, `failed`, `cancelled` or `timed_out`.
    pub status: String,
    /// The last value of code that ran with REPL bindings; otherwise empty.
    pub result: Option<String>,
    pub heap: Option<String>,
    /// The tree of the files below /work after the run.
    pub fs: Option<String>,
    pub error: Option<String>,
    pub started_at: String,
    pub completed_at: Option<String>,
    pub artifacts: Vec<ArtifactMeta>,
}

impl ExecutionInfo {
    pub(crate) fn started(id: &str) -> ExecutionInfo {
        ExecutionInfo {
            execution_id: id.to_owned(),
            status: "running".into(),
            result: None,
            heap: None,
            fs: None,
            error: None,
            started_at: Timestamp::now().to_string(),
            completed_at: None,
            artifacts: Vec::new(),
        }
    }

    pub fn is_over(&self) -> bool {
        self.status != "running"
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExecutionSummary {
    pub execution_id: String,
    pub status: String,
    pub started_at: String,
    pub completed_at: Option<String>,
}

/// The progress of an execution.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub(crate) enum Stage {
    Waiting,
    /// Its machine runs it.
    Placed,
    Over,
}

/// The current step of a run's thread, for the error of a run that hangs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunStep {
    Finding,
    LayingOut,
    Running,
    Saving,
}

impl RunStep {
    pub fn words(self) -> &'static str {
        match self {
            RunStep::Finding => "its machine was being prepared",
            RunStep::LayingOut => "its files were being written",
            RunStep::Running => "its code ran",
            RunStep::Saving => "its state was being saved",
        }
    }
}

/// An unfinished execution.
pub(crate) struct RunningExecution {
    pub account: String,
    pub run: Run,
    pub info: ExecutionInfo,
    pub place: Mutex<Option<(Arc<Machine>, u64)>>,
    pub is_cancelled: AtomicBool,
    /// Whether its machine's first state has the program that runs code.
    pub is_resident: AtomicBool,
    pub stage: watch::Sender<Stage>,
    /// When it started, and its current step.
    step: Mutex<Option<(Instant, RunStep)>>,
    /// Whether a thread is recording its end.
    is_claimed: AtomicBool,
}

impl RunningExecution {
    pub fn new(account: &str, run: Run, info: ExecutionInfo) -> RunningExecution {
        RunningExecution {
            account: account.to_owned(),
            run,
            info,
            place: Mutex::default(),
            is_cancelled: AtomicBool::new(false),
            is_resident: AtomicBool::new(false),
            stage: watch::Sender::new(Stage::Waiting),
            step: Mutex::default(),
            is_claimed: AtomicBool::new(false),
        }
    }

    /// Its place in the queue.
    pub fn waiting(&self) -> WaitingRun {
        WaitingRun {
            account: self.account.clone(),
            id: self.info.execution_id.clone(),
            session: self.run.session.clone(),
            group: self.run.group.clone(),
        }
    }

    /// Sets its current step.
    pub fn now(&self, step: RunStep) {
        let mut own = self.step.lock();
        let began = own.map_or_else(Instant::now, |(began, _)| began);
        *own = Some((began, step));
    }

    /// Since when it runs, and its current step; none while it waits.
    pub fn step(&self) -> Option<(Instant, RunStep)> {
        *self.step.lock()
    }

    /// Lets the caller record its end; only one thread may.
    pub fn claim(&self) -> bool {
        !self.is_claimed.swap(true, Ordering::SeqCst)
    }

    /// The caller could not record it.
    pub fn release(&self) {
        self.is_claimed.store(false, Ordering::SeqCst);
    }

    /// Sets the machine it runs on.
    pub fn placed(&self, machine: &Arc<Machine>, seq: u64) {
        *self.place.lock() = Some((machine.clone(), seq));
        self.stage.send_replace(Stage::Placed);
    }

    fn output(&self) -> Result<String> {
        let place = self.place.lock().clone();
        let Some((machine, seq)) = place else { return Ok(String::new()) };
        Ok(joined(&machine.outputs(seq, 0)?))
    }
}

/// Lines as one text, each with its newline.
pub(crate) fn joined(chunks: &[Chunk]) -> String {
    chunks.iter().fold(String::new(), |mut text, chunk| {
        let _ = writeln!(text, "{}", chunk.data);
        text
    })
}

/// An execution that can be waited for.
pub struct OpenExecution(Arc<RunningExecution>);

impl OpenExecution {
    /// Returns when it is over.
    pub async fn over(&self) {
        self.reached(Stage::Over).await;
    }

    /// Its machine and number, as soon as known; none, if it ended before.
    pub async fn place(&self) -> Option<(Arc<Machine>, u64)> {
        self.reached(Stage::Placed).await;
        self.0.place.lock().clone()
    }

    async fn reached(&self, stage: Stage) {
        // the sender is in `self`, so it still exists
        let _ = self.0.stage.subscribe().wait_for(|now| *now >= stage).await;
    }
}

/// An id in the form of a random UUID. It begins with the time, so that ids sort by age.
pub(crate) fn fresh_id() -> String {
    let mut bytes: [u8; 16] = stasis_machine::random();
    let now = Timestamp::now().as_millisecond().unsigned_abs().to_be_bytes();
    bytes[..6].copy_from_slice(&now[2..]);
    bytes[6] = (bytes[6] & 0x0f) | 0x40;
    bytes[8] = (bytes[8] & 0x3f) | 0x80;
    let hex = hex::encode(bytes);
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    parts.join("-")
}

impl V8 {
    pub(crate) fn running(&self, account: &str, id: &str) -> Option<Arc<RunningExecution>> {
        let key = (account.to_owned(), id.to_owned());
        self.shared.running.lock().get(&key).cloned()
    }

    pub fn execution(&self, account: &str, id: &str) -> Result<ExecutionInfo> {
        if let Some(own) = self.running(account, id) {
            return Ok(own.info.clone());
        }
        let key = (account.to_owned(), id.to_owned());
        if let Some(info) = self.shared.unrecorded.lock().get(&key) {
            return Ok(info.clone());
        }
        let found = self.read(account, EXECUTION, id)?;
        found.ok_or_else(|| Error::missing(format!("Execution '{}' not found", shown(id))))
    }

    /// All kept executions of an account, oldest first.
    pub fn executions(&self, account: &str) -> Result<Vec<ExecutionSummary>> {
        let all = self.read_all(account, EXECUTION, "")?;
        Ok(all.into_iter().map(|(_, one)| one).collect())
    }

    /// A page of an execution's output. An unknown execution has none.
    pub fn output(&self, account: &str, id: &str, wanted: &PageRequest) -> Result<OutputPage> {
        if let Some(own) = self.running(account, id) {
            // its machine may be removed meanwhile: then the records have it
            if let Ok(text) = own.output() {
                return Ok(page(id, &own.info.status, &text, wanted));
            }
        }
        let status = match self.execution(account, id) {
            Ok(info) => info.status,
            Err(error) if error.status == 404 => "unknown".into(),
            Err(error) => return Err(error),
        };
        Ok(page(id, &status, &self.whole_output(account, id)?, wanted))
    }

    /// All output of a finished execution.
    pub fn whole_output(&self, account: &str, id: &str) -> Result<String> {
        Ok(self.host.document(account, OUTPUT, id)?.unwrap_or_default())
    }

    /// Ends an execution, whether it waits or runs.
    pub fn cancel(&self, account: &str, id: &str) -> Result<()> {
        let Some(own) = self.running(account, id) else {
            let status = self.execution(account, id)?.status;
            let id = shown(id);
            let said = format!("Execution '{id}' is not running (status: {status})");
            return Err(Error::invalid(said));
        };
        own.is_cancelled.store(true, Ordering::SeqCst);
        if self.shared.queue.lock().withdraw(account, id) {
            self.settle(&own, None, Err(Error::invalid("cancelled before it began")));
            return Ok(());
        }
        let place = own.place.lock().clone();
        if let Some((machine, seq)) = place {
            machine.stop(seq)?;
        }
        Ok(())
    }

    /// An execution to wait for; none, if it has finished.
    pub fn open_execution(&self, account: &str, id: &str) -> Option<OpenExecution> {
        self.running(account, id).map(OpenExecution)
    }

    /// The answer to a caller that waited for an execution, in the form of stateless mode.
    pub fn finished(&self, account: &str, id: &str) -> Result<(ExecutionInfo, String)> {
        let info = self.execution(account, id)?;
        let output = self.whole_output(account, id)?;
        Ok((info, output.trim_end_matches('\n').to_owned()))
    }
}

/// A client's text in a message, shortened.
pub(crate) fn shown(text: &str) -> String {
    text.chars().take(100).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_uuids_that_sort_by_age() {
        let (first, second) = (fresh_id(), fresh_id());
        assert_ne!(first, second);
        assert_eq!(first.len(), 36);
        assert_eq!(first.split('-').map(str::len).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert_eq!(&first[14..15], "4");
        assert!("89ab".contains(&first[19..20]), "{first}");
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(fresh_id() > second);
    }
}
