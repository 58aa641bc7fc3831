//! The lock of a data directory: one process at a time. The kernel releases it when the process
//! ends.
//!
//! A killed process holds its lock until the kernel has freed its memory, which can take seconds. A
//! new process therefore waits for a holder that is exiting, and only briefly for one that runs.

use crate::error::{Error, ErrorContext, Result};
use crate::settings::DataDirs;
use stasis_sys::{files, libc};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

/// A child being started can hold a released lock a moment longer.
const PATIENCE: Duration = Duration::from_secs(3);
/// Maximum time for a killed process to end.
const LAST_WORDS: Duration = Duration::from_secs(60);
/// A process whose end has begun (linux/sched.h).
const PF_EXITING: u64 = 4;

pub fn take(dirs: &DataDirs) -> Result<File> {
    for dir in [&dirs.data, &dirs.roots, &dirs.cache] {
        std::fs::create_dir_all(dir).doing(|| format!("make {}", dir.display()))?;
    }
    let path = dirs.data.join("lock");
    let lock = File::options().create(true).append(true).open(&path);
    let lock = lock.doing(|| format!("open {}", path.display()))?;
    let start = Instant::now();
    while files::flock(lock.as_fd(), libc::LOCK_EX | libc::LOCK_NB).is_err() {
        let patience = if is_ending(&lock) { LAST_WORDS } else { PATIENCE };
        if start.elapsed() > patience {
            let said = format!("{} is in use by another process", dirs.data.display());
            return Err(Error::InUse(said));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(lock)
}

/// Whether the holder of a lock is about to exit.
fn is_ending(lock: &File) -> bool {
    let Ok(inode) = lock.metadata().map(|about| about.ino()) else { return false };
    let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
    holder(&locks, inode).is_some_and(is_process_ending)
}

/// Whether a process was killed or has begun to exit. Until the kernel has freed its memory, its
/// locks stay taken and its sockets accept connections.
pub fn is_process_ending(pid: i32) -> bool {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}"));
    match (read("stat"), read("status")) {
        (Ok(stat), Ok(status)) => {
            flags(&stat).is_some_and(|flags| flags & PF_EXITING != 0) || is_killed(&status)
        }
        _ => true,
    }
}

/// Whether SIGKILL is pending for a process: `ShdPnd: 0000000000000100`.
fn is_killed(status: &str) -> bool {
    let pending = |line: &str| {
        let (name, set) = line.split_once(':')?;
        let set = ["SigPnd", "ShdPnd"].contains(&name).then(|| set.trim())?;
        u64::from_str_radix(set, 16).ok()
    };
    status.lines().filter_map(pending).any(|set| set & (1 << (libc::SIGKILL - 1)) != 0)
}

/// The holder of a lock on an inode: `1: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF`. A waiting
/// process has an arrow after the number.
fn holder(locks: &str, inode: u64) -> Option<i32> {
    let fits = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, "FLOCK", _, _, pid, place, ..] = words.as_slice() else { return None };
        let own = place.rsplit(':').next()?.parse::<u64>().ok()?;
        (own == inode).then(|| pid.parse().ok())?
    };
    locks.lines().find_map(fits)
}

/// The flags of a process: the seventh word after its name, which may contain blanks and brackets.
fn flags(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(6)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_has_a_lock() {
        let locks = "1: POSIX  ADVISORY  WRITE 7 fe:01:12 0 EOF\n\
                     2: FLOCK  ADVISORY  WRITE 4711 fe:01:1234 0 EOF\n\
                     2: -> FLOCK  ADVISORY  WRITE 4712 fe:01:1234 0 EOF\n";
        assert_eq!(holder(locks, 1234), Some(4711));
        assert_eq!((holder(locks, 12), holder(locks, 3), holder("", 3)), (None, None, None));
    }

    #[test]
    fn whether_a_process_is_ending() {
        let stat = |flags: u64| format!("7 (a) b (c)) S 1 7 7 0 -1 {flags} 100 0");
        assert_eq!(flags(&stat(4_194_560)), Some(4_194_560));
        assert_eq!(flags(&stat(PF_EXITING | 64)).map(|flags| flags & PF_EXITING), Some(PF_EXITING));
        let own = std::fs::read_to_string("/proc/self/stat").expect("it is there");
        assert_eq!(flags(&own).map(|flags| flags & PF_EXITING), Some(0));
        let status = |own, shared| format!("Pid:\t7\nSigPnd:\t{own}\nShdPnd:\t{shared}\n");
        assert!(is_killed(&status("0000000000000100", "0000000000000000")));
        assert!(is_killed(&status("0000000000000000", "0000000000004100")));
        assert!(!is_killed(&status("0000000000000000", "0000000000004000")));
    }

    #[test]
    fn a_killed_process_is_ending_and_a_running_one_is_not() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("sleep");
        let pid = child.id() as i32;
        assert!(!is_process_ending(pid));
        child.kill().expect("killed");
        // it stays in the process table until it is reaped
        let start = Instant::now();
        while !is_process_ending(pid) {
            assert!(start.elapsed() < LAST_WORDS);
        }
        child.wait().expect("an end");
        assert!(is_process_ending(pid), "when it is gone");
    }

    #[test]
    fn the_holder_of_a_real_lock_is_found() {
        let file = tempfile::tempfile().expect("a file");
        files::flock(file.as_fd(), libc::LOCK_EX).expect("locked");
        let inode = file.metadata().expect("an inode").ino();
        let locks = std::fs::read_to_string("/proc/locks").expect("it is there");
        assert_eq!(holder(&locks, inode), Some(std::process::id() as i32));
        assert!(!is_ending(&file));
    }
}
