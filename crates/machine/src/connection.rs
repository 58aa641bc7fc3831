//! The host's end of the connection to an agent: a control socket and two pipes.
//!
//! All input is hostile: lines are bounded, reports are parsed strictly, and a peer that breaks the
//! protocol loses its machine's process, nothing else.
//!
//! Long reports share a memory budget (`large`): the host stops reading from a machine until there
//! is room. If that takes too long, or the report is too large, its contents are dropped and the
//! machine keeps its state.

use crate::error::{Error, ErrorContext, Result};
use crate::large::{self, ReportPermit};
use stasis_protocol::{LONGEST, Order, Report};
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Descriptor numbers inside the machine, by slot.
pub const NUMBERS: [i32; 4] = [0, 1, 2, 3];
/// A report longer than this needs space in the budget for large reports.
const SHORT: usize = 1 << 20;
/// Bytes kept of a skipped report.
const HEAD: usize = 4 << 10;
/// Maximum wait of a large report for space, and maximum time to arrive.
const PATIENCE: Duration = Duration::from_secs(5);
/// Size of a machine's pipe while few machines have one so large, and the number that may. The
/// kernel counts all pipes against one user's budget, 64 MiB by default.
const PIPE_SIZE: u64 = 256 << 10;
const WIDE_PIPES: usize = 64;

pub struct AgentConnection {
    control: UnixStream,
    stdout: File,
    stderr: File,
    received: Vec<u8>,
    /// Bytes ever received.
    heard: u64,
    /// Length of the prefix of `received` that has no newline.
    looked_at: usize,
    /// Orders sent and not answered yet.
    owed: u32,
    long: Long,
    /// Whether the agent has reported that it is awake; it does so once.
    woken: bool,
    /// The machine was restored in the middle of an instruction. A message that another thread was
    /// sending when it was saved arrives without its beginning.
    goes_on: bool,
    /// Counted among the connections with wide pipes.
    _wide: Option<Wide>,
}

