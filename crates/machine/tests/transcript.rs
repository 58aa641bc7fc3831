//! A session of real work in each language, undisturbed and with something done to its machine
//! after each instruction: the same answers. JavaScript's are those of plain Node.
//!
//! The killed host is a process of its own (this test, started again), so that its end is the real
//! thing: SIGKILL right after an instruction was acknowledged at durability `local`.

use stasis_api::{Durability, Exec, Instruction, NewMachine};
use stasis_machine::{Branch, Machine};
use stasis_testbed::{TestHost, data_dir_of, exec, lines, open};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, LazyLock};

/// A session in one language.
struct Session {
    language: &'static str,
    work: &'static str,
    /// The line between two instructions.
    mark: &'static str,
}

static PYTHON: Session = Session {
    language: stasis_agent::DEFAULT_NAME,
    work: include_str!("transcript/work.py"),
    mark: "# ---\n",
};

static JAVASCRIPT: Session =
    Session { language: "javascript", work: include_str!("transcript/work.js"), mark: "// ---\n" };

impl Session {
    fn instructions(&self) -> Vec<&'static str> {
        self.work.split(self.mark).collect()
    }

    fn new_machine(&self) -> NewMachine {
        NewMachine { template: Some(self.language.into()), ..NewMachine::default() }
    }

    /// The answers with `between` done after each.
    fn answers(&self, between: impl Fn(&TestHost, Arc<Machine>) -> Arc<Machine>) -> Vec<String> {
        let bed = TestHost::of(self.language);
        let mut machine = bed.host.create("test", self.new_machine()).expect("make a machine");
        let mut answers = Vec::new();
        for code in self.instructions() {
            answers.push(ask(&machine, code));
            machine = between(&bed, machine);
        }
        answers
    }

    fn same(&self, one: &[String], other: &[String], how: &str) {
        let codes = self.instructions();
        for (index, (one, other)) in one.iter().zip(other).enumerate() {
            assert_eq!(one, other, "{how}: instruction {index}: {}", codes[index]);
        }
        assert_eq!(one.len(), other.len());
    }

    fn swapped(&self) -> Vec<String> {
        self.answers(|bed, machine| {
            bed.host.swap(&machine).expect("swap");
            machine
        })
    }

    fn branched(&self) -> Vec<String> {
        self.answers(|bed, machine| {
            let one = Branch { names: vec![None], ..Branch::default() };
            let branch = bed.host.branch(&machine, one).expect("branch").remove(0);
            bed.host.remove(&machine).expect("remove the parent");
            branch
        })
    }

    /// The answers of hosts that are killed after each.
    fn killed(&self) -> Vec<String> {
        let dir = data_dir_of(self.language);
        let name = {
            let host = open(dir.path());
            host.create("test", self.new_machine()).expect("create").name().to_string()
        };
        let all = 0..self.instructions().len();
        all.map(|index| Worker::start(self, dir.path(), &name).ask(index)).collect()
    }
}

/// A client's view of an instruction in one line of JSON: value, error, output.
fn seen(machine: &Arc<Machine>, end: &Instruction) -> String {
    let outcome = end.outcome.clone().unwrap_or_default();
    let error = outcome.error.map(|error| (error.name, error.message));
    let output = lines(machine, end.seq, None);
    serde_json::json!([outcome.value, error, output]).to_string()
}

fn ask(machine: &Arc<Machine>, code: &str) -> String {
    let code = code.to_owned();
    let end = exec(machine, Exec { code, durability: Some(Durability::Local), ..Exec::default() });
    seen(machine, &end)
}

/// Answers of undisturbed machines.
static PLAIN: LazyLock<Vec<String>> = LazyLock::new(|| PYTHON.answers(|_, machine| machine));
static PLAIN_JAVASCRIPT: LazyLock<Vec<String>> =
    LazyLock::new(|| JAVASCRIPT.answers(|_, machine| machine));

