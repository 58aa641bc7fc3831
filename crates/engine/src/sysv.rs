//! System V IPC belongs to a namespace and not to a process, so it is read and made by the
//! thread at work, which enters the machine's for a moment.
//!
//! Saved: ids, keys, owners, modes, contents, attachments. Lost: times, the pids of the last users,
//! and SEM_UNDO amounts, which the kernel does not show. Refused: huge pages.

use crate::error::{ErrorContext, Result};
use crate::spawner::Init;
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_sandbox::Ids;
use stasis_store::Store;
use stasis_store::layers::write_runs;
use stasis_sys::ipc::{self, Permissions};
use stasis_sys::{fds, libc, namespace};
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

const HUGETLBFS: i64 = 0x9584_58f6;
const SHM_DEST: u32 = 0o1000;

/// Everything in a machine's namespace. Shared memory as open files, to be read from.
#[derive(Default)]
pub struct SysvObjects {
    pub memory: Vec<(IpcName, bool, File)>,
    pub semaphores: Vec<SysvSemaphores>,
    pub queues: Vec<SysvQueue>,
}

/// Does something in the ipc namespace of a process. Namespaces are a thread's, so the engine's
/// other threads stay where they are; a thread of its own would cost the pause a wake-up.
fn within<T>(pid: i32, work: impl FnOnce() -> io::Result<T>) -> Result<T> {
    let enter = || -> io::Result<T> {
        let own = File::open("/proc/thread-self/ns/ipc")?;
        let theirs = File::open(format!("/proc/{pid}/ns/ipc"))?;
        namespace::setns(theirs.as_fd(), libc::CLONE_NEWIPC)?;
        let done = work();
        namespace::setns(own.as_fd(), libc::CLONE_NEWIPC)?;
        done
    };
    enter().doing(|| "carry System V IPC".into())
}

/// Reads existing objects, while the machine is stopped.
pub fn read(init: &Init) -> Result<SysvObjects> {
    let rows = |kind: &str| rows(kind, init.ids);
    within(init.pid, || {
        let mut found = SysvObjects::default();
        for row in rows("shm")? {
            let file = ipc::memory_file(row.name.id)?;
            if fds::file_system(file.as_fd())? == HUGETLBFS {
                return Err(io::Error::other("shared memory of huge pages is not supported"));
            }
            let removed = row.flags & SHM_DEST != 0;
            found.memory.push((row.name, removed, file));
        }
        for row in rows("sem")? {
            let values = ipc::semaphore_values(row.name.id, row.count)?;
            found.semaphores.push(SysvSemaphores { name: row.name, values });
        }
        for row in rows("msg")? {
            found.queues.push(queue(row)?);
        }
        Ok(found)
    })
}

fn queue(row: Row) -> io::Result<SysvQueue> {
    let mut messages = Vec::new();
    // `count` is all the bytes in the queue, so no message is longer
    while let Some(message) = ipc::copy_message(row.name.id, messages.len(), row.count)? {
        messages.push(message);
    }
    Ok(SysvQueue { name: row.name, limit: ipc::queue_limit(row.name.id)?, messages })
}

/// One line of a file in /proc/sysvipc.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    name: IpcName,
    flags: u32,
    /// Size in bytes, number of semaphores, or bytes in the queue.
    count: usize,
}

fn rows(kind: &str, ids: Ids) -> io::Result<Vec<Row>> {
    let text = std::fs::read_to_string(format!("/proc/sysvipc/{kind}"))?;
    let (head, lines) = text.split_once('\n').unwrap_or((&text, ""));
    let unreadable = || io::Error::other(format!("/proc/sysvipc/{kind} is unreadable"));
    lines.lines().map(|line| parse(head, line, ids).ok_or_else(unreadable)).collect()
}

fn parse(head: &str, line: &str, ids: Ids) -> Option<Row> {
    let columns: Vec<&str> = head.split_whitespace().collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    let field = |names: &[&str]| {
        let index = columns.iter().position(|column| names.contains(column))?;
        words.get(index).copied()
    };
    let flags = u32::from_str_radix(field(&["perms"])?, 8).ok()?;
    Some(Row {
        name: IpcName {
            id: field(&["shmid", "semid", "msqid"])?.parse().ok()?,
            key: field(&["key"])?.parse().ok()?,
            uid: ids.inside(field(&["uid"])?.parse().ok()?)?,
            gid: ids.inside(field(&["gid"])?.parse().ok()?)?,
            mode: flags & 0o777,
        },
        flags,
        count: field(&["size", "nsems", "cbytes"])?.parse().ok()?,
    })
}

