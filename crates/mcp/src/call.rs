//! One call of a tool: who calls, on which host, and how code is run for it.
//!
//! Code runs on the machine's own time. A call follows it, tells the client what it prints, and
//! when the client gives up, interrupts it: the state is kept, and the log says what happened.

use crate::answer::{Answer, failure, images};
use crate::call_limiter::CallLimiter;
use crate::changes::Changes;
use crate::error::{Error, Result};
use crate::output::RunOutput;
use crate::sets::ToolSet;
use crate::table::ToolReply;
use crate::tasks;
use axum::http::request::Parts;
use rmcp::model::{
    ClientCapabilities, CreateTaskResult, InputResponses, ProgressNotificationParam,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use stasis_agent::Language;
use stasis_api::{Address, Chunk, Exec, Instruction, NewMachine, Timeout};
use stasis_forkd::Forkd;
use stasis_machine::{FollowUpdate, Host, Machine, TraceContext};
use stasis_mcpv8::{V8, V8Settings};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Live output in one notification, in characters.
const MAX_MESSAGE: usize = 4000;
/// Between two notifications of one call, so that a chatty program does not flood its client.
const BREATH: Duration = Duration::from_millis(20);
/// Between two looks whether an instruction that was stopped has ended.
const AGAIN: Duration = Duration::from_millis(50);

/// How long the caller is kept waiting before a call goes on as a task.
const PATIENCE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct CallContext {
    pub host: Arc<Host>,
    pub forkd: Forkd,
    pub v8: V8,
    /// Settings for mcp-v8's tools from when the connection was opened.
    pub opened: Option<V8Settings>,
    pub account: String,
    /// Whether the caller may build templates.
    pub may_build: bool,
    /// The tool that is called.
    pub name: String,
    pub tools: ToolSet,
    pub changes: Arc<Changes>,
    pub limiter: CallLimiter,
    pub context: RequestContext<RoleServer>,
    /// What the client answered to questions of an earlier round, and what it was given to keep.
    pub inputs: InputResponses,
    pub state: Option<String>,
    /// Whether the caller wants a task at once.
    pub as_task: bool,
}

/// What a tool wants to be run.
pub struct InstructionRequest {
    /// A new machine, if none is named.
    pub machine: Option<String>,
    /// The template of the new machine; the default if absent.
    pub template: Option<String>,
    pub exec: Exec,
    /// Code that depends on the machine's language takes the place of the code in `exec`.
    pub write: Option<CodeWriter>,
    pub task: TaskFrom,
}

/// Writes an instruction's code in a language.
pub type CodeWriter = Box<dyn FnOnce(&dyn Language) -> Result<String> + Send>;

/// When a call becomes a task, for clients that know tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TaskFrom {
    /// Before it has begun; clients that know no tasks cannot call it.
    Start,
    /// When it lasts.
    Patience,
}

impl InstructionRequest {
    pub fn new(machine: Option<String>, exec: Exec) -> InstructionRequest {
        let task = TaskFrom::Patience;
        InstructionRequest { machine, template: None, exec, write: None, task }
    }

    /// A request whose code is written in the language of the machine that runs it.
    pub fn written(
        machine: Option<String>,
        timeout: Timeout,
        write: impl FnOnce(&dyn Language) -> Result<String> + Send + 'static,
    ) -> InstructionRequest {
        let request = InstructionRequest::new(machine, Exec { timeout, ..Exec::default() });
        InstructionRequest { write: Some(Box::new(write)), ..request }
    }
}

