//! File locks, from the `lock:` lines of fdinfo.
//!
//! The kernel shows a lock with the open file it was taken through: flock and OFD locks belong to
//! that open file, POSIX locks to the process of the descriptor. So POSIX locks are read again for
//! every process that shares the open file. Leases are refused.

use super::OpenDescriptor;
use crate::error::Result;
use stasis_image::model::*;

/// Adds the locks seen through one descriptor to those of its object.
pub fn add(descriptor: &OpenDescriptor, object: &mut ObjectKind) -> Result<()> {
    for line in descriptor.info.all("lock") {
        let lock = parse(line, descriptor.process.own_pid)
            .ok_or_else(|| descriptor.refuse(format!("a lock of an unknown kind ({line})")))?;
        let locks = locks_of(object).ok_or_else(|| {
            descriptor.refuse(format!("a lock ({line}) on something that is not a file"))
        })?;
        if !locks.contains(&lock) {
            locks.push(lock);
        }
    }
    Ok(())
}

fn locks_of(object: &mut ObjectKind) -> Option<&mut Vec<FileLock>> {
    match object {
        ObjectKind::File { locks, .. }
        | ObjectKind::Deleted { locks, .. }
        | ObjectKind::Directory { locks, .. }
        | ObjectKind::Memfd { locks, .. } => Some(locks),
        _ => None,
    }
}

/// "1: POSIX  ADVISORY  WRITE 5 00:2a:1 0 EOF"
fn parse(line: &str, own_pid: i32) -> Option<FileLock> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [_, kind, "ADVISORY", access, _pid, _inode, start, end] = words[..] else { return None };
    let (kind, pid) = match kind {
        "FLOCK" => (LockKind::Flock, 0),
        "OFDLCK" => (LockKind::OpenFile, 0),
        "POSIX" => (LockKind::Posix, own_pid),
        _ => return None,
    };
    let write = match access {
        "WRITE" => true,
        "READ" => false,
        _ => return None,
    };
    let end = if end == "EOF" { None } else { Some(end.parse().ok()?) };
    Some(FileLock { kind, write, start: start.parse().ok()?, end, pid })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_posix_lock_belongs_to_the_process_it_was_seen_in() {
        let lock = parse("1: POSIX  ADVISORY  WRITE 5 00:2a:1 1000 1049", 2).unwrap();
        assert_eq!((lock.kind, lock.pid, lock.write), (LockKind::Posix, 2, true));
        assert_eq!((lock.start, lock.end), (1000, Some(1049)));
    }

    #[test]
    fn an_flock_reaches_to_the_end_and_belongs_to_no_process() {
        let lock = parse("3: FLOCK  ADVISORY  READ 17 fe:00:99 0 EOF", 2).unwrap();
        assert_eq!((lock.kind, lock.pid, lock.end), (LockKind::Flock, 0, None));
    }

    #[test]
    fn a_lease_is_not_known() {
        assert!(parse("1: LEASE  ACTIVE    READ 5 00:2a:1 0 EOF", 2).is_none());
    }
}
