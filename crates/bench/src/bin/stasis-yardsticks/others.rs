//! Runs other people's programs and talks to the programs in them.

use stasis_bench::python::LineChannel;
use stasis_bench::report::Results;
use stasis_bench::samples::Samples;
use stasis_command::failure::{CliFailure, Result};
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Output, Stdio};

pub fn add(results: &mut Results, key: &'static str, measured: Result<Samples>) {
    match measured {
        Ok(samples) => results.add(key, samples),
        Err(failure) => results.absent(key, failure.message),
    }
}

/// Runs a command to its end; its output is the error if it fails.
pub fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let failed = |why: String| CliFailure::new("bench.yardstick", format!("{name}: {why}"));
    let output = command.stdin(Stdio::null()).output();
    let output = output.map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => failed("not installed".into()),
        _ => failed(error.to_string()),
    })?;
    if output.status.success() {
        return Ok(output);
    }
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let last = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("failed");
    Err(failed(last.trim().to_owned()))
}

pub fn start(command: &mut Command) -> Result<Running> {
    let name = command.get_program().to_string_lossy().into_owned();
    command
        .spawn()
        .map(Running)
        .map_err(|error| CliFailure::new("bench.yardstick", format!("{name}: {error}")))
}

/// A child that does not outlive its value.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn wait(&mut self) {
        let _ = self.0.wait();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A line whose replies come from something that cannot be read with a time limit.
pub fn line_over(
    mut read: impl Read + Send + 'static,
    write: impl std::io::Write + Send + 'static,
) -> Result<LineChannel> {
    let (ours, mut theirs) = UnixStream::pair()
        .map_err(|error| CliFailure::new("bench.yardstick", format!("make a socket: {error}")))?;
    // ends with its reader or at the reader's end, at the latest with this program
    std::thread::spawn(move || std::io::copy(&mut read, &mut theirs));
    LineChannel::over(ours, write)
}
