//! A test: every command that a page mentions in its text, such as `stasis rollback work@1`,
//! parses. The tests of the SDKs run the code blocks.

use crate::Cli;
use clap::Parser;
use clap::error::ErrorKind;
use std::path::{Path, PathBuf};

#[test]
fn commands_in_the_text_of_pages_are_ours() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("a repository");
    let mut count = 0;
    for page in pages(root) {
        let text = std::fs::read_to_string(&page).expect("a page");
        for command in mentioned(&text) {
            if let Err(what) = taken(&command) {
                panic!("{}: `{command}`: {what}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 50, "only {count} were found");
}

fn pages(root: &Path) -> Vec<PathBuf> {
    let (mut dirs, mut pages) = (vec![root.join("docs"), root.join("sdk")], Vec::new());
    let mut entries: Vec<_> = std::fs::read_dir(root).expect("a list").flatten().collect();
    while let Some(dir) = dirs.pop() {
        entries.extend(std::fs::read_dir(dir).expect("a list").flatten());
        let here = entries.drain(..).map(|entry| entry.path());
        for path in here.collect::<Vec<_>>() {
            match path.extension() {
                Some(end) if end == "md" => pages.push(path),
                None if path.is_dir() && path.parent() != Some(root) => dirs.push(path),
                _ => {}
            }
        }
    }
    pages
}

/// The text between single backticks, outside of blocks.
fn mentioned(page: &str) -> Vec<String> {
    let text: String = page.split("\n```").step_by(2).collect();
    let spans = text.split('`').skip(1).step_by(2).map(|span| span.replace('\n', " "));
    // `<NAME>` and `[OPTIONS]` are in the reference, which is generated from the program
    let is_command = |span: &String| span.starts_with("stasis ") && !span.contains(['[', '<']);
    spans.filter(is_command).collect()
}

/// Whether the program accepts it, or would if it were complete.
fn taken(command: &str) -> Result<(), String> {
    let Err(error) = Cli::try_parse_from(words(command)) else { return Ok(()) };
    let named = command.split(' ').any(|word| word.len() > 1 && word == word.to_uppercase());
    match error.kind() {
        ErrorKind::MissingRequiredArgument
        | ErrorKind::MissingSubcommand
        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Ok(()),
        // NAME is a placeholder
        ErrorKind::InvalidValue | ErrorKind::ValueValidation if named => Ok(()),
        _ => Err(error.to_string()),
    }
}

/// Split like a shell, as far as pages need it.
fn words(command: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for letter in command.chars() {
        match (quote, letter) {
            (None, ' ') => words.push(String::new()),
            (None, '\'' | '"') => quote = Some(letter),
            (Some(mark), _) if mark == letter => quote = None,
            _ => words.last_mut().expect("there is one").push(letter),
        }
    }
    words
}

#[test]
fn what_is_not_ours_is_found() {
    for command in ["stasis rollback work 3", "stasis nothing", "stasis status --never"] {
        assert!(taken(command).is_err(), "{command}");
    }
    assert!(taken("stasis label work@1 \"data is clean\"").is_ok());
    assert!(taken("stasis machine get").is_ok());
}
