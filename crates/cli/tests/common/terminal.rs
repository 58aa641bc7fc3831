//! The program on a terminal, as a person sees it.

use super::World;
use stasis_sys::{fds, libc};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::{Child, ExitStatus};

pub struct Terminal {
    child: Child,
    master: File,
    seen: Vec<u8>,
}

impl Terminal {
    /// Starts the program with a terminal of its own on all three descriptors.
    pub fn start(world: &World, args: &[&str]) -> Terminal {
        let open = |path: &str| {
            let mut options = OpenOptions::new();
            options.read(true).write(true).custom_flags(libc::O_NOCTTY).open(path)
        };
        let master = open("/dev/ptmx").expect("a terminal");
        fds::ioctl_buffer(master.as_fd(), libc::TIOCSPTLCK, &mut [0; 4]).expect("unlocked");
        let mut number = [0; 4];
        fds::ioctl_buffer(master.as_fd(), libc::TIOCGPTN, &mut number).expect("a number");
        // 50 lines of 200 columns
        let mut size: Vec<u8> = [50u16, 200, 0, 0].iter().flat_map(|n| n.to_ne_bytes()).collect();
        fds::ioctl_buffer(master.as_fd(), libc::TIOCSWINSZ, &mut size).expect("a size");
        let slave = open(&format!("/dev/pts/{}", u32::from_ne_bytes(number))).expect("a terminal");
        let mut command = world.command(args);
        let copy = || slave.try_clone().expect("a copy");
        command.env("TERM", "xterm").stdin(copy()).stdout(copy()).stderr(copy());
        Terminal { child: command.spawn().expect("it starts"), master, seen: Vec::new() }
    }

    /// Types something.
    pub fn type_in(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("a terminal");
    }

    pub fn seen(&self) -> String {
        String::from_utf8_lossy(&self.seen).into_owned()
    }

    /// Reads until something is seen; fails if the program ends before.
    pub fn until(&mut self, wanted: impl Fn(&str) -> bool) {
        while !wanted(&self.seen()) {
            assert!(self.read(), "it ended before: {:?}", self.seen());
        }
    }

    /// Whether there was more; a closed terminal gives an error.
    fn read(&mut self) -> bool {
        let mut some = [0; 4096];
        let len = self.master.read(&mut some).unwrap_or(0);
        self.seen.extend_from_slice(&some[..len]);
        len > 0
    }

    /// All that is seen to the end, and what the end was.
    pub fn end(mut self) -> (String, ExitStatus) {
        while self.read() {}
        let status = self.child.wait().expect("it ends");
        (self.seen(), status)
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }
}