/// Makes an image's objects in a new machine, under their old ids.
pub fn make(store: &Store, manifest: &Manifest, init: &Init) -> Result<()> {
    let is_ipc = |object: &&Object| {
        use ObjectKind::*;
        matches!(object.kind, SysvMemory(_) | SysvSemaphores(_) | SysvQueue(_))
    };
    let objects: Vec<&Object> = manifest.objects.iter().filter(is_ipc).collect();
    if objects.is_empty() {
        return Ok(());
    }
    let made = within(init.pid, || {
        objects
            .iter()
            .map(|object| make_one(manifest, &object.kind, init.ids))
            .collect::<io::Result<Vec<_>>>()
    })?;
    for (file, segment) in made.iter().flatten() {
        write_runs(store, manifest, &segment.runs, |page, bytes| {
            let at = page * PAGE_SIZE as u64;
            let len = segment.size.saturating_sub(at).min(bytes.len() as u64) as usize;
            file.write_all_at(&bytes[..len], at).doing(|| "fill shared memory".into())
        })?;
    }
    Ok(())
}

/// Makes one object; a segment is still to be filled.
fn make_one<'a>(
    manifest: &'a Manifest,
    kind: &ObjectKind,
    ids: Ids,
) -> io::Result<Option<(File, &'a Segment)>> {
    match kind {
        ObjectKind::SysvMemory(memory) => {
            let missing = || io::Error::other("shared memory without contents");
            let segment = manifest.segments.get(memory.segment as usize).ok_or_else(missing)?;
            let name = &memory.name;
            next_id("shm", name.id)?;
            let id = ipc::make_memory(name.key, segment.size as usize, name.mode)?;
            same(id, name)?;
            ipc::set_memory(id, permissions(name, ids)?)?;
            return Ok(Some((ipc::memory_file(id)?, segment)));
        }
        ObjectKind::SysvSemaphores(SysvSemaphores { name, values }) => {
            next_id("sem", name.id)?;
            let id = ipc::make_semaphores(name.key, values.len(), name.mode)?;
            same(id, name)?;
            ipc::set_semaphore_values(id, &mut values.clone())?;
            ipc::set_semaphores(id, permissions(name, ids)?)?;
        }
        ObjectKind::SysvQueue(SysvQueue { name, limit, messages }) => {
            next_id("msg", name.id)?;
            let id = ipc::make_queue(name.key, name.mode)?;
            same(id, name)?;
            ipc::set_queue(id, permissions(name, ids)?, *limit)?;
            for (kind, contents) in messages {
                ipc::send_message(id, *kind, contents)?;
            }
        }
        _ => {}
    }
    Ok(None)
}

fn next_id(kind: &str, id: i32) -> io::Result<()> {
    std::fs::write(format!("/proc/sys/kernel/{kind}_next_id"), id.to_string())
}

fn same(id: i32, name: &IpcName) -> io::Result<()> {
    if id == name.id {
        return Ok(());
    }
    Err(io::Error::other(format!("id {} was requested, but the kernel gave {id}", name.id)))
}

fn permissions(name: &IpcName, ids: Ids) -> io::Result<Permissions> {
    let outside = |id: u32| {
        ids.outside(id).ok_or_else(|| io::Error::other("an owner outside the machine's ids"))
    };
    Ok(Permissions { uid: outside(name.uid)?, gid: outside(name.gid)?, mode: name.mode })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_found_by_name() {
        let head = "       key      msqid perms      cbytes       qnum lspid lrpid   uid   gid";
        let line = "1470431234 3 600 480 3 7 0 1000 100";
        let row = parse(head, line, Ids::HOST).unwrap();
        let name = IpcName { id: 3, key: 1470431234, uid: 1000, gid: 100, mode: 0o600 };
        assert_eq!(row, Row { name, flags: 0o600, count: 480 });
    }
}
