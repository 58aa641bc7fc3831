//! Builds that fetch packages or a distribution and take minutes: only with `STASIS_SOAK=1`.

mod support;

use std::fs;
use std::process::Command;
use support::Place;

fn is_asked_for() -> bool {
    std::env::var_os("STASIS_SOAK").is_some()
}

#[test]
fn the_default_template_has_what_its_warm_up_imports() {
    if !is_asked_for() {
        return;
    }
    let place = Place::new();
    let recipe = stasis_template::Recipe::default_template();
    let start = std::time::Instant::now();
    let root = place.build_recipe(&recipe).unwrap();
    eprintln!("built in {:?}: {} files, {} bytes", start.elapsed(), root.files, root.bytes);
    eprintln!("{}", root.lock.join("\n"));
    let python = root.interpreter.to_str().unwrap();
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

#[test]
fn debian_is_laid_out_and_takes_packages_of_both_kinds() {
    if !is_asked_for() {
        return;
    }
    let place = Place::new();
    let start = std::time::Instant::now();
    let text = "name = \"d\"\nbase = { debian = {} }\napt = [\"tree\"]\npackages = [\"numpy\"]\n";
    let root = place.build(text).unwrap_or_else(|e| panic!("{e}: {:?}", place.log.0));
    eprintln!("built in {:?}: {} files, {} bytes", start.elapsed(), root.files, root.bytes);
    let python = root.interpreter.to_str().unwrap();
    let said = place.answer(&root, &[python, "-c", "import numpy, ssl; print(numpy.arange(3))"]);
    assert_eq!(said, "[0 1 2]");
    place.answer(&root, &["tree", "--version"]);
    place.answer(&root, &["pip", "--version"]);
}

/// A root of the host, saved as a container image, makes a root again.
#[test]
fn an_image_in_an_archive_becomes_a_root() {
    if !is_asked_for() {
        return;
    }
    let place = Place::new();
    let first = place.build("name = \"a\"\nbase = \"host\"\n").unwrap();
    let image = place.path().join("image");
    fs::create_dir_all(image.join("one")).unwrap();
    let layer = image.join("one/layer.tar");
    let tar = |dir: &std::path::Path, to: &std::path::Path| {
        let status = Command::new("tar").arg("-C").arg(dir).arg("-cf").arg(to).arg(".").status();
        assert!(status.unwrap().success());
    };
    tar(&first.path(&place.roots()), &layer);
    let sum = Command::new("sha256sum").arg(&layer).output().unwrap().stdout;
    let id = String::from_utf8(sum).unwrap().split(' ').next().unwrap().to_owned();
    let config = format!(r#"{{"config": {{}}, "rootfs": {{"diff_ids": ["sha256:{id}"]}}}}"#);
    fs::write(image.join("config.json"), config).unwrap();
    let manifest = r#"[{"Config": "config.json", "Layers": ["one/layer.tar"]}]"#;
    fs::write(image.join("manifest.json"), manifest).unwrap();
    let archive = place.path().join("image.tar");
    tar(&image, &archive);
    let text = format!(
        "name = \"o\"\nbase = {{ oci = {{ archive = {archive:?} }} }}\npackages = [\"tabulate\"]\n"
    );
    let root = place.build(&text).unwrap_or_else(|e| panic!("{e}: {:?}", place.log.0));
    let python = root.interpreter.to_str().unwrap();
    let said = place.answer(&root, &[python, "-c", "import tabulate, ssl, sys; print(sys.prefix)"]);
    assert_eq!(said, "/opt/venv");
    assert!(root.lock.iter().any(|line| line.starts_with("tabulate==")), "{:?}", root.lock);
}
