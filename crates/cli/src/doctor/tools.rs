//! Checks of programs: those that build templates, and the spawner.

use super::{About, HealthCheck};
use stasis_agent::environment::{HostTool, ToolCheck};
use std::path::PathBuf;
use std::process::{Command, Stdio};

pub fn checks() -> Vec<HealthCheck> {
    let languages = stasis_agent::LANGUAGES.iter().flat_map(|language| language.host_tools());
    let languages = languages.map(for_language);
    std::iter::once(spawner()).chain(languages).chain([mmdebstrap()]).collect()
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

/// Requirements of a language on the host.
fn for_language(tool: &HostTool) -> HealthCheck {
    let HostTool { name, required, costs, fix, .. } = *tool;
    let about = About { name, required, costs, fix };
    match tool.found {
        ToolCheck::Says { program, args, otherwise } => match said(program, args) {
            Some(line) => about.check(true, line),
            None => about.check(false, otherwise),
        },
        ToolCheck::OnPath(name) => self::tool(&about, name),
        ToolCheck::Beside(name) => beside(&about, name),
    }
}

fn beside(about: &About, name: &str) -> HealthCheck {
    let own = std::env::current_exe().unwrap_or_default();
    let path = own.with_file_name(name);
    match path.is_file() {
        true => about.check(true, path.display().to_string()),
        false => about.check(false, format!("no {}", path.display())),
    }
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

/// The first line a program prints, if it succeeds.
fn said(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    output.status.success().then(|| text.lines().next().unwrap_or_default().to_owned())
}