#[test]
fn all_instructions_but_one_work() {
    let count = PYTHON.instructions().len();
    assert!(count >= 60, "{count} instructions");
    let failed = PLAIN.iter().filter(|line| line.contains("Error")).count();
    assert_eq!(failed, 1, "one instruction divides by zero, the others work: {PLAIN:#?}");
}

#[test]
fn the_same_answers_when_killed_after_each() {
    PYTHON.same(&PLAIN, &PYTHON.killed(), "host killed after each");
}

#[test]
fn the_same_answers_when_swapped_after_each() {
    PYTHON.same(&PLAIN, &PYTHON.swapped(), "swapped after each");
}

#[test]
fn the_same_answers_on_a_branch_after_each() {
    PYTHON.same(&PLAIN, &PYTHON.branched(), "continued on a branch, the parent removed");
}

/// The Node of the template, outside of any machine, is the oracle.
#[test]
fn javascript_answers_as_plain_node() {
    let dir = data_dir_of(JAVASCRIPT.language);
    let roots = std::fs::read_dir(dir.path().join("roots")).expect("roots").flatten();
    let node = roots.map(|root| root.path().join("opt/node/bin/node")).find(|path| path.exists());
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/transcript");
    let work = tempfile::tempdir().expect("a directory");
    let mut command = Command::new(node.expect("Node"));
    command.current_dir(work.path()).arg(tests.join("oracle.cjs")).arg(tests.join("work.js"));
    let output = command.output();
    let text = String::from_utf8(output.expect("Node runs").stdout).expect("text");
    let parse = |line: &str| -> serde_json::Value { serde_json::from_str(line).expect("JSON") };
    let told: Vec<String> = text.lines().map(|line| parse(line).to_string()).collect();
    assert!(told.len() >= 80, "{} instructions", told.len());
    JAVASCRIPT.same(&told, &PLAIN_JAVASCRIPT, "in a machine");
}

#[test]
fn the_same_javascript_when_killed() {
    JAVASCRIPT.same(&PLAIN_JAVASCRIPT, &JAVASCRIPT.killed(), "host killed");
}

#[test]
fn the_same_javascript_when_swapped() {
    JAVASCRIPT.same(&PLAIN_JAVASCRIPT, &JAVASCRIPT.swapped(), "swapped");
}

#[test]
fn the_same_javascript_on_a_branch() {
    JAVASCRIPT.same(&PLAIN_JAVASCRIPT, &JAVASCRIPT.branched(), "continued on a branch");
}

/// A host in a process of its own.
struct Worker(Child);

impl Worker {
    fn start(session: &Session, dir: &Path, name: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().expect("this test"));
        command.args(["--exact", "transcript::worker", "--nocapture", "--ignored"]);
        command.env("WORKER_DIR", dir).env("WORKER_MACHINE", name);
        command.env("WORKER_LANGUAGE", session.language);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        Worker(command.spawn().expect("start a worker"))
    }

    /// Has it run an instruction, and kills it when the answer is there.
    fn ask(mut self, index: usize) -> String {
        let stdin = self.0.stdin.as_mut().expect("a pipe");
        writeln!(stdin, "{index}").expect("ask the worker");
        let stdout = self.0.stdout.take().expect("a pipe");
        let said = BufReader::new(stdout).lines().map(|line| line.expect("read the worker"));
        let mut answers =
            said.filter_map(|line| line.split_once("ANSWER ").map(|(_, a)| a.to_owned()));
        let answer = answers.next().expect("the worker answers");
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
    let language = std::env::var("WORKER_LANGUAGE").expect("a language");
    let session = if language == PYTHON.language { &PYTHON } else { &JAVASCRIPT };
    let index: usize = line.trim().parse().expect("a number");
    println!("ANSWER {}", ask(&machine, session.instructions()[index]));
    // until it is killed, or its parent has exited
    let _ = std::io::stdin().read_line(&mut line);
}
