//! One session of sixty instructions, undisturbed and with something done to its machine after
//! each: the same answers.
//!
//! The killed host is a process of its own (this test, started again), so that its end is the real
//! thing: SIGKILL right after an instruction was acknowledged at durability `local`.

use stasis_api::{Durability, Exec, Instruction, NewMachine};
use stasis_machine::{Branch, Machine};
use stasis_testbed::{Bed, data_dir, exec, lines, open};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};

const WORK: &str = include_str!("transcript/work.py");

fn instructions() -> Vec<&'static str> {
    WORK.split("# ---\n").collect()
}

/// What a client sees of an instruction, in one line.
fn seen(machine: &Arc<Machine>, end: &Instruction) -> String {
    let outcome = end.outcome.clone().unwrap_or_default();
    let error = outcome.error.map(|error| (error.name, error.message));
    let output = lines(machine, end.seq, None);
    format!("{:?} {:?} {error:?} {output:?}", end.status, outcome.value).replace('\n', "\\n")
}

fn ask(machine: &Arc<Machine>, code: &str) -> String {
    let code = code.to_owned();
    let end = exec(machine, Exec { code, durability: Some(Durability::Local), ..Exec::default() });
    seen(machine, &end)
}

/// The answers with `between` done after each.
fn answers(mut between: impl FnMut(&Bed, Arc<Machine>) -> Arc<Machine>) -> Vec<String> {
    let bed = Bed::start();
    let mut machine = bed.machine();
    let mut answers = Vec::new();
    for code in instructions() {
        answers.push(ask(&machine, code));
        machine = between(&bed, machine);
    }
    answers
}

fn same(one: &[String], other: &[String], how: &str) {
    for (index, (one, other)) in one.iter().zip(other).enumerate() {
        assert_eq!(one, other, "{how}: instruction {index}: {}", instructions()[index]);
    }
    assert_eq!(one.len(), other.len());
}

/// What a machine says to which nothing happens.
static PLAIN: LazyLock<Vec<String>> = LazyLock::new(|| answers(|_, machine| machine));

#[test]
fn all_instructions_but_one_work() {
    assert!(instructions().len() >= 60, "{} instructions", instructions().len());
    let failed = PLAIN.iter().filter(|line| line.contains("Error")).count();
    assert_eq!(failed, 1, "one instruction divides by zero, the others work: {PLAIN:#?}");
}

#[test]
fn the_same_answers_when_killed_after_each() {
    same(&PLAIN, &killed(), "host killed after each");
}

#[test]
fn the_same_answers_when_swapped_after_each() {
    let swapped = answers(|bed, machine| {
        bed.host.swap(&machine).expect("swap");
        machine
    });
    same(&PLAIN, &swapped, "swapped after each");
}

#[test]
fn the_same_answers_on_a_branch_after_each() {
    let branched = answers(|bed, machine| {
        let one = Branch { names: vec![None], ..Branch::default() };
        let branch = bed.host.branch(&machine, one).expect("branch").remove(0);
        bed.host.remove(&machine).expect("remove the parent");
        branch
    });
    same(&PLAIN, &branched, "continued on a branch, the parent removed, after each");
}

/// The answers of hosts that are killed after each.
fn killed() -> Vec<String> {
    let dir = data_dir();
    let name = {
        let host = open(dir.path());
        host.create("test", NewMachine::default()).expect("create").name().to_string()
    };
    let codes = instructions();
    (0..codes.len()).map(|index| Worker::start(dir.path(), &name).ask(index)).collect()
}

/// A host in a process of its own.
struct Worker(Child);

impl Worker {
    fn start(dir: &Path, name: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "worker", "--nocapture", "--ignored"]);
        command.env("WORKER_DIR", dir).env("WORKER_MACHINE", name);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Worker(command.spawn().expect("start a worker"))
    }

    /// Has it run one instruction, and kills it when the answer is there.
    fn ask(mut self, index: usize) -> String {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{index}").expect("ask the worker");
        let stdout = self.0.stdout.take().expect("a pipe");
        let answers = BufReader::new(stdout).lines().map(|line| line.expect("read the worker"));
        let answer =
            answers.filter_map(|line| line.split_once("ANSWER ").map(|(_, a)| a.to_owned()));
        let answer = answer.take(1).next().expect("the worker answers");
        self.0.kill().expect("kill the worker");
        self.0.wait().expect("wait for the worker");
        answer
    }
}

/// Not a test: what `Worker` runs.
#[test]
#[ignore = "started by another test"]
fn worker() {
    let Some(dir) = std::env::var_os("WORKER_DIR") else { return };
    let name = std::env::var("WORKER_MACHINE").expect("a name");
    // the killed one's processes may still be on their way out
    let host = open(Path::new(&dir));
    let machine = host.machine(&name).expect("the machine");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("a number");
    let index: usize = line.trim().parse().expect("a number");
    println!("ANSWER {}", ask(&machine, instructions()[index]));
    // until it is killed, or nobody is there any more to do so
    let _ = std::io::stdin().read_line(&mut line);
}
