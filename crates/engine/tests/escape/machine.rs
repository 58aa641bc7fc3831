//! Machines to ask, and what of the host they might reach for.

use crate::attempts::With;
use stasis_engine::{
    Engine, EngineConfig, Error, Image, LaunchSpec, OutsideFds, Preparation, Tree, WallsConfig,
};
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(120);

/// A machine, or the program on the host, and the line to it.
pub struct Machine {
    pub tree: Option<Tree>,
    stream: BufReader<UnixStream>,
    child: Option<Child>,
    /// Ends after its tree.
    _engine: Option<Arc<Engine>>,
}

impl Machine {
    /// Its answer, or what became of it.
    pub fn ask(&mut self, line: &str) -> String {
        let said = writeln!(self.stream.get_mut(), "{line}").and_then(|()| self.hear());
        said.unwrap_or_else(|error| format!("no answer: {error}"))
    }

    fn hear(&mut self) -> std::io::Result<String> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        Ok(line.trim_end().to_owned())
    }

    pub fn tree(&self) -> &Tree {
        self.tree.as_ref().expect("a machine")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Everything the attempts share.
pub struct Lab {
    dir: TempDir,
    walled: OnceLock<(Arc<Engine>, Mutex<[Machine; 2]>, Image)>,
    others: Mutex<HashMap<usize, Arc<Mutex<Machine>>>>,
    port: TcpListener,
    socket: (String, UnixListener),
}

impl Lab {
    pub fn open() -> Lab {
        // its contents are inherited by every process that is not kept from it
        stasis_sys::process::own_keyring().expect("a session keyring");
        let dir = TempDir::with_prefix_in("escape-", env!("CARGO_TARGET_TMPDIR")).expect("a dir");
        make_root(dir.path());
        let name = format!("stasis-escape-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = (name, UnixListener::bind_addr(&address).expect("listen"));
        let port = TcpListener::bind("127.0.0.1:0").expect("listen");
        Lab { dir, walled: OnceLock::new(), others: Mutex::default(), port, socket }
    }

    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    pub fn engine(&self, walls: WallsConfig) -> Arc<Engine> {
        static NEXT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let dir = self.dir.path().join(format!("engine-{number}"));
        let engine = Engine::start(EngineConfig {
            dir: dir.join("store"),
            run_dir: dir.join("run"),
            roots: self.dir.path().join("roots"),
            spawner: spawner(),
            lazy: Default::default(),
            walls,
            preparation: Preparation::Little,
        });
        Arc::new(engine.expect("start an engine"))
    }

    /// A launched machine behind all walls, and a copy of it.
    pub fn walled(&self) -> MutexGuard<'_, [Machine; 2]> {
        self.all_walls().1.lock().unwrap_or_else(|poison| poison.into_inner())
    }

    fn all_walls(&self) -> &(Arc<Engine>, Mutex<[Machine; 2]>, Image) {
        self.walled.get_or_init(|| {
            let engine = self.engine(WallsConfig::default());
            let launched = launch(&engine);
            let image = engine.capture(launched.tree()).expect("capture").image;
            engine.park(&image).expect("park");
            let restored = restore(&engine, &image);
            (engine, Mutex::new([launched, restored]), image)
        })
    }

    /// A machine without some walls.
    pub fn with_walls(&self, change: fn(&mut WallsConfig)) -> Arc<Mutex<Machine>> {
        let mut others = self.others.lock().unwrap_or_else(|poison| poison.into_inner());
        let make = || {
            let mut walls = WallsConfig::default();
            change(&mut walls);
            Arc::new(Mutex::new(launch(&self.engine(walls))))
        };
        others.entry(change as usize).or_insert_with(make).clone()
    }

    /// The same program with no wall at all.
    pub fn host(&self, user: u32) -> Machine {
        let (ours, theirs) = UnixStream::pair().expect("a socket");
        let output: OwnedFd = theirs.try_clone().expect("a copy").into();
        let child = Command::new(self.program("escape"))
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::from(output))
            .uid(user)
            .gid(user)
            .spawn();
        let mut machine = talk(ours);
        machine.child = Some(child.expect("start the program"));
        assert_eq!(machine.hear().expect("a word"), "ready");
        machine
    }

    fn program(&self, name: &str) -> PathBuf {
        self.dir.path().join("roots/escape/bin").join(name)
    }

    pub fn argument(&self, with: With) -> String {
        match with {
            With::Nothing => String::new(),
            With::Text(text) => text.to_owned(),
            With::HostFile => self.program("escape").to_string_lossy().into_owned(),
            With::OthersFile => self.others_file(),
            With::HostProcess => std::process::id().to_string(),
            With::OthersProcess => self.walled()[0].tree().pid().to_string(),
            With::Template => self.template().to_string(),
            With::HostPort => self.port.local_addr().expect("an address").port().to_string(),
            With::HostSocket => self.socket.0.clone(),
            // the same name inside and outside would need the host's root
            With::SetUserId => self.set_user_id(),
        }
    }

    /// Made where it has the same name for the host and for a machine.
    fn set_user_id(&self) -> String {
        let path = self.program("set-user-id");
        let inside = self.dir.path().join("roots/escape").join(path.strip_prefix("/").expect("/"));
        std::fs::create_dir_all(inside.parent().expect("a folder")).expect("make a folder");
        for place in [&path, &inside] {
            std::fs::copy(self.program("escape"), place).expect("copy");
            std::fs::set_permissions(place, PermissionsExt::from_mode(0o4755)).expect("mode");
        }
        path.to_string_lossy().into_owned()
    }

    /// A private file of the first machine, by its name on the host.
    fn others_file(&self) -> String {
        let said = self.walled()[0].ask("many_files 1");
        assert_eq!(said, "ok");
        let mut find = Command::new("find");
        find.arg(self.dir.path()).args(["-name", "escape-file-0"]);
        let found = find.output().expect("run find").stdout;
        let found = String::from_utf8(found).expect("names");
        found.lines().next().expect("the machine's file").to_owned()
    }

    /// A process of the engine's that holds the machine's memory.
    /// One of our own engines': those of others on this host come and go.
    fn template(&self) -> i32 {
        self.all_walls();
        let is_template = |pid: &i32| {
            let name = std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
            name.trim() == "stasis-template" && is_ours(*pid)
        };
        let entries = std::fs::read_dir("/proc").expect("/proc").flatten();
        let mut pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.find(is_template).expect("a template")
    }
}

