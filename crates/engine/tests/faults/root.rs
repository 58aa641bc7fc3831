//! A small root file system: a few test programs and the libraries they need.
//!
//! Of our own, so that a test may take a library away or alter it.

use stasis_sys::{files, libc};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The unaltered root; made once, brought up to date by every test process.
pub fn shared() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| {
        let base = Path::new(env!("CARGO_TARGET_TMPDIR")).join("faults");
        fs::create_dir_all(&base).expect("make a directory below target");
        let lock = File::create(base.join("lock")).expect("make a lock file");
        files::flock(lock.as_fd(), libc::LOCK_EX).expect("lock the root");
        let root = base.join("root");
        build(&base, &root);
        root
    })
}

/// A root of its own for a test, at `to`.
pub fn copy(to: &Path) {
    let status = Command::new("cp").arg("-a").arg(shared()).arg(to).status().expect("run cp");
    assert!(status.success(), "copy the root to {}", to.display());
}

fn build(base: &Path, root: &Path) {
    for name in ["proc", "dev", "sys", "tmp", "etc", "bin", "lib"] {
        fs::create_dir_all(root.join(name)).expect("make the root");
    }
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/programs");
    let built = base.join("built");
    fs::create_dir_all(&built).expect("make a directory");
    let library = built.join("libown.so");
    let made = compile(&sources.join("hostile/libown.c"), &library, &["-shared", "-fPIC"]);
    place(made, &library, &root.join("lib/libown.so"));
    let own = format!("-L{} -Wl,-rpath,/lib", built.display());
    for name in ["children", "files_offsets", "inode_numbers", "big_memory", "threads_futex"] {
        program(&sources.join(format!("c/{name}.c")), &built.join(name), root, &[]);
    }
    for entry in fs::read_dir(sources.join("hostile")).expect("list hostile programs") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or("").to_owned();
        let is_program = path.extension().is_some_and(|kind| kind == "c") && name != "libown";
        if is_program {
            let flags: Vec<&str> =
                if name == "library" { own.split(' ').chain(["-lown"]).collect() } else { vec![] };
            program(&path, &built.join(&name), root, &flags);
        }
    }
}

fn program(source: &Path, binary: &Path, root: &Path, flags: &[&str]) {
    let made = compile(source, binary, flags);
    let name = binary.file_name().expect("a program has a name");
    place(made, binary, &root.join("bin").join(name));
    for library in libraries(binary) {
        let target = root.join(library.strip_prefix("/").unwrap_or(&library));
        fs::create_dir_all(target.parent().expect("a library's directory")).expect("make it");
        place(false, &library, &target);
    }
}

/// Compiles if the source or a header is newer; whether it did.
fn compile(source: &Path, binary: &Path, flags: &[&str]) -> bool {
    let time = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified()).ok();
    let headers = source.parent().expect("a directory").join("../c");
    let mut newest = time(source);
    for entry in fs::read_dir(headers).expect("list headers").flatten() {
        if entry.path().extension().is_some_and(|kind| kind == "h") {
            newest = newest.max(time(&entry.path()));
        }
    }
    if time(binary) > newest {
        return false;
    }
    let mut command = Command::new("cc");
    command.args(["-O1", "-g", "-pthread", "-o"]).arg(binary).arg(source).args(flags);
    assert!(command.status().expect("run cc").success(), "compile {}", source.display());
    true
}

/// Copies a file unless it is there; by renaming, so that a machine that runs it keeps it.
fn place(anew: bool, from: &Path, to: &Path) {
    if to.exists() && !anew {
        return;
    }
    let new = to.with_extension("new");
    fs::copy(from, &new).and_then(|_| fs::rename(&new, to)).expect("copy a file into the root");
}

/// Libraries that the loader would load, by `ldd`, except for our own.
fn libraries(binary: &Path) -> Vec<PathBuf> {
    let output = Command::new("ldd").arg(binary).output().expect("run ldd");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.lines()
        .filter_map(|line| line.split_whitespace().find(|word| word.starts_with('/')))
        .filter(|path| !path.contains("libown"))
        .map(PathBuf::from)
        .collect()
}