impl CallContext {
    /// A machine of the caller's. Those of others are not there. `machine@seq` is the machine too,
    /// as long as that is the state it is in.
    pub fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let (machine, seq) = self.state(name)?;
        match seq {
            Some(seq) if !machine.is_at(seq) => Err(Error::Invalid(format!(
                "{name} is an earlier state: name only the machine for its current state, or \
                 call undo or branch_machine with {name} first"
            ))),
            _ => Ok(machine),
        }
    }

    /// A machine of the caller's, and the state that `machine@seq` names.
    pub fn state(&self, name: &str) -> Result<(Arc<Machine>, Option<u64>)> {
        let address = name.parse::<Address>().ok();
        let seq = address.as_ref().and_then(|address| address.seq);
        let own = address.as_ref().map_or(name, |address| address.machine.as_str());
        Ok((self.host.machine_of(&self.account, own)?, seq))
    }

    /// The caller's machines, newest first.
    pub fn machines(&self) -> impl Iterator<Item = Arc<Machine>> {
        let all = self.host.machines().into_iter();
        all.filter(|machine| machine.account() == self.account)
    }

    /// The machine named, or a new one of the template.
    fn machine_or_new(&self, name: Option<&str>, template: Option<String>) -> Result<Arc<Machine>> {
        match name {
            Some(name) => self.machine(name),
            None => self.new_machine(template),
        }
    }

    /// A new machine; of the default template, if none is named.
    pub fn new_machine(&self, template: Option<String>) -> Result<Arc<Machine>> {
        let new = NewMachine { template, ..NewMachine::default() };
        Ok(self.host.create(&self.account, new)?)
    }

    /// Runs blocking work on a thread for that, once the caller has a permit.
    pub async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&CallContext) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let turn = self.limiter.take(&self.account).await?;
        let call = self.clone();
        let job = move || {
            let done = TraceContext::of(call.cause(), || work(&call));
            drop(turn);
            done
        };
        let done = stasis_machine::block(job).await;
        done.map_err(|error| Error::Unfinished(error.to_string()))?
    }

    /// What instructions of this call come from: what the call says itself, or else the request
    /// it came with.
    fn cause(&self) -> Option<TraceContext> {
        let said = self.context.meta.get_traceparent().and_then(TraceContext::new);
        said.or_else(|| self.context.extensions.get::<Parts>()?.extensions.get().cloned())
    }

    /// Whether the request stands alone: a task may be its answer, and nothing may be asked while
    /// it waits. Its own words count: a session may have been opened with any.
    pub fn is_stateless(&self) -> bool {
        let version = self.context.meta.protocol_version();
        version.is_some_and(|version| !version.has_initialize())
    }

    /// Whether the caller knows what a task is. Clients declare the extension in sessions too,
    /// where it means nothing: those ask for a task in words of their own.
    pub fn knows_tasks(&self) -> bool {
        self.is_stateless()
            && self.context.client_capabilities().is_some_and(|can| can.supports_tasks())
    }

    /// Runs code for a tool, to its end or until it goes on as a task.
    pub async fn start(&self, tool: &'static str, wanted: InstructionRequest) -> ToolReply {
        let tasks = self.as_task || self.knows_tasks();
        let at_once = self.as_task || wanted.task == TaskFrom::Start;
        if at_once && !tasks {
            let needed = ClientCapabilities::builder().enable_tasks().build();
            return Err(ErrorData::missing_required_client_capability(needed));
        }
        let (machine, seq) = match self.submit(wanted).await {
            Ok(started) => started,
            Err(error) => return Ok(failure(&error).into()),
        };
        let patience = if at_once { Duration::ZERO } else { PATIENCE };
        let until = tasks.then(|| Instant::now() + patience);
        let ended = match self.follow(&machine, seq, until).await {
            Ok(Some((end, chunks))) if !at_once => ran(&machine, &end, &chunks),
            Ok(_) => {
                let tool = tool.to_owned();
                let task = self.block(move |_| tasks::open(&tool, &machine, seq)).await;
                let task = task.map_err(|error| tasks::broken(&error))?;
                return Ok(CreateTaskResult::new(task).into());
            }
            Err(error) => return Ok(failure(&error).into()),
        };
        Ok(self.tools.finish(tool, ended)?.into())
    }

    /// Accepts an instruction.
    pub async fn submit(&self, wanted: InstructionRequest) -> Result<(Arc<Machine>, u64)> {
        self.block(move |call| {
            let machine = call.machine_or_new(wanted.machine.as_deref(), wanted.template)?;
            let mut exec = wanted.exec;
            if let Some(write) = wanted.write {
                exec.code = write(machine.language())?;
            }
            let seq = machine.submit(exec)?;
            Ok((machine, seq))
        })
        .await
    }

    /// Starts an instruction and follows it to its end, which comes soon if the caller gives up.
    pub async fn run_to_end(
        &self,
        start: impl FnOnce(&CallContext) -> Result<(Arc<Machine>, u64)> + Send + 'static,
    ) -> Result<Instruction> {
        let (machine, seq) = self.block(start).await?;
        let end = self.follow(&machine, seq, None).await?;
        end.map(|(end, _)| end).ok_or_else(|| Error::Unfinished("it goes on".into()))
    }

    /// The end of an instruction and all it printed; nothing, if it runs longer than `until`.
    async fn follow(
        &self,
        machine: &Arc<Machine>,
        seq: u64,
        until: Option<Instant>,
    ) -> Result<Option<(Instruction, Vec<Chunk>)>> {
        let mut chunks: Vec<Chunk> = Vec::new();
        loop {
            let (own, from) = (machine.clone(), chunks.len() as u64);
            match self.block(move |_| Ok(own.follow(seq, from)?)).await? {
                FollowUpdate::Over(end) => return Ok(Some((*end, chunks))),
                FollowUpdate::Chunks(new) => {
                    self.report(chunks.len() + new.len(), &new).await;
                    chunks.extend(new);
                }
                FollowUpdate::Wait(change) if self.context.ct.is_cancelled() => {
                    let own = machine.clone();
                    self.block(move |_| Ok(own.stop(seq)?)).await?;
                    let _ = tokio::time::timeout(AGAIN, change).await;
                }
                FollowUpdate::Wait(_) if until.is_some_and(|until| until <= Instant::now()) => {
                    return Ok(None);
                }
                FollowUpdate::Wait(change) => tokio::select! {
                    () = change => {}
                    () = self.context.ct.cancelled() => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }

    /// Tells the client what was printed, if it asked for that and still listens.
    async fn report(&self, lines: usize, new: &[Chunk]) {
        let Some(token) = self.context.meta.get_progress_token() else { return };
        if self.context.ct.is_cancelled() {
            return;
        }
        let text: Vec<&str> = new.iter().map(|chunk| chunk.data.as_str()).collect();
        let message = crate::text::cut(&text.join("\n"), MAX_MESSAGE, "the result");
        let progress = ProgressNotificationParam::new(token, lines as f64).with_message(message);
        tokio::select! {
            _ = self.context.peer.notify_progress(progress) => {}
            () = self.context.ct.cancelled() => return,
        }
        tokio::time::sleep(BREATH).await;
    }
}

async fn sleep_until(until: Option<Instant>) {
    match until {
        Some(until) => tokio::time::sleep_until(until).await,
        None => std::future::pending().await,
    }
}

/// An instruction that is over, with the pictures it made.
pub fn ran(machine: &Arc<Machine>, end: &Instruction, chunks: &[Chunk]) -> Answer<RunOutput> {
    let outcome = end.outcome.clone().unwrap_or_default();
    let (images, left_out) = images(&outcome);
    let name = machine.name();
    Answer::ran(RunOutput::new(name.as_str(), end, chunks, (images.len(), left_out)), images)
}
