//! One run of a module: what its tests say on the way, through any number of copies.

use crate::common::{Bench, Failure, Places, Result, Watch};
use crate::modules::Module;
use stasis_engine::{LaunchSpec, OutsideFds, Tree};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Ok,
    Skip,
    Fail,
    /// Began, and was not heard of again.
    Begun,
    /// Of a module that is not there.
    Missing,
}

pub type Outcomes = BTreeMap<String, Outcome>;

/// The output so far, of all copies.
#[derive(Clone, Default)]
pub struct Heard(Arc<Mutex<(Outcomes, bool)>>);

impl Heard {
    fn lock(&self) -> MutexGuard<'_, (Outcomes, bool)> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn line(&self, line: &str) {
        let (word, test) = line.split_once(' ').unwrap_or((line, ""));
        let outcome = match word {
            "begin" => Outcome::Begun,
            "ok" => Outcome::Ok,
            "skip" => Outcome::Skip,
            "fail" => Outcome::Fail,
            "missing" => Outcome::Missing,
            _ => {
                self.lock().1 |= word == "done";
                return;
            }
        };
        self.lock().0.insert(test.to_owned(), outcome);
    }

    pub fn is_done(&self) -> bool {
        self.lock().1
    }

    pub fn outcomes(&self) -> Outcomes {
        self.lock().0.clone()
    }

    /// The test under way.
    pub fn current(&self) -> String {
        let (outcomes, _) = &*self.lock();
        let begun = outcomes.iter().find(|(_, outcome)| **outcome == Outcome::Begun);
        begun.map_or_else(|| "(none)".into(), |(test, _)| test.clone())
    }
}

/// A living copy, and the thread that hears it.
pub struct RunningCopy {
    pub tree: Tree,
    hearing: JoinHandle<()>,
}

impl RunningCopy {
    /// Ends it; afterwards all its output was read.
    pub fn end(self) -> Result<()> {
        let killed = self.tree.kill();
        killed.map_err(|error| Failure::Program(format!("kill: {error}")))?;
        self.hearing.join().map_err(|_| Failure::Program("the hearing thread panicked".into()))
    }
}

pub struct Stage {
    pub bench: Bench,
    pub heard: Heard,
    pub watch: Watch,
    pub begun: Instant,
}

impl Stage {
    pub fn open(watch: &Watch) -> Result<Stage> {
        let bench = Bench::start(watch)?;
        Ok(Stage { bench, heard: Heard::default(), watch: watch.clone(), begun: Instant::now() })
    }

    pub fn launch(&self, module: Module) -> Result<RunningCopy> {
        let places = Places::get()?;
        let text = |path: &std::path::Path| path.to_string_lossy().into_owned();
        let python = text(&places.python);
        let script = text(&places.sources.join("python/regrtest.py"));
        let test = format!("test.{}", module.name);
        let env = ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"];
        let program = LaunchSpec {
            path: python.clone(),
            argv: vec![python, script, test],
            env: env.map(str::to_owned).to_vec(),
            cwd: "/tmp".into(),
            ..LaunchSpec::default()
        };
        let (fds, ours) = self.descriptors()?;
        let outside = OutsideFds { fds, numbers: vec![0, 1, 2, 3] };
        let tree = self.bench.engine().launch(&places.roots().1, program, outside);
        let tree = tree.map_err(|error| Failure::Program(format!("launch: {error}")))?;
        Ok(self.hear(tree, ours))
    }

    pub fn hear(&self, tree: Tree, ours: UnixStream) -> RunningCopy {
        let heard = self.heard.clone();
        let hearing = std::thread::spawn(move || {
            let lines = BufReader::new(ours).split(b'\n');
            lines.map_while(|line| line.ok()).for_each(|line| {
                heard.line(&String::from_utf8_lossy(&line));
            });
        });
        RunningCopy { tree, hearing }
    }

    /// Descriptors of a copy, and our end of the one it reports on.
    pub fn descriptors(&self) -> Result<(Vec<OwnedFd>, UnixStream)> {
        let make = || -> std::io::Result<(Vec<OwnedFd>, UnixStream)> {
            let (ours, theirs) = UnixStream::pair()?;
            let (input, _) = std::io::pipe()?;
            let log = |name: &str| {
                File::options().create(true).append(true).open(self.bench.dir().join(name))
            };
            let fds =
                vec![input.into(), log("stdout")?.into(), log("stderr")?.into(), theirs.into()];
            Ok((fds, ours))
        };
        make().map_err(Failure::setup)
    }

    /// Waits until the tests are over, or for a while. The error is of a program that ended early.
    pub fn wait(&self, copy: &RunningCopy, longest: Duration) -> Result<bool> {
        const LOOK: Duration = Duration::from_millis(5);
        let end = Instant::now() + longest;
        self.watch.doing(format!("{}\n{}", self.heard.current(), self.complaints()));
        while !self.heard.is_done() {
            if !copy.tree.is_alive() {
                // what it said last may still be under way
                let patience = Instant::now() + Duration::from_secs(60);
                while !copy.hearing.is_finished() && Instant::now() < patience {
                    std::thread::sleep(LOOK);
                }
                let current = self.heard.current();
                return if self.heard.is_done() {
                    Ok(true)
                } else {
                    let text = format!("ended early, in {current}\n{}", self.complaints());
                    Err(Failure::Program(text))
                };
            }
            if Instant::now() > end {
                return Ok(false);
            }
            std::thread::sleep(LOOK);
        }
        Ok(true)
    }

    /// The end of what was written to standard error.
    pub fn complaints(&self) -> String {
        let text = std::fs::read(self.bench.dir().join("stderr")).unwrap_or_default();
        let from = text.len().saturating_sub(4000);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }
}

pub fn undisturbed(module: Module, watch: &Watch) -> Result<Outcomes> {
    let stage = Stage::open(watch)?;
    let copy = stage.launch(module)?;
    while !stage.wait(&copy, Duration::from_secs(1))? {}
    copy.end()?;
    Ok(stage.heard.outcomes())
}
