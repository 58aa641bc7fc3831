//! Runs one instruction and streams its output.
//!
//!   submit ─► stream of lines ─► end          Ctrl-C ─► interrupt; the machine keeps its state
//!
//! A broken stream resumes after the last line. The instruction has an idempotency key: however
//! often it is sent, it runs once.

use crate::client::{Client, LineStream};
use crate::failure::{CliFailure, Result};
use reqwest::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use stasis_api::{Checkpoints, Chunk, Durability, Instruction};

/// Maximum consecutive resumptions without a new line.
const PATIENCE: usize = 5;

/// The code to run.
#[derive(Debug, Clone, Default)]
pub struct RunRequest {
    pub code: String,
    pub timeout: TimeoutArg,
    pub interrupt: bool,
    pub durability: Option<Durability>,
    pub checkpoints: Option<Checkpoints>,
    /// Whether `input()` is answered.
    pub input: bool,
}

/// The user's action at the prompt of `input()`.
pub enum Typed {
    Line(String),
    End,
    Interrupt,
}

/// Requests a line from the user.
pub type Ask<'a> = &'a mut dyn FnMut(&str) -> Result<Typed>;

/// Its time limit.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub enum TimeoutArg {
    #[default]
    Default,
    Seconds(f64),
    Never,
}

impl std::str::FromStr for TimeoutArg {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<TimeoutArg, String> {
        let fits = |seconds: &f64| *seconds > 0.0 && *seconds <= 1e9;
        match text {
            "none" => Ok(TimeoutArg::Never),
            text => text
                .parse()
                .ok()
                .filter(fits)
                .map(TimeoutArg::Seconds)
                .ok_or_else(|| "a number of seconds above 0, or `none`".to_owned()),
        }
    }
}

impl RunRequest {
    fn body(&self) -> Result<Value> {
        let mut instruction = json!({ "code": self.code });
        match self.timeout {
            TimeoutArg::Default => {}
            TimeoutArg::Seconds(seconds) => instruction["timeout_seconds"] = seconds.into(),
            TimeoutArg::Never => instruction["timeout_seconds"] = Value::Null,
        }
        let key = std::fs::read_to_string("/proc/sys/kernel/random/uuid")
            .map_err(|error| CliFailure::new("system.io", format!("no random number: {error}")))?;
        let mut body = json!({ "instruction": instruction, "interrupt": self.interrupt });
        body["idempotency_key"] = key.trim().into();
        if self.input {
            body["input"] = true.into();
        }
        if let Some(durability) = self.durability {
            body["durability"] = json!(durability);
        }
        if let Some(checkpoints) = self.checkpoints {
            body["checkpoints"] = json!(checkpoints);
        }
        Ok(body)
    }
}

#[derive(Deserialize)]
struct Submitted {
    instruction_seq: u64,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line {
    Output {
        chunk: Chunk,
    },
    Result {},
    #[serde(other)]
    Unknown,
}

/// Submits an instruction; returns its number.
pub fn submit(client: &Client, machine: &str, order: &RunRequest) -> Result<u64> {
    client.block(send(client, machine, order))
}

async fn send(client: &Client, machine: &str, order: &RunRequest) -> Result<u64> {
    let body = order.body()?;
    let path = format!("/v1/machine/{machine}/exec");
    let answer = client.send(Method::POST, &path, Some(&body), true).await?;
    let submitted: Submitted = answer.json().await.map_err(|error| {
        CliFailure::new("service.foreign", format!("the answer to {path} is malformed: {error}"))
    })?;
    Ok(submitted.instruction_seq)
}

/// Runs an instruction to its end. `each` gets every line of output as it arrives.
pub fn run(
    client: &Client,
    machine: &str,
    order: &RunRequest,
    each: impl FnMut(&Chunk),
) -> Result<Instruction> {
    client.block(async {
        let seq = send(client, machine, order).await?;
        Follow { client, machine, seq, each, ask: None, from: 0, ours: true }.until_end().await
    })
}

/// The same, and `ask` answers when the code calls `input()`.
pub fn run_asking<'a>(
    client: &'a Client,
    machine: &'a str,
    order: &RunRequest,
    each: impl FnMut(&Chunk),
    ask: Ask<'a>,
) -> Result<Instruction> {
    let order = RunRequest { input: true, ..order.clone() };
    client.block(async {
        let seq = send(client, machine, &order).await?;
        let ask = Some(ask);
        Follow { client, machine, seq, each, ask, from: 0, ours: true }.until_end().await
    })
}

