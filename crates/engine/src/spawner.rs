//! The engine's end of the spawner, of inits and of templates.

use crate::error::{Error, ErrorContext, Result};
use parking_lot::{Mutex, MutexGuard};
use stasis_sandbox::Ids;
use stasis_spawner::protocol::{self, InitReply, InitRequest, SpawnReply, SpawnRequest, WallsSpec};
use stasis_sys::{fds, libc, process, socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The spawner process; ends with this value.
pub struct Spawner {
    control: Mutex<OwnedFd>,
    child: Child,
}

impl Spawner {
    pub fn start(program: &Path) -> Result<Spawner> {
        let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET).doing(|| "make a socket".into())?;
        let child = Command::new(program)
            .stdin(Stdio::from(theirs))
            .spawn()
            .doing(|| format!("start {}", program.display()))?;
        Ok(Spawner { control: Mutex::new(ours), child })
    }

    /// A process with nothing but the interpreter: its pid, pidfd and control socket.
    pub fn blank(&self) -> Result<(i32, OwnedFd, OwnedFd)> {
        let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET).doing(|| "make a socket".into())?;
        let (pid, pidfd) = self.ask(&SpawnRequest::Blank, &[theirs.as_fd()])?;
        Ok((pid, pidfd, ours))
    }

    /// New namespaces, ready to be entered.
    pub fn walls(&self, spec: WallsSpec, entrances: &[OwnedFd], ids: Ids) -> Result<Init> {
        let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET).doing(|| "make a socket".into())?;
        let fds: Vec<BorrowedFd> =
            [theirs.as_fd()].into_iter().chain(entrances.iter().map(AsFd::as_fd)).collect();
        let (pid, pidfd) = self.ask(&SpawnRequest::Walls(spec), &fds)?;
        Ok(Init { pid, pidfd, ids, control: Arc::new(Mutex::new(ours)) })
    }

    fn ask(&self, request: &SpawnRequest, fds: &[BorrowedFd]) -> Result<(i32, OwnedFd)> {
        let control = self.control.lock();
        let exchange = || -> io::Result<(SpawnReply, Vec<OwnedFd>)> {
            protocol::send(control.as_fd(), request, fds)?;
            // no deadline: it does nothing for a machine that runs, its end closes the socket, and
            // giving it up because the host stalls would end every machine
            protocol::receive(control.as_fd())?
                .ok_or_else(|| io::Error::other("the spawner has ended"))
        };
        let (reply, mut fds) = exchange().doing(|| "ask the spawner".into())?;
        match (reply, fds.pop()) {
            (SpawnReply::Made { pid }, Some(pidfd)) => Ok((pid, pidfd)),
            (SpawnReply::Made { .. }, None) => {
                Err(io::Error::other("no pidfd came")).doing(|| "ask the spawner".into())
            }
            (SpawnReply::Failed { what, errno }, _) => Err(failed(what, errno)),
        }
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        // everything it made ends by itself when its sockets close
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn failed(what: String, errno: i32) -> Error {
    let source = if errno == 0 {
        io::Error::other("see above")
    } else {
        io::Error::from_raw_os_error(errno)
    };
    Error::Io { doing: what, source }
}

/// Pid 1 of a machine's namespaces. Dropping it ends everything inside.
pub struct Init {
    pub pid: i32,
    pub pidfd: OwnedFd,
    /// The machine's ids and the host's.
    pub ids: Ids,
    control: Arc<Mutex<OwnedFd>>,
}

/// A question to a machine's init that is under way.
pub struct PendingReply<'a>(MutexGuard<'a, OwnedFd>);

fn ask_init<'a>(
    control: &'a Mutex<OwnedFd>,
    request: &InitRequest,
    fds: &[BorrowedFd],
) -> Result<PendingReply<'a>> {
    let control = control.lock();
    protocol::send(control.as_fd(), request, fds).doing(|| "ask the machine's init".into())?;
    Ok(PendingReply(control))
}

