//! Code to run, and waiting for it.

use crate::instruction::Tell;
use crate::retry::unique;
use crate::transport::{Call, at};
use crate::types::{Checkpoints, Chunk, Durability};
use crate::{Error, Machine, Result, RunResult};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Either, select};
use serde_json::{Value, json};
use std::future::{Future, IntoFuture};
use std::pin::pin;
use std::time::Duration;

/// Code with options. A string alone runs with the service's defaults.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Exec {
    code: String,
    /// Seconds, or null for no limit.
    timeout: Option<Value>,
    interrupt: bool,
    durability: Option<Durability>,
    checkpoints: Option<Checkpoints>,
    key: Option<String>,
}

impl Exec {
    pub fn new(code: impl Into<String>) -> Exec {
        Exec { code: code.into(), ..Exec::default() }
    }

    /// Time limit of the code.
    pub fn timeout(mut self, timeout: Duration) -> Exec {
        self.timeout = Some(json!(timeout.as_secs_f64()));
        self
    }

    /// Removes the time limit.
    pub fn no_timeout(mut self) -> Exec {
        self.timeout = Some(Value::Null);
        self
    }

    /// First interrupts the running instruction and cancels waiting ones.
    pub fn interrupt(mut self) -> Exec {
        self.interrupt = true;
        self
    }

    pub fn durability(mut self, durability: Durability) -> Exec {
        self.durability = Some(durability);
        self
    }

    /// Whether it has a state of its own; by default the machine's setting.
    pub fn checkpoints(mut self, checkpoints: Checkpoints) -> Exec {
        self.checkpoints = Some(checkpoints);
        self
    }

    /// The same key returns the same instruction instead of a second one.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Exec {
        self.key = Some(key.into());
        self
    }

    pub(crate) fn call(self, machine: &str) -> Result<Call> {
        let mut instruction = json!({ "code": self.code });
        if let Some(timeout) = self.timeout {
            instruction["timeout_seconds"] = timeout;
        }
        let mut body = json!({ "instruction": instruction, "interrupt": self.interrupt });
        if let Some(durability) = self.durability {
            body["durability"] = json!(durability);
        }
        if let Some(checkpoints) = self.checkpoints {
            body["checkpoints"] = json!(checkpoints);
        }
        let mut call = Call::post(at(machine, "/exec")?).repeatable().body(&body)?;
        call.key = Some(self.key.unwrap_or_else(unique));
        Ok(call)
    }
}

impl From<&str> for Exec {
    fn from(code: &str) -> Exec {
        Exec::new(code)
    }
}

impl From<String> for Exec {
    fn from(code: String) -> Exec {
        Exec::new(code)
    }
}

/// Code that runs to its end when this is awaited.
#[must_use = "nothing runs before it is awaited"]
pub struct Run<'a> {
    machine: &'a Machine,
    exec: Exec,
    tell: Option<Tell<'a>>,
    wait: Option<Duration>,
    until: Option<BoxFuture<'a, ()>>,
}

impl<'a> Run<'a> {
    pub(crate) fn new(machine: &'a Machine, exec: Exec) -> Run<'a> {
        Run { machine, exec, tell: None, wait: None, until: None }
    }

    /// Called with each line of output as it arrives.
    pub fn on_output(mut self, tell: impl FnMut(&Chunk) + Send + 'a) -> Run<'a> {
        self.tell = Some(Box::new(tell));
        self
    }

    /// Maximum wait; then [`Error::WaitTimeout`], and the code continues.
    pub fn wait(mut self, longest: Duration) -> Run<'a> {
        self.wait = Some(longest);
        self
    }

    /// If this future finishes before the code, the code is interrupted and the machine's state
    /// kept. Dropping a run only stops waiting.
    pub fn until(mut self, stop: impl Future<Output = ()> + Send + 'a) -> Run<'a> {
        self.until = Some(stop.boxed());
        self
    }

    async fn go(self) -> Result<RunResult> {
        let instruction = self.machine.exec(self.exec).await?;
        let end = instruction.wait_telling(self.tell, self.wait);
        let Some(stop) = self.until else { return end.await };
        if let Either::Left((end, _)) = select(pin!(end), stop).await {
            return end;
        }
        instruction.stop().await?;
        Err(Error::Stopped { address: instruction.address() })
    }
}

impl<'a> IntoFuture for Run<'a> {
    type Output = Result<RunResult>;
    type IntoFuture = BoxFuture<'a, Result<RunResult>>;

    fn into_future(self) -> BoxFuture<'a, Result<RunResult>> {
        self.go().boxed()
    }
}
