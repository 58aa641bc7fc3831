//! Samples in pages are programs: each page's blocks of a language are run one after another, and
//! what a comment beside `print` or `console.log` says has to be printed.

use crate::{JAVASCRIPT, PYTHON, WORK, output, root, service};
use libtest_mimic::Failed;
use std::path::{Path, PathBuf};

/// Pages with samples.
pub fn pages() -> Vec<PathBuf> {
    let mut pages = vec![root().join("sdk/python/README.md"), root().join("sdk/js/README.md")];
    let guides = std::fs::read_dir(root().join("docs/guides")).into_iter().flatten().flatten();
    pages.extend(
        guides
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|end| end == "md")),
    );
    pages.sort();
    pages
}

pub fn check(page: &Path) -> Result<(), Failed> {
    let text = std::fs::read_to_string(page)?;
    let name = page.with_extension("").display().to_string().replace('/', "-");
    let (python, script) = (blocks(&text, "python"), blocks(&text, "ts"));
    if !python.is_empty() {
        let file = WORK.path().join(format!("sample{name}.py"));
        std::fs::write(&file, &python)?;
        compare(&python, "# ", &output(service(&mut PYTHON.run(&file)))?)?;
    }
    if !script.is_empty() {
        let file = format!("sample{name}.ts");
        JAVASCRIPT.write(&file, &script);
        compare(&script, "// ", &output(service(&mut JAVASCRIPT.deno(&file)))?)?;
    }
    Ok(())
}

/// All blocks of a language, in order, as one program.
fn blocks(page: &str, language: &str) -> String {
    let (mut program, mut inside) = (String::new(), false);
    for line in page.lines() {
        if line.starts_with("```") {
            inside = line == format!("```{language}");
        } else if inside {
            program.push_str(line);
            program.push('\n');
        }
    }
    program
}

/// Lines that comments promise have to be said, in this order; others may be between them.
fn compare(program: &str, mark: &str, said: &str) -> Result<(), Failed> {
    let mut lines = said.lines();
    for promised in program.lines().filter_map(|line| promise(line, mark)) {
        if !lines.any(|line| line == promised) {
            return Err(format!("`{promised}` was not said, or not there:\n{said}").into());
        }
    }
    Ok(())
}

fn promise<'a>(line: &'a str, mark: &str) -> Option<&'a str> {
    let prints = ["print(", "console.log("].iter().any(|call| line.trim_start().starts_with(call));
    let at = line.rfind(mark).filter(|_| prints)?;
    Some(line[at + mark.len()..].trim())
}
