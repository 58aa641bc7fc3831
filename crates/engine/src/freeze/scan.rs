//! Whether a stopped tree is all of its machine.

use super::{Frozen, is_dead};
use crate::error::{Error, ErrorContext, Result};
use crate::proc::{self, ProcStatus};
use crate::walls::Walls;
use stasis_sys::ptrace;
use std::collections::HashSet;

/// The result of a full scan of a machine's tasks.
pub enum TaskScan {
    /// All are known, and stand still.
    Whole,
    /// Processes that are not known, none of which is another's descendant.
    Strangers(Vec<i32>),
    /// A stopped task has ended, or a process has an unknown thread.
    Changed,
}

impl Frozen {
    /// Looks at every task of the machine, and at every child, for a zombie is no task any more.
    pub(super) fn look(&self, walls: &Walls, seen: &HashSet<i32>) -> Result<TaskScan> {
        let known: HashSet<i32> = self.threads().map(|thread| thread.tid).collect();
        let tasks = tasks(walls)?;
        let mut strangers = Vec::new();
        for tid in tasks.iter().filter(|tid| !known.contains(tid)) {
            match stranger(*tid, walls.init.pid, seen) {
                Some(Stranger::Process(top)) => strangers.push(top),
                Some(Stranger::Thread) => return Ok(TaskScan::Changed),
                None => {}
            }
        }
        if known.iter().any(|tid| !tasks.contains(tid)) || !self.all_stand() {
            return Ok(TaskScan::Changed);
        }
        let live = self.processes.iter().filter(|process| process.live.is_some());
        for parent in live.map(|process| process.pid).chain([walls.init.pid]) {
            strangers.extend(proc::children(parent)?.iter().filter(|pid| !seen.contains(pid)));
        }
        Ok(if strangers.is_empty() { TaskScan::Whole } else { TaskScan::Strangers(strangers) })
    }

    /// Names the tasks that ran or ended while the tree was stopped. The data read meanwhile is
    /// then no single instant. `copies` are the engine's own.
    pub fn check_whole(&self, walls: &Walls, copies: &[i32]) -> Result<()> {
        let known: HashSet<i32> = self.threads().map(|thread| thread.tid).collect();
        let tasks = tasks(walls)?;
        let others = tasks.iter().filter(|tid| !known.contains(tid) && !copies.contains(tid));
        if let Some(tid) = others.into_iter().find(|tid| **tid != walls.init.pid && lives(**tid)) {
            return Err(Error::refused(*tid, "it was not stopped during the capture"));
        }
        let ended = self.threads().find(|thread| ptrace::regs(thread.tid).is_err());
        match ended {
            Some(thread) => Err(Error::refused(thread.own_tid, "it ended during the capture")),
            None => Ok(()),
        }
    }

    /// Registers can be read only of a thread that we stopped.
    fn all_stand(&self) -> bool {
        self.threads().all(|thread| ptrace::regs(thread.tid).is_ok())
    }
}

enum Stranger {
    /// The topmost process above it that is not known.
    Process(i32),
    /// It belongs to a process that is known.
    Thread,
}

/// The identity of an unknown task; `None` if it is the init's or has ended.
fn stranger(tid: i32, init: i32, seen: &HashSet<i32>) -> Option<Stranger> {
    /// Deeper than any chain of parents can be that is not changing under our eyes.
    const DEEPEST: u32 = 1 << 16;
    if tid == init || !lives(tid) {
        return None;
    }
    let status = |pid: i32| Some(ProcStatus::parse(&proc::read_text(pid, "status").ok()?));
    let number = |status: &ProcStatus, key: &str| status.number(key).map(|number| number as i32);
    let own = status(tid)?;
    let mut top = number(&own, "Tgid")?;
    if seen.contains(&top) {
        return Some(Stranger::Thread);
    }
    let mut parent = number(&own, "PPid")?;
    for _ in 0..DEEPEST {
        if parent == init || parent <= 1 || seen.contains(&parent) {
            break;
        }
        let Some(above) = status(parent).and_then(|status| number(&status, "PPid")) else { break };
        (top, parent) = (parent, above);
    }
    Some(Stranger::Process(top))
}

fn lives(tid: i32) -> bool {
    !is_dead(tid, tid)
}

/// Every task of a machine, its init's among them.
fn tasks(walls: &Walls) -> Result<HashSet<i32>> {
    if let Some(tasks) = walls.group.tasks().doing(|| "list a machine's tasks".into())? {
        return Ok(tasks.into_iter().collect());
    }
    let namespace = proc::read_link(walls.init.pid, "ns/pid")?;
    let is_inside = |pid: &i32| proc::read_link(*pid, "ns/pid").is_ok_and(|own| own == namespace);
    let inside = proc::processes()?.into_iter().filter(is_inside);
    Ok(inside.flat_map(|pid| proc::threads(pid).unwrap_or_default()).collect())
}
