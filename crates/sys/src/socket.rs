//! Sockets: pairs that carry descriptors, and raw options.

use crate::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

/// Most descriptors one message can carry (the kernel's SCM_MAX_FD).
pub const MAX_FDS: usize = 253;
/// A descriptor of the sender, for sockets with SO_PASSPIDFD.
const SCM_PIDFD: i32 = 4;
/// Room for any socket address (struct sockaddr_storage).
const MAX_NAME: usize = 128;

pub fn pair(kind: i32) -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: the array has room for both ends; both are new and ours.
    unsafe {
        check(
            libc::socketpair(libc::AF_UNIX, kind | libc::SOCK_CLOEXEC, 0, ends.as_mut_ptr()).into(),
        )?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// Sends bytes together with descriptors.
pub fn send(socket: BorrowedFd, bytes: &[u8], fds: &[BorrowedFd]) -> io::Result<usize> {
    let raw: Vec<RawFd> = fds.iter().map(AsRawFd::as_raw_fd).collect();
    let mut control = control_buffer(raw.len());
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: the header points at buffers that live until the call returns; the control buffer
    // was sized by CMSG_SPACE for exactly these descriptors and is aligned as a cmsghdr.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        if !raw.is_empty() {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(size_of_val(&raw[..]) as u32) as usize;
            let header = libc::CMSG_FIRSTHDR(&raw const message);
            (*header).cmsg_level = libc::SOL_SOCKET;
            (*header).cmsg_type = libc::SCM_RIGHTS;
            (*header).cmsg_len = libc::CMSG_LEN(size_of_val(&raw[..]) as u32) as usize;
            std::ptr::copy_nonoverlapping(
                raw.as_ptr(),
                libc::CMSG_DATA(header).cast::<RawFd>(),
                raw.len(),
            );
        }
        let sent = check(
            libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) as i64,
        )?;
        Ok(sent as usize)
    }
}

/// A received message: bytes, descriptors, and the sender's pid if requested.
pub struct Received {
    pub len: usize,
    pub fds: Vec<OwnedFd>,
    pub sender: Option<i32>,
    /// The sender's pid, uid and gid, if requested.
    pub credentials: Option<(i32, u32, u32)>,
    /// The sender's address, empty when it has none.
    pub from: Vec<u8>,
    /// MSG_* flags: MSG_TRUNC, MSG_EOR.
    pub flags: i32,
}

/// Receives bytes and descriptors; `len` 0 means that the other side has closed.
pub fn receive(socket: BorrowedFd, buffer: &mut [u8]) -> io::Result<Received> {
    receive_with(socket, buffer, 0)
}

pub fn receive_with(socket: BorrowedFd, buffer: &mut [u8], flags: i32) -> io::Result<Received> {
    let mut control = control_buffer(MAX_FDS + 16);
    let mut name = vec![0u8; MAX_NAME];
    let mut iov = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: as in `send`; received descriptors are new and owned from here on.
    unsafe {
        let mut message: libc::msghdr = std::mem::zeroed();
        message.msg_name = name.as_mut_ptr().cast();
        message.msg_namelen = name.len() as u32;
        message.msg_iov = &raw mut iov;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = size_of_val(&control[..]);
        let len = retry(|| {
            check(libc::recvmsg(
                socket.as_raw_fd(),
                &raw mut message,
                flags | libc::MSG_CMSG_CLOEXEC,
            ) as i64)
        })?;
        name.truncate(message.msg_namelen as usize);
        let mut received = Received {
            len: len as usize,
            fds: Vec::new(),
            sender: None,
            credentials: None,
            from: name,
            flags: message.msg_flags,
        };
        let mut header = libc::CMSG_FIRSTHDR(&raw const message);
        while !header.is_null() {
            read_control(header, &mut received);
            header = libc::CMSG_NXTHDR(&raw const message, header);
        }
        Ok(received)
    }
}

