//! The difference of two texts, as `diff -u` writes it.
//!
//! `similar::TextDiff` does the same in one call, and compiles each of its five algorithms for each
//! kind of text. That was a third of what the compiler had to do for this crate.

use similar::algorithms::{Capture, Compact, Replace, myers};
use similar::udiff::UnifiedHunkHeader;
use similar::{DiffOp, DiffTag, group_diff_ops};
use std::convert::Infallible;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// Equal lines around each change.
const AROUND: usize = 3;
/// After this time the rest is described more coarsely.
const TIME: Duration = Duration::from_millis(500);

/// Empty, if the texts are equal.
pub fn unified(left: &str, right: &str, names: (&str, &str)) -> String {
    let [left, right] = [left, right].map(|text| text.split_inclusive('\n').collect::<Vec<_>>());
    let mut text = String::new();
    for hunk in group_diff_ops(changes(&left, &right), AROUND) {
        if hunk.is_empty() {
            continue;
        }
        if text.is_empty() {
            text = format!("--- {}\n+++ {}\n", names.0, names.1);
        }
        // a string takes everything
        let _ = writeln!(text, "{}", UnifiedHunkHeader::new(&hunk));
        for change in hunk {
            let (old, new) = (&left[change.old_range()], &right[change.new_range()]);
            match change.tag() {
                DiffTag::Equal => old.iter().for_each(|line| push(&mut text, ' ', line)),
                DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
                    old.iter().for_each(|line| push(&mut text, '-', line));
                    new.iter().for_each(|line| push(&mut text, '+', line));
                }
            }
        }
    }
    text
}

fn changes(left: &[&str], right: &[&str]) -> Vec<DiffOp> {
    let mut found = Compact::new(Replace::new(Capture::new()), left, right);
    let (all_left, all_right) = (0..left.len(), 0..right.len());
    let deadline = Instant::now().checked_add(TIME);
    let done: Result<(), Infallible> =
        myers::diff_deadline(&mut found, left, all_left, right, all_right, deadline);
    let Ok(()) = done;
    found.into_inner().into_inner().into_ops()
}

fn push(text: &mut String, sign: char, line: &str) {
    text.push(sign);
    text.push_str(line);
    if !line.ends_with('\n') {
        text.push_str("\n\\ No newline at end of file\n");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use similar::TextDiff;

    fn names() -> (&'static str, &'static str) {
        ("left/a", "right/a")
    }

    #[test]
    fn changes_have_three_equal_lines_around_them() {
        let lines = |odd: &str| {
            let line = |at: usize| if at == 5 { odd.to_owned() } else { at.to_string() };
            (0..20).map(|at| line(at) + "\n").collect::<String>()
        };
        let wanted = "--- left/a\n+++ right/a\n@@ -3,7 +3,7 @@\n 2\n 3\n 4\n-x\n+y\n 6\n 7\n 8\n";
        assert_eq!(unified(&lines("x"), &lines("y"), names()), wanted);
        assert_eq!(unified("a\n", "a\n", names()), "");
        let wanted = "--- left/a\n+++ right/a\n@@ -0,0 +1 @@\n+a\n\\ No newline at end of file\n";
        assert_eq!(unified("", "a", names()), wanted);
    }

    #[test]
    fn a_difference_without_end_is_cut_short() {
        let lines = |step: usize| (0..60_000).map(move |at| format!("{}\n", at * step % 60_007));
        let [left, right] = [7, 11].map(|step| lines(step).collect::<String>());
        let text = unified(&left, &right, names());
        let count = |sign: char| text.lines().skip(2).filter(|l| l.starts_with(sign)).count();
        assert_eq!(count('-') + count(' '), 60_000);
        assert_eq!(count('+') + count(' '), 60_000);
    }

    proptest! {
        #[test]
        fn it_is_what_similar_writes(
            left in "([abc]{0,2}\n){0,30}[ab]?",
            right in "([abc]{0,2}\n){0,30}[ab]?",
        ) {
            let diff = TextDiff::from_lines(&left, &right);
            let wanted = diff.unified_diff().header("left/a", "right/a").to_string();
            prop_assert_eq!(unified(&left, &right, names()), wanted);
        }
    }
}
