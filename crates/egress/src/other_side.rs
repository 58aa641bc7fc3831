//! The other side of a machine's connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The other side of a connection: a socket to the host outside, or to what reads the requests.
pub enum OtherSide {
    Outside(TcpStream),
    Reader(RequestReader),
}

/// The way to the thread that reads the requests.
pub struct RequestReader {
    pub stream: UnixStream,
    /// Set when it ends because a request is not allowed any more.
    pub is_revoked: Arc<AtomicBool>,
}

impl RequestReader {
    /// An end that cuts an answer off must not look like the end of the answer.
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self.stream.read(into)? {
            0 if !into.is_empty() && self.is_revoked.load(Ordering::Acquire) => {
                Err(io::ErrorKind::ConnectionReset.into())
            }
            len => Ok(len),
        }
    }
}

impl OtherSide {
    /// Says that no more is written.
    pub fn end_writing(&self) {
        let _ = match self {
            OtherSide::Outside(stream) => stream.shutdown(Shutdown::Write),
            OtherSide::Reader(reader) => reader.stream.shutdown(Shutdown::Write),
        };
    }
}

impl Read for OtherSide {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            OtherSide::Outside(stream) => stream.read(into),
            OtherSide::Reader(reader) => reader.read(into),
        }
    }
}

impl Write for OtherSide {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            OtherSide::Outside(stream) => stream.write(bytes),
            OtherSide::Reader(reader) => reader.stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for OtherSide {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            OtherSide::Outside(stream) => stream.as_fd(),
            OtherSide::Reader(reader) => reader.stream.as_fd(),
        }
    }
}
