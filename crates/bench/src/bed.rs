//! The test bed of a run: its directory, its engine, and the check that nothing is left of it.

use super::measure;
use super::python::PythonProcess;
use super::setup::Places;
use stasis_command::failure::{CliFailure, PathContext, Result};
use stasis_engine::{Captured, Engine, EngineConfig, Image};
use std::cell::{Cell, OnceCell};
use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Between two runs: the kernel still tears down the namespaces of the last one.
const SETTLE: Duration = Duration::from_millis(20);

const DIR_PREFIX: &str = "stasis-bench-";

pub struct EngineBench {
    places: Places,
    dir: PathBuf,
    log: PathBuf,
    spawner: PathBuf,
    pub runs: usize,
    engine: OnceCell<Engine>,
    base: OnceCell<Captured>,
    large: OnceCell<Image>,
    next: Cell<u32>,
}

impl EngineBench {
    /// `parent` is where the run's own directory is made.
    pub fn make(places: Places, parent: &Path, runs: usize) -> Result<EngineBench> {
        remove_stale(parent);
        let dir = parent.join(format!("{DIR_PREFIX}{}", std::process::id()));
        fs::create_dir_all(&dir).at("make", &dir)?;
        let dir = dir.canonicalize().at("find", &dir)?;
        // a separate copy: a process that still runs it at the end was left behind by this run
        let spawner = dir.join("stasis-spawner");
        fs::copy(&places.spawner, &spawner).at("copy the spawner to", &spawner)?;
        Ok(EngineBench {
            log: dir.join("stderr.log"),
            places,
            dir,
            spawner,
            runs,
            engine: OnceCell::new(),
            base: OnceCell::new(),
            large: OnceCell::new(),
            next: Cell::new(0),
        })
    }

    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn log(&self) -> &Path {
        &self.log
    }

    pub fn root(&self) -> &Path {
        &self.places.root
    }

    pub fn root_name(&self) -> String {
        self.places.roots().1
    }

    pub fn python(&self) -> &Path {
        &self.places.python
    }

    /// The program's environment; a mark in it identifies the run.
    pub fn env(&self) -> Vec<String> {
        let mark = format!("STASIS_BENCH={}", self.dir.display());
        let fixed =
            ["PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", "PYTHONDONTWRITEBYTECODE=1"];
        fixed.map(String::from).into_iter().chain([mark]).collect()
    }

    /// The engine most measurements share.
    pub fn engine(&self) -> Result<&Engine> {
        if self.engine.get().is_none() {
            let engine = self.new_engine(&self.dir.join("store"))?;
            let _ = self.engine.set(engine);
        }
        Ok(self.engine.get().expect("was just set"))
    }

    /// An engine with an empty store of its own.
    pub fn new_engine(&self, dir: &Path) -> Result<Engine> {
        let config = EngineConfig {
            dir: dir.to_owned(),
            run_dir: dir.join("run"),
            roots: self.places.roots().0,
            spawner: self.spawner.clone(),
            lazy: Default::default(),
            walls: Default::default(),
            preparation: Default::default(),
        };
        Engine::start(config).map_err(|error| {
            CliFailure::from(error).hint("the engine needs root and Linux 6.7 or newer")
        })
    }

    /// A new directory.
    pub fn fresh_dir(&self, name: &str) -> PathBuf {
        self.next.set(self.next.get() + 1);
        self.dir.join(format!("{name}-{}", self.next.get()))
    }

    /// The image most measurements start from: the program, ready.
    pub fn base(&self) -> Result<&Captured> {
        if self.base.get().is_none() {
            let engine = self.engine()?;
            let python = PythonProcess::launch(self, engine)?;
            let captured = engine.capture(&python.tree)?;
            python.kill()?;
            let _ = self.base.set(captured);
        }
        Ok(self.base.get().expect("was just set"))
    }

    /// The image with a 1.5 GiB array.
    pub fn large(&self) -> Result<&Image> {
        if self.large.get().is_none() {
            let _ = self.large.set(measure::large_image(self)?);
        }
        Ok(self.large.get().expect("was just set"))
    }

    /// One parked template, that of the base image.
    pub fn park_base(&self) -> Result<()> {
        let engine = self.engine()?;
        engine.evict_all();
        engine.park(&self.base()?.image)?;
        Ok(())
    }

    pub fn settle(&self) {
        std::thread::sleep(SETTLE);
    }

    /// Ends everything, and reports processes that did not end.
    pub fn clear(self) -> Result<()> {
        drop(self.engine);
        let patience = Instant::now() + Duration::from_secs(5);
        let mut left = left_of(&self.dir);
        while !left.is_empty() && Instant::now() < patience {
            std::thread::sleep(Duration::from_millis(50));
            left = left_of(&self.dir);
        }
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        if mounts.contains(&*self.dir.to_string_lossy()) {
            left.push("a mount".into());
        }
        if !left.is_empty() {
            let message = format!("left behind in {}: {}", self.dir.display(), left.join(", "));
            return Err(CliFailure::new("bench.leftover", message));
        }
        fs::remove_dir_all(&self.dir).at("remove", &self.dir)
    }
}

/// Removes the remains of an interrupted run: its directory may hold gigabytes.
fn remove_stale(parent: &Path) {
    let runs = |pid: &str| Path::new("/proc").join(pid).exists();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(DIR_PREFIX));
        if pid.is_some_and(|pid| pid.parse::<u32>().is_ok() && !runs(pid)) {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

/// Processes that run this bed's spawner or have its mark.
fn left_of(dir: &Path) -> Vec<String> {
    let mark = format!("STASIS_BENCH={}", dir.display());
    let has_mark = |path: PathBuf| {
        let bytes = fs::read(path).unwrap_or_default();
        bytes.split(|byte| *byte == 0).any(|entry| entry == mark.as_bytes())
    };
    let numbered = |name: &str| name.bytes().all(|byte| byte.is_ascii_digit());
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    processes
        .filter(|entry| entry.file_name().to_str().is_some_and(numbered))
        .filter(|entry| {
            let exe = fs::read_link(entry.path().join("exe")).unwrap_or_default();
            exe.starts_with(dir) || has_mark(entry.path().join("environ"))
        })
        .map(|entry| format!("process {}", entry.file_name().to_string_lossy()))
        .collect()
}

/// Everything a store holds, by file and size.
pub struct StoreContents(HashMap<PathBuf, u64>);

impl StoreContents {
    pub fn look(engine: &Engine) -> StoreContents {
        let dirs = ["images", "packs"].map(|name| engine.store().dir().join(name));
        let entries = dirs.into_iter().flat_map(|dir| fs::read_dir(dir).into_iter().flatten());
        let files = entries.flatten().filter_map(|entry| {
            let size = entry.metadata().ok()?.len();
            Some((entry.path(), size))
        });
        StoreContents(files.collect())
    }

    pub fn bytes(&self) -> u64 {
        self.0.values().sum()
    }

    /// Resets a store: the next capture must not find pages of the last one.
    pub fn bring_back(&self, engine: &Engine, image: &Image) -> Result<()> {
        for path in StoreContents::look(engine).0.keys().filter(|path| !self.0.contains_key(*path))
        {
            fs::remove_file(path).at("remove", path)?;
        }
        engine.store().forget();
        for pack in &image.manifest.meta.packs {
            engine.store().pack(pack.root).map_err(stasis_engine::Error::from)?;
        }
        Ok(())
    }
}
