//! A submitted instruction: its output as it arrives, its result, its end.

use crate::follow::Follow;
use crate::transport::{Call, Transport, at};
use crate::types::{Cancelled, Chunk, Instruction as Info, Interrupted, Status};
use crate::{Error, Result, RunResult};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use std::sync::Arc;
use std::time::Duration;

/// Items as they arrive. [`StreamExt`](crate::StreamExt) has `next()`.
pub type Streamed<T> = BoxStream<'static, Result<T>>;

pub(crate) type Tell<'a> = Box<dyn FnMut(&Chunk) + Send + 'a>;

/// A line of output, or the end.
#[derive(Debug, Clone, PartialEq)]
pub enum Progress {
    Output(Chunk),
    End(Box<Info>),
}

/// An instruction of a machine. It continues whether or not a client follows it.
#[derive(Debug, Clone)]
pub struct Instruction {
    transport: Arc<Transport>,
    machine: String,
    seq: u64,
    interrupted: bool,
}

impl Instruction {
    pub(crate) fn new(
        transport: Arc<Transport>,
        machine: String,
        seq: u64,
        interrupted: bool,
    ) -> Instruction {
        Instruction { transport, machine, seq, interrupted }
    }

    pub fn machine(&self) -> &str {
        &self.machine
    }

    pub fn seq(&self) -> u64 {
        self.seq
    }

    /// Whether another instruction was interrupted for it.
    pub fn interrupted(&self) -> bool {
        self.interrupted
    }

    /// The state after it, as `machine@seq`.
    pub fn address(&self) -> String {
        format!("{}@{}", self.machine, self.seq)
    }

    /// Its current description.
    pub async fn info(&self) -> Result<Info> {
        self.transport.json(Call::get(self.path("")?)).await
    }

    /// Its output from the first line on, as it arrives.
    pub fn output(&self) -> Streamed<Chunk> {
        let chunks = self.follow(0).filter_map(|progress| async {
            match progress {
                Ok(Progress::Output(chunk)) => Some(Ok(chunk)),
                Ok(Progress::End(_)) => None,
                Err(error) => Some(Err(error)),
            }
        });
        chunks.boxed()
    }

    /// Its result with all output, as soon as it has ended.
    pub async fn result(&self) -> Result<RunResult> {
        self.wait_telling(None, None).await
    }

    /// Its result, or [`Error::WaitTimeout`] if that takes longer; the instruction then continues.
    pub async fn wait(&self, longest: Duration) -> Result<RunResult> {
        self.wait_telling(None, Some(longest)).await
    }

    /// Output from line `start` on, then the end, over as many connections as necessary.
    pub fn follow(&self, start: u64) -> Streamed<Progress> {
        let follow = self.events(start);
        let steps = stream::unfold(follow, |mut follow| async move {
            let step = match &mut follow {
                Ok(follow) => follow.next().await?,
                Err(error) => Err(error.take()?),
            };
            Some((step, follow))
        });
        steps.boxed()
    }

    fn events(&self, start: u64) -> std::result::Result<Follow, Option<Error>> {
        let path = self.path("/events").map_err(Some)?;
        Ok(Follow::new(self.transport.clone(), path, start))
    }

    pub(crate) async fn wait_telling(
        &self,
        tell: Option<Tell<'_>>,
        longest: Option<Duration>,
    ) -> Result<RunResult> {
        let end = self.collect(tell);
        let Some(longest) = longest else { return end.await };
        let late = |_| Error::WaitTimeout { address: self.address() };
        tokio::time::timeout(longest, end).await.map_err(late)?
    }

    async fn collect(&self, mut tell: Option<Tell<'_>>) -> Result<RunResult> {
        let mut output = Vec::new();
        let mut events = Follow::new(self.transport.clone(), self.path("/events")?, 0);
        while let Some(progress) = events.next().await {
            match progress? {
                Progress::Output(chunk) => {
                    if let Some(tell) = &mut tell {
                        tell(&chunk);
                    }
                    output.push(chunk);
                }
                Progress::End(end) => {
                    let machine = self.machine.clone();
                    return Ok(RunResult { machine, instruction: *end, output });
                }
            }
        }
        Err(Error::broken(format!("{} has no end", self.address())))
    }

    /// Removes it from the queue; whether it still waited there.
    pub async fn cancel(&self) -> Result<bool> {
        let call = Call::post(self.path("/cancel")?).repeatable();
        Ok(self.transport.json::<Cancelled>(call).await?.cancelled)
    }

    /// Cancels it if it waits and interrupts it if it runs; the machine's state is kept.
    pub async fn stop(&self) -> Result<()> {
        if self.cancel().await? || self.info().await?.status != Status::Running {
            return Ok(());
        }
        let call = Call::post(at(&self.machine, "/interrupt")?);
        self.transport.json::<Interrupted>(call).await.map(drop)
    }

    fn path(&self, rest: &str) -> Result<String> {
        at(&self.machine, &format!("/exec/{}{rest}", self.seq))
    }
}
