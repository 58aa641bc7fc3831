//! Fixtures of machine tests: data directories with the default template.
//!
//!   target/tmp/seed-NAME ── built once, with a lock ──► hard links ──► a directory per test
//!
//! Building a template takes a minute, so all tests of all crates share its seed. A test's
//! directory has its own records and its own names of the shared, immutable files. Each built-in
//! template has its own seed, grown from that of the default template.

#![forbid(unsafe_code)]

pub mod collector;
pub mod outside;

use parking_lot::Mutex;
use stasis_api::{Chunk, Exec, Instruction, NewMachine, Stream};
use stasis_machine::{Host, KeySource, Machine, Preparation, Settings};
use stasis_sys::{files, libc};
use stasis_template::Recipe;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// `target/tmp`, and the directory with the binaries of this build.
fn places() -> (PathBuf, PathBuf) {
    let test = std::env::current_exe().expect("a test has a program");
    let profile = test.ancestors().find(|dir| dir.join("stasis-spawner").is_file());
    let profile = profile.expect("`cargo build --workspace` makes the spawner").to_owned();
    let tmp = profile.parent().expect("profiles are below target").join("tmp");
    (tmp, profile)
}

/// The spawner of this build.
pub fn spawner() -> PathBuf {
    places().1.join("stasis-spawner")
}

/// The `stasis` program of this build.
pub fn program() -> PathBuf {
    places().1.join("stasis")
}

/// A shared data directory with a template that is built in, and with the default one, which a
/// service would build at its start.
fn seed(template: &str) -> PathBuf {
    seed_with_digest(template).0
}

/// The same, and the digest of its default template.
fn seed_with_digest(template: &str) -> (PathBuf, String) {
    static BUILT: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());
    let default = Recipe::default_template();
    let base = (template != default.name).then(|| seed_with_digest(&default.name));
    let dir = places().0.join(format!("seed-{template}"));
    let mut built = BUILT.lock();
    if let Some(digest) = built.get(template) {
        return (dir, digest.clone());
    }
    let recipe = Recipe::built_in(template).expect("a template that is built in");
    let _lock = locked(&dir);
    if let Some((base, digest)) = base {
        regrow(&base, &digest, &dir);
    }
    let digest = plant(&dir, &[default, recipe]);
    built.insert(template.to_owned(), digest.clone());
    (dir, digest)
}

/// Grows a seed from that of the default template, unless it was grown from the current one: an
/// older default template no longer exists in the roots that both share.
fn regrow(base: &Path, digest: &str, dir: &Path) {
    let note = dir.join("grown-from");
    if fs::read_to_string(&note).is_ok_and(|known| known == digest) {
        return;
    }
    if dir.exists() {
        fs::remove_dir_all(dir).expect("remove an older seed");
    }
    grow(base, dir);
    fs::write(note, digest).expect("note what it was grown from");
}

/// Builds templates in a seed; the digest of the first.
fn plant(dir: &Path, recipes: &[Recipe]) -> String {
    let host = Host::open(Settings::new(dir.to_owned(), spawner())).expect("open the seed");
    let built = recipes.iter().map(|recipe| {
        host.build_template(recipe, &stasis_template::NoProgress).expect("build the template")
    });
    let digests: Vec<String> = built.map(|template| template.digest).collect();
    digests.into_iter().next().expect("there is a recipe")
}

fn locked(seed: &Path) -> File {
    fs::create_dir_all(places().0).expect("make the directory of seeds");
    let lock = File::create(seed.with_extension("lock")).expect("make a lock");
    files::flock(lock.as_fd(), libc::LOCK_EX).expect("lock the seed");
    lock
}

/// A data directory of a test's own, ready to be used.
pub fn data_dir() -> TempDir {
    data_dir_of(&Recipe::default_template().name)
}

/// The same, with another built-in template beside the default one.
pub fn data_dir_of(template: &str) -> TempDir {
    let seed = seed(template);
    let dir = TempDir::with_prefix_in("data-", places().0).expect("make a directory");
    grow(&seed, dir.path());
    dir
}