/// Follows an earlier instruction. Ctrl-C stops following it.
pub fn follow(
    client: &Client,
    machine: &str,
    seq: u64,
    each: impl FnMut(&Chunk),
) -> Result<Instruction> {
    let follow = Follow { client, machine, seq, each, ask: None, from: 0, ours: false };
    client.block(follow.until_end())
}

struct Follow<'a, Each> {
    client: &'a Client,
    machine: &'a str,
    seq: u64,
    each: Each,
    ask: Option<Ask<'a>>,
    /// The next wanted line of output.
    from: u64,
    /// Whether this command sent it, so that the first Ctrl-C interrupts it.
    ours: bool,
}

impl<Each: FnMut(&Chunk)> Follow<'_, Each> {
    fn path(&self, what: &str) -> String {
        format!("/v1/machine/{}/exec/{}/{what}", self.machine, self.seq)
    }

    async fn until_end(mut self) -> Result<Instruction> {
        let mut fruitless = 0;
        while fruitless < PATIENCE {
            let before = self.from;
            let path = self.path(&format!("stream-result?from={before}"));
            let lines = self.client.lines(Method::GET, &path, None::<&Value>).await?;
            if self.read(lines).await? {
                return self.client.call(Method::GET, &self.path("wait"), None::<&Value>).await;
            }
            fruitless = if self.from > before { 0 } else { fruitless + 1 };
        }
        let message = format!("the output of `{}@{}` breaks off", self.machine, self.seq);
        Err(CliFailure::new("service.cut_off", message).exit(crate::failure::Exit::Unavailable))
    }

    /// Reads until the result (true) or a broken stream.
    async fn read(&mut self, mut lines: LineStream) -> Result<bool> {
        let mut asked = 0;
        loop {
            let line = tokio::select! {
                line = lines.next::<Line>() => line?,
                _ = tokio::signal::ctrl_c() => {
                    asked += 1;
                    self.interrupt(asked).await?;
                    continue;
                }
            };
            match line {
                None => return Ok(false),
                Some(Line::Output { chunk }) if chunk.seq >= self.from => {
                    self.from = chunk.seq + 1;
                    match (&mut self.ask, chunk.prompt) {
                        (Some(ask), true) => {
                            let typed = ask(&chunk.data)?;
                            self.answer(typed).await?;
                        }
                        _ => (self.each)(&chunk),
                    }
                }
                Some(Line::Output { .. } | Line::Unknown) => {}
                Some(Line::Result {}) => return Ok(true),
            }
        }
    }

    /// Sends the user's answer to a prompt.
    async fn answer(&self, typed: Typed) -> Result<()> {
        let line = match typed {
            Typed::Line(line) => Some(line),
            Typed::End => None,
            Typed::Interrupt => return self.interrupt(1).await,
        };
        let body = json!({ "line": line });
        self.client.call::<Value>(Method::POST, &self.path("input"), Some(&body)).await?;
        Ok(())
    }

    /// The first Ctrl-C interrupts an instruction of ours; a second one stops following it.
    async fn interrupt(&self, asked: usize) -> Result<()> {
        if asked > 1 || !self.ours {
            let message = format!("left `{}@{}` running", self.machine, self.seq);
            let hint = format!("`stasis history {}` shows its result", self.machine);
            return Err(CliFailure::new("interrupted", message).hint(hint));
        }
        // only ours: other instructions on this machine are not stopped
        let path = self.path("cancel");
        let cancelled: Value = self.client.call(Method::POST, &path, Some(&json!({}))).await?;
        if cancelled["cancelled"] != Value::Bool(true) {
            let path = format!("/v1/machine/{}/interrupt", self.machine);
            self.client.call::<Value>(Method::POST, &path, Some(&json!({}))).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timeouts() {
        assert_eq!("none".parse(), Ok(TimeoutArg::Never));
        assert_eq!("1.5".parse(), Ok(TimeoutArg::Seconds(1.5)));
        for text in ["", "0", "-1", "nan", "inf", "1e10", "soon", "1s"] {
            assert!(text.parse::<TimeoutArg>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn an_absent_timeout_is_not_an_endless_one() {
        let body = |timeout| RunRequest { timeout, ..RunRequest::default() }.body().unwrap();
        assert_eq!(body(TimeoutArg::Default)["instruction"].get("timeout_seconds"), None);
        assert_eq!(
            body(TimeoutArg::Never)["instruction"].get("timeout_seconds"),
            Some(&Value::Null)
        );
        assert_ne!(
            body(TimeoutArg::Never)["idempotency_key"],
            body(TimeoutArg::Never)["idempotency_key"]
        );
    }
}
