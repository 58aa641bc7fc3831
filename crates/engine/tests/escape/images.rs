//! Root file systems and images that name something of the host or of the machine's init.
//!
//! The code that builds a machine has rights that its programs lack. Each of these images would
//! have used them; each is refused by name, and nothing of the host has changed.

use crate::attempts::With;
use crate::machine::{Lab, copy_root, launch, launch_in, restore_here};
use libtest_mimic::{Failed, Trial};
use stasis_engine::{Error, Image, WallsConfig};
use stasis_image::model::{
    Fd, FileEntry, FileEntryKind, Manifest, Object, ObjectKind, ProcessPages, ProcessState,
};
use stasis_spawner::UNUSED_CAPABILITIES;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};
use std::time::Duration;

/// Against hangs.
const LONG: Duration = Duration::from_secs(60);

type Test = fn(&Lab) -> Result<(), Failed>;

pub fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let tests: [(&str, Test); 7] = [
        ("a_root_with_a_link_for_shared_memory", root_with_links),
        ("an_image_with_a_link_for_shared_memory", image_with_links),
        ("an_image_that_opens_the_memory_of_init", memory_of_init),
        ("an_image_that_opens_a_pipe_nobody_writes", silent_pipe),
        ("an_image_with_a_long_line_of_processes", long_line),
        ("init_holds_nothing_of_the_spawner", held_by_init),
        ("the_spawner_and_templates_have_few_capabilities", few_capabilities),
    ];
    let trial = |(name, run): (&str, Test)| {
        let lab = lab.clone();
        Trial::test(format!("images::{name}"), move || run(&lab))
    };
    tests.map(trial).into_iter().collect()
}

/// A directory of the host with something in it, and its mode.
fn outside(lab: &Lab) -> std::io::Result<PathBuf> {
    let dir = lab.path().join("outside");
    std::fs::create_dir_all(&dir)?;
    std::fs::write(dir.join("canary"), "the host's")?;
    std::fs::set_permissions(&dir, PermissionsExt::from_mode(0o755))?;
    Ok(dir)
}

fn unchanged(dir: &Path) -> Result<(), Failed> {
    let mode = dir.metadata()?.permissions().mode() & 0o7777;
    if mode == 0o755 { Ok(()) } else { Err(format!("the host's directory has {mode:o}").into()) }
}

fn expect(what: &str, error: Option<Error>, name: &str) -> Result<(), Failed> {
    match error {
        Some(error) if error.to_string().contains(name) => Ok(()),
        Some(error) => Err(format!("{what}: `{error}` does not name {name}").into()),
        None => Err(format!("{what} was built").into()),
    }
}

/// With the host's own ids too: there the init owns what the link leads to.
fn root_with_links(lab: &Lab) -> Result<(), Failed> {
    let outside = outside(lab)?;
    let relative = PathBuf::from("../../../../../..").join(outside.strip_prefix("/")?);
    for (index, target) in [&outside, &relative].into_iter().enumerate() {
        for (place, link) in [("shm", ".stasis/shm"), ("shm", ".stasis"), ("proc", "proc")] {
            let name = format!("links-{index}-{}", link.replace(['/', '.'], "_"));
            let root = copy_root(lab, &name);
            let at = root.join(link);
            let _ = std::fs::remove_dir(&at);
            std::fs::create_dir_all(at.parent().expect("a folder"))?;
            symlink(target, &at)?;
            for ids in [None, WallsConfig::default().ids] {
                let engine = lab.engine(WallsConfig { ids, ..WallsConfig::default() });
                let launched = launch_in(&engine, &name);
                expect(&format!("{link} to {}", target.display()), launched.err(), place)?;
                unchanged(&outside)?;
            }
        }
    }
    Ok(())
}

fn altered(lab: &Lab, ids: bool, change: impl Fn(&mut Manifest)) -> Result<Option<Error>, Failed> {
    let mut walls = WallsConfig::default();
    walls.ids = walls.ids.filter(|_| ids);
    let engine = lab.engine(walls);
    let machine = launch(&engine);
    let image = engine.capture(machine.tree())?.image;
    let mut manifest = (*image.manifest).clone();
    change(&mut manifest);
    let image: Image = engine.store().write_image(manifest)?;
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || tell.send(restore_here(&engine, &image).err()));
    told.recv_timeout(LONG).map_err(|_| "the restore hangs".into())
}

fn is_at_or_below(path: &[u8], dir: &str) -> bool {
    path.strip_prefix(dir.as_bytes()).is_some_and(|rest| rest.is_empty() || rest[0] == b'/')
}

