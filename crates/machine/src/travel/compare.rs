//! Compares two states: variables, files, and results of instructions since they parted.
//!
//! Variables are compared by the hash of their pickles, which their own machines computed. Without
//! a hash, type, shape and short form are compared; if these are equal, the result is `unknown`.

use super::state_ref::StateRef;
use super::unified::unified;
use crate::error::Result;
use crate::host::Host;
use crate::machine::Machine;
use stasis_api::{
    Change, Comparison, FileDifference, Instruction, Output, OutputDifference, Var,
    VariableDifference,
};
use stasis_engine::{Contents, Difference};
use stasis_protocol::Variable;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Maximum files, and instructions of each side, in a comparison.
const FILES: usize = 1000;
const INSTRUCTIONS: usize = 50;
/// Maximum text of one file compared by line, and of all differences together.
const TEXT: u64 = 256 << 10;
const ALL_TEXT: usize = 2 << 20;
/// Output of one instruction.
const OUTPUT: usize = 4 << 10;
/// Kinds without a hash whose name says what they are.
const CODE: [&str; 4] = ["function", "class", "builtin_function_or_method", "method"];

impl Host {
    /// Lists the differences from the left state to the right one.
    pub fn compare(&self, left: &StateRef, right: &StateRef) -> Result<Comparison> {
        let base = self.base(left, right)?;
        let mut cut = Vec::new();
        let variables = differing(&self.vars_at(left)?, &self.vars_at(right)?);
        let files = self.compare_files(left, right, &mut cut)?;
        let outputs = compare_outputs(left, right, base.as_ref(), &mut cut)?;
        Ok(Comparison {
            left: left.address(),
            right: right.address(),
            base: base.map(|base| base.address()),
            variables,
            files,
            outputs,
            cut,
        })
    }

    fn compare_files(
        &self,
        left: &StateRef,
        right: &StateRef,
        cut: &mut Vec<String>,
    ) -> Result<Vec<FileDifference>> {
        let machines = [&left.machine, &right.machine];
        let (left, right) = (self.contents(&left.image)?, self.contents(&right.image)?);
        let mut all = left.differences(&right)?;
        let count = all.len();
        all.retain(|(path, _)| machines.iter().all(|machine| machine.shows_past(path)));
        if all.len() < count {
            cut.push(format!("{} files that a policy does not show", count - all.len()));
        }
        if all.len() > FILES {
            cut.push(format!("{} of {} files", all.len() - FILES, all.len()));
        }
        let mut room = ALL_TEXT;
        let first = all.into_iter().take(FILES);
        Ok(first.map(|(path, kind)| file(&left, &right, path, kind, &mut room)).collect())
    }
}

/// Whether two variables appear equal.
pub fn same(left: &Variable, right: &Variable) -> Option<bool> {
    let seen = |one: &Variable| (one.kind.clone(), one.shape.clone(), one.repr.clone());
    match (&left.digest, &right.digest) {
        (Some(left), Some(right)) => Some(left == right),
        _ if seen(left) != seen(right) => Some(false),
        _ if CODE.contains(&left.kind.as_str()) => Some(true),
        _ => None,
    }
}

pub fn by_name(vars: &[Variable]) -> BTreeMap<&str, &Variable> {
    vars.iter().map(|var| (var.name.as_str(), var)).collect()
}

fn differing(left: &[Variable], right: &[Variable]) -> Vec<VariableDifference> {
    let (left, right) = (by_name(left), by_name(right));
    let names: std::collections::BTreeSet<&str> =
        left.keys().chain(right.keys()).copied().collect();
    let one = |name: &str| {
        let (left, right) = (left.get(name).copied(), right.get(name).copied());
        let change = match (left, right) {
            (None, _) => Change::Added,
            (_, None) => Change::Removed,
            (Some(left), Some(right)) => match same(left, right) {
                Some(true) => return None,
                Some(false) => Change::Changed,
                None => Change::Unknown,
            },
        };
        let (left, right) = (left.map(view), right.map(view));
        Some(VariableDifference { name: name.to_owned(), change, left, right })
    };
    names.into_iter().filter_map(one).collect()
}

fn view(variable: &Variable) -> Var {
    Var {
        name: variable.name.clone(),
        kind: variable.kind.clone(),
        shape: variable.shape.clone(),
        bytes: variable.bytes,
        repr: variable.repr.clone(),
    }
}

