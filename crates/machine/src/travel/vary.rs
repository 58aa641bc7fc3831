//! Branches that each run something of their own, all at once.
//!
//!   one checkpoint ─► branch, branch, ... ─► each runs its part ─► told as each ends
//!
//! The branches are made all or none. From there on each is for itself: one that fails, or falls,
//! is told as such and the others go on.

use super::python::assignment;
use crate::error::{Error, Result};
use crate::history::Branch;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{Exec, Instruction, Limits, Ranged, Timeout, Vary};
use std::sync::{Arc, mpsc};

/// What is asked of branches.
#[derive(Debug, Clone, Default)]
pub struct Varied {
    pub branch: Branch,
    /// For each branch in turn; those beyond the end run nothing.
    pub vary: Vec<Vary>,
    pub timeout: Timeout,
}

/// How one branch's part ended.
pub struct Ended {
    /// Which branch, in the order they were asked for.
    pub index: usize,
    pub machine: Arc<Machine>,
    pub instruction: Result<Instruction>,
}

impl Varied {
    /// What each branch runs; refuses what cannot be run before anything is made.
    fn codes(&self) -> Result<Vec<Option<String>>> {
        let count = self.branch.names.len();
        if self.vary.len() > count {
            return Err(Error::Invalid("there are more variations than branches".into()));
        }
        let mut codes = self.vary.iter().map(code).collect::<Result<Vec<_>>>()?;
        codes.resize(count, None);
        Ok(codes)
    }
}

fn code(vary: &Vary) -> Result<Option<String>> {
    let mut text = String::new();
    for (name, value) in &vary.variables {
        text += &assignment(name, value)?;
    }
    text += vary.code.as_deref().unwrap_or_default();
    Ok((!text.trim().is_empty()).then_some(text))
}

/// Refuses limits beyond those of the machine that is branched.
fn within(asked: &Limits, most: &Limits) -> Result<()> {
    fn wider<T: PartialOrd>(asked: Option<T>, most: Option<T>) -> bool {
        matches!((asked, most), (Some(asked), Some(most)) if asked > most)
    }
    asked.check()?;
    let which = [
        ("memory_mb", wider(asked.memory_mb, most.memory_mb)),
        ("cpus", wider(asked.cpus, most.cpus)),
        ("pids", wider(asked.pids, most.pids)),
        ("disk_mb", wider(asked.disk_mb, most.disk_mb)),
    ];
    match which.into_iter().find(|(_, wider)| *wider) {
        None => Ok(()),
        Some((name, _)) => {
            let said = format!("{name} of a branch cannot be more than its machine's");
            Err(Error::Invalid(said))
        }
    }
}

impl Host {
    /// Makes branches and has each run its part. Gives the branches at once; `told` hears of each
    /// part when it is over, in the order in which they end, on a thread of its own.
    pub fn branch_varied(
        self: &Arc<Host>,
        source: &Arc<Machine>,
        varied: Varied,
    ) -> Result<(Vec<Arc<Machine>>, mpsc::Receiver<Ended>)> {
        let codes = varied.codes()?;
        let most = source.record().made.limits.or(self.inner().settings.limits);
        varied.vary.iter().try_for_each(|one| within(&one.limits, &most))?;
        let machines = self.branch(source, varied.branch)?;
        let own = varied.vary.iter().zip(&machines);
        let changed = own.map(|(vary, machine)| self.narrow(machine, vary));
        if let Err(error) = changed.collect::<Result<Vec<()>>>() {
            machines.iter().try_for_each(|machine| self.clear_away(machine))?;
            return Err(error);
        }
        let (tell, told) = mpsc::channel();
        for (index, (machine, code)) in machines.iter().zip(codes).enumerate() {
            let Some(code) = code else { continue };
            let exec = Exec { code, timeout: varied.timeout, ..Exec::default() };
            let (machine, tell) = (machine.clone(), tell.clone());
            let begun = machine.submit(exec);
            let wait = move || {
                let instruction = begun.and_then(|seq| machine.wait(seq));
                // who asked may have gone away
                let _ = tell.send(Ended { index, machine, instruction });
            };
            let thread = std::thread::Builder::new().name("stasis-branch".into());
            let started = thread.stack_size(256 << 10).spawn(wait);
            started.map_err(|source| Error::Io { doing: "start a thread".into(), source })?;
        }
        Ok((machines, told))
    }

    fn narrow(&self, machine: &Arc<Machine>, vary: &Vary) -> Result<()> {
        if vary.tags.is_empty() && vary.limits == Limits::default() {
            return Ok(());
        }
        let mut tags = machine.record().made.tags.clone();
        tags.extend(vary.tags.clone());
        let limits = Some(vary.limits);
        self.update(machine, stasis_api::Update { tags: Some(tags), limits, ..Default::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_never_wider() {
        let most = Limits { memory_mb: Some(512), ..Limits::default() };
        let asked = |mb| Limits { memory_mb: Some(mb), ..Limits::default() };
        assert!(within(&asked(512), &most).is_ok());
        assert!(within(&asked(513), &most).is_err());
        assert!(within(&asked(1), &most).is_err());
        assert!(within(&Limits { pids: Some(9), ..Limits::default() }, &most).is_ok());
    }

    #[test]
    fn variables_come_before_the_code() {
        let variables = [("x".to_owned(), serde_json::json!(3))].into();
        let vary = Vary { code: Some("x + 1".into()), variables, ..Vary::default() };
        assert_eq!(code(&vary).expect("code"), Some("x = 3\nx + 1".into()));
        assert_eq!(code(&Vary::default()).expect("nothing"), None);
    }
}
