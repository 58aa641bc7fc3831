//! The kernel's list of unix sockets (sock_diag), for the network namespace we are in.
//!
//! No other source shows which two sockets are connected, or which clients are in a backlog. An
//! answer that does not parse is an error: a capture must not guess.

use stasis_spawner::socket_plan::UnixRow;
use stasis_sys::{libc, socket};
use std::io;
use std::os::fd::AsFd;

const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const SHOW_PEER_ICONS_RQLEN: u32 = 4 | 8 | 16;
const HEADER: usize = 16;
const ROW: usize = 16;
const DONE: u16 = 3;
const ERROR: u16 = 2;

pub fn unix_sockets() -> io::Result<Vec<UnixRow>> {
    let kernel = socket::socket(libc::AF_NETLINK, libc::SOCK_RAW, NETLINK_SOCK_DIAG)?;
    socket::send(kernel.as_fd(), &request(), &[])?;
    let mut rows = Vec::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        let received = socket::receive(kernel.as_fd(), &mut buffer)?;
        if received.flags & libc::MSG_TRUNC != 0 {
            return Err(io::Error::other("an answer about sockets is too long"));
        }
        if read_messages(&buffer[..received.len], &mut rows)? {
            return Ok(rows);
        }
    }
}

/// struct nlmsghdr, then struct unix_diag_req.
fn request() -> Vec<u8> {
    let flags = (libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16;
    let mut bytes = Vec::with_capacity(HEADER + 24);
    bytes.extend((HEADER as u32 + 24).to_ne_bytes());
    bytes.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([libc::AF_UNIX as u8, 0, 0, 0]);
    bytes.extend(u32::MAX.to_ne_bytes()); // in every state
    bytes.extend([0; 4]);
    bytes.extend(SHOW_PEER_ICONS_RQLEN.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes
}

/// True when the list has ended.
fn read_messages(mut bytes: &[u8], rows: &mut Vec<UnixRow>) -> io::Result<bool> {
    while !bytes.is_empty() {
        let len = u32_at(bytes, 0)? as usize;
        let kind = u16_at(bytes, 4)?;
        let message = bytes.get(HEADER..len).ok_or_else(torn)?;
        match kind {
            DONE => return Ok(true),
            ERROR => {
                let errno = -(u32_at(message, 0)? as i32);
                return Err(io::Error::from_raw_os_error(errno));
            }
            _ => rows.push(read_row(message)?),
        }
        bytes = bytes.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(false)
}

/// struct unix_diag_msg, then attributes.
fn read_row(message: &[u8]) -> io::Result<UnixRow> {
    let state = *message.get(2).ok_or_else(torn)?;
    let mut row = UnixRow { inode: u32_at(message, 4)?, state, ..UnixRow::default() };
    let mut rest = message.get(ROW..).ok_or_else(torn)?;
    while !rest.is_empty() {
        let len = u16_at(rest, 0)? as usize;
        let value = rest.get(4..len).ok_or_else(torn)?;
        match u16_at(rest, 2)? {
            2 => row.peer = Some(u32_at(value, 0)?),
            3 => row.waiting = words(value),
            4 => row.backlog = u32_at(value, 4)?,
            6 => row.shutdown = *value.first().ok_or_else(torn)?,
            _ => {}
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or(&[]);
    }
    Ok(row)
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().expect("4"))).collect()
}

fn u32_at(bytes: &[u8], at: usize) -> io::Result<u32> {
    let word = bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).ok_or_else(torn)?;
    Ok(u32::from_ne_bytes(word))
}

fn u16_at(bytes: &[u8], at: usize) -> io::Result<u16> {
    let word = bytes.get(at..at + 2).and_then(|word| word.try_into().ok()).ok_or_else(torn)?;
    Ok(u16::from_ne_bytes(word))
}

fn torn() -> io::Error {
    io::Error::other("an answer about sockets is truncated")
}

#[cfg(test)]
mod tests {
    use super::*;
    use stasis_sys::fds;

    #[test]
    fn the_ends_of_a_pair_name_each_other() {
        let (a, b) = socket::pair(libc::SOCK_STREAM).unwrap();
        let inode = |fd: &std::os::fd::OwnedFd| fds::stat(fd.as_fd()).unwrap().st_ino as u32;
        let rows = unix_sockets().unwrap();
        let row = rows.iter().find(|row| row.inode == inode(&a)).unwrap();
        assert_eq!((row.peer, row.state, row.shutdown), (Some(inode(&b)), 1, 0));
    }

    #[test]
    fn torn_answers_are_refused() {
        let mut rows = Vec::new();
        assert!(read_messages(&[40, 0, 0, 0, 20, 0], &mut rows).is_err());
        assert!(read_messages(&[200, 0, 0, 0, 20, 0, 0, 0, 0, 0, 0, 0], &mut rows).is_err());
        assert!(read_row(&[1, 1, 1, 0, 9, 0, 0, 0]).is_err());
    }
}