fn file(
    left: &Contents<'_>,
    right: &Contents<'_>,
    path: String,
    kind: Difference,
    room: &mut usize,
) -> FileDifference {
    let change = match kind {
        Difference::Added => Change::Added,
        Difference::Removed => Change::Removed,
        Difference::Changed => Change::Changed,
    };
    let diff = text_diff(left, right, &path).filter(|text| text.len() <= *room);
    *room -= diff.as_ref().map_or(0, String::len);
    let size = |side: &Contents<'_>| side.entry(&path).map(|entry| entry.size);
    FileDifference { change, left_size: size(left), right_size: size(right), diff, path }
}

/// The difference of two texts, if both are texts and not too long.
fn text_diff(left: &Contents<'_>, right: &Contents<'_>, path: &str) -> Option<String> {
    let text = |side: &Contents<'_>| -> Option<String> {
        let bytes = match side.entry(path) {
            None => Vec::new(),
            Some(_) => side.read(path, TEXT).ok()??,
        };
        String::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
    };
    let (left, right) = (text(left)?, text(right)?);
    let names = (format!("left/{path}"), format!("right/{path}"));
    Some(unified(&left, &right, (&names.0, &names.1)))
}

/// Instructions since the states parted, side by side.
fn compare_outputs(
    left: &StateRef,
    right: &StateRef,
    base: Option<&StateRef>,
    cut: &mut Vec<String>,
) -> Result<Vec<OutputDifference>> {
    let (left, right) = (since(left, base, cut)?, since(right, base, cut)?);
    let mut found = Vec::new();
    for at in 0..left.len().max(right.len()) {
        let (left, right) = (left.get(at).cloned(), right.get(at).cloned());
        let gave =
            |one: &Option<Output>| one.as_ref().map(|one| (one.result.clone(), one.output.clone()));
        if gave(&left) != gave(&right) {
            found.push(OutputDifference { left, right });
        }
    }
    Ok(found)
}

fn since(place: &StateRef, base: Option<&StateRef>, cut: &mut Vec<String>) -> Result<Vec<Output>> {
    let Some(last) = place.seq else { return Ok(Vec::new()) };
    let same = base.filter(|base| base.machine.number() == place.machine.number());
    let from = same.and_then(|base| base.seq).map_or(0, |seq| seq + 1);
    let log = place.machine.instructions(from, (last + 1).saturating_sub(from))?;
    let mut ran: Vec<Instruction> = log.into_iter().filter(|one| !one.rolled_back).collect();
    if ran.len() > INSTRUCTIONS {
        cut.push(format!("{} older instructions", ran.len() - INSTRUCTIONS));
        ran.drain(..ran.len() - INSTRUCTIONS);
    }
    ran.iter().map(|one| output(&place.machine, one)).collect()
}

fn output(machine: &Arc<Machine>, one: &Instruction) -> Result<Output> {
    let outcome = one.outcome.as_ref();
    let error = outcome.and_then(|end| end.error.as_ref());
    let result = match error {
        Some(error) => Some(format!("{}: {}", error.name, error.message)),
        None => outcome.and_then(|end| end.value.clone()),
    };
    let short = |text: String| match text.char_indices().nth(OUTPUT) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    };
    let lines: Vec<String> =
        machine.outputs(one.seq, 0)?.into_iter().map(|chunk| chunk.data).collect();
    Ok(Output {
        seq: one.seq,
        code: short(one.code.clone()),
        result: result.map(short),
        output: short(lines.join("\n")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn var(name: &str, repr: &str, digest: Option<&str>) -> Variable {
        Variable {
            name: name.into(),
            kind: "list".into(),
            repr: repr.into(),
            digest: digest.map(Into::into),
            ..Variable::default()
        }
    }

    #[test]
    fn variables_are_told_apart() {
        let left = [var("a", "1", Some("x")), var("b", "2", Some("y")), var("c", "3", None)];
        let right = [var("b", "2", Some("z")), var("c", "3", None), var("d", "4", Some("w"))];
        let found: Vec<_> =
            differing(&left, &right).into_iter().map(|one| (one.name, one.change)).collect();
        let want = [
            ("a".to_owned(), Change::Removed),
            ("b".to_owned(), Change::Changed),
            ("c".to_owned(), Change::Unknown),
            ("d".to_owned(), Change::Added),
        ];
        assert_eq!(found, want);
    }
}
