//! CRIU: the same program on the host, dumped once and restored again and again. Its standard
//! input and output are FIFOs, which CRIU opens anew by name.

use crate::others::{Running, line_over, run, start};
use stasis_bench::bed::EngineBench;
use stasis_bench::python::{FIRST, LineChannel, SCRIPT};
use stasis_bench::samples::Samples;
use stasis_command::failure::{CliFailure, PathContext, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Older ones fail on kernels of today.
const OLDEST: u32 = 4;

pub fn measure(bed: &EngineBench) -> Result<Samples> {
    check_version()?;
    let scene = Scene::make(bed.fresh_dir("criu"))?;
    let mut line = line_over(scene.fifo("out")?, scene.fifo("in")?)?;
    let pid = scene.dump(bed, &mut line)?;
    let mut samples = Samples::default();
    for _ in 0..bed.runs {
        bed.settle();
        samples.push_ms(scene.restore(pid, &mut line)?);
    }
    Ok(samples)
}

fn check_version() -> Result<()> {
    let output = run(Command::new("criu").arg("--version"))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version = text.split_whitespace().skip_while(|word| *word != "Version:").nth(1);
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    if major.is_some_and(|major| major >= OLDEST) {
        return Ok(());
    }
    let found = version.unwrap_or("unknown");
    Err(CliFailure::new("bench.yardstick", format!("criu {found} is older than {OLDEST}")))
}

/// A directory with two FIFOs and an image.
struct Scene(PathBuf);

impl Scene {
    fn make(dir: PathBuf) -> Result<Scene> {
        let scene = Scene(dir);
        fs::create_dir_all(scene.path("image")).at("make", &scene.0)?;
        run(Command::new("mkfifo").arg(scene.path("in")).arg(scene.path("out")))?;
        Ok(scene)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Open at both ends, so that the program never sees the other one closed.
    fn fifo(&self, name: &str) -> Result<File> {
        let path = self.path(name);
        File::options().read(true).write(true).open(&path).at("open", &path)
    }

    /// Starts the program and dumps it, which ends it. Returns its pid.
    fn dump(&self, bed: &EngineBench, line: &mut LineChannel) -> Result<u32> {
        let log = File::create(self.path("log")).at("make", &self.path("log"))?;
        let env = bed.env();
        let mut python = start(
            Command::new("setsid")
                .arg(bed.python())
                .args(["-c", SCRIPT])
                .env_clear()
                .envs(env.iter().filter_map(|entry| entry.split_once('=')))
                .current_dir("/")
                .stdin(self.fifo("in")?)
                .stdout(self.fifo("out")?)
                .stderr(log),
        )?;
        line.expect_ready(&self.path("log"))?;
        let pid = python.pid();
        let done = run(self.criu("dump").args(["-t", &pid.to_string()]));
        done.map_err(|failure| self.explain("dump", failure))?;
        python.wait();
        Ok(pid)
    }

    /// From the start of `criu restore` to the first reply.
    fn restore(&self, pid: u32, line: &mut LineChannel) -> Result<Duration> {
        let begin = Instant::now();
        // not detached: it then reaps the program, and the pid is free again when it has ended
        let mut criu = start(self.criu("restore").stdout(Stdio::null()).stderr(Stdio::null()))?;
        let replied = line.check(FIRST);
        let time = begin.elapsed();
        self.end(pid, &mut criu, replied.is_ok());
        replied.map_err(|failure| self.explain("restore", failure))?;
        Ok(time)
    }

    fn end(&self, pid: u32, criu: &mut Running, runs: bool) {
        if runs {
            let _ = run(Command::new("kill").args(["-KILL", &pid.to_string()]));
            criu.wait();
        }
    }

    fn criu(&self, what: &str) -> Command {
        let mut command = Command::new("criu");
        command.arg(what).arg("-D").arg(self.path("image")).args(["-o", &format!("{what}.log")]);
        command
    }

    fn explain(&self, what: &str, failure: CliFailure) -> CliFailure {
        let said = last_error(&self.path("image").join(format!("{what}.log")));
        let why = said.unwrap_or_else(|| failure.message.clone());
        CliFailure { message: format!("criu {what}: {why}"), ..failure }
    }
}

fn last_error(log: &Path) -> Option<String> {
    let text = fs::read_to_string(log).ok()?;
    let line = text.lines().rev().find(|line| line.contains("Error"))?;
    Some(line.trim().to_owned())
}
