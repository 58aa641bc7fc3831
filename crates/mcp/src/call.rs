//! One call of a tool: who calls, on which host, and how code is run for it.
//!
//! Code runs on the machine's own time. A call follows it, tells the client what it prints, and
//! when the client gives up, interrupts it: the state is kept, and the log says what happened.

use crate::answer::{Answer, images};
use crate::error::{Error, Result};
use crate::output::Ran;
use rmcp::RoleServer;
use rmcp::model::ProgressNotificationParam;
use rmcp::service::RequestContext;
use stasis_api::{Chunk, Exec, Instruction, NewMachine};
use stasis_machine::{Host, Machine, Progress};
use std::sync::Arc;
use std::time::Duration;

/// Live output in one notification, in characters.
const MAX_MESSAGE: usize = 4000;
/// Between two notifications of one call, so that a chatty program does not flood its client.
const BREATH: Duration = Duration::from_millis(20);
/// Between two tries to stop an instruction that is about to start.
const AGAIN: Duration = Duration::from_millis(50);

#[derive(Clone)]
pub struct Call {
    pub host: Arc<Host>,
    pub account: String,
    pub context: RequestContext<RoleServer>,
}

impl Call {
    /// A machine of the caller's. Those of others are not there.
    pub fn machine(&self, name: &str) -> Result<Arc<Machine>> {
        let found = self.host.machine(name)?;
        let own = found.account() == self.account;
        own.then_some(found).ok_or_else(|| stasis_machine::Error::NoMachine(name.to_owned()).into())
    }

    /// The caller's machines, newest first.
    pub fn machines(&self) -> impl Iterator<Item = Arc<Machine>> {
        let all = self.host.machines().into_iter();
        all.filter(|machine| machine.account() == self.account)
    }

    /// The machine named, or a new one.
    pub fn machine_or_new(&self, name: Option<&str>) -> Result<Arc<Machine>> {
        match name {
            Some(name) => self.machine(name),
            None => Ok(self.host.create(&self.account, NewMachine::default())?),
        }
    }

    /// Does what blocks on a thread where that hurts nobody.
    pub async fn block<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Call) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        let call = self.clone();
        let done = tokio::task::spawn_blocking(move || work(&call)).await;
        done.map_err(|error| Error::Unfinished(error.to_string()))?
    }

    /// Runs code to its end, on a machine of the caller's or a new one.
    pub async fn run(&self, machine: Option<String>, exec: Exec) -> Result<Answer<Ran>> {
        let (machine, seq) = self
            .block(move |call| {
                let machine = call.machine_or_new(machine.as_deref())?;
                let seq = machine.submit(exec)?;
                Ok((machine, seq))
            })
            .await?;
        let (end, chunks) = self.follow(&machine, seq).await?;
        let outcome = end.outcome.clone().unwrap_or_default();
        let (images, left_out) = images(&outcome);
        let name = machine.name();
        Ok(Answer::ran(Ran::new(name.as_str(), &end, &chunks, (images.len(), left_out)), images))
    }

    async fn follow(&self, machine: &Arc<Machine>, seq: u64) -> Result<(Instruction, Vec<Chunk>)> {
        let mut chunks: Vec<Chunk> = Vec::new();
        loop {
            let (own, from) = (machine.clone(), chunks.len() as u64);
            match self.block(move |_| Ok(own.follow(seq, from)?)).await? {
                Progress::Over(end) => return Ok((*end, chunks)),
                Progress::Chunks(new) => {
                    self.report(chunks.len() + new.len(), &new).await;
                    chunks.extend(new);
                }
                Progress::Wait(change) if self.context.ct.is_cancelled() => {
                    let own = machine.clone();
                    self.block(move |_| Ok(own.stop(seq)?)).await?;
                    let _ = tokio::time::timeout(AGAIN, change).await;
                }
                Progress::Wait(change) => tokio::select! {
                    () = change => {}
                    () = self.context.ct.cancelled() => {}
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
