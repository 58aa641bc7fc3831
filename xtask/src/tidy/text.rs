//! Rules for every file, in any language.

use super::{Finding, SourceFile};

const LARGEST: usize = 512 * 1024;

/// Files whose text is not ours to word.
const OTHERS_WORDS: [&str; 3] = ["Cargo.lock", "package-lock.json", "LICENSE"];

/// Words that promise work instead of doing it. In two pieces, so that this file passes.
const NOTES: [&str; 2] = [concat!("TO", "DO"), concat!("FIX", "ME")];

/// Directories that exist on one machine only.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// The home in every machine, the same everywhere.
const INSIDE: &str = concat!("/ho", "me/user");

/// Commands that a newcomer types first.
const COMMANDS: [&str; 2] = ["make run", "make test"];

pub fn check(source: &SourceFile) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut say = |line, what: String| findings.push(Finding::new(&source.path, line, what));
    if source.bytes.len() > LARGEST {
        say(0, format!("{} KiB; blobs do not belong here", source.bytes.len() / 1024));
    }
    let ours = !OTHERS_WORDS.iter().any(|name| source.path.split('/').next_back() == Some(name));
    let text = source.text().filter(|_| ours).unwrap_or_default();
    for (index, line) in text.lines().enumerate() {
        for note in NOTES.iter().filter(|note| has_word(line, note)) {
            say(index + 1, format!("`{note}`: do it, or open an issue"));
        }
        let outside = line.replace(INSIDE, "");
        for path in MACHINE_PATHS.iter().filter(|path| has_path(&outside, path)) {
            say(index + 1, format!("`{path}...` exists on one machine only"));
        }
    }
    findings
}

/// The README must say how to start and how to test.
pub fn check_readme(sources: &[SourceFile]) -> Vec<Finding> {
    let readme = sources.iter().find(|source| source.path == "README.md");
    let text = readme.and_then(SourceFile::text).unwrap_or_default();
    let missing = COMMANDS.iter().filter(|command| !text.contains(*command));
    missing
        .map(|command| Finding::new("README.md", 0, format!("does not say `{command}`")))
        .collect()
}

fn has_word(line: &str, word: &str) -> bool {
    line.split(|letter: char| !letter.is_alphanumeric()).any(|found| found == word)
}

/// Whether an absolute path starts with `path`, and not only some path contains it.
fn has_path(line: &str, path: &str) -> bool {
    line.match_indices(path).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|letter| letter.is_alphanumeric() || "._-}~*".contains(letter))
    })
}
