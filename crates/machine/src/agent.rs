//! The agent's layer of a template's root: a directory named by the hash of its contents, so that
//! an imported one can be verified.

use crate::error::{Error, Result};
use crate::machine::Machine;
use serde::{Deserialize, Serialize};
use stasis_agent::{Language, language};
use stasis_protocol::Order;
use std::fs;
use std::io;
use std::path::Path;

/// The agent's directory in a root.
pub(crate) const AGENT_DIR: &str = "/opt/stasis/agent";
/// Maximum number of files of an agent, and of bytes in each.
const MOST: usize = 1000;
const LONGEST: u64 = 4 << 20;

/// Paths below the agent's directory, in order, with their contents.
pub(crate) type AgentFiles = Vec<(String, String)>;

/// The agent built into this program for a language.
pub(crate) fn own(language: &dyn Language) -> AgentFiles {
    let file = |(path, text): &(&str, &str)| ((*path).to_owned(), (*text).to_owned());
    language.files().iter().map(file).collect()
}

/// The agent's capabilities, as reported when its template was built. The agent may be older than
/// this program.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct AgentInfo {
    pub generation: u32,
    /// The kinds of orders it knows; empty if it did not report them.
    pub orders: Vec<String>,
}

impl AgentInfo {
    /// The defaults of templates built before capabilities were recorded.
    pub fn first() -> AgentInfo {
        AgentInfo { generation: 1, orders: Vec::new() }
    }

    pub fn knows(&self, order: &Order) -> bool {
        match self.orders.is_empty() {
            true => Order::FIRST.contains(&order.kind()),
            false => self.orders.iter().any(|kind| kind == order.kind()),
        }
    }
}

/// The language of a machine, and its agent.
#[derive(Debug)]
pub(crate) struct MachineAgent {
    pub language: &'static dyn Language,
    pub known: AgentInfo,
}

impl Machine {
    pub(crate) fn spoken(&self) -> &MachineAgent {
        self.spoken.get_or_init(|| {
            let digest = self.record().made.template.clone();
            let record = self.host.records.template(&digest).ok().flatten();
            let language = record.as_ref().and_then(|one| language(&one.template.language));
            let known = record.map(|one| serde_json::from_value(one.details["agent"].clone()));
            MachineAgent {
                language: language.unwrap_or_else(stasis_agent::default),
                known: known.and_then(|known| known.ok()).unwrap_or_else(AgentInfo::first),
            }
        })
    }

    /// The language its instructions are written in.
    pub fn language(&self) -> &'static dyn Language {
        self.spoken().language
    }

    /// Refuses an order that the agent in the machine does not know.
    pub(crate) fn check_order(&self, order: &Order) -> Result<()> {
        match self.spoken().known.knows(order) {
            true => Ok(()),
            false => Err(Error::Unsupported(order.kind(), "the machine's agent does not know it")),
        }
    }
}

pub(crate) fn name(files: &AgentFiles) -> String {
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

/// Whether a layer exists here.
pub(crate) fn is_here(roots: &Path, name: &str) -> bool {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    name.starts_with("agent-") && name.chars().all(plain) && roots.join(name).is_dir()
}

/// Whether all paths stay in the agent's directory.
pub(crate) fn is_plain(files: &AgentFiles) -> bool {
    let plain = |part: &str| !matches!(part, "" | "." | "..") && !part.contains('\0');
    let fine = |path: &String| path.len() <= 200 && path.split('/').all(plain);
    files.len() <= MOST && files.iter().all(|(path, _)| fine(path))
}

/// Writes an agent below `roots`, once, and returns the directory's name. Concurrent callers are
/// safe: one places it, the others use it.
pub(crate) fn place(roots: &Path, files: &AgentFiles) -> io::Result<String> {
    let name = name(files);
    let dir = roots.join(&name);
    if dir.is_dir() {
        return Ok(name);
    }
    let own = tempfile::Builder::new().prefix(".placing-").tempdir_in(roots)?;
    // below the temporary directory, which only its owner may enter
    let new = own.path().join("layer");
    for (path, text) in files {
        let file = new.join(AGENT_DIR.trim_start_matches('/')).join(path);
        fs::create_dir_all(file.parent().unwrap_or(&new))?;
        fs::write(file, text)?;
    }
    match fs::rename(&new, &dir) {
        Err(_) if dir.is_dir() => Ok(name),
        placed => placed.map(|()| name),
    }
}

/// The files of a layer, or nothing if they do not match the layer's name.
pub(crate) fn read(roots: &Path, layer: &str) -> Option<AgentFiles> {
    let mut files = AgentFiles::new();
    let dir = is_here(roots, layer).then(|| roots.join(layer))?;
    list(&dir.join(AGENT_DIR.trim_start_matches('/')), "", &mut files).ok()?;
    files.sort();
    (name(&files) == layer).then_some(files)
}

fn list(dir: &Path, below: &str, files: &mut AgentFiles) -> io::Result<()> {
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
        let name = place(roots.path(), &own(stasis_agent::default())).expect("placed");
        assert_eq!(read(roots.path(), &name), Some(own(stasis_agent::default())));
        let (path, _) = stasis_agent::default().files()[0];
        let file = roots.path().join(&name).join("opt/stasis/agent").join(path);
        fs::write(file, "changed").expect("write");
        assert_eq!(read(roots.path(), &name), None);
        assert_eq!(layers("agent-1+host-2"), (Some("agent-1"), "host-2"));
        assert_eq!(layers("host-2"), (None, "host-2"));
    }

    #[test]
    fn placed_by_several_at_once() {
        let roots = tempfile::tempdir().expect("a directory");
        let files = own(stasis_agent::default());
        let start = std::sync::Barrier::new(8);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    let name = place(roots.path(), &files).expect("placed");
                    assert_eq!(read(roots.path(), &name).as_ref(), Some(&files));
                });
            }
        });
        let left = fs::read_dir(roots.path()).expect("list").count();
        assert_eq!(left, 1, "nothing but the agent is left");
    }

    /// An agent that reports its capabilities gets only those orders; an agent that does not is an
    /// old one.
    #[test]
    fn an_agent_is_asked_what_it_knows() {
        let known = |orders: &[&str]| AgentInfo {
            generation: 1,
            orders: orders.iter().map(|kind| (*kind).to_owned()).collect(),
        };
        assert!(known(&[]).knows(&Order::Vars) && AgentInfo::first().knows(&Order::Freeze));
        assert!(known(&["exec", "vars"]).knows(&Order::Vars));
        assert!(!known(&["exec", "vars"]).knows(&Order::Freeze));
    }

    #[test]
    fn paths_that_lead_elsewhere() {
        let one = |path: &str| vec![(path.to_owned(), String::new())];
        assert!(is_plain(&one("a/b.x")) && is_plain(&own(stasis_agent::default())));
        for path in ["", "/a", "../a", "a/../b", "a//b", "a\0b"] {
            assert!(!is_plain(&one(path)), "{path:?}");
        }
        let roots = tempfile::tempdir().expect("a directory");
        fs::create_dir(roots.path().join("agent-x")).expect("make");
        assert!(is_here(roots.path(), "agent-x"));
        assert!(!is_here(roots.path(), "agent-x/..") && !is_here(roots.path(), "agent-y"));
    }
}