impl PendingReply<'_> {
    /// Waits for the answer: the descriptors that came back.
    pub fn answer(self) -> Result<Vec<OwnedFd>> {
        let mut all = Vec::new();
        loop {
            let (fds, more) = receive_reply(self.0.as_fd())?;
            all.extend(fds);
            if !more {
                return Ok(all);
            }
        }
    }
}

impl Init {
    /// Waits until the walls stand.
    pub fn wait_ready(&self) -> Result<()> {
        let control = self.control.lock();
        receive_reply(control.as_fd()).map(drop)
    }

    pub fn ask(&self, request: &InitRequest, fds: &[BorrowedFd]) -> Result<Vec<OwnedFd>> {
        self.begin(request, fds)?.answer()
    }

    /// Sends a request, and leaves the wait to the caller. No other request can be sent meanwhile.
    pub fn begin(&self, request: &InitRequest, fds: &[BorrowedFd]) -> Result<PendingReply<'_>> {
        ask_init(&self.control, request, fds)
    }

    /// Has the init hold a descriptor beside us, and returns a callback that makes it close it.
    pub fn hold(&self, fd: BorrowedFd) -> Result<impl FnOnce() + Send + 'static> {
        self.ask(&InitRequest::Hold, &[fd])?;
        let control = self.control.clone();
        // if the machine has ended, there is nothing to close
        Ok(move || {
            drop(ask_init(&control, &InitRequest::Release, &[]).and_then(PendingReply::answer))
        })
    }

    /// Ends the machine and waits until nothing of it is left, but not for longer than `limit`;
    /// whether nothing is.
    pub fn kill(&self, limit: Duration) -> Result<bool> {
        let _ = process::pidfd_kill(self.pidfd.as_fd(), libc::SIGKILL);
        let end = Instant::now() + limit;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let gone = process::pidfd_wait(self.pidfd.as_fd(), left.as_millis() as i32)
                .doing(|| "wait for a machine's end".into())?;
            // a signal ends a wait early
            if gone || left.is_zero() {
                return Ok(gone);
            }
        }
    }

    pub fn has_ended(&self) -> bool {
        process::pidfd_wait(self.pidfd.as_fd(), 0).unwrap_or(false)
    }
}

impl Drop for Init {
    fn drop(&mut self) {
        let _ = process::pidfd_kill(self.pidfd.as_fd(), libc::SIGKILL);
    }
}

/// An init that does not answer in time is given up, and with it its machine: it ends when it finds
/// its socket closed, and an answer that came late would be taken for another's.
fn receive_reply(control: BorrowedFd) -> Result<(Vec<OwnedFd>, bool)> {
    const LIMIT: Duration = Duration::from_secs(60);
    const LOOK_MS: i32 = 1000;
    let doing = || "hear from the machine's init".to_owned();
    let end = Instant::now() + LIMIT;
    // a signal ends a look early
    while !fds::poll_readable(control, LOOK_MS).doing(doing)? {
        if Instant::now() > end {
            let _ = socket::shutdown(control, libc::SHUT_RDWR);
            return Err(io::Error::from(io::ErrorKind::TimedOut)).doing(doing);
        }
    }
    let received = protocol::receive::<InitReply>(control).doing(doing)?;
    match received {
        None => Err(Error::Gone),
        Some((InitReply::Failed { what, errno }, _)) => Err(failed(what, errno)),
        Some((InitReply::Done { fds, more }, got)) if got.len() == fds as usize => Ok((got, more)),
        Some(_) => Err(io::Error::other("descriptors were lost on the way")).doing(doing),
    }
}

/// The host's number of the process behind a pidfd.
pub fn pid_of(pidfd: BorrowedFd) -> Result<i32> {
    use std::os::fd::AsRawFd;
    let path = format!("/proc/self/fdinfo/{}", pidfd.as_raw_fd());
    let text = std::fs::read_to_string(&path).doing(|| format!("read {path}"))?;
    text.lines()
        .find_map(|line| line.strip_prefix("Pid:")?.trim().parse::<i32>().ok())
        .filter(|pid| *pid > 0)
        .ok_or(Error::Gone)
}