/// # Safety
/// `header` must be a control message the kernel just wrote.
unsafe fn read_control(header: *const libc::cmsghdr, received: &mut Received) {
    // SAFETY: the kernel wrote `cmsg_len` bytes; descriptors in it are new and ours.
    unsafe {
        if (*header).cmsg_level != libc::SOL_SOCKET {
            return;
        }
        let data = libc::CMSG_DATA(header);
        let bytes = (*header).cmsg_len - libc::CMSG_LEN(0) as usize;
        if (*header).cmsg_type == libc::SCM_RIGHTS {
            for index in 0..bytes / size_of::<RawFd>() {
                let fd = data.cast::<RawFd>().add(index).read_unaligned();
                received.fds.push(OwnedFd::from_raw_fd(fd));
            }
        } else if (*header).cmsg_type == libc::SCM_CREDENTIALS {
            let sender = data.cast::<libc::ucred>().read_unaligned();
            received.sender = Some(sender.pid);
            received.credentials = Some((sender.pid, sender.uid, sender.gid));
        } else if (*header).cmsg_type == SCM_PIDFD && bytes >= size_of::<RawFd>() {
            // not requested here, but it must not stay open
            drop(OwnedFd::from_raw_fd(data.cast::<RawFd>().read_unaligned()));
        }
    }
}

fn control_buffer(fds: usize) -> Vec<u64> {
    // SAFETY: CMSG_SPACE only computes.
    let bytes = unsafe { libc::CMSG_SPACE((fds * size_of::<RawFd>()) as u32) } as usize;
    vec![0; bytes.div_ceil(8) + 4]
}

fn retry(mut call: impl FnMut() -> io::Result<i64>) -> io::Result<i64> {
    loop {
        match call() {
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            other => return other,
        }
    }
}

/// Requests the sender's pid with every received message.
pub fn want_sender(socket: BorrowedFd) -> io::Result<()> {
    set_option(socket, libc::SOL_SOCKET, libc::SO_PASSCRED, &1i32.to_ne_bytes())
}

pub fn set_option(socket: BorrowedFd, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    check(
        // SAFETY: pointer and length describe `value`.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                level,
                name,
                value.as_ptr().cast(),
                value.len() as u32,
            )
        }
        .into(),
    )
    .map(drop)
}

pub fn option(socket: BorrowedFd, level: i32, name: i32, capacity: usize) -> io::Result<Vec<u8>> {
    let mut value = vec![0u8; capacity];
    let mut len = capacity as u32;
    check(
        // SAFETY: pointer and length describe `value`; the kernel writes at most `len` bytes.
        unsafe {
            libc::getsockopt(
                socket.as_raw_fd(),
                level,
                name,
                value.as_mut_ptr().cast(),
                &raw mut len,
            )
        }
        .into(),
    )?;
    value.truncate(len as usize);
    Ok(value)
}

/// The length of an option's value: the kernel reports it for an empty buffer.
pub fn option_len(socket: BorrowedFd, level: i32, name: i32) -> io::Result<usize> {
    let mut len = 0u32;
    check(
        // SAFETY: the length is zero, so nothing is written through the null pointer.
        unsafe {
            libc::getsockopt(socket.as_raw_fd(), level, name, std::ptr::null_mut(), &raw mut len)
        }
        .into(),
    )?;
    Ok(len as usize)
}

/// An `int` option.
pub fn option_int(socket: BorrowedFd, level: i32, name: i32) -> io::Result<i32> {
    let value = option(socket, level, name, 4)?;
    value
        .try_into()
        .map(i32::from_ne_bytes)
        .map_err(|_| io::Error::other("the option is not a number"))
}

