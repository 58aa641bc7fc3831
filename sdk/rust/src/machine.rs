//! A machine: run code, inspect, go back, branch.

use crate::files::resumed;
use crate::transport::{Call, Transport, at, segment};
use crate::types::{
    Accepted, ArtifactList, Complete, Completions, DiskUse, History, Instruction as Recorded,
    InstructionList, Interrupted, Kept, Lineage, Machine as Info, Point, Removed, Rollback,
    StepRequest, ToolCall, ToolCallList, Update, Var, VarList,
};
use crate::{Error, Exec, Files, Instruction, Result, Run, Streamed};
use futures_util::stream::{self, StreamExt, TryStreamExt};
use serde_json::json;
use std::ops::Range;
use std::sync::Arc;

/// Page size of instructions.
const PAGE: u64 = 1000;

/// A machine by name. Dropping this does nothing to the machine.
#[derive(Debug, Clone)]
pub struct Machine {
    transport: Arc<Transport>,
    name: String,
}

impl Machine {
    pub(crate) fn new(transport: Arc<Transport>, name: impl Into<String>) -> Machine {
        Machine { transport, name: name.into() }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Submits code, and does not wait.
    pub async fn exec(&self, exec: impl Into<Exec>) -> Result<Instruction> {
        let call = exec.into().call(&self.name)?;
        let accepted: Accepted = self.transport.json(call).await?;
        let Accepted { instruction_seq, interrupted, .. } = accepted;
        let (transport, name) = (self.transport.clone(), self.name.clone());
        Ok(Instruction::new(transport, name, instruction_seq, interrupted))
    }

    /// Runs code to its end. An error of the code is part of the result;
    /// [`check`](crate::RunResult::check) makes it an error.
    pub fn run(&self, exec: impl Into<Exec>) -> Run<'_> {
        Run::new(self, exec.into())
    }

    /// An earlier instruction.
    pub fn instruction(&self, seq: u64) -> Instruction {
        Instruction::new(self.transport.clone(), self.name.clone(), seq, false)
    }

    /// All instructions from number `start` on, oldest first.
    pub fn instructions(&self, start: u64) -> Streamed<Recorded> {
        let pages = stream::try_unfold((self.clone(), start), |(machine, from)| async move {
            let path = machine.path("/exec")?;
            let call = Call::get(path).query("from", from).query("limit", PAGE);
            let page = machine.transport.json::<InstructionList>(call).await?.instructions;
            let Some(last) = page.last().map(|last| last.seq) else { return Ok(None) };
            Ok::<_, Error>(Some((stream::iter(page.into_iter().map(Ok)), (machine, last + 1))))
        });
        pages.try_flatten().boxed()
    }

    /// Interrupts the running instruction and keeps the state; whether one ran.
    pub async fn interrupt(&self) -> Result<bool> {
        let call = Call::post(self.path("/interrupt")?);
        Ok(self.transport.json::<Interrupted>(call).await?.interrupted)
    }

    /// Its current description from the service.
    pub async fn info(&self) -> Result<Info> {
        self.transport.json(Call::get(self.path("")?)).await
    }

    /// Variables of the session.
    pub async fn variables(&self) -> Result<Vec<Var>> {
        let call = Call::get(self.path("/vars")?);
        Ok(self.transport.json::<VarList>(call).await?.vars)
    }

    /// Completions at the cursor, counted in characters; at the end by default.
    pub async fn complete(&self, code: &str, cursor: Option<u64>) -> Result<Completions> {
        let asked = Complete { code: code.to_owned(), cursor };
        let call = Call::post(self.path("/complete")?).repeatable().body(&asked)?;
        self.transport.json(call).await
    }

    /// Its files.
    pub fn files(&self) -> Files {
        Files::new(self.transport.clone(), self.name.clone())
    }

    /// Artifacts, which are values too large for results, oldest first.
    pub async fn artifacts(&self) -> Result<Vec<Kept>> {
        let call = Call::get(self.path("/artifact")?);
        Ok(self.transport.json::<ArtifactList>(call).await?.artifacts)
    }

