//! Queued data of a pseudo-terminal, removed and restored.
//!
//! The kernel shows it only by removing it, so a capture removes and restores it while the tree is
//! stopped; a restore only writes it. Bytes go in with TIOCSTI, which bypasses echo, output
//! processing and flow control, and is complete when it returns.
//!
//! Lost: a pending ^V, and data typed before the slave was ever opened.

use stasis_image::model::Terminal;
use stasis_sys::{fds, libc};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::BorrowedFd;

const TCGETS2: u64 = 0x802c_542a;
const TCSETS2: u64 = 0x402c_542b;
pub const TERMIOS_SIZE: usize = 44;

/// `struct termios2`: four words of flags, a line discipline, 19 characters, two speeds.
const LFLAG: usize = 12;
const CHARACTERS: usize = 17;

/// The most a line discipline holds.
const MOST: usize = 4096;

pub fn termios(fd: BorrowedFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; TERMIOS_SIZE];
    fds::ioctl_buffer(fd, TCGETS2, &mut bytes)?;
    Ok(bytes)
}

pub fn set_termios(fd: BorrowedFd, termios: &[u8]) -> io::Result<()> {
    if termios.len() != TERMIOS_SIZE {
        return Err(io::Error::other("terminal settings of a wrong size"));
    }
    fds::ioctl_buffer(fd, TCSETS2, &mut termios.to_vec()).map(drop)
}

pub fn get_word(fd: BorrowedFd, request: u64) -> io::Result<u32> {
    let mut bytes = [0; 4];
    fds::ioctl_buffer(fd, request, &mut bytes)?;
    Ok(u32::from_ne_bytes(bytes))
}

pub fn set_word(fd: BorrowedFd, request: u64, value: u32) -> io::Result<()> {
    fds::ioctl_buffer(fd, request, &mut value.to_ne_bytes()).map(drop)
}