pub fn socket(family: i32, kind: i32, protocol: i32) -> io::Result<OwnedFd> {
    // SAFETY: the kernel reads no memory of ours, and `check` lets only a descriptor through, which
    // is new, so nothing else in this process owns it.
    unsafe {
        let fd = check(libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol).into())?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn bind(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    check(
        // SAFETY: pointer and length describe `address`; the kernel checks its contents.
        unsafe { libc::bind(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) }
            .into(),
    )
    .map(drop)
}

pub fn connect(socket: BorrowedFd, address: &[u8]) -> io::Result<()> {
    check(
        // SAFETY: as in `bind`.
        unsafe { libc::connect(socket.as_raw_fd(), address.as_ptr().cast(), address.len() as u32) }
            .into(),
    )
    .map(drop)
}

pub fn listen(socket: BorrowedFd, backlog: i32) -> io::Result<()> {
    // SAFETY: the borrow keeps the socket open; the kernel clamps the backlog and reads no memory.
    check(unsafe { libc::listen(socket.as_raw_fd(), backlog) }.into()).map(drop)
}

pub fn accept(socket: BorrowedFd, flags: i32) -> io::Result<OwnedFd> {
    // SAFETY: no address is asked for; the descriptor is new and ours.
    unsafe {
        let fd = check(
            libc::accept4(
                socket.as_raw_fd(),
                std::ptr::null_mut(),
                std::ptr::null_mut(),
                flags | libc::SOCK_CLOEXEC,
            )
            .into(),
        )?;
        Ok(OwnedFd::from_raw_fd(fd as i32))
    }
}

pub fn shutdown(socket: BorrowedFd, how: i32) -> io::Result<()> {
    // SAFETY: the borrow keeps the socket open; shutting down closes no descriptor, so owners of it
    // stay valid.
    check(unsafe { libc::shutdown(socket.as_raw_fd(), how) }.into()).map(drop)
}

/// Sends bytes without waiting, to `address` or, when it is empty, to whom the socket is connected.
pub fn send_to(socket: BorrowedFd, bytes: &[u8], address: &[u8]) -> io::Result<usize> {
    let name = if address.is_empty() { std::ptr::null() } else { address.as_ptr() };
    const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: pointers and lengths describe `bytes` and `address`; the kernel checks the latter.
    let sent = check(unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            bytes.as_ptr().cast(),
            bytes.len(),
            FLAGS,
            name.cast(),
            address.len() as u32,
        )
    } as i64)?;
    Ok(sent as usize)
}

/// The process that created, connected or listened at the other end: pid, uid and gid as this
/// process sees them.
pub fn peer_credentials(socket: BorrowedFd) -> io::Result<(i32, u32, u32)> {
    let bytes = option(socket, libc::SOL_SOCKET, libc::SO_PEERCRED, 12)?;
    let word = |at: usize| {
        let bytes = bytes.get(at..at + 4).and_then(|word| word.try_into().ok());
        bytes.map(u32::from_ne_bytes).ok_or_else(|| io::Error::other("credentials are too short"))
    };
    Ok((word(0)? as i32, word(4)?, word(8)?))
}

/// The file a unix socket is bound at, opened with O_PATH, also when it has no name any more.
pub fn bound_file(socket: BorrowedFd) -> io::Result<OwnedFd> {
    const SIOCUNIXFILE: u64 = 0x89e0;
    let fd = crate::fds::ioctl_value(socket, SIOCUNIXFILE, 0)?;
    // SAFETY: the kernel just made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn name_with(
    socket: BorrowedFd,
    call: unsafe extern "C" fn(i32, *mut libc::sockaddr, *mut u32) -> i32,
) -> io::Result<Vec<u8>> {
    let mut name = vec![0u8; MAX_NAME];
    let mut len = name.len() as u32;
    // SAFETY: pointer and length describe `name`.
    check(unsafe { call(socket.as_raw_fd(), name.as_mut_ptr().cast(), &raw mut len) }.into())?;
    name.truncate(len as usize);
    Ok(name)
}

pub fn local_name(socket: BorrowedFd) -> io::Result<Vec<u8>> {
    name_with(socket, libc::getsockname)
}

pub fn peer_name(socket: BorrowedFd) -> io::Result<Vec<u8>> {
    name_with(socket, libc::getpeername)
}
