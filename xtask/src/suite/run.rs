//! One test program, from its start to its end or its limit.

use super::plan::TestRun;
use std::io::{self, Read, Seek};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

/// Against hangs only. The slowest program takes a few minutes on two processors.
const LIMIT: Duration = Duration::from_secs(30 * 60);
const POLL: Duration = Duration::from_millis(50);

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    pub name: String,
    pub passed: bool,
    /// The exit status, or the limit that the program exceeded.
    pub ending: String,
    pub output: Vec<u8>,
    pub took: Duration,
}

pub fn to_its_end(run: &TestRun) -> io::Result<RunReport> {
    let mut output = tempfile::tempfile()?;
    let mut command = Command::new(&run.program.executable);
    command.args(run.arguments).envs(run.environment.iter().copied());
    command.current_dir(&run.program.directory);
    command.env("CARGO_MANIFEST_DIR", &run.program.directory);
    // one file for both streams: their lines keep their order
    command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
    let start = Instant::now();
    let status = wait(&mut command.spawn()?, start + LIMIT)?;
    let took = start.elapsed();
    let mut text = Vec::new();
    output.rewind()?;
    output.read_to_end(&mut text)?;
    let ending = match status {
        Some(status) => status.to_string(),
        None => format!("killed after {} s", LIMIT.as_secs()),
    };
    let passed = status.is_some_and(|status| status.success());
    Ok(RunReport { name: run.name(), passed, ending, output: text, took })
}

/// The exit status; none, if the program was killed at its deadline.
fn wait(child: &mut Child, deadline: Instant) -> io::Result<Option<ExitStatus>> {
    while Instant::now() < deadline {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        std::thread::sleep(POLL);
    }
    child.kill()?;
    child.wait()?;
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::super::plan::TestProgram;
    use super::*;

    fn shell(arguments: &'static [&'static str]) -> TestRun {
        let program = TestProgram {
            name: "shell".into(),
            executable: "/bin/sh".into(),
            directory: std::env::temp_dir(),
        };
        let environment = &[("WORD", "given")];
        TestRun { program, note: "", arguments, environment }
    }

    #[test]
    fn output_and_ending() {
        let report = to_its_end(&shell(&["-c", "echo $WORD; echo two >&2; echo three; exit 3"]));
        let report = report.expect("it runs");
        assert_eq!(String::from_utf8_lossy(&report.output), "given\ntwo\nthree\n");
        assert!(!report.passed);
        assert_eq!(report.ending, "exit status: 3");
        assert!(to_its_end(&shell(&["-c", "true"])).expect("it runs").passed);
    }

    #[test]
    fn a_program_that_hangs_is_killed() {
        let mut child = Command::new("sleep").arg("1000").spawn().expect("a process");
        assert!(wait(&mut child, Instant::now()).expect("killed").is_none());
    }
}