    /// Its calls of tools with verdicts and answers, newest first.
    pub async fn calls(&self) -> Result<Vec<ToolCall>> {
        let call = Call::get(self.path("/calls")?);
        Ok(self.transport.json::<ToolCallList>(call).await?.calls)
    }

    /// Bytes of an artifact as they arrive; `0..u64::MAX` is all.
    pub fn artifact(&self, id: &str, bytes: Range<u64>) -> Streamed<Vec<u8>> {
        let path = segment(id).and_then(|id| self.path(&format!("/artifact/{id}")));
        resumed(self.transport.clone(), path.map(Call::get), bytes)
    }

    /// States to return to, oldest first.
    pub async fn history(&self) -> Result<Vec<Point>> {
        let call = Call::get(self.path("/history")?);
        Ok(self.transport.json::<History>(call).await?.checkpoints)
    }

    /// The same with the files that each changed.
    pub async fn history_with_files(&self) -> Result<Vec<Point>> {
        let call = Call::get(self.path("/history")?).query("files", true);
        Ok(self.transport.json::<History>(call).await?.checkpoints)
    }

    /// Sets or removes the label of a state; returns the new history.
    pub async fn label(&self, seq: u64, label: Option<&str>) -> Result<Vec<Point>> {
        let asked = json!({ "seq": seq, "label": label });
        let call = Call::post(self.path("/label")?).repeatable().body(&asked)?;
        Ok(self.transport.json::<History>(call).await?.checkpoints)
    }

    /// Its ancestors, its branches, and its whole family.
    pub async fn lineage(&self) -> Result<Lineage> {
        self.transport.json(Call::get(self.path("/lineage")?)).await
    }

    /// Disk use of the machine and its checkpoints.
    pub async fn disk(&self) -> Result<DiskUse> {
        self.transport.json(Call::get(self.path("/disk")?)).await
    }

    /// Undoes the last instruction.
    pub async fn undo(&self) -> Result<Info> {
        self.undo_steps(&StepRequest::default()).await
    }

    /// Undoes the last instructions. If they share a state with others (grouped instructions), this
    /// is refused unless the request includes those.
    pub async fn undo_steps(&self, steps: &StepRequest) -> Result<Info> {
        self.transport.json(Call::post(self.path("/undo")?).body(steps)?).await
    }

    /// Redoes undone instructions, as long as nothing new ran.
    pub async fn redo_steps(&self, steps: &StepRequest) -> Result<Info> {
        self.transport.json(Call::post(self.path("/redo")?).body(steps)?).await
    }

    /// Redoes the last undone instruction, as long as nothing new ran.
    pub async fn redo(&self) -> Result<Info> {
        self.redo_steps(&StepRequest::default()).await
    }

    /// Returns to the state after instruction `seq`, or with `None` to the beginning.
    pub async fn rollback(&self, seq: Option<u64>) -> Result<Info> {
        let call = Call::post(self.path("/rollback")?).repeatable().body(&Rollback { seq })?;
        self.transport.json(call).await
    }

    /// Changes the given settings; `tags` replaces all.
    pub async fn update(&self, change: &Update) -> Result<Info> {
        self.transport.json(Call::patch(self.path("")?).body(change)?).await
    }

    /// Removes the expiry.
    pub async fn keep(&self) -> Result<Info> {
        let call = Call::patch(self.path("")?).body(&json!({ "expires_at": null }))?;
        self.transport.json(call).await
    }

    /// Moves it out of memory. The next instruction brings it back.
    pub async fn swap(&self) -> Result<Info> {
        self.transport.json(Call::post(self.path("/swap")?).repeatable()).await
    }

    /// Brings it into memory.
    pub async fn wake(&self) -> Result<Info> {
        self.transport.json(Call::post(self.path("/wake")?).repeatable()).await
    }

    /// Removes it with all its data.
    pub async fn remove(&self) -> Result<()> {
        self.transport.json::<Removed>(Call::delete(self.path("")?)).await.map(drop)
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    pub(crate) fn client(&self) -> crate::Client {
        crate::Client::of(self.transport.clone())
    }

    pub(crate) fn path(&self, rest: &str) -> Result<String> {
        at(&self.name, rest)
    }
}
