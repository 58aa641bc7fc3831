//! The daemon: the one process that runs the machines of a data directory.
//!
//!   listens? ──no──► spawn `stasis serve --private` ──► wait for its socket
//!
//! Several commands may start daemons at once: one of them takes the directory's lock, the others
//! exit, and all commands wait for its socket. The daemon exits when idle. If it cannot start, our
//! error shows the end of its log.

use crate::config::Config;
use crate::failure::{CliFailure, Exit, PathContext, Result};
use stasis_sys::{libc, process, socket};
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsFd;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Maximum time for a daemon to open a directory, which may hold many machines.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum time for a daemon to save all machines.
const GOODBYE: Duration = Duration::from_secs(120);
/// The log is truncated when it is longer.
const LONGEST_LOG: u64 = 1 << 20;
/// Maximum length of a socket's address.
const LONGEST_PATH: usize = 107;

pub struct Daemon {
    data_dir: PathBuf,
    config: Option<PathBuf>,
    linger: String,
}

/// A running daemon.
pub struct RunningDaemon {
    pub pid: i32,
}

impl Daemon {
    pub fn of(config: &Config) -> Result<Daemon> {
        let linger = config.text("linger_seconds").unwrap_or_default();
        let daemon = Daemon { data_dir: config.data_dir(), config: config.file.clone(), linger };
        let length = daemon.socket().as_os_str().len();
        if length > LONGEST_PATH {
            let message = format!("{} is too long for a socket path", daemon.data_dir.display());
            return Err(CliFailure::usage(message).hint("choose a shorter --data-dir"));
        }
        Ok(daemon)
    }

    pub fn data_dir(&self) -> &Path {
        &self.data_dir
    }

    pub fn socket(&self) -> PathBuf {
        self.data_dir.join("stasis.sock")
    }

    pub fn log(&self) -> PathBuf {
        self.data_dir.join("daemon.log")
    }

    pub fn listens(&self) -> bool {
        UnixStream::connect(self.socket()).is_ok()
    }

    /// The process behind the socket, according to the kernel.
    pub fn running(&self) -> Option<RunningDaemon> {
        let stream = UnixStream::connect(self.socket()).ok()?;
        let (pid, ..) = socket::peer_credentials(stream.as_fd()).ok()?;
        Some(RunningDaemon { pid })
    }

    pub fn start(&self) -> Result<DaemonStart<'_>> {
        let mut dir = fs::DirBuilder::new();
        dir.recursive(true).mode(0o700).create(&self.data_dir).at("make", &self.data_dir)?;
        Ok(DaemonStart { daemon: self, child: self.spawn()?, since: Instant::now(), idle: None })
    }

    fn spawn(&self) -> Result<Child> {
        let log = self.open_log().at("open", &self.log())?;
        let own = std::env::current_exe().at("find", Path::new("this program"))?;
        let mut command = Command::new(own);
        command.args(["serve", "--private", "--linger", &self.linger, "--data-dir"]);
        command.arg(&self.data_dir);
        if let Some(config) = &self.config {
            command.arg("--config").arg(config);
        }
        // its own environment applies, not that of the first command
        command.env_remove("STASIS_URL").env_remove("STASIS_TOKEN").current_dir("/");
        let second = log.try_clone().at("open", &self.log())?;
        command.stdin(Stdio::null()).stdout(log).stderr(second);
        command.spawn().at("start a daemon for", &self.data_dir)
    }

    fn open_log(&self) -> std::io::Result<File> {
        let path = self.log();
        let long = fs::metadata(&path).is_ok_and(|log| log.len() > LONGEST_LOG);
        if long {
            fs::remove_file(&path)?;
        }
        OpenOptions::new().create(true).append(true).mode(0o600).open(path)
    }

    /// The last lines of the log.
    fn last_words(&self) -> String {
        let bytes = fs::read(self.log()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().rev().take(4).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl RunningDaemon {
    /// Requests its end, and waits for it.
    pub fn stop(&self) -> Result<()> {
        let failed = |error: std::io::Error| {
            CliFailure::new("daemon.stop", format!("daemon {}: {error}", self.pid))
        };
        let pidfd = process::pidfd_open(self.pid).map_err(failed)?;
        process::pidfd_kill(pidfd.as_fd(), libc::SIGTERM).map_err(failed)?;
        if process::pidfd_wait(pidfd.as_fd(), GOODBYE.as_millis() as i32).map_err(failed)? {
            return Ok(());
        }
        let message = format!("daemon {} is still writing machines to disk", self.pid);
        Err(CliFailure::new("daemon.stop", message).exit(Exit::Unavailable))
    }

    /// Waits until it has exited; whether it has.
    pub fn wait(&self) -> bool {
        let Ok(pidfd) = process::pidfd_open(self.pid) else { return true };
        process::pidfd_wait(pidfd.as_fd(), GOODBYE.as_millis() as i32).unwrap_or(true)
    }
}

/// A daemon being started.
pub struct DaemonStart<'a> {
    daemon: &'a Daemon,
    child: Child,
    since: Instant,
    /// When our daemon yielded to another one.
    idle: Option<Instant>,
}

impl DaemonStart<'_> {
    /// Whether to keep waiting. If another daemon had the lock but does not answer after a while,
    /// it was exiting: ours is started again.
    pub fn go_on(&mut self) -> Result<()> {
        if self.since.elapsed() > PATIENCE {
            return Err(self.failed("did not answer in time"));
        }
        if let Some(since) = self.idle {
            if since.elapsed() > Duration::from_millis(100) {
                self.child = self.daemon.spawn()?;
                self.idle = None;
            }
            return Ok(());
        }
        match self.child.try_wait() {
            Ok(Some(status)) if !status.success() => Err(self.failed("did not start")),
            Ok(Some(_)) => {
                self.idle = Some(Instant::now());
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn failed(&self, what: &str) -> CliFailure {
        let dir = self.daemon.data_dir.display();
        let words = self.daemon.last_words();
        CliFailure::new("daemon.failed", format!("the daemon of {dir} {what}:\n{words}"))
            .hint("`stasis doctor` checks this host")
            .exit(Exit::Unavailable)
    }
}
