//! The program measurements are made on, and the conversation with it.

use super::bed::EngineBench;
use stasis_command::failure::{CliFailure, PathContext, Result};
use stasis_engine::{Engine, Image, LaunchSpec, OutsideFds, Tree};
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

pub const SCRIPT: &str = include_str!("server.py");
/// The first instruction after a restore, and its answer.
pub const FIRST: (&str, &str) = ("x * 2", "42");
const PATIENCE: Duration = Duration::from_secs(120);

/// A running Python process and the line to it.
pub struct PythonProcess {
    pub tree: Tree,
    pub line: LineChannel,
}

impl PythonProcess {
    /// Starts it afresh; returns when everything is imported.
    pub fn launch(bed: &EngineBench, engine: &Engine) -> Result<PythonProcess> {
        let (line, fds) = LineChannel::open(bed.log())?;
        let python = bed.python().to_string_lossy().into_owned();
        let program = LaunchSpec {
            path: python.clone(),
            argv: vec![python, "-c".into(), SCRIPT.into()],
            env: bed.env(),
            cwd: "/".into(),
            ..LaunchSpec::default()
        };
        let tree =
            engine.launch(&bed.root_name(), program, OutsideFds { fds, numbers: vec![0, 1, 2] })?;
        let mut python = PythonProcess { tree, line };
        python.line.expect_ready(bed.log())?;
        Ok(python)
    }

    /// Restores it and sends the first question. Returns the time from the call to the answer, and
    /// the part of the call.
    pub fn restore(
        log: &Path,
        engine: &Engine,
        image: &Image,
    ) -> Result<(PythonProcess, Duration, Duration)> {
        let (line, fds) = LineChannel::open(log)?;
        let start = Instant::now();
        let tree = engine.restore(image, fds)?;
        let call = start.elapsed();
        let mut python = PythonProcess { tree, line };
        python.line.check(FIRST)?;
        Ok((python, start.elapsed(), call))
    }

    pub fn ask(&mut self, instruction: &str) -> Result<String> {
        self.line.ask(instruction)
    }

    /// Ends it, and waits until nothing of it is left.
    pub fn kill(self) -> Result<()> {
        Ok(self.tree.kill()?)
    }
}

/// One side of a conversation in lines.
pub struct LineChannel {
    read: BufReader<UnixStream>,
    write: Box<dyn Write + Send>,
}

impl LineChannel {
    /// A line to a program, and the program's standard descriptors.
    fn open(log: &Path) -> Result<(LineChannel, Vec<OwnedFd>)> {
        let make = || -> std::io::Result<(UnixStream, UnixStream, Vec<OwnedFd>)> {
            let (ours, theirs) = UnixStream::pair()?;
            let log = File::options().append(true).create(true).open(log)?;
            let fds = vec![theirs.try_clone()?.into(), theirs.into(), log.into()];
            Ok((ours.try_clone()?, ours, fds))
        };
        let (read, write, fds) = make().at("open a line with its log in", log)?;
        Ok((LineChannel::over(read, write)?, fds))
    }

    /// A reply that does not arrive in time is a failure.
    pub fn over(read: UnixStream, write: impl Write + Send + 'static) -> Result<LineChannel> {
        let limited = read.set_read_timeout(Some(PATIENCE));
        limited.map_err(|error| CliFailure::new("system.io", format!("limit a wait: {error}")))?;
        Ok(LineChannel { read: BufReader::new(read), write: Box::new(write) })
    }

    pub fn ask(&mut self, instruction: &str) -> Result<String> {
        let sent = self.write.write_all(format!("{instruction}\n").as_bytes());
        sent.and_then(|()| self.write.flush()).map_err(|error| {
            CliFailure::new("bench.silent", format!("`{instruction}`: {error}"))
        })?;
        let answer = self.hear().map_err(|failure| CliFailure {
            message: format!("`{instruction}`: {}", failure.message),
            ..failure
        })?;
        if answer.starts_with("failed: ") {
            return Err(CliFailure::new("bench.instruction", format!("`{instruction}`: {answer}")));
        }
        Ok(answer)
    }

    pub fn check(&mut self, (instruction, expected): (&str, &str)) -> Result<()> {
        let answer = self.ask(instruction)?;
        if answer == expected {
            return Ok(());
        }
        let message = format!("`{instruction}` gave `{answer}` instead of `{expected}`");
        Err(CliFailure::new("bench.wrong_answer", message))
    }

    /// Waits until a program just started is ready; `log` has its last words if it never is.
    pub fn expect_ready(&mut self, log: &Path) -> Result<()> {
        match self.hear() {
            Ok(answer) if answer == "ready" => Ok(()),
            _ => {
                let text = std::fs::read_to_string(log).unwrap_or_default();
                let last = text.lines().rev().find(|line| !line.trim().is_empty());
                let last = last.unwrap_or("it left no message").to_owned();
                Err(CliFailure::new("bench.python", format!("Python did not start: {last}"))
                    .hint("--python needs numpy, pandas and matplotlib inside --root"))
            }
        }
    }

    fn hear(&mut self) -> Result<String> {
        let mut text = String::new();
        match self.read.read_line(&mut text) {
            Ok(0) => Err(CliFailure::new("bench.silent", "the program has ended")),
            Ok(_) => Ok(text.trim_end().to_owned()),
            Err(error) => Err(CliFailure::new("bench.silent", format!("no reply: {error}"))),
        }
    }
}