fn add_file(manifest: &mut Manifest, path: &str, kind: FileEntryKind) {
    let entry = FileEntry {
        path: path.into(),
        mode: 0o755,
        uid: 0,
        gid: 0,
        mtime_s: 0,
        mtime_ns: 0,
        xattrs: Vec::new(),
        kind,
    };
    manifest.files.entries.retain(|old| !is_at_or_below(&old.path, path));
    manifest.files.entries.push(entry);
}

fn image_with_links(lab: &Lab) -> Result<(), Failed> {
    let outside = outside(lab)?;
    let target = outside.to_string_lossy().into_owned();
    for ids in [false, true] {
        let error = altered(lab, ids, |manifest| {
            add_file(manifest, ".stasis", FileEntryKind::Directory);
            add_file(
                manifest,
                ".stasis/shm",
                FileEntryKind::Symlink { target: target.clone().into() },
            );
        })?;
        expect("an image's link", error, "shm")?;
        unchanged(&outside)?;
    }
    Ok(())
}

fn open_also(manifest: &mut Manifest, path: &str, flags: i32) {
    let kind = ObjectKind::File { path: path.into(), offset: 0, locks: Vec::new() };
    manifest.objects.push(Object { flags: flags as u32, owner: None, kind });
    let object = manifest.objects.len() as u32 - 1;
    if let ProcessState::Live(live) = &mut manifest.processes[0].state {
        live.fds.push(Fd { number: 77, object, close_on_exec: false });
    }
}

fn memory_of_init(lab: &Lab) -> Result<(), Failed> {
    for path in ["/proc/1/mem", "/proc/self/mem", "/proc/thread-self/mem", "/proc/1/environ"] {
        let error = altered(lab, true, |manifest| open_also(manifest, path, 2))?;
        expect(path, error, "init")?;
    }
    Ok(())
}

fn silent_pipe(lab: &Lab) -> Result<(), Failed> {
    let error = altered(lab, true, |manifest| {
        add_file(manifest, "silent", FileEntryKind::Fifo);
        open_also(manifest, "/silent", 0);
    })?;
    expect("a FIFO as a file", error, "FIFO")
}

/// Each process is the parent of the next. However many there are, the engine's stack holds them.
fn long_line(lab: &Lab) -> Result<(), Failed> {
    const FIRST: i32 = 1000;
    const COUNT: i32 = 4000;
    let error = altered(lab, true, |manifest| {
        let (first, memory) = (manifest.processes[0].clone(), manifest.memory[0].clone());
        for pid in FIRST..FIRST + COUNT {
            let mut next = first.clone();
            (next.pid, next.ppid) = (pid, if pid == FIRST { first.pid } else { pid - 1 });
            if let ProcessState::Live(live) = &mut next.state {
                live.threads.truncate(1);
                live.threads[0].tid = pid;
            }
            manifest.processes.push(next);
            manifest.memory.push(ProcessPages { pid, ..memory.clone() });
        }
    })?;
    expect("a line of processes", error, "more threads or mappings")
}

/// Its connection to the engine and the device that makes interfaces, beside the three of every
/// process. An attacker who took over the init would have them.
fn held_by_init(lab: &Lab) -> Result<(), Failed> {
    let machine = launch(&lab.engine(WallsConfig::default()));
    let status = std::fs::read_to_string(format!("/proc/{}/status", machine.tree().pid()))?;
    let init = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("").trim();
    let mut held = Vec::new();
    for entry in std::fs::read_dir(format!("/proc/{init}/fd"))?.flatten() {
        held.push((entry.file_name(), std::fs::read_link(entry.path()).unwrap_or_default()));
    }
    let sockets = held.iter().filter(|(_, to)| to.to_string_lossy().starts_with("socket:"));
    if held.len() == 5 && sockets.count() == 1 {
        return Ok(());
    }
    Err(format!("the init holds {held:?}").into())
}

/// Of the spawner, and of what it made and holds an image's memory.
fn few_capabilities(lab: &Lab) -> Result<(), Failed> {
    let template = lab.argument(With::Template);
    let status = std::fs::read_to_string(format!("/proc/{template}/status"))?;
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap_or("").trim();
    for pid in [template.as_str(), parent] {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
        for set in ["CapPrm:", "CapEff:", "CapBnd:"] {
            let line = status.lines().find_map(|line| line.strip_prefix(set)).unwrap_or("");
            let held = u64::from_str_radix(line.trim(), 16)?;
            let unused = UNUSED_CAPABILITIES.iter().filter(|number| held >> **number & 1 == 1);
            let unused: Vec<&u32> = unused.collect();
            if held == 0 || !unused.is_empty() {
                return Err(format!("process {pid} has {set} {held:x}: {unused:?}").into());
            }
        }
    }
    Ok(())
}
