//! The base `host`, really built once, and what a build leaves behind.

mod support;

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use support::Place;

const TINY: &str = "name = \"tiny\"\nbase = \"host\"\n";

#[test]
fn a_root_of_the_host_runs_on_its_own_and_is_built_once() {
    let place = Place::new();
    // what a killed build and a killed removal have left
    for name in [".new-host-0", ".gone-host-1"] {
        fs::create_dir_all(place.roots().join(name).join("usr")).unwrap();
    }
    let root = place.build(TINY).unwrap();
    runs(&place, &root);
    is_a_copy(&root.path(&place.roots()));
    let mut names: Vec<_> =
        fs::read_dir(place.roots()).unwrap().map(|e| e.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, [".lock", &root.name, &format!("{}.json", root.name)]);

    let told = place.log.0.lock().unwrap().len();
    assert_eq!(place.build(TINY).unwrap(), root);
    assert_eq!(place.log.0.lock().unwrap().len(), told, "the second build does nothing");
    // another name, limits or warm-up need no other root
    let other = "name = \"other\"\nbase = \"host\"\nwarm_up = \"x = 1\"\n";
    assert!(place.build(&other.replace('_', "-")).unwrap().name == root.name);

    assert_eq!(stasis_template::list(&place.roots()).unwrap(), [root.clone()]);
    stasis_template::remove(&place.roots(), &root.name).unwrap();
    assert!(!root.path(&place.roots()).exists());
    let gone = stasis_template::inspect(&place.roots(), &root.name).unwrap_err();
    assert_eq!(gone.code(), "template.unknown");
}

fn runs(place: &Place, root: &stasis_template::Root) {
    let python = root.python.to_str().unwrap();
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

/// The default template takes minutes where packages have to be fetched: `STASIS_SOAK=1`.
#[test]
fn the_default_template_has_what_its_warm_up_imports() {
    if std::env::var_os("STASIS_SOAK").is_none() {
        return;
    }
    let place = Place::new();
    let recipe = stasis_template::Recipe::default_python();
    let start = std::time::Instant::now();
    let root = place.build_recipe(&recipe).unwrap();
    eprintln!("built in {:?}: {} files, {} bytes", start.elapsed(), root.files, root.bytes);
    eprintln!("{}", root.lock.join("\n"));
    let python = root.python.to_str().unwrap();
    let shown = "\nprint(len(sys.modules), threading.active_count())";
    let said = place.answer(&root, &[python, "-c", &format!("{}{shown}", recipe.warm_up)]);
    eprintln!("modules, threads: {said}");
    let fonts = root.path(&place.roots()).join("home/user/.config/matplotlib");
    let is_list = |name: &str| name.starts_with("fontlist-");
    let mut names = fs::read_dir(fonts).unwrap().map(|e| e.unwrap().file_name());
    assert!(names.any(|name| is_list(&name.to_string_lossy())));
    let again = Place::new();
    let start = std::time::Instant::now();
    let second = stasis_template::build_root(&recipe, &again.roots(), &place.cache(), &again.log);
    eprintln!("again in {:?}", start.elapsed());
    assert_eq!(second.unwrap().lock, root.lock);
}