fn grow(seed: &Path, dir: &Path) {
    let _lock = locked(seed);
    for name in ["images", "packs"] {
        let own = dir.join("content").join(name);
        fs::create_dir_all(&own).expect("make a directory");
        for entry in fs::read_dir(seed.join("content").join(name)).expect("list the seed") {
            let entry = entry.expect("an entry");
            fs::hard_link(entry.path(), own.join(entry.file_name())).expect("link a file");
        }
    }
    let roots = seed.join("roots").canonicalize().expect("the seed has roots");
    std::os::unix::fs::symlink(roots, dir.join("roots")).expect("link");
    for entry in fs::read_dir(seed).expect("list the seed").flatten() {
        let name = entry.file_name();
        if name.to_string_lossy().starts_with("records.db") {
            fs::copy(entry.path(), dir.join(name)).expect("copy the records");
        }
    }
}

/// Against hangs only: longer than anything takes on a slow machine.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// Settings with which a test need not wait for anything, and an instruction may take its time.
pub fn settings(dir: &Path) -> Settings {
    let secret_key = KeySource::Default { file: Some(places().0.join("secret.key")) };
    let settings = Settings::new(dir.to_owned(), spawner());
    let preparation = Preparation::Little;
    Settings { timeout: Some(PATIENCE), secret_key, preparation, ..settings }
}

/// Opens a host where another may still be on its way out.
pub fn open(dir: &Path) -> Host {
    let patience = Instant::now() + PATIENCE;
    loop {
        match Host::open(settings(dir)) {
            Ok(host) => return host,
            Err(error) => assert!(Instant::now() < patience, "open a host: {error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Waits until something holds.
pub fn until(what: &str, holds: impl Fn() -> bool) {
    let patience = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < patience, "it never happened: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A host in a directory of its own.
pub struct TestHost {
    pub host: Arc<Host>,
    pub dir: TempDir,
}

impl TestHost {
    pub fn start() -> TestHost {
        TestHost::with(|_| {})
    }

    pub fn with(change: impl FnOnce(&mut Settings)) -> TestHost {
        let dir = data_dir();
        let mut settings = settings(dir.path());
        change(&mut settings);
        let host = Arc::new(Host::open(settings).expect("open a host"));
        TestHost { host, dir }
    }

    /// A host with another template that is built in, instead of the default one.
    pub fn of(template: &str) -> TestHost {
        let dir = data_dir_of(template);
        let host = Arc::new(Host::open(settings(dir.path())).expect("open a host"));
        TestHost { host, dir }
    }

    /// Ends the host as a crash would, as far as that can be done in one process, and opens it
    /// again.
    pub fn reopen(self) -> TestHost {
        let TestHost { host, dir } = self;
        drop(host);
        TestHost { host: Arc::new(open(dir.path())), dir }
    }

    pub fn machine(&self) -> Arc<Machine> {
        self.host.create("test", NewMachine::default()).expect("make a machine")
    }
}

/// Runs code to its end.
pub fn run(machine: &Arc<Machine>, code: &str) -> Instruction {
    exec(machine, Exec { code: code.to_owned(), ..Exec::default() })
}

pub fn exec(machine: &Arc<Machine>, exec: Exec) -> Instruction {
    let seq = machine.submit(exec).expect("submit");
    machine.wait(seq).expect("wait")
}

/// The value of an expression; a failure of the test, if it has none.
pub fn value(machine: &Arc<Machine>, code: &str) -> String {
    let end = run(machine, code);
    let outcome = end.outcome.unwrap_or_default();
    outcome.value.unwrap_or_else(|| panic!("{code}: {:?} {:?}", end.status, outcome.error))
}

/// The code of an instruction's error.
pub fn error_name(end: &Instruction) -> &str {
    let outcome = end.outcome.as_ref();
    outcome.and_then(|outcome| outcome.error.as_ref()).map_or("", |error| &error.name)
}

/// Lines of one stream, or of both.
pub fn lines(machine: &Arc<Machine>, seq: u64, stream: Option<Stream>) -> Vec<String> {
    let chunks = machine.outputs(seq, 0).expect("read output");
    let wanted = |chunk: &Chunk| stream.is_none_or(|stream| chunk.stream == stream);
    chunks.into_iter().filter(wanted).map(|chunk| chunk.data).collect()
}
