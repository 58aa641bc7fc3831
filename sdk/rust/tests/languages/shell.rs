//! Commands of pages, run in the order they stand in, each page on a host of its own.
//!
//!   sh, console blocks ─► page.sh ─► enter.sh: namespaces of mounts and network ─► what it says
//!
//! `sh` runs unchanged. In `console`, stand-ins come first on the path (standin.sh): for another
//! host, for systemd, for a registry of packages. Commands that cannot run are in [`NOT_RUN`], and
//! only there; an entry without a match is a failure.

use crate::packages::tool;
use crate::{JAVASCRIPT, PYTHON, WORK, output, root};
use libtest_mimic::Failed;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::LazyLock;
use tempfile::TempDir;

const SPAWNER: &str = "cargo build --release --bin stasis-spawner";
const YARDSTICKS: &str = "cargo run --release -p stasis-bench --bin stasis-yardsticks -- --quick";

/// A page, how commands of it begin that are not run, what is run in their place, and why.
const NOT_RUN: [[&str; 4]; 8] = [
    ["CONTRIBUTING.md", "make test", "make -n -C $REPOSITORY test >&2", "it runs this test"],
    ["CONTRIBUTING.md", "make setup", "make -n -C $REPOSITORY setup >&2", "all is set up here"],
    ["CONTRIBUTING.md", "make soak", "make -n -C $REPOSITORY soak >&2", "it takes hours"],
    ["CONTRIBUTING.md", SPAWNER, "test -d $REPOSITORY/crates/spawner", "it takes minutes"],
    ["CONTRIBUTING.md", YARDSTICKS, "test -d $REPOSITORY/crates/bench", "it takes minutes"],
    [
        "docs/guides/systemd.md",
        "podman build",
        "test -f $REPOSITORY/packaging/Containerfile",
        "there is no container engine; the tests of `make install` read the file",
    ],
    ["docs/guides/systemd.md", "podman run", ":", "there is no image"],
    ["docs/guides/systemd.md", "podman exec", "stasis doctor --help >&2", "nor a container"],
];

/// The prerequisites of a page.
const BEFORE: [(&str, &str); 1] = [(
    "docs/operating/upgrade.md",
    "sudo make install && sudo systemctl enable --now stasis
     sudo cat /var/lib/stasis/token | stasis login http://127.0.0.1:7717",
)];

const STAND_INS: [&str; 8] = ["sudo", "stasis", "make", "systemctl", "scp", "ssh", "pip", "npm"];

/// The programs in whose place pages find ours.
static STANDINS: LazyLock<PathBuf> = LazyLock::new(|| {
    let dir = WORK.path().join("standins");
    fs::create_dir(&dir).expect("a directory");
    for name in STAND_INS {
        let file = dir.join(name);
        fs::write(&file, include_str!("host/standin.sh")).expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o755)).expect("a program");
    }
    fs::write(dir.join("systemctl.py"), include_str!("host/systemctl.py")).expect("written");
    dir
});

/// Each entry of the lists is of a page that has it.
pub fn check_lists(pages: &[PathBuf]) -> Result<(), Failed> {
    let entries = NOT_RUN.map(|[page, command, ..]| (page, command)).into_iter();
    for (page, command) in entries.chain(BEFORE.map(|(page, _)| (page, ""))) {
        let path = root().join(page);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let has = crate::samples::program(&text, "console").lines().any(|l| l.starts_with(command));
        if !pages.contains(&path) || !has {
            return Err(format!("{page} has no `{command}` that could be left out").into());
        }
    }
    Ok(())
}

/// The output of a page's commands; each block has its kind.
pub fn run<'a>(
    page: &str,
    blocks: impl Iterator<Item = (&'a str, String)>,
) -> Result<String, Failed> {
    let before = BEFORE.iter().filter(|(of, _)| *of == page);
    let mut script: String = before.map(|(_, commands)| console(page, commands)).collect();
    for (kind, body) in blocks {
        script += &if kind == "console" { console(page, &body) } else { body };
    }
    // built and packed once, on first use
    if script.contains("pip install") {
        LazyLock::force(&PYTHON);
    }
    if script.contains("npm install") {
        LazyLock::force(&JAVASCRIPT);
    }
    Host::new(&script)?.run(&script)
}

/// A block with the stand-ins, and without what is not run.
fn console(page: &str, body: &str) -> String {
    let run = |line: &str| {
        let left_out = |[of, command, ..]: &&[&str; 4]| *of == page && line.starts_with(command);
        match NOT_RUN.iter().find(left_out) {
            Some([_, _, instead, reason]) => format!("{instead} # {reason}\n"),
            None => format!("{line}\n"),
        }
    };
    let lines: String = body.replace("\\\n", " ").lines().map(run).collect();
    // what says something without the end of a line is on a line of its own, as before a prompt
    format!("PATH=$STANDINS:$PLAIN_PATH\n{lines}echo\nPATH=$PLAIN_PATH\n")
}

/// The disk of a page's own host.
struct Host {
    dir: TempDir,
}

impl Host {
    /// The home has the template of the language that the commands name.
    fn new(script: &str) -> Result<Host, Failed> {
        let language =
            script.split("--language ").nth(1).and_then(|rest| rest.split_whitespace().next());
        let home = match language {
            Some(language) => stasis_testbed::data_dir_of(language),
            None => stasis_testbed::data_dir(),
        };
        let beside = home.path().parent().ok_or("a directory is somewhere")?;
        let dir = TempDir::with_prefix_in("host-", beside)?;
        for name in ["home/.local/share", "there/.local/share", "var-lib", "state"] {
            fs::create_dir_all(dir.path().join(name))?;
        }
        fs::rename(home.keep(), dir.path().join("home/.local/share/stasis"))?;
        for place in ["there/.local/share/stasis", "var-lib/stasis"] {
            fs::rename(stasis_testbed::data_dir().keep(), dir.path().join(place))?;
        }
        Ok(Host { dir })
    }

    fn run(&self, script: &str) -> Result<String, Failed> {
        let at = self.dir.path();
        fs::write(at.join("page.sh"), script)?;
        fs::write(at.join("enter.sh"), include_str!("host/enter.sh"))?;
        let bin = stasis_testbed::program();
        let bin = bin.parent().ok_or("a program has a directory")?;
        let rest = std::env::var("PATH").unwrap_or_default();
        let plain = format!("/usr/local/bin:{}:{rest}", bin.display());
        let mut command = Command::new("unshare");
        command.args(["--mount", "--net", "bash"]).arg(at.join("enter.sh")).env_clear();
        command.env("HOST", at).env("HOME", at.join("home")).current_dir(at.join("home"));
        command.env("BIN", bin).env("PATH", &plain).env("PLAIN_PATH", &plain);
        command.env("STANDINS", &*STANDINS).env("REPOSITORY", root()).env("WORK", WORK.path());
        command.env("PYTHON", tool("python/bin/python"));
        // a busy machine takes its time
        command.env("STASIS_TIMEOUT_SECONDS", "300");
        output(&mut command)
    }
}