fn is_ours(pid: i32) -> bool {
    let parent = |pid: i32| -> Option<i32> {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("PPid:")?.trim().parse().ok())
    };
    let own = std::process::id() as i32;
    std::iter::successors(Some(pid), |pid| parent(*pid)).any(|pid| pid == own)
}

pub fn launch(engine: &Arc<Engine>) -> Machine {
    launch_program(engine, "escape")
}

pub fn launch_program(engine: &Arc<Engine>, name: &str) -> Machine {
    start(engine, "escape", name).expect("launch")
}

/// The same program in another root file system.
pub fn launch_in(engine: &Arc<Engine>, root: &str) -> Result<Machine, Error> {
    start(engine, root, "escape")
}

fn start(engine: &Arc<Engine>, root: &str, name: &str) -> Result<Machine, Error> {
    let (ours, fds) = descriptors();
    let program = LaunchSpec {
        path: format!("/bin/{name}"),
        argv: vec![name.into()],
        cwd: "/tmp".into(),
        ..LaunchSpec::default()
    };
    let outside = OutsideFds { fds, numbers: vec![0, 1, 2] };
    let mut machine = talk(ours);
    machine.tree = Some(engine.launch(root, program, outside)?);
    machine._engine = Some(engine.clone());
    assert_eq!(machine.hear().expect("a word"), "ready");
    Ok(machine)
}

pub fn restore(engine: &Arc<Engine>, image: &Image) -> Machine {
    restore_here(engine, image).expect("restore")
}

pub fn restore_here(engine: &Arc<Engine>, image: &Image) -> Result<Machine, Error> {
    let (ours, fds) = descriptors();
    let mut machine = talk(ours);
    machine.tree = Some(engine.restore(image, fds)?);
    machine._engine = Some(engine.clone());
    Ok(machine)
}

fn talk(ours: UnixStream) -> Machine {
    ours.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    Machine { tree: None, stream: BufReader::new(ours), child: None, _engine: None }
}

pub fn descriptors() -> (UnixStream, Vec<OwnedFd>) {
    let (ours, theirs) = UnixStream::pair().expect("a socket");
    let copy = || theirs.try_clone().expect("a copy").into();
    let fds = vec![copy(), copy(), copy()];
    (ours, fds)
}

/// Another root file system with the program.
pub fn copy_root(lab: &Lab, name: &str) -> PathBuf {
    let root = lab.path().join("roots").join(name);
    for name in ["bin", "etc", "proc", "dev", "tmp"] {
        std::fs::create_dir_all(root.join(name)).expect("make a folder");
    }
    std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).expect("mode");
    std::fs::copy(lab.program("escape"), root.join("bin/escape")).expect("copy the program");
    root
}

/// A root file system with the program and little else.
fn make_root(dir: &Path) {
    let root = dir.join("roots/escape");
    for name in ["bin", "etc", "proc", "dev", "tmp"] {
        std::fs::create_dir_all(root.join(name)).expect("make a folder");
    }
    std::fs::set_permissions(root.join("tmp"), PermissionsExt::from_mode(0o1777)).expect("mode");
    std::fs::write(root.join("etc/roots"), "root's").expect("write");
    for program in ["escape", "during", "schedule"] {
        compile(program, &root.join("bin"));
    }
    // machines and other users come here by name
    for place in [dir.to_owned(), dir.join("roots"), root] {
        std::fs::set_permissions(place, PermissionsExt::from_mode(0o755)).expect("mode");
    }
}

fn compile(program: &str, into: &Path) {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/escape");
    let built = Command::new("cc")
        .args(["-O1", "-static", "-pthread", "-w", "-o"])
        .arg(into.join(program))
        .arg(sources.join(format!("{program}.c")))
        .status();
    assert!(built.expect("run cc").success(), "compile {program}.c");
}

/// Of the same build: tests are in `target/<profile>/deps`, programs one above.
fn spawner() -> PathBuf {
    let test = std::env::current_exe().expect("a test has a program file");
    let path = test.parent().and_then(Path::parent).expect("a folder").join("stasis-spawner");
    assert!(path.is_file(), "no {}: `cargo build -p stasis-spawner` makes it", path.display());
    path
}
