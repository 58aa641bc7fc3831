//! Branches that each run their own code, in parallel.
//!
//!   one checkpoint ─► branch, branch, ... ─► each runs its part ─► told as each ends
//!
//! Either all branches are created or none. After that they are independent: one that fails or
//! crashes does not stop the others.

use crate::error::{Error, Result};
use crate::history::Branch;
use crate::host::Host;
use crate::machine::Machine;
use stasis_agent::Language;
use stasis_api::{Exec, Instruction, Limits, Ranged, Timeout, Vary};
use stasis_policy::limits;
use std::sync::{Arc, mpsc};

/// Options of branches.
#[derive(Debug, Clone, Default)]
pub struct BranchPlan {
    pub branch: Branch,
    /// Code for each branch in order; further branches run nothing.
    pub vary: Vec<Vary>,
    pub timeout: Timeout,
}

/// The end of one branch's code.
pub struct BranchResult {
    /// The branch's index, in the requested order.
    pub index: usize,
    pub machine: Arc<Machine>,
    pub instruction: Result<Instruction>,
}

impl BranchPlan {
    /// The code of each branch; refuses invalid code before anything is created.
    fn codes(&self, language: &dyn Language) -> Result<Vec<Option<String>>> {
        let count = self.branch.names.len();
        if self.vary.len() > count {
            return Err(Error::Unusable("there are more variations than branches".into()));
        }
        let mut codes =
            self.vary.iter().map(|one| code(one, language)).collect::<Result<Vec<_>>>()?;
        codes.resize(count, None);
        Ok(codes)
    }
}

fn code(vary: &Vary, language: &dyn Language) -> Result<Option<String>> {
    let mut text = String::new();
    for (name, value) in &vary.variables {
        text += &assignment(language, name, value)?;
    }
    text += vary.code.as_deref().unwrap_or_default();
    Ok((!text.trim().is_empty()).then_some(text))
}

/// A statement that assigns a JSON value to a variable.
fn assignment(language: &dyn Language, name: &str, value: &serde_json::Value) -> Result<String> {
    if !language.is_identifier(name) {
        let shown: String = name.chars().take(80).collect();
        return Err(Error::Unusable(format!("{shown:?} is not the name of a variable")));
    }
    let literal = language.literal(value).map_err(|why| Error::Unusable(why.to_string()))?;
    Ok(language.assignment(name, &literal))
}

/// Refuses limits beyond those of the branched machine.
fn within(asked: &Limits, most: &Limits) -> Result<()> {
    asked.check()?;
    match limits::wider(asked, most) {
        None => Ok(()),
        Some(name) => Err(Error::WiderLimit(name)),
    }
}

impl Host {
    /// Creates branches and runs each one's code. Returns the branches at once; `told` is called on
    /// another thread when each one's code ends, in that order.
    pub fn branch_varied(
        self: &Arc<Host>,
        source: &Arc<Machine>,
        varied: BranchPlan,
    ) -> Result<(Vec<Arc<Machine>>, mpsc::Receiver<BranchResult>)> {
        let codes = varied.codes(source.language())?;
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
                // the caller may have stopped waiting
                let _ = tell.send(BranchResult { index, machine, instruction });
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
    }

    #[test]
    fn variables_come_before_the_code() {
        let variables = [("x".to_owned(), serde_json::json!(3))].into();
        let vary = Vary { code: Some("x + 1".into()), variables, ..Vary::default() };
        assert_eq!(
            code(&vary, stasis_agent::default()).expect("code"),
            Some("x = 3\nx + 1".into())
        );
        assert_eq!(code(&Vary::default(), stasis_agent::default()).expect("nothing"), None);
    }
}
