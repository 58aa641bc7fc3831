//! A machine in memory: its process tree and the line to its agent.

use crate::error::{Doing, Error, Result};
use crate::host::Inner;
use crate::line::{Line, Read1};
use crate::network;
use crate::standby::Stood;
use stasis_egress::Egress;
use stasis_engine::{Captured, ImageId, Tree};
use stasis_protocol::{Order, Reason, Report, Wake};
use stasis_store::MachineRecord;
use stasis_sys::{fds, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The longest an agent may take to answer anything but an instruction.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long a machine with a long report under way is left alone.
const STALLED: Duration = Duration::from_millis(20);

pub struct Live {
    pub tree: Tree,
    pub line: Line,
    /// Its way outside, if it has one.
    pub _egress: Option<Egress>,
    /// Its agent has answered since it came into memory.
    pub awake: bool,
}

/// What came from a machine.
pub enum Heard {
    Stdout(Vec<u8>),
    Stderr(Vec<u8>),
    Report(Report),
    /// The agent is gone, or breaks the rules.
    Gone(String),
}

impl Live {
    /// Brings a machine into memory from its newest image, of which a tree may be `ready`, and
    /// tells its agent.
    pub fn wake(
        host: &Inner,
        record: &MachineRecord,
        reason: Reason,
        ready: Option<Stood>,
    ) -> Result<Live> {
        let (Stood { tree, line }, egress) = network::stand(host, record, ready)?;
        let mut live = Live { tree, line, _egress: egress, awake: false };
        let fresh = matches!(reason, Reason::New | Reason::Branch);
        live.line.send(&Order::Wake(Wake {
            reason,
            machine: record.made.name.to_string(),
            entropy: entropy(),
            reseed: reason == Reason::New || (fresh && record.made.reseed),
            env: if fresh { record.made.env.clone() } else { Default::default() },
        }))?;
        Ok(live)
    }

    /// Waits until the machine says something, the bell rings, or the time has come.
    pub fn wait(&mut self, bell: &File, until: Option<Instant>) -> Result<Vec<Heard>> {
        self.line.settle();
        let (stalled, long) = (self.line.is_stalled(), self.line.is_long());
        let [control, stdout, stderr] = self.line.descriptors();
        // one that has to wait for room is looked at again soon, and not before
        let control = if stalled { bell.as_fd() } else { control };
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let left = if long { Some(left.unwrap_or(STALLED).min(STALLED)) } else { left };
        // rounded up: a wait that ends early is one that is made twice
        let ms = left.map_or(-1, |left| left.as_micros().div_ceil(1000).min(60_000) as i32);
        let polled = fds::poll_many(&[bell.as_fd(), control, stdout, stderr], ms);
        let ready = polled.map_err(|source| Error::Io { doing: "wait".into(), source })?;
        if ready[0] {
            crate::machine::silence(bell);
        }
        let mut heard = Vec::new();
        self.hear_output(&mut heard, ready[2], ready[3])?;
        if ready[1] || long {
            self.hear_control(&mut heard);
        }
        Ok(heard)
    }

    fn hear_output(&mut self, heard: &mut Vec<Heard>, out: bool, err: bool) -> Result<()> {
        if !out && !err {
            return Ok(());
        }
        // what was put out before an error may have come between two looks: it is told first
        let out = out || err;
        let mut buffer = vec![0; 256 << 10];
        if out && let Read1::Bytes(read) = self.line.read_stdout(&mut buffer)? {
            heard.push(Heard::Stdout(buffer[..read].to_vec()));
        }
        if err && let Read1::Bytes(read) = self.line.read_stderr(&mut buffer)? {
            heard.push(Heard::Stderr(buffer[..read].to_vec()));
        }
        Ok(())
    }

    fn hear_control(&mut self, heard: &mut Vec<Heard>) {
        let gone = match self.line.listen() {
            Ok(Read1::End) => Some("its process ended".to_owned()),
            Ok(_) => None,
            Err(error) => Some(error.to_string()),
        };
        loop {
            match self.line.report() {
                Ok(Some(report)) => {
                    self.awake |= matches!(report, Report::Awake { .. });
                    heard.push(Heard::Report(report));
                }
                Ok(None) => break,
                Err(error) => {
                    heard.push(Heard::Gone(error.to_string()));
                    return;
                }
            }
        }
        heard.extend(gone.map(Heard::Gone));
    }

    /// Waits until every order that was sent is answered; what was heard meanwhile.
    pub fn settle(&mut self) -> Result<Vec<Heard>> {
        let mut all = Vec::new();
        let end = Instant::now() + PATIENCE;
        let bell = no_bell()?;
        while !self.line.is_answered() {
            if Instant::now() >= end {
                return Err(gone("its agent does not answer"));
            }
            for heard in self.wait(&bell, Some(end))? {
                match heard {
                    Heard::Gone(why) => return Err(gone(&why)),
                    other => all.push(other),
                }
            }
        }
        Ok(all)
    }

    /// An image of the tree. The one place where machines are captured: no order is on its way.
    pub fn capture(&self, host: &Inner, owner: &str) -> Result<Captured> {
        if !self.line.is_answered() {
            return Err(gone("its agent has yet to answer"));
        }
        Ok(host.engine.capture_for(&self.tree, owner)?)
    }

    /// Whatever output is left in the pipes.
    pub fn rest(&mut self) -> Result<Vec<Heard>> {
        let mut all = Vec::new();
        loop {
            let before = all.len();
            self.hear_output(&mut all, true, true)?;
            if all.len() == before {
                return Ok(all);
            }
        }
    }

    /// Sends an order and waits for the report that `wanted` picks.
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
        let bell = no_bell()?;
        while Instant::now() < end {
            for heard in self.wait(&bell, Some(end))? {
                match heard {
                    Heard::Report(report) => {
                        if let Some(answer) = wanted(report) {
                            return Ok(answer);
                        }
                    }
                    Heard::Gone(why) => return Err(gone(&why)),
                    Heard::Stdout(_) | Heard::Stderr(_) => {}
                }
            }
        }
        Err(gone("its agent does not answer"))
    }
}

/// One that nobody rings.
fn no_bell() -> Result<File> {
    let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
    let bell = fds::eventfd(0, flags).doing(|| "make a bell".into())?;
    Ok(File::from(bell))
}

fn gone(why: &str) -> Error {
    Error::Invalid(format!("the machine did not answer: {why}"))
}

/// 32 fresh bytes, in hex.
fn entropy() -> String {
    let mut bytes = [0u8; 32];
    crate::host::random(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn parse_image(text: &str) -> Result<ImageId> {
    text.parse().map_err(|_| Error::Invalid(format!("{text:?} is no image's name")))
}
