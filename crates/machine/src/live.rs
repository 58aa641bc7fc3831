//! A machine in memory: its process tree and the connection to its agent.

use crate::connection::{AgentConnection, ReadOutcome};
use crate::error::{Error, ErrorContext, Result};
use crate::host::HostInner;
use crate::work::silence;
use stasis_egress::Egress;
use stasis_engine::{Captured, Tree, UnsavedState};
use stasis_protocol::{LONGEST, Order, Report};
use stasis_sys::{fds, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Maximum time for an agent to answer anything but an instruction.
const PATIENCE: Duration = Duration::from_secs(60);

/// Pause before a machine with a long report under way is read again.
const STALLED: Duration = Duration::from_millis(20);

/// Number of reads that empty both pipes of their contents at the first read: one read takes 256
/// KiB, and the program inside can enlarge a pipe to 1 MiB.
const READS_OF_REST: usize = 8;

/// Output that is kept while an order is unanswered, and reports that may arrive: one of the
/// longest and many short ones.
const MOST_OUTPUT: usize = 16 << 20;
const MOST_REPORTS: usize = 4096;
const MOST_HEARD: u64 = 2 * LONGEST as u64;
const TOO_MUCH: &str = "its agent sends too much and does not answer";

pub struct LiveMachine {
    pub tree: Tree,
    pub line: AgentConnection,
    /// Its network, if it has one.
    pub _egress: Option<Egress>,
    /// Its agent has answered since the machine entered memory.
    pub awake: bool,
    /// Its processor time in ns that budgets have counted.
    pub cpu_seen: Option<u64>,
}

/// Data from a machine.
pub enum AgentEvent {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Report(Report),
    /// The agent has exited, or broke the protocol.
    Gone(String),
}

impl LiveMachine {
    /// Waits until the machine sends data, the driver is woken, or the deadline passes.
    pub fn wait(&mut self, wakeup: &File, until: Option<Instant>) -> Result<Vec<AgentEvent>> {
        self.line.settle();
        let (stalled, long) = (self.line.is_stalled(), self.line.is_long());
        let [control, stdout, stderr] = self.line.descriptors();
        // a machine that waits for space is read again soon, not before
        let control = if stalled { wakeup.as_fd() } else { control };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = if long { Some(left.unwrap_or(STALLED).min(STALLED)) } else { left };
        // rounded up: a wait that ends early would be repeated
        let ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000).min(60_000) as i32);
        let polled = fds::poll_many(&[wakeup.as_fd(), control, stdout, stderr], ms);
        let ready = polled.map_err(|source| Error::Io { doing: "wait".into(), source })?;
        if ready[0] {
            silence(wakeup);
        }
        let mut events = Vec::new();
        self.read_output(&mut events, ready[2], ready[3])?;
        if ready[1] || long {
            self.read_control(&mut events);
        }
        Ok(events)
    }

    fn read_output(&mut self, events: &mut Vec<AgentEvent>, out: bool, err: bool) -> Result<()> {
        if !out && !err {
            return Ok(());
        }
        // output written before an error may have arrived between two reads: report it first
        let out = out || err;
        let mut buffer = vec![0; 256 << 10];
        if out && let ReadOutcome::Bytes(read) = self.line.read_stdout(&mut buffer)? {
            events.push(AgentEvent::Stdout(buffer[..read].to_vec()));
        }
        if err && let ReadOutcome::Bytes(read) = self.line.read_stderr(&mut buffer)? {
            events.push(AgentEvent::Stderr(buffer[..read].to_vec()));
        }
        Ok(())
    }

    fn read_control(&mut self, events: &mut Vec<AgentEvent>) {
        let gone = match self.line.listen() {
            Ok(ReadOutcome::End) => Some("its process ended".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        loop {
            match self.line.report() {
                Ok(Some(report)) => {
                    self.awake |= matches!(report, Report::Awake { .. });
                    events.push(AgentEvent::Report(report));
                }
                Ok(None) => break,
                Err(error) => {
                    events.push(AgentEvent::Gone(error.to_string()));
                    return;
                }
            }
        }
        events.extend(gone.map(AgentEvent::Gone));
    }

    /// Waits until every order is answered. Returns the events that arrived meanwhile.
    pub fn settle(&mut self) -> Result<Vec<AgentEvent>> {
        self.settle_within(0)
    }

    /// The same, but for so many orders.
    pub fn settle_within(&mut self, owed: u32) -> Result<Vec<AgentEvent>> {
        let mut meanwhile = Meanwhile::default();
        let end = Instant::now() + PATIENCE;
        let no_wakeup = no_wakeup()?;
        let first = self.line.heard();
        while self.line.owed() > owed {
            if Instant::now() >= end {
                return Err(gone("its agent does not answer"));
            }
            for event in self.wait(&no_wakeup, Some(end))? {
                meanwhile.add(event)?;
            }
            if self.line.heard() - first > MOST_HEARD {
                return Err(gone(TOO_MUCH));
            }
        }
        Ok(meanwhile.events)
    }

    /// An image of the tree.
    pub fn capture(&self, host: &HostInner, owner: &str) -> Result<Captured> {
        self.check_answered()?;
        Ok(host.engine.capture_for(&self.tree, owner)?)
    }

    /// The same. `share` gets the state before it is on disk.
    pub fn capture_sharing(
        &self,
        host: &HostInner,
        owner: &str,
        share: impl FnOnce(UnsavedState) + Send,
    ) -> Result<Captured> {
        self.check_answered()?;
        Ok(host.engine.capture_sharing(&self.tree, owner, share)?)
    }

    /// The same in the thread that calls it, which must end right after.
    pub fn capture_sharing_here(
        &self,
        host: &HostInner,
        owner: &str,
        share: impl FnOnce(UnsavedState) + Send,
    ) -> Result<Captured> {
        self.check_answered()?;
        Ok(host.engine.capture_sharing_here(&self.tree, owner, share)?)
    }

    /// An image of the tree while its agent waits for the answer to a call.
    pub fn capture_waiting(&self, host: &HostInner, owner: &str) -> Result<Captured> {
        match self.line.owed() {
            1 => Ok(host.engine.capture_for(&self.tree, owner)?),
            _ => Err(gone("its agent has yet to answer")),
        }
    }

    /// No order may be pending when a machine is captured.
    fn check_answered(&self) -> Result<()> {
        let answered = self.line.is_answered();
        if answered { Ok(()) } else { Err(gone("its agent has not answered yet")) }
    }

    /// The current contents of the output pipes. A process that keeps writing does not prolong
    /// this: later output belongs to the next instruction.
    pub fn rest(&mut self) -> Result<Vec<AgentEvent>> {
        let mut all = Vec::new();
        for _ in 0..READS_OF_REST {
            let before = all.len();
            self.read_output(&mut all, true, true)?;
            if all.len() == before {
                break;
            }
        }
        Ok(all)
    }

    /// Sends an order and waits for the report that `wanted` selects.
    pub fn ask<T>(&mut self, order: &Order, wanted: impl Fn(Report) -> Option<T>) -> Result<T> {
        self.line.send(order)?;
        self.expect(wanted)
    }

    pub fn expect<T>(&mut self, wanted: impl Fn(Report) -> Option<T>) -> Result<T> {
        self.expect_within(PATIENCE, wanted)
    }

    pub fn expect_within<T>(
        &mut self,
        patience: Duration,
        wanted: impl Fn(Report) -> Option<T>,
    ) -> Result<T> {
        let end = Instant::now() + patience;
        let no_wakeup = no_wakeup()?;
        while Instant::now() < end {
            for event in self.wait(&no_wakeup, Some(end))? {
                match event {
                    AgentEvent::Report(report) => {
                        if let Some(answer) = wanted(report) {
                            return Ok(answer);
                        }
                    }
                    AgentEvent::Gone(why) => return Err(gone(&why)),
                    AgentEvent::Stdout(_) | AgentEvent::Stderr(_) => {}
                }
            }
        }
        Err(gone("its agent does not answer"))
    }
}

/// Events that arrive while an order is unanswered. The machine decides how many: of its output a
/// part is kept, and too many reports end the wait.
#[derive(Default)]
struct Meanwhile {
    events: Vec<AgentEvent>,
    output: usize,
    reports: usize,
}

impl Meanwhile {
    fn add(&mut self, event: AgentEvent) -> Result<()> {
        match &event {
            AgentEvent::Gone(why) => return Err(gone(why)),
            AgentEvent::Stdout(bytes) | AgentEvent::Stderr(bytes) => {
                if self.output + bytes.len() > MOST_OUTPUT {
                    return Ok(());
                }
                self.output += bytes.len();
            }
            AgentEvent::Report(_) if self.reports >= MOST_REPORTS => return Err(gone(TOO_MUCH)),
            AgentEvent::Report(_) => self.reports += 1,
        }
        self.events.push(event);
        Ok(())
    }
}

/// An eventfd that is never signalled.
fn no_wakeup() -> Result<File> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    let eventfd = fds::eventfd(0, flags).doing(|| "make an eventfd".into())?;
    Ok(File::from(eventfd))
}

fn gone(why: &str) -> Error {
    Error::Invalid(format!("the machine did not answer: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrives_before_an_answer_is_bounded() {
        let mut all = Meanwhile::default();
        for _ in 0..10_000 {
            all.add(AgentEvent::Stdout(vec![b'x'; 256 << 10])).expect("output is cut");
        }
        let kept = |event: &AgentEvent| match event {
            AgentEvent::Stdout(bytes) => bytes.len(),
            _ => 0,
        };
        assert_eq!(all.events.iter().map(kept).sum::<usize>(), MOST_OUTPUT);
        for _ in 0..MOST_REPORTS {
            all.add(AgentEvent::Report(Report::Frozen)).expect("a report");
        }
        all.add(AgentEvent::Report(Report::Frozen)).expect_err("one too many");
        all.add(AgentEvent::Gone("it ended".into())).expect_err("the end");
    }
}
