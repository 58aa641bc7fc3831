//! One tool call: its caller, its host, and how it runs code.
//!
//! Code runs independently of the call. The call follows it, reports its output to the client, and
//! interrupts it when the client cancels: the state is kept, and the log records the interrupt.

use crate::answer::{Answer, failure, images};
use crate::approve::ApprovalAsker;
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
use stasis_api::{Address, Chunk, Exec, Instruction, NewMachine, Timeout};
use stasis_forkd::Forkd;
use stasis_machine::{FollowUpdate, Host, Machine, TraceContext};
use stasis_mcpv8::{V8, V8Settings};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Maximum characters of live output in one notification.
const MAX_MESSAGE: usize = 4000;
/// Minimum time between two notifications of one call, so that frequent output does not flood the
/// client.
const BREATH: Duration = Duration::from_millis(20);
/// Polling interval for the end of an interrupted instruction.
const AGAIN: Duration = Duration::from_millis(50);

/// Time before a call continues as a task.
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
    /// Whether the caller's user may answer calls of tools that wait for a person.
    pub may_approve: bool,
    /// The called tool.
    pub name: String,
    pub tools: ToolSet,
    pub changes: Arc<Changes>,
    pub limiter: CallLimiter,
    pub context: RequestContext<RoleServer>,
    /// The client's replies to an earlier round, and the state it was given to keep.
    pub inputs: InputResponses,
    pub state: Option<String>,
    /// Whether the caller requests a task at once.
    pub as_task: bool,
}

/// The code a tool wants to run.
pub struct InstructionRequest {
    /// A new machine, if none is named.
    pub machine: Option<String>,
    /// The template of the new machine; the default if absent.
    pub template: Option<String>,
    pub exec: Exec,
    /// Code that depends on the machine's language replaces the code in `exec`.
    pub write: Option<CodeWriter>,
    pub task: TaskFrom,
}

/// Writes an instruction's code for a machine: in its language, and as its policies allow.
pub type CodeWriter = Box<dyn FnOnce(&Machine) -> Result<String> + Send>;

/// When a call becomes a task, for clients that support tasks.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TaskFrom {
    /// At once; clients without tasks cannot call it.
    Start,
    /// When it takes long.
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
        write: impl FnOnce(&Machine) -> Result<String> + Send + 'static,
    ) -> InstructionRequest {
        let request = InstructionRequest::new(machine, Exec { timeout, ..Exec::default() });
        InstructionRequest { write: Some(Box::new(write)), ..request }
    }
}

impl CallContext {
    /// A machine of the caller. Other accounts' machines do not exist for it. `machine@seq` also
    /// names the machine, if it is in that state.
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

    /// A machine of the caller, and the state that `machine@seq` names.
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

    /// The named machine, or a new one from the template.
    fn machine_or_new(&self, name: Option<&str>, template: Option<String>) -> Result<Arc<Machine>> {
        match name {
            Some(name) => self.machine(name),
            None => self.new_machine(template),
        }
    }

    /// A new machine, from the default template if none is named.
    pub fn new_machine(&self, template: Option<String>) -> Result<Arc<Machine>> {
        let new = NewMachine { template, ..NewMachine::default() };
        Ok(self.host.create(&self.account, new)?)
    }

    /// Runs blocking work on its own thread, once the caller has a permit.
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

    /// The trace context of this call's instructions: the call's own, or else that of its request.
    fn cause(&self) -> Option<TraceContext> {
        let said = self.context.meta.get_traceparent().and_then(TraceContext::new);
        said.or_else(|| self.context.extensions.get::<Parts>()?.extensions.get().cloned())
    }

    /// Whether the request is without a session: a task may be its answer, and it cannot be asked
    /// anything while it waits. The request decides, because a session may have been opened with
    /// any revision.
    pub fn is_stateless(&self) -> bool {
        let version = self.context.meta.protocol_version();
        version.is_some_and(|version| !version.has_initialize())
    }

    /// Whether the caller supports tasks. Clients also declare the extension in sessions, where it
    /// has no meaning: there they request a task explicitly.
    pub fn knows_tasks(&self) -> bool {
        self.is_stateless()
            && self.context.client_capabilities().is_some_and(|can| can.supports_tasks())
    }

    /// Runs code for a tool, to its end or until it continues as a task.
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

    /// Submits an instruction.
    pub async fn submit(&self, wanted: InstructionRequest) -> Result<(Arc<Machine>, u64)> {
        self.block(move |call| {
            let machine = call.machine_or_new(wanted.machine.as_deref(), wanted.template)?;
            let mut exec = wanted.exec;
            if let Some(write) = wanted.write {
                exec.code = write(&machine)?;
            }
            let seq = machine.submit(exec)?;
            Ok((machine, seq))
        })
        .await
    }

    /// Starts an instruction and follows it to its end, which comes soon if the caller cancels.
    pub async fn run_to_end(
        &self,
        start: impl FnOnce(&CallContext) -> Result<(Arc<Machine>, u64)> + Send + 'static,
    ) -> Result<Instruction> {
        let (machine, seq) = self.block(start).await?;
        let end = self.follow(&machine, seq, None).await?;
        end.map(|(end, _)| end).ok_or_else(|| Error::Unfinished("it is still running".into()))
    }

    /// The end of an instruction and all its output; none, if it runs longer than `until`.
    async fn follow(
        &self,
        machine: &Arc<Machine>,
        seq: u64,
        until: Option<Instant>,
    ) -> Result<Option<(Instruction, Vec<Chunk>)>> {
        let mut chunks: Vec<Chunk> = Vec::new();
        let mut asker = ApprovalAsker::new(self, machine, seq);
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
                    () = asker.look() => {}
                },
            }
        }
    }

    /// Sends output to the client, if it requested that and still listens.
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

/// A finished instruction, with its images.
pub fn ran(machine: &Arc<Machine>, end: &Instruction, chunks: &[Chunk]) -> Answer<RunOutput> {
    let outcome = end.outcome.clone().unwrap_or_default();
    let (images, left_out) = images(&outcome);
    let name = machine.name();
    Answer::ran(RunOutput::new(name.as_str(), end, chunks, (images.len(), left_out)), images)
}
