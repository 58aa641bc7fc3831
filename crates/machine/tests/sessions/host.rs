//! A host in a process of its own, so that killing it is the real thing.
//!
//!   test ── one order per line ──► this test, started again ──► answers, one per line
//!
//! The process ends with its standard input. A failed command is an answer, not a panic.

use serde::{Deserialize, Serialize};
use stasis_api::{Checkpoints, Durability, Exec, NewMachine, Retention, Timestamp, Update};
use stasis_machine::{Branch, Host, Machine, Result, Steps};
use stasis_testbed::open;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// A state as one number: each instruction mixes its own into it.
pub const PRIME: u64 = 1_000_000_007;

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Batch {
    pub count: usize,
    /// All submitted at once, or each when the one before has ended.
    pub pipelined: bool,
    pub durability: Option<Durability>,
    pub checkpoints: Option<Checkpoints>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostOrder {
    /// Every end is answered.
    Run(Batch),
    Undo {
        n: usize,
        grouped: bool,
    },
    Redo {
        n: usize,
        grouped: bool,
    },
    RollBack(Option<u64>),
    /// Makes a branch, and removes it unless it is to be kept.
    Branch {
        seq: u64,
        keep: bool,
    },
    Label(u64, Option<String>),
    /// Keeps so many states, those with labels, and those that branches started from.
    Retain(u64),
    /// Stores old states as differences.
    Thin,
    Swap,
    Settle,
    Look,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum HostAnswer {
    Done,
    /// An instruction ended.
    Ended(u64),
    Refused {
        code: String,
        words: String,
    },
    /// The contents of a branch.
    Held(Option<String>),
    Seen(Sight),
}

/// A machine as a client sees it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Sight {
    pub held: Option<String>,
    /// Its states, with their labels.
    pub states: BTreeMap<u64, Option<String>>,
    /// Instructions that count, as the log has them.
    pub ran: Vec<u64>,
    pub lost: Option<String>,
    pub next: u64,
}

/// A session's language, and how an instruction mixes its number into the machine's.
#[derive(Debug, Clone, Copy)]
pub struct SessionLanguage {
    pub template: &'static str,
    mixed: fn(u64) -> String,
}

pub static PYTHON: SessionLanguage = SessionLanguage {
    template: "python",
    mixed: |seq| format!("ran = (globals().get('ran', 0) * 31 + {seq} + 1) % {PRIME}"),
};
pub static JAVASCRIPT: SessionLanguage = SessionLanguage {
    template: "javascript",
    mixed: |seq| format!("var ran = ((globalThis.ran ?? 0) * 31 + {seq} + 1) % {PRIME}"),
};

impl SessionLanguage {
    fn named(template: &str) -> &'static SessionLanguage {
        let all = [&PYTHON, &JAVASCRIPT];
        all.into_iter().find(|own| own.template == template).expect("a language")
    }
}

/// The host's process, as the test has it.
pub struct HostProcess {
    child: Child,
    answers: Lines<BufReader<ChildStdout>>,
}

impl HostProcess {
    pub fn start(dir: &Path, machine: &str, language: &SessionLanguage) -> HostProcess {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "host_process", "--nocapture", "--ignored"]);
        command.env("SESSION_DIR", dir).env("SESSION_MACHINE", machine);
        command.env("SESSION_LANGUAGE", language.template);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("start a host");
        let answers = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        HostProcess { child, answers }
    }

    pub fn order(&mut self, order: &HostOrder) {
        let line = serde_json::to_string(order).expect("orders are data");
        let stdin = self.child.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{line}").expect("the host reads");
    }

    pub fn answer(&mut self) -> HostAnswer {
        loop {
            let line = self.answers.next().expect("the host answers").expect("read the host");
            if let Some((_, answer)) = line.split_once("ANSWER ") {
                return serde_json::from_str(answer).expect("answers are data");
            }
        }
    }

    pub fn ask(&mut self, order: &HostOrder) -> HostAnswer {
        self.order(order);
        self.answer()
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        self.child.kill().expect("kill the host");
        self.child.wait().expect("wait for the host");
    }

    pub fn close(mut self) {
        drop(self.child.stdin.take());
        self.child.wait().expect("wait for the host");
    }
}

