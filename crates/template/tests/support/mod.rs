//! Shared code of tests of whole roots: a directory to build in, and running programs in the
//! result.

use stasis_template::{Progress, Recipe, Root, build_root};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::SystemTime;

/// Keeps a build's output, and shows it with `--nocapture`.
#[derive(Default)]
pub struct Log(pub Mutex<Vec<String>>);

impl Log {
    fn push(&self, line: String) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        println!("{}.{} {line}", now.as_secs() % 1000, now.subsec_millis() / 100);
        self.0.lock().unwrap().push(line);
    }
}

impl Progress for Log {
    fn step(&self, name: &str, done: u64, total: Option<u64>) {
        if done == 0 || total == Some(done) {
            self.push(format!("step {name}"));
        }
    }
    fn say(&self, line: &str) {
        self.push(line.to_owned());
    }
}

pub struct Place {
    dir: tempfile::TempDir,
    pub log: Log,
}

impl Place {
    pub fn new() -> Place {
        Place { dir: tempfile::tempdir().unwrap(), log: Log::default() }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn roots(&self) -> PathBuf {
        self.path().join("roots")
    }

    /// Where downloads are kept; between runs where `STASIS_TEST_CACHE` says so.
    pub fn cache(&self) -> PathBuf {
        std::env::var_os("STASIS_TEST_CACHE").map_or(self.path().join("cache"), PathBuf::from)
    }

    pub fn build(&self, recipe: &str) -> stasis_template::Result<Root> {
        self.build_recipe(&Recipe::parse(recipe)?)
    }

    pub fn build_recipe(&self, recipe: &Recipe) -> stasis_template::Result<Root> {
        build_root(recipe, &self.roots(), &self.cache(), &self.log)
    }

    /// Runs a program in the root as the machine's user.
    pub fn run(&self, root: &Root, words: &[&str]) -> Output {
        let mut command = Command::new("chroot");
        command.arg(format!("--userspec={}:{}", root.uid, root.uid)).arg(root.path(&self.roots()));
        command.args(words).env_clear().envs(&root.env).output().unwrap()
    }

    /// The output of a program that succeeds.
    pub fn answer(&self, root: &Root, words: &[&str]) -> String {
        let output = self.run(root, words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{words:?}: {said}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }
}
