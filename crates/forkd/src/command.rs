//! Commands and expressions in a sandbox.
//!
//! A command is an instruction of its machine: it has a number, its output is in the log, and it is
//! never run twice. Its program is sent as text, so any agent can run it. A missing command, a
//! timeout and an exit code are three different answers; output before a timeout is kept; children
//! that a command leaves behind are not waited for.

use crate::Forkd;
use crate::error::{Error, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use stasis_agent::Language;
use stasis_api::{Exec, Instruction, Status, Timeout};
use stasis_machine::{CommandText, Machine};
use std::collections::BTreeMap;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// Output of one stream that is given back; the end of it, if there was more.
const CAP: u64 = 4 << 20;
/// Extra time beyond a command's own timeout before the machine is interrupted.
const GRACE: f64 = 10.0;
const EVAL_SECONDS: f64 = 30.0;
const MAX_SECONDS: u64 = 24 * 3600;

#[derive(Debug, Clone, Default, Deserialize)]
pub struct SandboxCommand {
    pub args: Vec<String>,
    #[serde(default = "thirty")]
    pub timeout_secs: u64,
    #[serde(default)]
    pub stdin: Option<String>,
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    #[serde(default)]
    pub cwd: Option<String>,
    /// A terminal; both streams are one then.
    #[serde(default)]
    pub tty: bool,
    /// Start it and return; it is queried by its number.
    #[serde(default)]
    pub background: bool,
    /// Lines as they come.
    #[serde(default)]
    pub stream: bool,
}

fn thirty() -> u64 {
    30
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Completed {
    #[serde(default)]
    pub stdout: String,
    #[serde(default)]
    pub stderr: String,
    pub exit_code: i64,
    /// Why the exit code is not the command's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// `timeout`, `not_found` or `not_started`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub job: String,
    pub pid: i64,
    pub running: bool,
    pub stdout: String,
    pub stderr: String,
    pub exit_code: Option<i64>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EvalAnswer {
    pub result: Option<String>,
    pub error: Option<String>,
    pub exit_code: i64,
}

impl SandboxCommand {
    fn check(&self) -> Result<()> {
        if self.args.is_empty() {
            return Err(Error::new(400, "args must contain at least one element"));
        }
        let odd = |text: &String| text.contains('\0');
        let bad = self.args.iter().any(odd)
            || self.env.iter().any(|(key, value)| odd(key) || odd(value) || key.contains('='))
            || self.cwd.as_ref().is_some_and(odd);
        if bad {
            return Err(Error::new(400, "args, env and cwd cannot contain NUL bytes"));
        }
        Ok(())
    }

    fn spec(&self) -> Value {
        json!({
            "args": self.args, "timeout": self.timeout_secs.min(MAX_SECONDS), "stdin": self.stdin,
            "env": self.env, "cwd": self.cwd, "tty": self.tty, "background": self.background,
            "stream": self.stream, "job": null, "kill": false, "cap": CAP,
        })
    }

    fn exec(&self, language: &dyn Language) -> Exec {
        let shown: String = self.args.join(" ").chars().take(200).collect();
        let seconds = self.timeout_secs.min(MAX_SECONDS) as f64 + GRACE;
        exec(language, &format!("$ {shown}"), &self.spec(), seconds)
    }
}

/// The program as an instruction; its first line describes it.
fn exec(language: &dyn Language, about: &str, spec: &Value, seconds: f64) -> Exec {
    let code = language.command(about, spec);
    Exec { code, timeout: Timeout::Seconds(seconds), ..Exec::default() }
}

/// The program's report.
fn told(end: &Instruction) -> Option<Value> {
    let shown = &end.outcome.as_ref()?.shown;
    shown.iter().rev().find_map(|one| one.data.get("application/json").cloned())
}

fn failed(end: &Instruction) -> String {
    let error = end.outcome.as_ref().and_then(|outcome| outcome.error.as_ref());
    error.map_or_else(|| "it gave no answer".into(), |one| format!("{}: {}", one.name, one.message))
}

impl Forkd {
    /// Starts a command; its machine, and its number, by which it can be followed.
    pub fn start(
        &self,
        account: &str,
        id: &str,
        command: &SandboxCommand,
    ) -> Result<(Arc<Machine>, u64)> {
        let machine = self.sandbox(account, id)?;
        command.check()?;
        let words = CommandText::Words(&command.args);
        machine.may_start(words).map_err(Error::during("exec"))?;
        let seq =
            machine.submit(command.exec(machine.language())).map_err(Error::during("exec"))?;
        Ok((machine, seq))
    }

    /// The end of a started command.
    pub fn completed(&self, end: &Instruction) -> Result<Completed> {
        if let Some(answer) = told(end) {
            let answer = serde_json::from_value(answer);
            return answer.map_err(|error| Error::new(500, format!("exec: {error}")));
        }
        match end.status {
            Status::Interrupted => Ok(Completed {
                exit_code: 124,
                error: Some("TimeoutExpired: the command was killed".into()),
                kind: Some("timeout".into()),
                ..Completed::default()
            }),
            _ => Err(Error::new(500, format!("exec: {}", failed(end)))),
        }
    }

    /// Runs a command to its end.
    pub fn exec(&self, account: &str, id: &str, command: &SandboxCommand) -> Result<Completed> {
        let (machine, seq) = self.start(account, id, command)?;
        let end = machine.wait(seq).map_err(Error::during("exec"))?;
        self.completed(&end)
    }

    /// Starts a background command.
    pub fn background(&self, account: &str, id: &str, command: &SandboxCommand) -> Result<Job> {
        let command = SandboxCommand { background: true, ..command.clone() };
        let (machine, seq) = self.start(account, id, &command)?;
        let end = machine.wait(seq).map_err(Error::during("exec"))?;
        let answer = told(&end).ok_or_else(|| Error::new(500, failed(&end)))?;
        if let Some(error) = answer["error"].as_str() {
            return Err(Error::new(500, format!("exec: {error}")));
        }
        serde_json::from_value(answer).map_err(|error| Error::new(500, format!("exec: {error}")))
    }

    /// Queries a background command, and ends it on request.
    pub fn job(&self, account: &str, id: &str, job: &str, kill: bool) -> Result<Job> {
        let machine = self.sandbox(account, id)?;
        let spec = json!({ "job": job, "kill": kill, "cap": CAP });
        let exec = exec(machine.language(), &format!("job {job}"), &spec, EVAL_SECONDS);
        let seq = machine.submit(exec).map_err(Error::during("exec"))?;
        let end = machine.wait(seq).map_err(Error::during("exec"))?;
        let answer = told(&end).ok_or_else(|| Error::new(500, failed(&end)))?;
        if answer["missing"] == true {
            return Err(Error::new(404, format!("sandbox {id} has no job {job}")));
        }
        serde_json::from_value(answer).map_err(|error| Error::new(500, format!("exec: {error}")))
    }

    /// Runs code in the session, which remembers; its value as text.
    pub fn eval(&self, account: &str, id: &str, code: &str) -> Result<EvalAnswer> {
        let (machine, seq) = self.start_eval(account, id, code)?;
        let end = machine.wait(seq).map_err(Error::during("eval"))?;
        Ok(self.evaluated(end))
    }

    /// Starts code in the session; its machine, and its number, by which it can be followed.
    pub fn start_eval(&self, account: &str, id: &str, code: &str) -> Result<(Arc<Machine>, u64)> {
        let machine = self.sandbox(account, id)?;
        let run = |code: &str| {
            let timeout = Timeout::Seconds(EVAL_SECONDS);
            let exec = Exec { code: code.to_owned(), timeout, ..Exec::default() };
            machine.submit(exec).map_err(Error::during("eval"))
        };
        if let Some(before) = machine.language().before_eval(code) {
            run(before)?;
        }
        let seq = run(code)?;
        Ok((machine, seq))
    }

    /// The end of started code.
    pub fn evaluated(&self, end: Instruction) -> EvalAnswer {
        let outcome = end.outcome.unwrap_or_default();
        match outcome.error {
            Some(error) => EvalAnswer {
                result: None,
                error: Some(format!("{}: {}", error.name, error.message)),
                exit_code: 1,
            },
            // forkd returns the text of every value, even if there is none
            None => {
                let result =
                    Some(outcome.value.unwrap_or_else(|| stasis_agent::default().nothing().into()));
                EvalAnswer { result, error: None, exit_code: 0 }
            }
        }
    }

    /// The end of a file in a sandbox, read without running anything there; empty while the file
    /// does not exist.
    pub fn tail(&self, account: &str, id: &str, path: &str, bytes: u64) -> Result<String> {
        let machine = self.sandbox(account, id)?;
        let Ok((info, mut file)) = machine.read_file(path) else { return Ok(String::new()) };
        let failed = |error: std::io::Error| Error::new(500, format!("read: {error}"));
        file.seek(SeekFrom::Start(info.size.saturating_sub(bytes))).map_err(failed)?;
        let mut end = Vec::new();
        file.take(bytes).read_to_end(&mut end).map_err(failed)?;
        Ok(String::from_utf8_lossy(&end).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_command() {
        let command = |args: &[&str]| SandboxCommand {
            args: args.iter().map(|one| (*one).to_owned()).collect(),
            ..SandboxCommand::default()
        };
        assert_eq!(command(&[]).check().expect_err("empty").status, 400);
        assert_eq!(command(&["a\0b"]).check().expect_err("NUL").status, 400);
        assert!(command(&["ls"]).check().is_ok());
    }

    #[test]
    fn the_log_says_what_ran_in_one_line() {
        let command = SandboxCommand {
            args: vec!["echo".into(), "a\nb".into()],
            ..SandboxCommand::default()
        };
        assert!(command.exec(stasis_agent::default()).code.starts_with("# $ echo a b\n"));
    }
}
