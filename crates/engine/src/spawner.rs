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

/// Longer than the spawner or an init takes for anything, on a host that answers at all.
const ASK_LIMIT: Duration = Duration::from_secs(60);

/// The spawner process; ends with this value.
pub struct Spawner {
    line: Mutex<SpawnerLine>,
    child: Child,
}

/// The line to the spawner, which answers in order.
///
/// A request that is not answered in time fails, and the spawner is not given up for it: that would
/// end every machine because the host stalls. Its answer is still owed, and is thrown away when it
/// comes: the process that it brings ends by itself, for its socket is closed.
struct SpawnerLine {
    control: OwnedFd,
    owed: u32,
}

impl SpawnerLine {
    fn ask(
        &mut self,
        request: &SpawnRequest,
        fds: &[BorrowedFd],
        until: Instant,
    ) -> io::Result<(SpawnReply, Vec<OwnedFd>)> {
        while self.owed > 0 {
            drop(self.reply(until)?);
        }
        protocol::send(self.control.as_fd(), request, fds)?;
        self.owed += 1;
        self.reply(until)
    }

    fn reply(&mut self, until: Instant) -> io::Result<(SpawnReply, Vec<OwnedFd>)> {
        if !readable_until(self.control.as_fd(), until)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        let received = protocol::receive(self.control.as_fd());
        self.owed -= 1;
        received?.ok_or_else(|| io::Error::other("the spawner has ended"))
    }
}

impl Spawner {
    pub fn start(program: &Path) -> Result<Spawner> {
        let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET).doing(|| "make a socket".into())?;
        let child = Command::new(program)
            .stdin(Stdio::from(theirs))
            .spawn()
            .doing(|| format!("start {}", program.display()))?;
        Ok(Spawner { line: Mutex::new(SpawnerLine { control: ours, owed: 0 }), child })
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
        let until = Instant::now() + ASK_LIMIT;
        let exchange = || match self.line.try_lock_until(until) {
            Some(mut line) => line.ask(request, fds, until),
            None => Err(io::ErrorKind::TimedOut.into()),
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
    let doing = || "hear from the machine's init".to_owned();
    if !readable_until(control, Instant::now() + ASK_LIMIT).doing(doing)? {
        let _ = socket::shutdown(control, libc::SHUT_RDWR);
        return Err(io::Error::from(io::ErrorKind::TimedOut)).doing(doing);
    }
    let received = protocol::receive::<InitReply>(control).doing(doing)?;
    match received {
        None => Err(Error::Gone),
        Some((InitReply::Failed { what, errno }, _)) => Err(failed(what, errno)),
        Some((InitReply::Done { fds, more }, got)) if got.len() == fds as usize => Ok((got, more)),
        Some(_) => Err(io::Error::other("descriptors were lost on the way")).doing(doing),
    }
}

/// Waits for a message; false if none came by then.
fn readable_until(control: BorrowedFd, until: Instant) -> io::Result<bool> {
    const LOOK: Duration = Duration::from_secs(1);
    loop {
        let left = until.saturating_duration_since(Instant::now());
        // a signal ends a look early
        if fds::poll_readable(control, left.min(LOOK).as_millis() as i32)? {
            return Ok(true);
        }
        if left.is_zero() {
            return Ok(false);
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer that comes too late is not taken for that of the next request.
    #[test]
    fn a_spawner_that_stalls_is_not_given_up() {
        let (ours, theirs) = socket::pair(libc::SOCK_SEQPACKET).expect("a socket");
        let mut line = SpawnerLine { control: ours, owed: 0 };
        let soon = || Instant::now() + Duration::from_millis(20);
        let ask = |line: &mut SpawnerLine, until| {
            line.ask(&SpawnRequest::Blank, &[], until).map(|(reply, _)| match reply {
                SpawnReply::Made { pid } => pid,
                SpawnReply::Failed { what, .. } => panic!("{what}"),
            })
        };
        let late = ask(&mut line, soon()).expect_err("nobody answers");
        assert_eq!((late.kind(), line.owed), (io::ErrorKind::TimedOut, 1));
        // one that waits for its turn sends nothing: there is never more than one request there
        ask(&mut line, soon()).expect_err("still nobody");
        assert_eq!(line.owed, 1);
        let spawner = std::thread::spawn(move || {
            for pid in [11, 12] {
                let asked = protocol::receive::<SpawnRequest>(theirs.as_fd()).expect("receive");
                asked.expect("a request");
                protocol::send(theirs.as_fd(), &SpawnReply::Made { pid }, &[]).expect("send");
            }
        });
        let pid = ask(&mut line, Instant::now() + Duration::from_secs(60)).expect("an answer");
        assert_eq!((pid, line.owed), (12, 0));
        spawner.join().expect("no panic");
        let ended = ask(&mut line, soon()).expect_err("its end is closed");
        assert_ne!(ended.kind(), io::ErrorKind::TimedOut);
    }
}
