//! The agent's layer of a template's root: a directory that is named by what is in it, so that one
//! from elsewhere can be taken in without believing anybody.

use std::fs;
use std::io;
use std::path::Path;

/// Where the agent lies in a root.
pub(crate) const AGENT_DIR: &str = "/opt/stasis/agent";
/// Files of an agent, and bytes in each.
const MOST: usize = 1000;
const LONGEST: u64 = 4 << 20;

/// Paths below the agent's directory, in order, and what the files hold.
pub(crate) type Files = Vec<(String, String)>;

/// This program's own.
pub(crate) fn own() -> Files {
    let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    stasis_agent::FILES.iter().map(file).collect()
}

pub(crate) fn name(files: &Files) -> String {
    let mut hasher = blake3::Hasher::new();
    for (path, text) in files {
        hasher.update(path.as_bytes()).update(&[0]).update(text.as_bytes()).update(&[0]);
    }
    format!("agent-{}", &hasher.finalize().to_hex()[..20])
}

/// A template's root as the agent's layer and the file system below it.
pub(crate) fn layers(root: &str) -> (Option<&str>, &str) {
    root.rsplit_once('+').map_or((None, root), |(agent, base)| (Some(agent), base))
}

/// Whether a layer is here.
pub(crate) fn is_here(roots: &Path, name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with("agent-") && name.chars().all(plain) && roots.join(name).is_dir()
}

/// Whether all paths stay in the agent's directory.
pub(crate) fn is_plain(files: &Files) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let fine = |path: &String| path.len() <= 200 && path.split('/').all(plain);
    files.len() <= MOST && files.iter().all(|(path, _)| fine(path))
}

/// Writes an agent below `roots`, once; the name of the directory.
pub(crate) fn place(roots: &Path, files: &Files) -> io::Result<String> {
    let name = name(files);
    let (dir, new) = (roots.join(&name), roots.join(format!(".placing-{name}")));
    if dir.is_dir() {
        return Ok(name);
    }
    for (path, text) in files {
        let file = new.join(AGENT_DIR.trim_start_matches('/')).join(path);
        fs::create_dir_all(file.parent().unwrap_or(&new))?;
        fs::write(file, text)?;
    }
    fs::rename(&new, &dir)?;
    Ok(name)
}

/// The files of a layer that is here; nothing, if they are not those it was named by.
pub(crate) fn read(roots: &Path, layer: &str) -> Option<Files> {
    let mut files = Files::new();
    let dir = is_here(roots, layer).then(|| roots.join(layer))?;
    list(&dir.join(AGENT_DIR.trim_start_matches('/')), "", &mut files).ok()?;
    files.sort();
    (name(&files) == layer).then_some(files)
}

fn list(dir: &Path, below: &str, files: &mut Files) -> io::Result<()> {
    for entry in fs::read_dir(dir.join(below))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        let about = entry.metadata()?;
        if about.is_dir() {
            list(dir, &path, files)?;
        } else if about.len() <= LONGEST && files.len() < MOST {
            files.push((path, fs::read_to_string(entry.path())?));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placed_and_read_again() {
        let roots = tempfile::tempdir().expect("a directory");
        let name = place(roots.path(), &own()).expect("placed");
        assert_eq!(read(roots.path(), &name), Some(own()));
        let file = roots.path().join(&name).join("opt/stasis/agent/stasis.py");
        fs::write(file, "changed").expect("write");
        assert_eq!(read(roots.path(), &name), None);
        assert_eq!(layers("agent-1+host-2"), (Some("agent-1"), "host-2"));
        assert_eq!(layers("host-2"), (None, "host-2"));
    }

    #[test]
    fn paths_that_lead_elsewhere() {
        let one = |path: &str| vec![(path.to_owned(), String::new())];
        assert!(is_plain(&one("a/b.py")) && is_plain(&own()));
        for path in ["", "/a", "../a", "a/../b", "a//b", "a\0b"] {
            assert!(!is_plain(&one(path)), "{path:?}");
        }
        let roots = tempfile::tempdir().expect("a directory");
        fs::create_dir(roots.path().join("agent-x")).expect("make");
        assert!(is_here(roots.path(), "agent-x"));
        assert!(!is_here(roots.path(), "agent-x/..") && !is_here(roots.path(), "agent-y"));
    }
}