/// State of a long report that is arriving.
enum Long {
    No,
    /// Not read until there is space.
    Waits(Instant),
    Has(ReportPermit, Instant),
    /// The rest is discarded, for this reason.
    Skipped(&'static str),
}

/// Data read from one descriptor.
pub enum ReadOutcome {
    Bytes(usize),
    Nothing,
    End,
}

impl AgentConnection {
    /// Creates a connection; returns it and the machine's ends, by slot.
    pub fn open() -> Result<(AgentConnection, Vec<OwnedFd>)> {
        let make = || -> io::Result<(AgentConnection, Vec<OwnedFd>)> {
            let (control, theirs) = UnixStream::pair()?;
            control.set_nonblocking(true)?;
            let null = File::open("/dev/null")?;
            let wide = Wide::take();
            let (stdout, out) = output_pipe(wide.is_some())?;
            let (stderr, err) = output_pipe(wide.is_some())?;
            let line = AgentConnection {
                control,
                stdout,
                stderr,
                received: Vec::new(),
                heard: 0,
                looked_at: 0,
                owed: 0,
                long: Long::No,
                woken: false,
                goes_on: false,
                _wide: wide,
            };
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
        self.owed += u32::from(has_answer(order));
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
        let until = Instant::now() + Duration::from_secs(10);
        while Instant::now() < until {
            let ready = fds::ready_for(self.control.as_fd(), libc::POLLOUT).doing(talking)?;
            if ready != 0 {
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Err(io::Error::from(io::ErrorKind::TimedOut)).doing(talking)
    }

    /// Whether to leave the control socket unread for a moment.
    pub fn is_stalled(&self) -> bool {
        matches!(self.long, Long::Waits(_))
    }

    /// Whether a long report is arriving, which needs attention even when no data comes.
    pub fn is_long(&self) -> bool {
        matches!(self.long, Long::Waits(_) | Long::Has(..))
    }

    /// All received data is handled: releases its memory.
    pub fn settle(&mut self) {
        if self.received.len() <= SHORT && matches!(self.long, Long::Has(..)) {
            self.long = Long::No;
        }
    }

    /// Reads available data from the control socket; `End` when the agent has closed it.
    pub fn listen(&mut self) -> Result<ReadOutcome> {
        if !self.has_room() {
            return Ok(ReadOutcome::Nothing);
        }
        let mut buffer = [0; 64 << 10];
        match self.control.read(&mut buffer) {
            Ok(0) => Ok(ReadOutcome::End),
            Ok(read) => {
                self.heard += read as u64;
                self.receive(&buffer[..read]);
                Ok(ReadOutcome::Bytes(read))
            }
            Err(error) if is_pause(&error) => Ok(ReadOutcome::Nothing),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(ReadOutcome::End),
            Err(error) => Err(error).doing(talking),
        }
    }

    /// Whether more may be read. A long report needs space and has a deadline.
    fn has_room(&mut self) -> bool {
        let now = Instant::now();
        match self.long {
            Long::No if self.received.len() > SHORT => self.long = Long::Waits(now),
            Long::Has(_, since) if now > since + PATIENCE => self.skip("to come sooner"),
            _ => {}
        }
        if let Long::Waits(since) = self.long {
            match large::take() {
                Some(room) => self.long = Long::Has(room, now),
                None if now > since + PATIENCE => self.skip("to wait for memory for too long"),
                None => return false,
            }
        }
        true
    }

    fn receive(&mut self, bytes: &[u8]) {
        if let Long::Skipped(_) = self.long {
            // only its end matters
            let end = bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len());
            self.received.extend_from_slice(&bytes[end..]);
            return;
        }
        self.received.extend_from_slice(bytes);
        let ends = self.received[self.looked_at..].contains(&b'\n');
        if self.received.len() > LONGEST && !ends {
            self.skip("more than 34 MiB");
        }
    }

    /// Keeps only the beginning of the arriving report.
    fn skip(&mut self, why: &'static str) {
        self.received.truncate(HEAD);
        self.received.shrink_to_fit();
        self.looked_at = self.received.len();
        self.long = Long::Skipped(why);
    }

    /// The next complete report in the received data.
    pub fn report(&mut self) -> Result<Option<Report>> {
        while let Some(line) = self.next_line() {
            let skipped = match self.long {
                Long::Skipped(why) => Some(why),
                _ => None,
            };
            let report = match skipped {
                None => match Report::parse(&line) {
                    Ok(report) => report,
                    Err(_) if self.goes_on && !self.woken => continue,
                    Err(strange) => return Err(broken(&strange.to_string())),
                },
                Some(why) => {
                    self.long = Long::No;
                    let lost = || broken(&format!("it sent a report that had {why}"));
                    Report::cut(&line, why).ok_or_else(lost)?
                }
            };
            // reported once; repetitions are ignored
            let again = matches!(report, Report::Awake { .. }) && self.woken;
            self.woken |= matches!(report, Report::Awake { .. });
            if again {
                continue;
            }
            if is_answer(&report) {
                self.owed = self.owed.saturating_sub(1);
            }
            return Ok(Some(report));
        }
        Ok(None)
    }

    /// How many bytes of reports have arrived.
    pub fn heard(&self) -> u64 {
        self.heard
    }

    /// Whether every order was answered. A tree may be captured only then: otherwise its agent
    /// would resume in the middle of an order whose rest is lost.
    pub fn is_answered(&self) -> bool {
        self.owed == 0
    }

    /// How many orders were sent and not answered.
    pub fn owed(&self) -> u32 {
        self.owed
    }

    /// The machine came back in the middle of an instruction, whose end is yet to come.
    pub fn owes_end(&mut self) {
        self.owed += 1;
        self.goes_on = true;
    }

    /// The next line, without its newline. The budget of a long line is returned with it.
    fn next_line(&mut self) -> Option<Vec<u8>> {
        let found = self.received[self.looked_at..].iter().position(|byte| *byte == b'\n');
        let Some(end) = found.map(|at| at + self.looked_at) else {
            self.looked_at = self.received.len();
            return None;
        };
        let rest = self.received.split_off(end + 1);
        let mut line = std::mem::replace(&mut self.received, rest);
        line.pop();
        self.looked_at = 0;
        Some(line)
    }

    pub fn read_stdout(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome> {
        read_output(&mut self.stdout, buffer)
    }

    pub fn read_stderr(&mut self, buffer: &mut [u8]) -> Result<ReadOutcome> {
        read_output(&mut self.stderr, buffer)
    }
}

/// Orders that bring something to an instruction that waits for it are not answered.
fn has_answer(order: &Order) -> bool {
    !matches!(order, Order::Input { .. } | Order::Fetched { .. } | Order::Tool { .. })
}

/// Every order is answered by exactly one of these.
fn is_answer(report: &Report) -> bool {
    match report {
        Report::Awake { .. }
        | Report::Done(_)
        | Report::Vars { .. }
        | Report::Complete { .. }
        | Report::Frozen
        | Report::Carried { .. } => true,
        Report::Ready { .. }
        | Report::Display { .. }
        | Report::Part { .. }
        | Report::Fetch { .. }
        | Report::Tool { .. }
        | Report::Input { .. } => false,
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

fn read_output(pipe: &mut File, buffer: &mut [u8]) -> Result<ReadOutcome> {
    match pipe.read(buffer) {
        Ok(0) => Ok(ReadOutcome::End),
        Ok(read) => Ok(ReadOutcome::Bytes(read)),
        Err(error) if is_pause(&error) => Ok(ReadOutcome::Nothing),
        Err(error) => Err(error).doing(|| "read a machine's output".into()),
    }
}

/// A pipe for output: our end is non-blocking, theirs blocks.
fn output_pipe(wide: bool) -> io::Result<(File, OwnedFd)> {
    let (read, write) = fds::pipe(libc::O_CLOEXEC)?;
    fds::fcntl(read.as_fd(), libc::F_SETFL, libc::O_NONBLOCK as u64)?;
    if wide {
        // a larger pipe means fewer switches; without it output is only slower
        let _ = fds::fcntl(write.as_fd(), libc::F_SETPIPE_SZ, PIPE_SIZE);
    }
    Ok((read.into(), write))
}

/// A connection with wide pipes.
struct Wide;

static WIDE: AtomicUsize = AtomicUsize::new(0);

impl Wide {
    fn take() -> Option<Wide> {
        let more = |count: usize| (count < WIDE_PIPES).then_some(count + 1);
        WIDE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Wide)
    }
}

impl Drop for Wide {
    fn drop(&mut self) {
        WIDE.fetch_sub(1, Ordering::Relaxed);
    }
}
