//! Errors of file operations.

use stasis_api::Problem;
use stasis_sys::libc;
use std::fmt;
use std::io;

#[derive(Debug)]
pub enum FileError {
    Missing,
    NotAFile,
    NotADirectory,
    NotEmpty,
    Denied,
    /// On another file system of the machine, such as /proc.
    Elsewhere,
    Loop,
    /// It contains more directories than a watch may cover.
    TooMany(usize),
    /// The kernel has no more watches.
    NoWatches,
    /// It would exceed the machine's limit, in bytes.
    Full(u64),
    BadName(&'static str),
    /// A policy of the machine does not allow it.
    Refused {
        policy: Option<String>,
        reason: String,
    },
    /// The machine repeatedly left memory before the operation finished.
    Unsteady,
    Io(io::Error),
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> FileError {
        match error.raw_os_error() {
            Some(libc::ENOENT) => FileError::Missing,
            Some(libc::ENOTDIR) => FileError::NotADirectory,
            Some(libc::EISDIR) => FileError::NotAFile,
            Some(libc::ENOTEMPTY | libc::EEXIST) => FileError::NotEmpty,
            Some(libc::EACCES | libc::EPERM | libc::EROFS) => FileError::Denied,
            Some(libc::EXDEV) => FileError::Elsewhere,
            Some(libc::ELOOP) => FileError::Loop,
            Some(libc::ENAMETOOLONG) => FileError::BadName("it is too long"),
            Some(libc::EINVAL) => FileError::BadName("it is not one"),
            _ => FileError::Io(error),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileError::Missing => f.write_str("there is no such file"),
            FileError::NotAFile => f.write_str("it is not a regular file"),
            FileError::NotADirectory => f.write_str("it is not a directory"),
            FileError::NotEmpty => f.write_str("the directory is not empty"),
            FileError::Denied => f.write_str("the machine's user may not do that"),
            FileError::Elsewhere => f.write_str("it is not on the machine's own disk"),
            FileError::Loop => f.write_str("it has too many levels of links"),
            FileError::TooMany(most) => {
                write!(f, "it contains more than {most} directories, the limit of a watch")
            }
            FileError::NoWatches => f.write_str("the host has run out of inotify watches"),
            FileError::Full(limit) => {
                write!(f, "it does not fit into the machine's limit of {} MB", limit >> 20)
            }
            FileError::BadName(why) => write!(f, "the path cannot be used: {why}"),
            FileError::Refused { policy: Some(policy), reason } => {
                write!(f, "policy `{policy}` refuses it: {reason}")
            }
            FileError::Refused { policy: None, reason } => f.write_str(reason),
            FileError::Unsteady => f.write_str("the machine does not stay in memory"),
            FileError::Io(error) => error.fmt(f),
        }
    }
}

impl FileError {
    pub fn code(&self) -> &'static str {
        match self {
            FileError::Missing => "file.not_found",
            FileError::NotAFile => "file.not_a_file",
            FileError::NotADirectory => "file.not_a_directory",
            FileError::NotEmpty => "file.not_empty",
            FileError::Denied => "file.denied",
            FileError::Elsewhere => "file.elsewhere",
            FileError::Loop => "file.loop",
            FileError::TooMany(_) => "file.too_many",
            FileError::NoWatches => "file.no_watches",
            FileError::Full(_) => "machine.disk_full",
            FileError::BadName(_) => "file.bad_path",
            FileError::Refused { .. } => "policy.refused",
            FileError::Unsteady => "machine.unsteady",
            FileError::Io(_) => "file.io",
        }
    }

    pub fn problem(&self) -> Problem {
        match self {
            FileError::Missing => Problem::NotFound,
            FileError::Denied | FileError::Refused { .. } => Problem::Forbidden,
            FileError::NotEmpty
            | FileError::NotAFile
            | FileError::NotADirectory
            | FileError::Elsewhere
            | FileError::Loop => Problem::Conflict,
            FileError::Full(_) | FileError::TooMany(_) => Problem::TooLarge,
            FileError::Unsteady | FileError::NoWatches => Problem::Unavailable,
            FileError::Io(_) => Problem::Internal,
            FileError::BadName(_) => Problem::Unprocessable,
        }
    }

    pub fn hint(&self) -> &'static str {
        match self {
            FileError::Missing => "list its directory",
            FileError::NotAFile => "list a directory instead; pipes and devices cannot be read",
            FileError::NotADirectory => "part of the path is a file, not a directory",
            FileError::NotEmpty => "`recursive` also removes its contents",
            FileError::Denied => {
                "check its mode and those of its directories; code can change them"
            }
            FileError::Elsewhere => "only code in the machine can read /proc, /dev and similar",
            FileError::Loop => "name the file instead of a link to it",
            FileError::TooMany(_) => "watch a deeper directory, or leave out `recursive`",
            FileError::NoWatches => {
                "close other watches, or raise the host's fs.inotify.max_user_* settings"
            }
            FileError::Full(_) => "remove files, or raise the machine's `disk_mb`",
            FileError::BadName(_) => {
                "write a path without `..`, absolute or relative to /home/user"
            }
            FileError::Refused { .. } => {
                "`stasis policy explain MACHINE read PATH` shows the rule; have the policy changed"
            }
            FileError::Unsteady => "try again; the host may be short of memory",
            FileError::Io(_) => "try again; check the free space of the data directory",
        }
    }
}