fn local_modes(termios: &[u8]) -> u32 {
    termios
        .get(LFLAG..LFLAG + 4)
        .map_or(0, |bytes| u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// Whether input is handed out by lines.
fn by_lines(termios: &[u8]) -> bool {
    let modes = local_modes(termios);
    modes & libc::ICANON != 0 && modes & libc::EXTPROC == 0
}

/// Takes out everything that waits on either side, into `terminal`.
pub fn drain(
    master: BorrowedFd,
    slave: Option<BorrowedFd>,
    terminal: &mut Terminal,
) -> io::Result<()> {
    // input first: bytes still on their way in are echoed only when they arrive
    if let Some(slave) = slave {
        drain_input(master, slave, terminal)?;
    }
    terminal.output = nonblocking(master, read_all)?;
    Ok(())
}

fn drain_input(master: BorrowedFd, slave: BorrowedFd, terminal: &mut Terminal) -> io::Result<()> {
    if by_lines(&terminal.termios) {
        terminal.lines = nonblocking(slave, read_lines)?;
        // without lines, the one that is still being typed can be read too
        let mut raw = terminal.termios.clone();
        let modes = local_modes(&raw) & !libc::ICANON;
        raw[LFLAG..LFLAG + 4].copy_from_slice(&modes.to_ne_bytes());
        set_termios(master, &raw)?;
    }
    terminal.rest = nonblocking(slave, read_all)?;
    set_termios(master, &terminal.termios)
}

/// Puts everything back, and sets the terminal as it should be.
pub fn refill(
    master: BorrowedFd,
    slave: Option<BorrowedFd>,
    terminal: &Terminal,
) -> io::Result<()> {
    push(master, &terminal.output)?;
    if let Some(slave) = slave {
        let end = end_mark(terminal);
        set_termios(master, &quiet(&terminal.termios, end))?;
        for line in &terminal.lines {
            push(slave, line)?;
            if !ends_itself(&terminal.termios, line) {
                push(slave, &[end])?;
            }
        }
        push(slave, &terminal.rest)?;
    }
    set_termios(master, &terminal.termios)
}

fn push(fd: BorrowedFd, bytes: &[u8]) -> io::Result<()> {
    for byte in bytes {
        fds::ioctl_buffer(fd, libc::TIOCSTI, &mut [*byte])?;
    }
    Ok(())
}

fn character(termios: &[u8], which: usize) -> u8 {
    termios.get(CHARACTERS + which).copied().unwrap_or(0)
}

/// A line ends with a newline or a character set for it; any other was ended by ^D.
fn ends_itself(termios: &[u8], line: &[u8]) -> bool {
    let Some(last) = line.last() else { return false };
    let ends = [b'\n', character(termios, libc::VEOL), character(termios, libc::VEOL2)];
    ends.iter().any(|end| *end != 0 && end == last)
}

/// A byte that occurs nowhere in the input, to stand for ^D.
fn end_mark(terminal: &Terminal) -> u8 {
    let termios = &terminal.termios;
    let taken = |byte: &u8| {
        *byte == b'\n'
            || [libc::VEOL, libc::VEOL2].iter().any(|which| character(termios, *which) == *byte)
            || terminal.lines.iter().chain([&terminal.rest]).any(|line| line.contains(byte))
    };
    (1..=255).find(|byte| !taken(byte)).unwrap_or(4)
}

/// Settings under which bytes go in as they are, and lines end where they should.
fn quiet(termios: &[u8], end: u8) -> Vec<u8> {
    let kept = local_modes(termios) & (libc::ICANON | libc::EXTPROC | libc::IEXTEN);
    let mut quiet = termios.to_vec();
    quiet[..8].fill(0);
    quiet[LFLAG..LFLAG + 4].copy_from_slice(&kept.to_ne_bytes());
    for which in 0..19 {
        let kept = [libc::VEOL, libc::VEOL2, libc::VMIN, libc::VTIME].contains(&which);
        if !kept {
            quiet[CHARACTERS + which] = 0;
        }
    }
    quiet[CHARACTERS + libc::VEOF] = end;
    quiet
}

/// Reads through an open file that others share, without waiting and without a trace.
fn nonblocking<T>(fd: BorrowedFd, read: impl FnOnce(&mut File) -> io::Result<T>) -> io::Result<T> {
    let flags = fds::fcntl(fd, libc::F_GETFL, 0)?;
    let mut file = File::from(fd.try_clone_to_owned()?);
    fds::fcntl(fd, libc::F_SETFL, (flags | libc::O_NONBLOCK) as u64)?;
    let result = read(&mut file);
    fds::fcntl(fd, libc::F_SETFL, flags as u64)?;
    result
}

/// One read, `None` when nothing is there or the other side is closed.
fn read_some(file: &mut File) -> io::Result<Option<Vec<u8>>> {
    let mut buffer = vec![0; 2 * MOST];
    match file.read(&mut buffer) {
        Ok(len) => {
            buffer.truncate(len);
            Ok(Some(buffer))
        }
        Err(error) if matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::EIO)) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_all(file: &mut File) -> io::Result<Vec<u8>> {
    let mut all = Vec::new();
    while let Some(some) = read_some(file)?.filter(|some| !some.is_empty()) {
        all.extend(some);
    }
    Ok(all)
}

/// Whole lines; an empty one is a ^D.
fn read_lines(file: &mut File) -> io::Result<Vec<Vec<u8>>> {
    let mut lines = Vec::new();
    while let Some(line) = read_some(file)? {
        lines.push(line);
        if lines.len() > MOST {
            return Err(io::Error::other("a terminal that never runs dry"));
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::{AsFd, OwnedFd};

    fn pair() -> Option<(OwnedFd, OwnedFd)> {
        let open = |path: &str| {
            use std::os::unix::fs::OpenOptionsExt;
            File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
        };
        let master = open("/dev/ptmx").ok()?;
        set_word(master.as_fd(), libc::TIOCSPTLCK, 0).ok()?;
        let index = get_word(master.as_fd(), libc::TIOCGPTN).ok()?;
        let slave = open(&format!("/dev/pts/{index}")).ok()?;
        Some((master.into(), slave.into()))
    }

    fn state(master: BorrowedFd) -> Terminal {
        Terminal { termios: termios(master).unwrap(), ..Terminal::default() }
    }

    #[test]
    fn what_waits_is_the_same_after_it_was_taken_and_put_back() {
        use std::io::Write;
        let Some((master, slave)) = pair() else { return };
        let (m, s) = (master.as_fd(), slave.as_fd());
        let mut file = File::from(master.try_clone().unwrap());
        file.write_all(b"one\ntw\x04\x04half").unwrap();
        let mut first = state(m);
        drain(m, Some(s), &mut first).unwrap();
        let lines: [&[u8]; 3] = [b"one\n", b"tw", b""];
        assert_eq!(first.lines, lines);
        assert_eq!(first.rest, b"half");
        refill(m, Some(s), &first).unwrap();
        let mut second = state(m);
        drain(m, Some(s), &mut second).unwrap();
        assert_eq!(first, second);
    }

    #[test]
    fn bytes_of_a_raw_terminal_go_in_as_they_are() {
        let Some((master, slave)) = pair() else { return };
        let (m, s) = (master.as_fd(), slave.as_fd());
        let mut raw = termios(m).unwrap();
        raw[..16].fill(0);
        set_termios(m, &raw).unwrap();
        let rest: Vec<u8> = (0..=255).collect();
        let put = Terminal { rest, output: b"out\n".into(), ..state(m) };
        refill(m, Some(s), &put).unwrap();
        let mut got = state(m);
        drain(m, Some(s), &mut got).unwrap();
        assert_eq!(put, got);
    }
}
