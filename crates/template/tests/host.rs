//! The base `host`, really built once, and what a build leaves behind.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::Place;

/// Its code tries what code during a build must not be able to do, and leaves a process behind.
const TINY: &str = r#"
name = "tiny"
base = "host"
prepare = """
import os, socket, time
assert (os.getuid(), os.getpid(), os.getgroups()) == (1000, 1, []), os.getgroups()
assert [name for _, name in socket.if_nameindex()] == ["lo"]
assert [name for name in os.listdir("/proc") if name.isdigit()] == ["1"]
for path in ["/etc/x", "/usr/bin/x", "/x", "/dev/x"]:
    try:
        open(path, "w")
    except OSError:
        continue
    raise SystemExit(path)
open("/home/user/made", "w").close()
if os.fork() == 0:
    time.sleep(100000)
"""
"#;

/// Its code writes in an order that differs from run to run, if it may.
const ORDER: &str = r#"
name = "order"
base = "host"
prepare = """
open("/home/user/order", "w").write(repr({str(number) for number in range(50)}))
"""
"#;

#[test]
fn the_same_recipe_makes_the_same_root_again() {
    let [one, other] = [(); 2].map(|()| Place::new().build(ORDER).unwrap());
    assert_eq!(one.digest, other.digest);
}

#[test]
fn a_root_of_the_host_runs_on_its_own_and_is_built_once() {
    let place = Place::new();
    // what a killed build and a killed removal have left
    for name in [".new-host-0", ".gone-host-1"] {
        fs::create_dir_all(place.roots().join(name).join("usr")).unwrap();
    }
    // what an earlier build downloaded
    fs::create_dir_all(place.cache().join("packages/wheels")).unwrap();
    // two at once: one builds, the other waits
    let root = std::thread::scope(|scope| {
        let other = scope.spawn(|| place.build(TINY).unwrap());
        let root = place.build(TINY).unwrap();
        assert_eq!(other.join().unwrap(), root);
        root
    });
    let log = place.log.0.lock().unwrap().clone();
    assert_eq!(log.iter().filter(|line| *line == "step seal").count(), 1, "{log:?}");
    assert!(root.path(&place.roots()).join("home/user/made").exists());
    runs(&place, &root);
    is_a_copy(&root.path(&place.roots()));
    let mut names: Vec<_> =
        fs::read_dir(place.roots()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", &root.name, &format!("{}.json", root.name)]);

    assert!(!place.cache().join("packages").exists(), "downloads go once the root is built");

    let told = place.log.0.lock().unwrap().len();
    assert_eq!(place.build(TINY).unwrap(), root);
    assert_eq!(place.log.0.lock().unwrap().len(), told, "the second build does nothing");
    // another name, limits or warm-up need no other root
    let other = TINY.replace("tiny", "other") + "warm-up = \"x = 1\"\n[limits]\npids = 9\n";
    assert_eq!(place.build(&other).unwrap().name, root.name);

    let listed = stasis_template::list(&place.roots()).unwrap();
    assert_eq!(listed, std::slice::from_ref(&root));
    stasis_template::remove(&place.roots(), &root.name).unwrap();
    assert!(!root.path(&place.roots()).exists());
    let gone = stasis_template::inspect(&place.roots(), &root.name).unwrap_err();
    assert_eq!(gone.code(), "template.unknown");
}

#[test]
fn a_build_that_fails_says_why_and_leaves_nothing() {
    let place = Place::new();
    let bad = "name = \"bad\"\nbase = \"host\"\nprepare = \"import no_such_module\"\n";
    let error = place.build(bad).unwrap_err();
    assert_eq!(error.code(), "template.prepare");
    assert!(error.to_string().contains("no_such_module"), "{error}");
    let names: Vec<_> =
        fs::read_dir(place.roots()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(names, [".lock"]);
    let none = "name = \"none\"\nbase = \"host\"\npython = \"3.99\"\n";
    assert_eq!(place.build(none).unwrap_err().code(), "template.base");
}

fn runs(place: &Place, root: &stasis_template::Root) {
    let python = root.interpreter.to_str().unwrap();
    let modules =
        "import ssl, sqlite3, ctypes, lzma, bz2, readline, zoneinfo, curses, sys, socket;";
    let question = "print(zoneinfo.ZoneInfo('Europe/Rome'), sys.prefix, sys.flags.utf8_mode);\
        import getpass, os; print(getpass.getuser(), os.path.expanduser('~'))";
    let said = place.answer(root, &[python, "-c", &format!("{modules}{question}")]);
    assert_eq!(said, "Europe/Rome /opt/venv 0\nuser /home/user");
    let shell = "set -e; cd ~; echo a b | awk '{print $2}' > x; grep -c b x; sed s/b/c/ x; rm x";
    assert_eq!(place.answer(root, &["bash", "-c", shell]), "1\nc");
    assert_eq!(place.answer(root, &["sh", "-c", "ls -d /tmp /proc | tr '\\n' ' '"]), "/proc /tmp");
    assert!(place.answer(root, &["pip", "--version"]).contains("/opt/venv"));
    assert!(root.lock.iter().any(|line| line.starts_with("pip==")), "{:?}", root.lock);
}

/// No file of the host is shared, and what is the user's is the user's.
fn is_a_copy(path: &Path) {
    let real = fs::canonicalize(path.join("usr/bin/bash")).unwrap();
    assert!(real.starts_with(path));
    let (inside, outside) = (fs::metadata(&real).unwrap(), fs::metadata("/bin/bash").unwrap());
    assert_ne!((inside.dev(), inside.ino()), (outside.dev(), outside.ino()));
    assert_eq!((inside.uid(), inside.mode() & 0o7777), (0, 0o755));
    for name in ["home/user", "opt/venv", "opt/venv/bin"] {
        assert_eq!(fs::metadata(path.join(name)).unwrap().uid(), 1000, "{name}");
    }
    assert_eq!(fs::metadata(path.join("tmp")).unwrap().mode() & 0o7777, 0o1777);
}
