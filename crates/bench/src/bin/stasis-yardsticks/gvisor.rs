//! gVisor: the same program in the same root file system under `runsc`, checkpointed once without
//! compression and restored again and again.

use crate::others::{Running, line_over, run, start};
use serde_json::json;
use stasis_bench::bed::EngineBench;
use stasis_bench::python::{FIRST, LineChannel, SCRIPT};
use stasis_bench::samples::Samples;
use stasis_command::failure::{CliFailure, PathContext, Result};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

pub fn measure(bed: &EngineBench) -> Result<Samples> {
    run(Command::new("runsc").arg("--version"))?;
    let scene = Scene(bed.fresh_dir("gvisor"));
    scene.write_bundle(bed)?;
    scene.checkpoint()?;
    let mut samples = Samples::default();
    for number in 0..bed.runs {
        bed.settle();
        samples.push_ms(scene.restore(&format!("restored-{number}"))?);
    }
    Ok(samples)
}

/// A directory with a bundle, a checkpoint and runsc's own state.
struct Scene(PathBuf);

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn write_bundle(&self, bed: &EngineBench) -> Result<()> {
        let namespaces =
            ["pid", "network", "ipc", "uts", "mount"].map(|kind| json!({"type": kind}));
        let config = json!({
            "ociVersion": "1.0.0",
            "process": {
                "user": {"uid": 0, "gid": 0},
                "args": [bed.python(), "-c", SCRIPT],
                "env": bed.env(),
                "cwd": "/",
            },
            "root": {"path": bed.root(), "readonly": false},
            "mounts": [{"destination": "/proc", "type": "proc", "source": "proc"}],
            "linux": {"namespaces": namespaces},
        });
        let bundle = self.path("bundle");
        fs::create_dir_all(&bundle).at("make", &bundle)?;
        let path = bundle.join("config.json");
        fs::write(&path, config.to_string()).at("write", &path)
    }

    fn checkpoint(&self) -> Result<()> {
        let log = self.path("log");
        let (mut container, mut line) = self.start("run", "source", &[])?;
        let ready = line.expect_ready(&log);
        let image = self.path("image");
        let saved = ready.and_then(|()| {
            run(self
                .runsc("checkpoint")
                .arg("--compression=none")
                .args(["--image-path"])
                .arg(image)
                .arg("source"))
        });
        self.delete("source", &mut container);
        saved.map(drop)
    }

    /// From the start of `runsc restore` to the first reply.
    fn restore(&self, name: &str) -> Result<Duration> {
        let begin = Instant::now();
        let image = self.path("image").to_string_lossy().into_owned();
        let (mut container, mut line) = self.start("restore", name, &["--image-path", &image])?;
        let replied = line.check(FIRST);
        let time = begin.elapsed();
        self.delete(name, &mut container);
        replied.map_err(|failure| CliFailure {
            message: format!("runsc restore: {}", failure.message),
            ..failure
        })?;
        Ok(time)
    }

    /// A container in the foreground, and the line to the program in it.
    fn start(&self, what: &str, name: &str, options: &[&str]) -> Result<(Running, LineChannel)> {
        let log = self.path("log");
        let stderr = File::options().append(true).create(true).open(&log).at("open", &log)?;
        let mut command = self.runsc(what);
        command.args(options).arg("--bundle").arg(self.path("bundle")).arg(name);
        let mut running =
            start(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(stderr))?;
        match (running.0.stdout.take(), running.0.stdin.take()) {
            (Some(read), Some(write)) => Ok((running, line_over(read, write)?)),
            _ => Err(CliFailure::new("bench.yardstick", "runsc has no standard streams")),
        }
    }

    fn delete(&self, name: &str, container: &mut Running) {
        let _ = run(self.runsc("kill").args([name, "KILL"]));
        let _ = run(self.runsc("delete").arg("--force").arg(name));
        container.wait();
    }

    fn runsc(&self, what: &str) -> Command {
        let mut command = Command::new("runsc");
        command.arg("--root").arg(self.path("state"));
        // writes stay in memory: the root file system is not ours to change
        command.args(["--platform=systrap", "--network=none", "--ignore-cgroups"]);
        command.args(["--overlay2=root:memory", what]);
        command
    }
}
