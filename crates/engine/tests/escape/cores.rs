//! A crash stays inside: the host starts no handler for it, whatever limit a machine or its image
//! has for core files.
//!
//! The kernel runs a piped handler as the host's root unless the limit is exactly one byte. Limits
//! are always checked. With `STASIS_TEST_CORE_HANDLER` set, a handler is installed for a moment and
//! machines crash. The handler is a setting of the whole host, so this is not done by default.

use crate::machine::{Lab, Machine, launch, restore};
use libtest_mimic::{Failed, Trial};
use stasis_engine::WallsConfig;
use stasis_image::model::ProcessState;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

const PATTERN: &str = "/proc/sys/kernel/core_pattern";

pub fn trials(lab: &Arc<Lab>) -> Vec<Trial> {
    let (limits, handler) = (lab.clone(), lab.clone());
    let asked = std::env::var_os("STASIS_TEST_CORE_HANDLER").is_some();
    vec![
        Trial::test("cores::every_machine_has_the_limit", move || limits_are_one(&limits)),
        Trial::test("cores::no_handler_is_started", move || no_handler(&handler))
            .with_ignored_flag(!asked),
    ]
}

fn limit_of(machine: &Machine) -> String {
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", machine.tree().pid()));
    let limits = limits.unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
    line.unwrap_or("").split_whitespace().take(2).collect::<Vec<_>>().join(" ")
}

fn expect(what: &str, machine: &Machine) -> Result<(), Failed> {
    match limit_of(machine) {
        limit if limit == "1 1" => Ok(()),
        other => Err(format!("{what} has the limits `{other}`").into()),
    }
}

fn limits_are_one(lab: &Lab) -> Result<(), Failed> {
    let engine = lab.engine(WallsConfig::default());
    let mut launched = launch(&engine);
    expect("a launched machine", &launched)?;
    launched.ask("set_core_limit 0");
    expect("one that changed it", &launched)?;
    let image = engine.capture(launched.tree())?.image;
    expect("a restored machine", &restore(&engine, &image))?;
    for limit in [(0, 0), (u64::MAX, u64::MAX)] {
        let mut manifest = (*image.manifest).clone();
        for process in &mut manifest.processes {
            if let ProcessState::Live(live) = &mut process.state {
                live.rlimits[4] = limit;
            }
        }
        let other = engine.store().write_image(manifest)?;
        expect(&format!("an image with {limit:?}"), &restore(&engine, &other))?;
    }
    Ok(())
}

/// The host's setting, put back when this is dropped.
struct Pattern(String);

impl Pattern {
    fn set(text: &str) -> std::io::Result<Pattern> {
        let before = std::fs::read_to_string(PATTERN)?;
        std::fs::write(PATTERN, text)?;
        Ok(Pattern(before))
    }
}

impl Drop for Pattern {
    fn drop(&mut self) {
        let _ = std::fs::write(PATTERN, self.0.trim_end());
    }
}

fn no_handler(lab: &Lab) -> Result<(), Failed> {
    let dir = tempfile::Builder::new().prefix("cores-").tempdir_in("/tmp")?;
    let (handler, seen) = (dir.path().join("handler"), dir.path().join("seen"));
    std::fs::write(&handler, format!("#!/bin/sh\necho $1 >> {}\n", seen.display()))?;
    std::fs::set_permissions(&handler, PermissionsExt::from_mode(0o755))?;
    let engine = lab.engine(WallsConfig::default());
    let mut launched = launch(&engine);
    let mut restored = restore(&engine, &engine.capture(launched.tree())?.image);
    let mut host = lab.host(0);
    let pattern = Pattern::set(&format!("|{} %E", handler.display()))?;
    for machine in [&mut launched, &mut restored] {
        machine.ask("set_core_limit 0");
        machine.ask("crash");
    }
    std::thread::sleep(Duration::from_secs(1));
    let machines = crashes(&seen);
    host.ask("crash");
    std::thread::sleep(Duration::from_secs(1));
    drop(pattern);
    match (machines, crashes(&seen)) {
        (0, 1..) => Ok(()),
        (0, 0) => Err("no crash at all was handled, so this shows nothing".into()),
        (some, _) => Err(format!("{some} crashes of machines were handled by the host").into()),
    }
}

/// Other programs of the host may crash meanwhile.
fn crashes(seen: &Path) -> usize {
    let text = std::fs::read_to_string(seen).unwrap_or_default();
    text.lines().filter(|line| line.ends_with("bin!escape")).count()
}
