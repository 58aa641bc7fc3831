//! `make install`: everything where it belongs, and it runs from there.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    own.ancestors().nth(2).expect("the program is in the repository").to_owned()
}

/// The programs of this build; `cargo build --workspace` makes the spawner.
fn built() -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_stasis"));
    program.parent().expect("a program has a directory").to_owned()
}

fn make(goal: &str, prefix: &Path, destdir: Option<&Path>) -> Output {
    let mut command = Command::new("make");
    command.args(["-s", goal, "build=:"]).current_dir(root());
    command.arg(format!("built={}", built().display()));
    command.arg(format!("PREFIX={}", prefix.display()));
    command.arg(format!("unitdir={}/units", prefix.display()));
    command.args(destdir.map(|dir| format!("DESTDIR={}", dir.display())));
    // options of the `make` that runs the tests are not for this one
    let output = command.env_remove("MAKEFLAGS").env_remove("MAKELEVEL").output().expect("make");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path)
        .unwrap_or_else(|error| panic!("{}: {error}", path.display()))
        .permissions()
        .mode()
        & 0o777
}

#[test]
fn a_package_has_all_its_files_and_names_their_last_place() {
    let stage = tempfile::tempdir().expect("a directory");
    make("install", Path::new("/opt/stasis"), Some(stage.path()));
    let at = |name: &str| stage.path().join("opt/stasis").join(name);
    for name in ["stasis", "stasis-prepare", "stasis-spawner"] {
        assert_eq!(mode(&at("bin").join(name)), 0o755, "{name}");
    }
    assert_eq!(mode(&at("units/stasis.service")), 0o644);
    let unit = std::fs::read_to_string(at("units/stasis.service")).expect("a unit");
    assert!(unit.contains("ExecStart=/opt/stasis/bin/stasis serve\n"), "{unit}");
    assert!(!unit.contains("@docdir@") && !unit.contains("@bindir@/"), "{unit}");
    let shells = [
        "bash-completion/completions/stasis",
        "zsh/site-functions/_stasis",
        "fish/vendor_completions.d/stasis.fish",
    ];
    for name in shells.iter().map(|name| format!("share/{name}")) {
        let script = std::fs::read_to_string(at(&name)).expect("a script");
        let asks = script.contains("STASIS_COMPLETE") && !script.contains("target/");
        assert!(asks, "{name}: {script}");
    }
    let documents = |name: &str| std::fs::read_to_string(at("share/doc/stasis").join(name));
    for name in ["README.md", "docs/README.md", "docs/guides/systemd.md"] {
        let own = std::fs::read_to_string(root().join(name)).expect("a page");
        assert_eq!(documents(name).expect("it is installed"), own, "{name}");
    }
    assert!(documents("templates/python/recipe.toml").is_ok());
    make("uninstall", Path::new("/opt/stasis"), Some(stage.path()));
    assert!(!at("bin/stasis").exists() && !at("units/stasis.service").exists());
    assert!(!at("share/doc/stasis").exists());
}

#[test]
fn the_installation_runs_and_systemd_accepts_its_unit() {
    let prefix = tempfile::tempdir().expect("a directory");
    make("install", prefix.path(), None);
    let said = Command::new(prefix.path().join("bin/stasis")).arg("--version").output();
    let said = String::from_utf8_lossy(&said.expect("it runs").stdout).into_owned();
    assert_eq!(said, format!("stasis {}\n", env!("CARGO_PKG_VERSION")));
    let unit = prefix.path().join("units/stasis.service");
    match Command::new("systemd-analyze").arg("verify").arg(&unit).output() {
        Ok(output) => {
            let said = String::from_utf8_lossy(&output.stderr);
            // other units of the host may have their own faults
            let ours: Vec<&str> =
                said.lines().filter(|line| line.contains("stasis.service")).collect();
            assert!(ours.is_empty(), "{ours:?}");
        }
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound, "{error}"),
    }
    lines_are_settings(&std::fs::read_to_string(&unit).expect("a unit"));
}

/// Checks of a unit without systemd: sections, and settings that a machine must not inherit.
fn lines_are_settings(unit: &str) {
    let inherited =
        ["SystemCall", "Restrict", "Lock", "MemoryDeny", "PrivateDevices", "ProtectClock"];
    let mut sections = Vec::new();
    for line in unit.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        match line.split_once('=') {
            Some((key, _)) => {
                assert!(key.chars().all(char::is_alphabetic) && !sections.is_empty(), "{line}");
                assert!(!inherited.iter().any(|start| key.starts_with(start)), "{line}");
            }
            None => sections.push(line),
        }
    }
    assert_eq!(sections, ["[Unit]", "[Service]", "[Install]"]);
}

#[test]
fn the_containerfile_builds_on_what_is_there() {
    let text = std::fs::read_to_string(root().join("packaging/Containerfile")).expect("a file");
    let toolchain = std::fs::read_to_string(root().join("Cargo.toml")).expect("a manifest");
    let wanted = toolchain.lines().find_map(|line| line.strip_prefix("rust-version = \""));
    let wanted = wanted.expect("a version").trim_end_matches('"');
    assert!(text.contains(&format!("rust:{wanted}-bookworm AS build")), "not Rust {wanted}");
    let known = [
        "FROM",
        "WORKDIR",
        "COPY",
        "RUN",
        "ENV",
        "VOLUME",
        "EXPOSE",
        "STOPSIGNAL",
        "ENTRYPOINT",
        "CMD",
    ];
    let mut goes_on = false;
    for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let word = line.split(' ').next().unwrap_or_default();
        assert!(goes_on || known.contains(&word), "{line}");
        goes_on = line.ends_with('\\');
    }
    for setting in ["STASIS_DATA_DIR", "STASIS_LISTEN"] {
        assert!(text.contains(setting), "{setting}");
    }
}