/// A machine in a directory, made by a host that has closed.
pub fn make(
    dir: &Path,
    language: &SessionLanguage,
    checkpoints: Checkpoints,
    durability: Durability,
) -> String {
    let template = Some(language.template.to_owned());
    let new = NewMachine { template, checkpoints, durability, ..NewMachine::default() };
    let machine = open(dir).create("test", new).expect("make a machine");
    machine.name().to_string()
}

/// The body of the process.
pub fn serve(dir: &Path, name: &str, language: &str) {
    let language = SessionLanguage::named(language);
    // the killed one's processes may still be on their way out
    let host = open(dir);
    let machine = host.machine(name).expect("the machine");
    for line in std::io::stdin().lines() {
        let line = line.expect("read an order");
        let order = serde_json::from_str(&line).expect("orders are data");
        let answer = obey(&host, &machine, language, order);
        say(&answer.unwrap_or_else(|error| HostAnswer::Refused {
            code: error.code().to_owned(),
            words: error.to_string(),
        }));
    }
}

fn say(answer: &HostAnswer) {
    println!("ANSWER {}", serde_json::to_string(answer).expect("answers are data"));
}

fn obey(
    host: &Host,
    machine: &Arc<Machine>,
    language: &SessionLanguage,
    order: HostOrder,
) -> Result<HostAnswer> {
    match order {
        HostOrder::Run(batch) => run(machine, language, batch)?,
        HostOrder::Undo { n, grouped } => host.undo(machine, Steps { n, grouped })?,
        HostOrder::Redo { n, grouped } => host.redo(machine, Steps { n, grouped })?,
        HostOrder::RollBack(seq) => host.roll_back(machine, seq)?,
        HostOrder::Branch { seq, keep } => {
            let one = Branch { seq: Some(seq), names: vec![None], ..Branch::default() };
            let branch = host.branch(machine, one)?.remove(0);
            let held = held(host, &branch)?;
            if keep {
                host.swap(&branch)?;
            } else {
                host.remove(&branch)?;
            }
            return Ok(HostAnswer::Held(held));
        }
        HostOrder::Label(seq, label) => host.label(machine, seq, label.as_deref())?,
        HostOrder::Retain(last) => {
            let rule = Retention { last: Some(last), labelled: true, ..Retention::default() };
            host.update(machine, Update { retention: Some(Some(rule)), ..Update::default() })?;
            host.prune(Timestamp::now())?;
            host.collect()?;
        }
        HostOrder::Thin => while host.thin_states(Duration::ZERO)? > 0 {},
        HostOrder::Swap => host.swap(machine)?,
        HostOrder::Settle => machine.settle()?,
        HostOrder::Look => return look(host, machine).map(HostAnswer::Seen),
    }
    Ok(HostAnswer::Done)
}

fn run(machine: &Arc<Machine>, language: &SessionLanguage, batch: Batch) -> Result<()> {
    let Batch { count, pipelined, durability, checkpoints } = batch;
    let submit = || {
        let seq = machine.describe().instructions;
        let code = (language.mixed)(seq);
        machine.submit(Exec { code, durability, checkpoints, ..Exec::default() })
    };
    let end = |seq| -> Result<()> {
        machine.wait(seq)?;
        say(&HostAnswer::Ended(seq));
        Ok(())
    };
    if pipelined {
        let seqs = (0..count).map(|_| submit()).collect::<Result<Vec<u64>>>()?;
        return seqs.into_iter().try_for_each(end);
    }
    (0..count).try_for_each(|_| submit().and_then(end))
}

fn look(host: &Host, machine: &Arc<Machine>) -> Result<Sight> {
    let next = machine.describe().instructions;
    let lost = machine.describe().lost;
    // those that a killed host left waiting run first
    next.checked_sub(1).map_or(Ok(()), |last| machine.wait(last).map(drop))?;
    let log = machine.instructions(0, u32::MAX.into())?.into_iter();
    let ran = log.filter(|one| one.status.has_run() && !one.rolled_back).map(|one| one.seq);
    let states = host.history(machine)?.into_iter().map(|one| (one.seq, one.label));
    Ok(Sight {
        held: held(host, machine)?,
        states: states.collect(),
        ran: ran.collect(),
        lost,
        next,
    })
}

/// A look at variables is no instruction.
fn held(host: &Host, machine: &Arc<Machine>) -> Result<Option<String>> {
    let all = host.vars(machine)?;
    Ok(all.into_iter().find(|one| one.name == "ran").map(|one| one.repr))
}
