//! The common parts of every root: directories the engine mounts over, the machines' user, and the
//! environment the language's interpreter expects.

use crate::error::{ErrorContext, Result};
use crate::tree::RootTree;
pub use stasis_agent::environment::InterpreterKit;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// The user machines run as.
pub const USER: u32 = 1000;
pub const HOME: &str = "/home/user";
const LARGEST: u64 = 1 << 20;

const DIRS: [(&str, u32); 13] = [
    ("proc", 0o755),
    ("dev", 0o755),
    ("sys", 0o755),
    ("run", 0o755),
    ("root", 0o700),
    ("home", 0o755),
    ("etc", 0o755),
    ("opt", 0o755),
    ("usr/bin", 0o755),
    ("var/tmp", 0o1777),
    ("tmp", 0o1777),
    ("etc/stasis", 0o755),
    (".stasis", 0o755),
];

/// The parts of a base that later steps need.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct BaseLayout {
    /// A description: a version, a suite, a digest.
    pub base: String,
    /// The interpreter, a path inside.
    pub interpreter: PathBuf,
    pub env: BTreeMap<String, String>,
    /// The user of a container image.
    pub user: Option<String>,
}

/// The installed contents of a root.
#[derive(Debug, Clone, PartialEq)]
pub struct FilledRoot {
    /// The interpreter that machines start, a path inside, and its version.
    pub interpreter: PathBuf,
    pub version: String,
    /// The directory of packages inside.
    pub site: PathBuf,
    /// Installed packages, as `name==version`.
    pub lock: Vec<String>,
}

/// Adds the common parts to a base.
pub fn furnish(root: &Path, kit: &InterpreterKit) -> Result<()> {
    let doing = || "directories and users".to_owned();
    let tree = RootTree::open(root).doing(doing)?;
    for (path, mode) in DIRS {
        tree.make_dirs(Path::new(path), mode, 0).doing(|| path.to_owned())?;
    }
    for path in std::iter::once(&HOME).chain(kit.dirs) {
        tree.make_dirs(Path::new(path), 0o755, USER).doing(|| (*path).to_owned())?;
    }
    accounts(&tree).doing(doing)?;
    tree.write("etc/hosts", "127.0.0.1 localhost\n::1 localhost\n").doing(doing)?;
    // set here, because a machine whose files differ from its root's takes longer to wake
    let resolver = format!("nameserver {}\n", stasis_egress::RESOLVER);
    tree.write("etc/resolv.conf", resolver).doing(doing)
}

fn accounts(tree: &RootTree) -> std::io::Result<()> {
    let bash = tree.is_program(Path::new("/bin/bash"));
    let shell = if bash { "/bin/bash" } else { "/bin/sh" };
    let passwd = tree.read("etc/passwd", LARGEST)?;
    let group = tree.read("etc/group", LARGEST)?;
    tree.write("etc/passwd", with_users(&passwd, shell))?;
    tree.write("etc/group", with_groups(&group))
}

/// The table of users with `root`, `nobody` and ours; entries with our name or number are removed.
fn with_users(passwd: &str, shell: &str) -> String {
    let mut table = without(passwd, &["user"], USER);
    let rest = [
        ("root:", format!("root:x:0:0:root:/root:{shell}")),
        ("nobody:", "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin".to_owned()),
    ];
    add_missing(&mut table, &rest);
    table.push(format!("user:x:{USER}:{USER}:user:{HOME}:{shell}"));
    table.join("\n") + "\n"
}

fn with_groups(group: &str) -> String {
    let mut table = without(group, &["user"], USER);
    let rest = [("root:", "root:x:0:".to_owned()), ("nogroup:", "nogroup:x:65534:".to_owned())];
    add_missing(&mut table, &rest);
    table.push(format!("user:x:{USER}:"));
    table.join("\n") + "\n"
}

fn without(table: &str, names: &[&str], id: u32) -> Vec<String> {
    let is_other = |line: &&str| {
        let mut fields = line.split(':');
        let name = fields.next().unwrap_or_default();
        let number = fields.nth(1).unwrap_or_default();
        !line.trim().is_empty() && !names.contains(&name) && number != id.to_string()
    };
    table.lines().filter(is_other).map(str::to_owned).collect()
}

fn add_missing(table: &mut Vec<String>, lines: &[(&str, String)]) {
    for (start, line) in lines {
        if !table.iter().any(|other| other.starts_with(start)) {
            table.push(line.clone());
        }
    }
}

/// The environment of every machine: the base's, ours, the interpreter's, the recipe's; the later
/// wins.
pub fn environment(
    base: &BTreeMap<String, String>,
    kit: &InterpreterKit,
    recipe: &BTreeMap<String, String>,
) -> BTreeMap<String, String> {
    let usual = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    let path = base.get("PATH").map_or(usual, String::as_str);
    let ours = [
        ("HOME", HOME.to_owned()),
        ("USER", "user".to_owned()),
        ("LOGNAME", "user".to_owned()),
        ("PATH", format!("{}:{HOME}/.local/bin:{path}", kit.bin)),
        ("LANG", "C.UTF-8".to_owned()),
        ("TERM", "xterm-256color".to_owned()),
        ("TZ", "UTC".to_owned()),
    ];
    let ours = ours.map(|(key, value)| (key.to_owned(), value));
    let its = kit.env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    let both = recipe.iter().map(|(key, value)| (key.clone(), value.clone()));
    base.clone().into_iter().chain(ours).chain(its).chain(both).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_has_our_name_or_number_makes_room() {
        let old =
            "root:x:0:0:root:/root:/bin/sh\nnode:x:1000:1000::/srv/node:/bin/sh\nuser:x:7:7::/:";
        let new = with_users(old, "/bin/bash");
        let lines: Vec<_> = new.lines().collect();
        assert_eq!(lines[0], "root:x:0:0:root:/root:/bin/sh");
        assert!(lines[1].starts_with("nobody:x:65534:"));
        assert_eq!(lines[2], "user:x:1000:1000:user:/home/user:/bin/bash");
        assert_eq!(lines.len(), 3);
    }

    #[test]
    fn the_recipe_has_the_last_word_and_the_image_keeps_its_path() {
        let base = BTreeMap::from([("PATH".to_owned(), "/x/bin".to_owned())]);
        let recipe = BTreeMap::from([("TZ".to_owned(), "Europe/Rome".to_owned())]);
        let env = &[("TZ", "x"), ("A", "b")];
        let kit = InterpreterKit { dirs: &[], bin: "/opt/x/bin", env, build: &[] };
        let env = environment(&base, &kit, &recipe);
        assert_eq!(env["PATH"], "/opt/x/bin:/home/user/.local/bin:/x/bin");
        assert_eq!(env["A"], "b");
        assert_eq!(env["TZ"], "Europe/Rome");
    }
}
