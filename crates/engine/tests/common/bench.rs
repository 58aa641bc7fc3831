//! An engine in a directory of its own, and what tests do with it.

use super::failure::Asked;
use super::program::{History, Talk};
use super::{Failure, Places, Program, Result, Spec, Watch};
use stasis_engine::{Engine, EngineConfig, Image, Lazy, OutsideFds, Preparation, WallsConfig};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use tempfile::TempDir;

pub struct Bench {
    /// `None` only while it is being restarted. Before `dir`, so that it ends first.
    engine: Option<Engine>,
    dir: TempDir,
    logs: AtomicU64,
    watch: Watch,
    walls: WallsConfig,
}

/// A captured program: the image, and what had been said by then.
#[derive(Clone)]
pub struct Saved {
    pub name: String,
    pub image: Image,
    pub history: History,
}

impl Bench {
    /// Without walls beside namespaces: its programs are root.
    pub fn start(watch: &Watch) -> Result<Bench> {
        Bench::start_with(watch, WallsConfig::namespaces_only())
    }

    pub fn start_with(watch: &Watch, walls: WallsConfig) -> Result<Bench> {
        // below target: a disk, where /tmp may be memory
        let dir = TempDir::with_prefix_in("bench-", env!("CARGO_TARGET_TMPDIR"));
        let dir = dir.map_err(Failure::setup)?;
        let engine = Some(start_engine(dir.path(), watch, Lazy::default(), walls.clone())?);
        Ok(Bench { engine, dir, logs: AtomicU64::new(0), watch: watch.clone(), walls })
    }

    pub fn engine(&self) -> &Engine {
        self.engine.as_ref().expect("an engine is missing only inside restart()")
    }

    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Whether its programs are without privileges.
    pub fn is_walled(&self) -> bool {
        self.walls.unprivileged
    }

    /// Ends the engine and starts another on the same directory.
    pub fn restart(&mut self) -> Result<()> {
        self.restart_with(Lazy::default())
    }

    /// The same, with an engine that fills memory on demand as told.
    pub fn restart_with(&mut self, lazy: Lazy) -> Result<()> {
        self.watch.doing("end the engine");
        self.engine = None;
        let walls = self.walls.clone();
        self.engine = Some(start_engine(self.dir.path(), &self.watch, lazy, walls)?);
        Ok(())
    }

    /// Starts a program and waits until it is ready.
    pub fn launch(&self, spec: &Spec) -> Result<Program> {
        self.watch.doing(format!("launch {}", spec.name));
        let (talk, fds) = self.talk()?;
        let outside = OutsideFds { fds, numbers: vec![0, 1, 2] };
        let tree = self
            .engine()
            .launch(&Places::get()?.roots().1, spec.launch_spec()?, outside)
            .asked("launch")?;
        let mut program = Program::new(&spec.name, tree, talk, Vec::new(), &self.watch);
        program.ready()?;
        Ok(program)
    }

    pub fn capture(&self, program: &Program) -> Result<Saved> {
        self.watch.doing(format!("capture {}", program.name));
        let captured = self.engine().capture(&program.tree).asked("capture")?;
        Ok(self.saved(program, captured.image))
    }

    /// Captures a program that ends with it.
    pub fn capture_last(&self, program: Program) -> Result<Saved> {
        self.watch.doing(format!("capture {} for the last time", program.name));
        let captured = self.engine().capture_last(&program.tree).asked("capture")?;
        let saved = self.saved(&program, captured.image);
        program.kill()?;
        Ok(saved)
    }

    fn saved(&self, program: &Program, image: Image) -> Saved {
        Saved { name: program.name.clone(), image, history: program.history.clone() }
    }

    pub fn restore(&self, saved: &Saved) -> Result<Program> {
        self.watch.doing(format!("restore {}", saved.name));
        let (talk, fds) = self.talk()?;
        let tree = self.engine().restore(&saved.image, fds).asked("restore")?;
        Ok(Program::new(&saved.name, tree, talk, saved.history.clone(), &self.watch))
    }

    pub fn park(&self, saved: &Saved) -> Result<()> {
        self.watch.doing(format!("park {}", saved.name));
        self.engine().park(&saved.image).asked("park")
    }

    /// Lets go of what a restore could find in memory: parked templates, open packs, cached pages.
    pub fn drop_caches(&self) -> Result<()> {
        self.engine().evict_all();
        self.engine().store().forget();
        for folder in ["images", "packs"] {
            drop_folder(&self.dir.path().join("store").join(folder)).map_err(Failure::setup)?;
        }
        Ok(())
    }

    /// The same image with all its pages in one pack of its own.
    pub fn flatten(&self, saved: &Saved) -> Result<Saved> {
        self.watch.doing(format!("flatten {}", saved.name));
        let image = self.engine().flatten(&saved.image).asked("flatten")?;
        Ok(Saved { image, ..saved.clone() })
    }

    /// Reads an image from the store again, as a new engine would.
    pub fn reread(&self, saved: &Saved) -> Result<Saved> {
        let image = self.engine().store().read_image(saved.image.id).asked("read the image")?;
        Ok(Saved { image, ..saved.clone() })
    }

    fn talk(&self) -> Result<(Talk, Vec<std::os::fd::OwnedFd>)> {
        let number = self.logs.fetch_add(1, Ordering::Relaxed);
        let log = self.dir.path().join(format!("stderr-{number}"));
        Talk::open(&log).map_err(Failure::setup)
    }
}

fn start_engine(dir: &Path, watch: &Watch, lazy: Lazy, walls: WallsConfig) -> Result<Engine> {
    let places = Places::get()?;
    watch.doing("start an engine");
    Engine::start(EngineConfig {
        dir: dir.join("store"),
        run_dir: dir.join("run"),
        roots: places.roots().0,
        spawner: places.spawner.clone(),
        lazy,
        walls,
        preparation: Preparation::Little,
    })
    .asked("start an engine")
}

fn drop_folder(folder: &Path) -> std::io::Result<()> {
    use std::os::fd::AsFd;
    for entry in std::fs::read_dir(folder)? {
        let file = std::fs::File::open(entry?.path())?;
        file.sync_all()?; // a dirty page is not dropped
        stasis_sys::memory::drop_cache(file.as_fd())?;
    }
    Ok(())
}
