//! The host's end of the line to an agent: a control socket and two pipes.
//!
//! Whatever comes through is hostile: lines are bounded, reports are parsed strictly, and a peer
//! that breaks the rules ends its machine's process, nothing else.

use crate::error::{Doing, Error, Result};
use stasis_protocol::{Order, Report};
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

/// Numbers of the descriptors inside the machine, by slot.
pub const NUMBERS: [i32; 4] = [0, 1, 2, 3];
/// A report longer than this breaks the rules.
const MAX_REPORT: usize = 96 << 20;
const PIPE_SIZE: u64 = 1 << 20;

pub struct Line {
    control: UnixStream,
    stdout: File,
    stderr: File,
    heard: Vec<u8>,
    /// How much of `heard` is known to hold no end of a line.
    looked_at: usize,
    /// Orders that were sent and not answered yet.
    owed: u32,
}

/// What was read from one descriptor.
pub enum Read1 {
    Bytes(usize),
    Nothing,
    End,
}

impl Line {
    /// A new line, and the machine's ends of it, by slot.
    pub fn open() -> Result<(Line, Vec<OwnedFd>)> {
        let make = || -> io::Result<(Line, Vec<OwnedFd>)> {
            let (control, theirs) = UnixStream::pair()?;
            control.set_nonblocking(true)?;
            let null = File::open("/dev/null")?;
            let (stdout, out) = output_pipe()?;
            let (stderr, err) = output_pipe()?;
            let line = Line { control, stdout, stderr, heard: Vec::new(), looked_at: 0, owed: 0 };
            Ok((line, vec![null.into(), out, err, theirs.into()]))
        };
        make().doing(|| "open a line to a machine".into())
    }

    /// Descriptors to wait on: control, standard output, standard error.
    pub fn descriptors(&self) -> [BorrowedFd<'_>; 3] {
        [self.control.as_fd(), self.stdout.as_fd(), self.stderr.as_fd()]
    }

    /// Sends an order. The agent reads one order whole before it acts, so this waits only for
    /// the socket's buffer.
    pub fn send(&mut self, order: &Order) -> Result<()> {
        let mut text = serde_json::to_vec(order).map_err(io::Error::other).doing(talking)?;
        text.push(b'\n');
        self.owed += 1;
        let mut rest = text.as_slice();
        while !rest.is_empty() {
            match self.control.write(rest) {
                Ok(sent) => rest = &rest[sent..],
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => self.wait_writable()?,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error).doing(talking),
            }
        }
        Ok(())
    }

    /// A peer that does not read for this long is treated as gone.
    fn wait_writable(&self) -> Result<()> {
        let until = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while std::time::Instant::now() < until {
            let ready = fds::ready_for(self.control.as_fd(), libc::POLLOUT).doing(talking)?;
            if ready != 0 {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        Err(io::Error::from(io::ErrorKind::TimedOut)).doing(talking)
    }

    /// Reads what the control socket has; `End` when the agent is gone.
    pub fn listen(&mut self) -> Result<Read1> {
        let mut buffer = [0; 64 << 10];
        match self.control.read(&mut buffer) {
            Ok(0) => Ok(Read1::End),
            Ok(read) => {
                self.heard.extend_from_slice(&buffer[..read]);
                if self.heard.len() > MAX_REPORT {
                    return Err(broken("it sent a report without an end"));
                }
                Ok(Read1::Bytes(read))
            }
            Err(error) if is_pause(&error) => Ok(Read1::Nothing),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(Read1::End),
            Err(error) => Err(error).doing(talking),
        }
    }

    /// The next whole report among what was read.
    pub fn report(&mut self) -> Result<Option<Report>> {
        let found = self.heard[self.looked_at..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.looked_at) else {
            self.looked_at = self.heard.len();
            return Ok(None);
        };
        let report = serde_json::from_slice(&self.heard[..end])
            .map_err(|error| broken(&format!("it sent a report that makes no sense: {error}")));
        self.heard.drain(..=end);
        self.looked_at = 0;
        let report: Report = report?;
        if is_answer(&report) {
            self.owed = self.owed.saturating_sub(1);
        }
        Ok(Some(report))
    }

    /// Whether every order that was sent was answered. A tree may be captured only then: its agent
    /// would come back in the middle of an order whose rest is lost.
    pub fn is_answered(&self) -> bool {
        self.owed == 0
    }

    pub fn read_stdout(&mut self, buffer: &mut [u8]) -> Result<Read1> {
        read_output(&mut self.stdout, buffer)
    }

    pub fn read_stderr(&mut self, buffer: &mut [u8]) -> Result<Read1> {
        read_output(&mut self.stderr, buffer)
    }
}

/// Every order has exactly one of these.
fn is_answer(report: &Report) -> bool {
    match report {
        Report::Awake { .. }
        | Report::Done(_)
        | Report::Vars { .. }
        | Report::Complete { .. }
        | Report::Frozen
        | Report::Carried { .. } => true,
        Report::Ready { .. } | Report::Display { .. } | Report::Part { .. } => false,
    }
}

fn talking() -> String {
    "talk to a machine's agent".into()
}

fn broken(what: &str) -> Error {
    Error::Io { doing: talking(), source: io::Error::other(what.to_owned()) }
}

fn is_pause(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn read_output(pipe: &mut File, buffer: &mut [u8]) -> Result<Read1> {
    match pipe.read(buffer) {
        Ok(0) => Ok(Read1::End),
        Ok(read) => Ok(Read1::Bytes(read)),
        Err(error) if is_pause(&error) => Ok(Read1::Nothing),
        Err(error) => Err(error).doing(|| "read a machine's output".into()),
    }
}

/// A pipe for output: our end does not block, theirs does.
fn output_pipe() -> io::Result<(File, OwnedFd)> {
    let (read, write) = fds::pipe(libc::O_CLOEXEC)?;
    fds::fcntl(read.as_fd(), libc::F_SETFL, libc::O_NONBLOCK as u64)?;
    // more room means fewer switches; without it things are only slower
    let _ = fds::fcntl(write.as_fd(), libc::F_SETPIPE_SZ, PIPE_SIZE);
    Ok((read.into(), write))
}
