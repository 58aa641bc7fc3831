//! An engine in a directory of its own, and programs to talk to.

use crate::root;
use stasis_engine::{Engine, EngineConfig, Image, LaunchSpec, Lazy, OutsideFds, Result, Tree};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The longest an answer may take.
const PATIENCE: Duration = Duration::from_secs(120);

pub struct Bench {
    pub engine: Engine,
    dir: PathBuf,
    root_name: String,
    /// `None` if another process owns the directory.
    _owned: Option<TempDir>,
}

impl Bench {
    pub fn start() -> Bench {
        let dir = temp_dir();
        let mut bench = Bench::at(dir.path(), root::shared());
        bench._owned = Some(dir);
        bench
    }

    pub fn at(dir: &Path, root: &Path) -> Bench {
        let engine = start_engine(dir, root).expect("start an engine");
        let root_name = root.file_name().expect("a name").to_string_lossy().into_owned();
        Bench { engine, dir: dir.to_owned(), root_name, _owned: None }
    }

    pub fn store(&self) -> PathBuf {
        self.dir.join("store")
    }

    /// Names of files that are being written.
    pub fn unfinished(&self) -> Vec<String> {
        names(&self.store().join("tmp"))
    }

    pub fn launch(&self, program: &str) -> Program {
        self.try_launch(&[program]).expect("launch")
    }

    pub fn try_launch(&self, words: &[&str]) -> Result<Program> {
        self.start_program(words, talk())
    }

    /// With a standard error of the caller's choice.
    pub fn try_launch_with(&self, words: &[&str], errors: OwnedFd) -> Result<Program> {
        let (stream, mut fds) = talk();
        fds[2] = errors;
        self.start_program(words, (stream, fds))
    }

    fn start_program(
        &self,
        words: &[&str],
        (stream, fds): (UnixStream, Vec<OwnedFd>),
    ) -> Result<Program> {
        let path = format!("/bin/{}", words[0]);
        let argv = words.iter().map(|word| (*word).to_owned()).collect();
        let env = vec!["PATH=/bin".to_owned()];
        let spec = LaunchSpec { path, argv, env, cwd: "/tmp".into(), ..LaunchSpec::default() };
        let outside = OutsideFds { fds, numbers: vec![0, 1, 2] };
        let tree = self.engine.launch(&self.root_name, spec, outside)?;
        let mut program = Program { tree, stream };
        assert_eq!(program.hear(), "ready", "{words:?} at its start");
        Ok(program)
    }

    pub fn restore(&self, image: &Image) -> Result<Program> {
        let (stream, fds) = talk();
        let tree = self.engine.restore(image, fds)?;
        Ok(Program { tree, stream })
    }

    /// A restore that must be refused; the error.
    pub fn refused(&self, image: &Image) -> stasis_engine::Error {
        match self.restore(image) {
            Ok(_) => panic!("an image that must be refused was restored"),
            Err(error) => error,
        }
    }

    /// Lets go of everything a restore could find without reading files.
    pub fn forget(&self) {
        self.engine.evict_all();
        self.engine.store().forget();
    }

    /// Captures, restores from disk, and sees that the copy is as the source is.
    pub fn proves_capture(&self, source: &mut Program) -> Image {
        let image = self.engine.capture(&source.tree).expect("capture").image;
        let image = self.engine.store().read_image(image.id).expect("read the image");
        let mut copy = self.restore(&image).expect("restore");
        copy.check();
        source.check();
        assert_eq!(copy.ask("digest"), source.ask("digest"), "the copy differs from its source");
        copy.tree.kill().expect("kill");
        image
    }
}

pub fn temp_dir() -> TempDir {
    let base = Path::new(env!("CARGO_TARGET_TMPDIR"));
    TempDir::with_prefix_in("fault-", base).expect("make a directory below target")
}

pub fn start_engine(dir: &Path, root: &Path) -> Result<Engine> {
    Engine::start(EngineConfig {
        dir: dir.join("store"),
        run_dir: dir.join("run"),
        roots: root.parent().expect("a directory").to_owned(),
        spawner: spawner(),
        lazy: Lazy::default(),
        walls: stasis_engine::WallsConfig::namespaces_only(),
        preparation: stasis_engine::Preparation::Little,
    })
}

/// Of the same build: tests are in `target/<profile>/deps`, programs one above.
fn spawner() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program file");
    let profile = test.parent().and_then(Path::parent).expect("target/<profile>");
    let path = profile.join("stasis-spawner");
    assert!(path.is_file(), "no {}: `cargo build -p stasis-spawner` makes it", path.display());
    path
}

pub fn names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("list a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn talk() -> (UnixStream, Vec<OwnedFd>) {
    let (ours, theirs) = UnixStream::pair().expect("make a socket");
    let errors = File::options().append(true).open("/proc/self/fd/2");
    let errors = errors.or_else(|_| File::create("/dev/null")).expect("standard error");
    ours.set_read_timeout(Some(PATIENCE)).expect("set a timeout");
    let copy = theirs.try_clone().expect("copy a descriptor");
    (ours, vec![copy.into(), theirs.into(), errors.into()])
}

pub struct Program {
    pub tree: Tree,
    pub stream: UnixStream,
}

impl Program {
    /// The next line; panics when none comes.
    pub fn hear(&mut self) -> String {
        self.try_hear().unwrap_or_else(|error| panic!("no answer: {error}"))
    }

    pub fn try_hear(&mut self) -> std::io::Result<String> {
        let mut line = Vec::new();
        let mut byte = [0];
        loop {
            self.stream.read_exact(&mut byte)?;
            if byte[0] == b'\n' {
                return Ok(String::from_utf8_lossy(&line).into_owned());
            }
            line.push(byte[0]);
        }
    }

    pub fn ask(&mut self, line: &str) -> String {
        self.stream.write_all(format!("{line}\n").as_bytes()).expect("ask a program");
        self.hear()
    }

    /// Host pids of the tree's processes that have not ended.
    pub fn living(&self) -> Vec<i32> {
        let mut all = self.tree.processes().expect("list processes");
        all.retain(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit_once(") ").is_some_and(|(_, after)| !after.starts_with(['Z', 'X']))
        });
        all.sort_unstable();
        all
    }

    #[track_caller]
    pub fn check(&mut self) {
        assert_eq!(self.ask("check"), "ok");
    }

    pub fn step(&mut self) {
        assert_eq!(self.ask("step"), "stepped");
    }
}
