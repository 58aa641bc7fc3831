//! One live program and its conversation (see `tests/programs/c/program.h`).

use super::failure::Asked;
use super::{Failure, Result, Watch};
use stasis_engine::Tree;
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest any one answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The messages before and after a life event. All events use the same ones, so that one
/// undisturbed run serves them all.
pub const BEFORE: &[&str] = &["check", "step", "digest"];
pub const AFTER: &[&str] = &["check", "step", "digest", "check"];

/// Commands and answers.
pub type History = Vec<(String, String)>;

/// Our end of a program's standard streams.
pub struct Talk {
    stream: UnixStream,
    errors: PathBuf,
}

impl Talk {
    /// Ours, and the three descriptors for the machine. Its standard error is a file, which can be
    /// read whatever became of the machine.
    pub fn open(errors: &Path) -> std::io::Result<(Talk, Vec<OwnedFd>)> {
        let (ours, theirs) = UnixStream::pair()?;
        let log = File::options().create(true).append(true).open(errors)?;
        let fds = vec![theirs.try_clone()?.into(), theirs.into(), log.into()];
        Ok((Talk { stream: ours, errors: errors.to_owned() }, fds))
    }

    fn line(&mut self) -> std::io::Result<String> {
        let end = Instant::now() + PATIENCE;
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            let left = end.saturating_duration_since(Instant::now());
            self.stream.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.stream.read(&mut byte) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(_) if byte[0] == b'\n' => return Ok(String::from_utf8_lossy(&line).into()),
                Ok(_) => line.push(byte[0]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The end of what the program wrote to its standard error.
    fn errors(&self) -> String {
        let text = std::fs::read(&self.errors).unwrap_or_default();
        let from = text.len().saturating_sub(1000);
        String::from_utf8_lossy(&text[from..]).trim().replace('\n', "\n    ")
    }
}

pub struct Program {
    pub name: String,
    pub tree: Tree,
    pub history: History,
    talk: Talk,
    watch: Watch,
}

impl Program {
    pub fn new(name: &str, tree: Tree, talk: Talk, history: History, watch: &Watch) -> Program {
        Program { name: name.to_owned(), tree, history, talk, watch: watch.clone() }
    }

    /// Waits until a launched program is set up.
    pub fn ready(&mut self) -> Result<()> {
        let said = self.hear("its start")?;
        match said.strip_prefix("skip ") {
            Some(why) => Err(Failure::Skip(why.to_owned())),
            None if said == "ready" => Ok(()),
            None => Err(self.failure(format!("said `{said}` instead of `ready`"))),
        }
    }

    pub fn ask(&mut self, command: &str) -> Result<String> {
        self.say(command)?;
        let answer = self.hear(command)?;
        self.history.push((command.to_owned(), answer.clone()));
        Ok(answer)
    }

    /// Says a line without waiting for the answer.
    pub fn say(&mut self, command: &str) -> Result<()> {
        self.watch.doing(format!("{}: {command}", self.name));
        let sent = self.talk.stream.write_all(format!("{command}\n").as_bytes());
        sent.map_err(|error| self.failure(format!("cannot be asked `{command}`: {error}")))
    }

    /// The next line, as the answer to `command`.
    pub fn hear(&mut self, command: &str) -> Result<String> {
        let heard = self.talk.line();
        heard.map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = PATIENCE.as_secs();
                self.failure(format!("hangs: no answer to `{command}` in {seconds} s"))
            }
            _ => self.failure(format!("ended instead of answering `{command}` ({error})")),
        })
    }

    pub fn check(&mut self) -> Result<()> {
        self.expect("check", "ok")
    }

    pub fn step(&mut self) -> Result<()> {
        self.expect("step", "stepped")
    }

    pub fn digest(&mut self) -> Result<String> {
        self.ask("digest")
    }

    fn expect(&mut self, command: &str, expected: &str) -> Result<()> {
        let said = self.ask(command)?;
        if said == expected {
            return Ok(());
        }
        Err(self.failure(format!("answers `{command}` with `{said}`")))
    }

    /// Says all of a script.
    pub fn speak(&mut self, script: &[&str]) -> Result<()> {
        for command in script {
            match *command {
                "check" => self.check()?,
                "step" => self.step()?,
                other => drop(self.ask(other)?),
            }
        }
        Ok(())
    }

    /// Asks the program to end, and sees that it does.
    pub fn quit(mut self) -> Result<()> {
        self.say("quit")?;
        let end = Instant::now() + PATIENCE;
        while self.tree.is_alive() {
            if Instant::now() > end {
                return Err(self.failure("hangs: does not quit".into()));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        self.kill()
    }

    pub fn kill(self) -> Result<()> {
        self.watch.doing(format!("{}: kill", self.name));
        self.tree.kill().asked("kill")
    }

    /// A failure of this program, with its question and its standard error.
    pub fn failure(&self, what: String) -> Failure {
        let said: Vec<&str> = self.history.iter().map(|(command, _)| command.as_str()).collect();
        let mut text = format!("{} {what}, after: {}", self.name, said.join(" "));
        let errors = self.talk.errors();
        if !errors.is_empty() {
            text += &format!("\n  its standard error:\n    {errors}");
        }
        Failure::Program(text)
    }
}
