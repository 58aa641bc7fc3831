//! The other side of a machine's connection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

/// The other side of a connection: a socket to the host outside, or to what reads the requests.
pub enum OtherSide {
    Outside(TcpStream),
    Reader(UnixStream),
}

impl OtherSide {
    /// Says that no more is written.
    pub fn end_writing(&self) {
        let _ = match self {
            OtherSide::Outside(stream) => stream.shutdown(Shutdown::Write),
            OtherSide::Reader(stream) => stream.shutdown(Shutdown::Write),
        };
    }
}

impl Read for OtherSide {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            OtherSide::Outside(stream) => stream.read(into),
            OtherSide::Reader(stream) => stream.read(into),
        }
    }
}

impl Write for OtherSide {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            OtherSide::Outside(stream) => stream.write(bytes),
            OtherSide::Reader(stream) => stream.write(bytes),
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
            OtherSide::Reader(stream) => stream.as_fd(),
        }
    }
}
