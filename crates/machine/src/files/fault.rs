//! What can be wrong with a file of a machine.

use stasis_api::Problem;
use stasis_sys::libc;
use std::fmt;
use std::io;

#[derive(Debug)]
pub enum Fault {
    Missing,
    NotAFile,
    NotADirectory,
    NotEmpty,
    Denied,
    /// On another file system of the machine, such as /proc.
    Elsewhere,
    Loop,
    /// There are more directories below it than are watched.
    TooMany(usize),
    /// The kernel gives no more watches.
    NoWatches,
    /// It would pass the machine's limit, in bytes.
    Full(u64),
    BadName(&'static str),
    /// The machine left memory again and again before it was done.
    Unsteady,
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Fault {
        match error.raw_os_error() {
            Some(libc::ENOENT) => Fault::Missing,
            Some(libc::ENOTDIR) => Fault::NotADirectory,
            Some(libc::EISDIR) => Fault::NotAFile,
            Some(libc::ENOTEMPTY | libc::EEXIST) => Fault::NotEmpty,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => Fault::Denied,
            Some(libc::EXDEV) => Fault::Elsewhere,
            Some(libc::ELOOP) => Fault::Loop,
            Some(libc::ENAMETOOLONG) => Fault::BadName("it is too long"),
            Some(libc::EINVAL) => Fault::BadName("it is not one"),
            _ => Fault::Io(error),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::Missing => f.write_str("there is no such file"),
            Fault::NotAFile => f.write_str("it is not a regular file"),
            Fault::NotADirectory => f.write_str("it is not a directory"),
            Fault::NotEmpty => f.write_str("the directory is not empty"),
            Fault::Denied => f.write_str("the machine's user may not do that"),
            Fault::Elsewhere => f.write_str("it is not on the machine's own disk"),
            Fault::Loop => f.write_str("its links lead in a circle, or too far"),
            Fault::TooMany(most) => {
                write!(f, "there is more below it than can be watched, which is {most} directories")
            }
            Fault::NoWatches => f.write_str("the host has no watches of files left"),
            Fault::Full(limit) => {
                write!(f, "it does not fit into the machine's limit of {} MB", limit >> 20)
            }
            Fault::BadName(why) => write!(f, "the path cannot be used: {why}"),
            Fault::Unsteady => f.write_str("the machine does not stay in memory"),
            Fault::Io(error) => error.fmt(f),
        }
    }
}

impl Fault {
    pub fn code(&self) -> &'static str {
        match self {
            Fault::Missing => "file.not_found",
            Fault::NotAFile => "file.not_a_file",
            Fault::NotADirectory => "file.not_a_directory",
            Fault::NotEmpty => "file.not_empty",
            Fault::Denied => "file.denied",
            Fault::Elsewhere => "file.elsewhere",
            Fault::Loop => "file.loop",
            Fault::TooMany(_) => "file.too_many",
            Fault::NoWatches => "file.no_watches",
            Fault::Full(_) => "machine.disk_full",
            Fault::BadName(_) => "file.bad_path",
            Fault::Unsteady => "machine.unsteady",
            Fault::Io(_) => "file.io",
        }
    }

    pub fn problem(&self) -> Problem {
        match self {
            Fault::Missing => Problem::NotFound,
            Fault::Denied => Problem::Forbidden,
            Fault::NotEmpty => Problem::Conflict,
            Fault::Full(_) | Fault::TooMany(_) => Problem::TooLarge,
            Fault::Unsteady | Fault::NoWatches => Problem::Unavailable,
            Fault::Io(_) => Problem::Internal,
            _ => Problem::Invalid,
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            Fault::Missing => "list its directory to see what there is",
            Fault::NotAFile => "a directory is listed; pipes and devices are not read",
            Fault::NotADirectory => "a part of the path is a file: name its directory",
            Fault::NotEmpty => "`recursive` removes what is in it, too",
            Fault::Denied => "look at its mode and those of its directories; code may change them",
            Fault::Elsewhere => "/proc, /dev and the like are read by code of the machine only",
            Fault::Loop => "name the file itself instead of a link to it",
            Fault::TooMany(_) => "watch a directory further down, or without `recursive`",
            Fault::NoWatches => {
                "end other watches, or raise the host's fs.inotify.max_user_* settings"
            }
            Fault::Full(_) => "remove files, or raise the machine's `disk_mb`",
            Fault::BadName(_) => "write a path without `..`, below /home/user or from / on",
            Fault::Unsteady => "ask again; the host may be short of memory",
            Fault::Io(_) => "ask again; look at room on the disk of the data directory",
        }
    }
}
