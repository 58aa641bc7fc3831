//! Checks of programs: those that build templates, and the spawner.

use super::{About, HealthCheck};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub fn checks() -> Vec<HealthCheck> {
    vec![spawner(), preparer(), python(), uv(), mmdebstrap()]
}

fn spawner() -> HealthCheck {
    let about = About {
        name: "stasis-spawner",
        required: true,
        costs: "no machine can start",
        fix: "put it beside stasis: cargo build --release --bin stasis-spawner",
    };
    match stasis_command::install::spawner() {
        Ok(path) => about.check(true, path.display().to_string()),
        Err(failure) => about.check(false, failure.message),
    }
}

fn preparer() -> HealthCheck {
    let about = About {
        name: stasis_agent::PREPARE,
        required: false,
        costs: "instructions have no TypeScript and no import statements",
        fix: "put it beside stasis: cargo build --release --bin stasis-prepare",
    };
    let own = std::env::current_exe().unwrap_or_default();
    let path = own.with_file_name(stasis_agent::PREPARE);
    match path.is_file() {
        true => about.check(true, path.display().to_string()),
        false => about.check(false, format!("no {}", path.display())),
    }
}

fn python() -> HealthCheck {
    let about = About {
        name: "Python with venv",
        required: true,
        costs: "the default template cannot be built",
        fix: "apt-get install python3 python3-venv",
    };
    let code = "import ensurepip, sys, venv; print(sys.version.split()[0], sys.executable)";
    match said("python3", &["-c", code]) {
        Some(line) => about.check(true, line),
        None => about.check(false, "no python3 that can import venv and ensurepip"),
    }
}

fn uv() -> HealthCheck {
    let about = About {
        name: "uv",
        required: false,
        costs: "a template build downloads it first",
        fix: "pip install uv",
    };
    tool(&about, "uv")
}

fn mmdebstrap() -> HealthCheck {
    let about = About {
        name: "mmdebstrap",
        required: false,
        costs: "templates with base debian cannot be built",
        fix: "apt-get install mmdebstrap",
    };
    tool(&about, "mmdebstrap")
}

fn tool(about: &About, name: &str) -> HealthCheck {
    match on_path(name) {
        Some(path) => about.check(true, path.display().to_string()),
        None => about.check(false, "not on PATH"),
    }
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| file.is_file())
}

/// The first line a program prints, if it ends well.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}
