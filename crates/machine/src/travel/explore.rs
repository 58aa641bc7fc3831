//! Explore: runs candidates on branches, scores each, and gives the best the machine's name.
//!
//! If no candidate can be scored, nothing is promoted. The other branches are removed unless `keep`
//! is set. So is the original machine, which has the winner's old name, unless it ran instructions
//! after the explored state: those exist nowhere else.

use super::vary::BranchPlan;
use crate::error::{Error, Result};
use crate::history::Branch;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{Candidate, Exec, Explored, Timeout, Vary};
use std::sync::Arc;

/// The candidates, and how to score them.
#[derive(Debug, Clone, Default)]
pub struct Explore {
    pub seq: Option<u64>,
    pub candidates: Vec<Vary>,
    /// An expression; higher is better.
    pub score: String,
    /// Lower is better instead.
    pub minimize: bool,
    /// Keep all branches, and the original machine.
    pub keep: bool,
    pub reseed: bool,
    pub timeout: Timeout,
}

impl Host {
    /// Runs candidates as branches and keeps the best under the machine's name.
    pub fn explore(self: &Arc<Host>, source: &Arc<Machine>, ask: Explore) -> Result<Explored> {
        if ask.score.trim().is_empty() {
            return Err(Error::Invalid("give an expression that scores the candidates".into()));
        }
        let names = vec![None; ask.candidates.len()];
        let branch = Branch { seq: ask.seq, names, reseed: ask.reseed, ..Branch::default() };
        let varied = BranchPlan { branch, vary: ask.candidates.clone(), timeout: ask.timeout };
        let (machines, told) = self.branch_varied(source, varied)?;
        let mut candidates: Vec<Candidate> =
            machines.iter().enumerate().map(|(index, one)| blank(index, one)).collect();
        // waits for all that run; branches without code are scored as they are
        for ended in told {
            candidates[ended.index].error = match ended.instruction {
                Ok(end) => end.outcome.and_then(|end| end.error).map(said),
                Err(error) => Some(error.to_string()),
            };
        }
        self.score(&machines, &ask, &mut candidates);
        let best = best(&candidates, ask.minimize);
        let promoted = best.map(|at| self.promote(&machines[at], Some(source))).transpose();
        self.clear(&machines, best.filter(|_| promoted.is_ok()), ask.keep)?;
        let former = promoted?;
        if let Some((at, former)) = best.zip(former.as_ref()) {
            // the winner has the machine's name now, and the machine has the winner's
            candidates[at].machine = machines[at].name();
            let about = former.describe();
            let removed = !ask.keep && self.retire(former, &machines[at])?;
            return Ok(Explored {
                best: Some(machines[at].describe()),
                former: Some(about).filter(|_| !removed),
                candidates,
            });
        }
        Ok(Explored { best: None, former: None, candidates })
    }

    /// Scores every candidate that did not fail, in parallel.
    fn score(&self, machines: &[Arc<Machine>], ask: &Explore, candidates: &mut [Candidate]) {
        let begun: Vec<_> = machines
            .iter()
            .zip(candidates.iter())
            .map(|(machine, candidate)| {
                let exec =
                    Exec { code: ask.score.clone(), timeout: ask.timeout, ..Exec::default() };
                candidate.error.is_none().then(|| machine.submit(exec))
            })
            .collect();
        for ((machine, begun), candidate) in machines.iter().zip(begun).zip(candidates) {
            let Some(begun) = begun else { continue };
            match begun.and_then(|seq| machine.wait(seq)) {
                Ok(end) => {
                    let outcome = end.outcome.unwrap_or_default();
                    candidate.score =
                        outcome.value.as_deref().and_then(|shown| machine.language().number(shown));
                    let odd = || format!("its score is not a number: {:?}", outcome.value);
                    let failed = outcome.error.clone().map(said);
                    candidate.error = failed.or_else(|| candidate.score.is_none().then(odd));
                }
                Err(error) => candidate.error = Some(error.to_string()),
            }
        }
    }

    fn clear(&self, machines: &[Arc<Machine>], best: Option<usize>, keep: bool) -> Result<()> {
        let mut losers = machines.iter().enumerate().filter(|(at, _)| Some(*at) != best && !keep);
        losers.try_for_each(|(_, machine)| self.clear_away(machine))
    }

    /// Removes a machine that another caller may have removed meanwhile.
    pub(crate) fn clear_away(&self, machine: &Arc<Machine>) -> Result<()> {
        match self.remove(machine) {
            Err(Error::NoMachine(_)) => Ok(()),
            other => other,
        }
    }
}

fn blank(index: usize, machine: &Arc<Machine>) -> Candidate {
    Candidate { index: index as u64, machine: machine.name(), score: None, error: None }
}

fn said(error: stasis_api::Failure) -> String {
    format!("{}: {}", error.name, error.message)
}

/// The first of the best ones.
fn best(candidates: &[Candidate], minimize: bool) -> Option<usize> {
    let sign = if minimize { -1.0 } else { 1.0 };
    let mut best: Option<(usize, f64)> = None;
    for (at, candidate) in candidates.iter().enumerate() {
        let Some(score) = candidate.score.filter(|_| candidate.error.is_none()) else { continue };
        if best.is_none_or(|(_, other)| score * sign > other) {
            best = Some((at, score * sign));
        }
    }
    best.map(|(at, _)| at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_the_best_wins() {
        let one = |score: Option<f64>, error: Option<&str>| Candidate {
            index: 0,
            machine: "m".parse().expect("a name"),
            score,
            error: error.map(Into::into),
        };
        let all = [
            one(Some(9.0), Some("failed")),
            one(Some(1.0), None),
            one(None, None),
            one(Some(3.0), None),
            one(Some(3.0), None),
        ];
        assert_eq!((best(&all, false), best(&all, true)), (Some(3), Some(1)));
        assert_eq!(best(&all[..1], false), None);
    }
}
