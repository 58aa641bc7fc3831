//! System V shared memory, semaphores and message queues of the calling thread's namespace.

use crate::check;
use std::fs::File;
use std::io;

/// Owner and permissions, as IPC_SET takes them.
#[derive(Debug, Clone, Copy)]
pub struct Permissions {
    pub uid: u32,
    pub gid: u32,
    pub mode: u32,
}

const CREATE: i32 = libc::IPC_CREAT | libc::IPC_EXCL;
/// Copies a message without taking it; the type is then its place in the queue.
const MSG_COPY: i32 = 0o40000;

fn number(result: i32) -> io::Result<i32> {
    check(result.into()).map(|value| value as i32)
}

pub fn make_memory(key: i32, size: usize, mode: u32) -> io::Result<i32> {
    // SAFETY: makes a segment in the kernel and attaches it nowhere: no address of ours changes.
    number(unsafe { libc::shmget(key, size, CREATE | mode as i32) })
}

/// The file behind a segment, for reading and writing.
pub fn memory_file(id: i32) -> io::Result<File> {
    // SAFETY: the kernel chooses the place, where nothing was mapped before; only this
    // function has the address, and unmaps it before it returns.
    unsafe {
        let at = libc::shmat(id, std::ptr::null(), 0);
        if at as isize == -1 {
            return Err(io::Error::last_os_error());
        }
        let file = file_mapped_at(at as u64);
        libc::shmdt(at);
        file
    }
}

fn file_mapped_at(start: u64) -> io::Result<File> {
    let missing = || io::Error::other("attached memory is not mapped");
    let maps = std::fs::read_to_string("/proc/self/maps")?;
    let own = format!("{start:x}-");
    let line = maps.lines().find(|line| line.starts_with(&own)).ok_or_else(missing)?;
    let range = line.split(' ').next().ok_or_else(missing)?;
    File::options().read(true).write(true).open(format!("/proc/self/map_files/{range}"))
}

pub fn set_memory(id: i32, permissions: Permissions) -> io::Result<()> {
    // SAFETY: the struct is plain integers; the kernel reads owner and mode from it.
    unsafe {
        let mut info: libc::shmid_ds = std::mem::zeroed();
        info.shm_perm.uid = permissions.uid;
        info.shm_perm.gid = permissions.gid;
        info.shm_perm.mode = permissions.mode as _;
        number(libc::shmctl(id, libc::IPC_SET, &raw mut info)).map(drop)
    }
}

pub fn make_semaphores(key: i32, count: usize, mode: u32) -> io::Result<i32> {
    // SAFETY: makes semaphores in the kernel, which checks the count; no pointer is passed.
    number(unsafe { libc::semget(key, count as i32, CREATE | mode as i32) })
}

/// Values of a set of `count` semaphores.
pub fn semaphore_values(id: i32, count: usize) -> io::Result<Vec<u16>> {
    let mut values = vec![0u16; count];
    // SAFETY: GETALL writes one value per semaphore; a set never changes its size.
    number(unsafe { libc::semctl(id, 0, libc::GETALL, values.as_mut_ptr()) })?;
    Ok(values)
}

pub fn set_semaphore_values(id: i32, values: &mut [u16]) -> io::Result<()> {
    // SAFETY: SETALL reads one value per semaphore; the caller made the set with this many.
    number(unsafe { libc::semctl(id, 0, libc::SETALL, values.as_mut_ptr()) }).map(drop)
}

pub fn set_semaphores(id: i32, permissions: Permissions) -> io::Result<()> {
    // SAFETY: as for `set_memory`.
    unsafe {
        let mut info: libc::semid_ds = std::mem::zeroed();
        info.sem_perm.uid = permissions.uid;
        info.sem_perm.gid = permissions.gid;
        info.sem_perm.mode = permissions.mode as _;
        number(libc::semctl(id, 0, libc::IPC_SET, &raw mut info)).map(drop)
    }
}

pub fn make_queue(key: i32, mode: u32) -> io::Result<i32> {
    // SAFETY: makes a queue in the kernel, empty; no pointer is passed until a message is sent.
    number(unsafe { libc::msgget(key, CREATE | mode as i32) })
}

/// Maximum bytes of a queue.
pub fn queue_limit(id: i32) -> io::Result<u64> {
    // SAFETY: the struct is plain integers; IPC_STAT fills it.
    unsafe {
        let mut info: libc::msqid_ds = std::mem::zeroed();
        number(libc::msgctl(id, libc::IPC_STAT, &raw mut info))?;
        Ok(info.msg_qbytes)
    }
}

pub fn set_queue(id: i32, permissions: Permissions, limit: u64) -> io::Result<()> {
    // SAFETY: as for `set_memory`; the limit is read too.
    unsafe {
        let mut info: libc::msqid_ds = std::mem::zeroed();
        info.msg_perm.uid = permissions.uid;
        info.msg_perm.gid = permissions.gid;
        info.msg_perm.mode = permissions.mode as _;
        info.msg_qbytes = limit;
        number(libc::msgctl(id, libc::IPC_SET, &raw mut info)).map(drop)
    }
}

/// A message of at most `most` bytes at a place in a queue, left there: type and contents.
pub fn copy_message(id: i32, place: usize, most: usize) -> io::Result<Option<(i64, Vec<u8>)>> {
    const TYPE: usize = size_of::<i64>();
    let mut buffer = vec![0u8; TYPE + most];
    let flags = MSG_COPY | libc::IPC_NOWAIT;
    // SAFETY: the buffer holds a type and `most` bytes.
    let len = unsafe { libc::msgrcv(id, buffer.as_mut_ptr().cast(), most, place as i64, flags) };
    match check(len as i64) {
        Ok(len) => {
            let contents = buffer.split_off(TYPE)[..len as usize].to_vec();
            let kind = buffer.iter().rev().fold(0, |sum, byte| sum << 8 | i64::from(*byte));
            Ok(Some((kind, contents)))
        }
        Err(error) if error.raw_os_error() == Some(libc::ENOMSG) => Ok(None),
        Err(error) => Err(error),
    }
}

pub fn send_message(id: i32, kind: i64, contents: &[u8]) -> io::Result<()> {
    let mut message = kind.to_ne_bytes().to_vec();
    message.extend_from_slice(contents);
    // SAFETY: the message holds a type and as many bytes as the length says.
    number(unsafe { libc::msgsnd(id, message.as_ptr().cast(), contents.len(), libc::IPC_NOWAIT) })
        .map(drop)
}
