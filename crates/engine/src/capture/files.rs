//! The files the tree changed: its overlay's upper directory, read while the tree is stopped.
//!
//!   before the pause   a thread that can read this directory and nothing else (Landlock)
//!   in the pause       begin ─► thread: names, attributes, contents ─► finish: sink, image's tree
//!
//! While the directory is empty, as for a machine that has changed no file since its restore, there
//! is nothing to read and no thread.
//!
//! The tree should not change anything meanwhile, but nothing here depends on that. Every file is
//! reached by descriptor from its directory, no link is followed, and a file is checked after it
//! was opened. Only regular files are read, so a file that is swapped for something else yields its
//! own content or an error. Each step is bounded; more than an image should hold is refused.

use crate::error::{Error, ErrorContext, Result};
use crate::tree::Tree;
use bstr::{BString, ByteSlice};
use stasis_image::PAGE_SIZE;
use stasis_image::model::*;
use stasis_store::Sink;
use stasis_store::layers::KEPT_OVERLAY_NOTES;
use stasis_sys::trees::{self, WalkEntry};
use stasis_sys::{below, fds, files as sysfiles, landlock, libc};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, SyncSender};
use std::time::Duration;

/// Names in one image, and bytes of names, links and attributes.
pub const MOST_NAMES: u64 = 1_000_000;
pub const MOST_NAME_BYTES: usize = 128 << 20;
/// Directories above files, of all files together: for each the kernel checks every one of them.
const MOST_STEPS: usize = 8_000_000;
/// Offsets of files end there.
const LARGEST: u64 = 1 << 62;
/// As much as the kernel gives out at once of attributes.
const ATTRIBUTES: usize = 64 << 10;
/// Contents handed over at once, and how much of it waits.
const PIECE: usize = 256 << 10;
const ITEMS: usize = 128;
const WAITING: usize = 8;
/// How long a few files can take to be read. A disk that takes longer does not answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The reading thread reports these, in order.
enum Item {
    Entry(FileEntry),
    /// Content of the last entry, from a page on: a whole number of pages.
    Content(u64, Vec<u8>),
    Failed(Error),
    Done,
}

/// Reads a directory, in a thread of its own.
pub enum Reader {
    /// The directory had no entries before the pause.
    Empty(OwnedFd),
    Thread(ReaderThread),
}

impl Reader {
    /// Starts the thread, which waits.
    pub fn prepare(upper: &Path) -> Result<Reader> {
        let flags = libc::O_DIRECTORY | libc::O_NOFOLLOW;
        let dir = File::options().read(true).custom_flags(flags).open(upper);
        let dir: OwnedFd = dir.doing(|| format!("open {}", upper.display()))?.into();
        match trees::is_empty(dir.as_fd()).doing(|| "list its files".into())? {
            true => Ok(Reader::Empty(dir)),
            false => ReaderThread::start(dir).map(Reader::Thread),
        }
    }

    /// The tree is stopped.
    pub fn begin(&mut self) {
        if let Reader::Thread(thread) = self {
            thread.begin();
        }
    }

    /// The files as one tree over those of the image the tree was restored from.
    pub fn finish(self, tree: &Tree, sink: &mut Sink) -> Result<FileTree> {
        let keep = |page: u64, bytes: &[u8], runs: &mut Vec<PageRun>| {
            Ok(sink.keep(page, bytes, |_| None, runs)?)
        };
        let upper = self.collect(keep)?;
        let files = over_base(tree, upper, sink);
        tree.walls.disk.check(&files)?;
        Ok(files)
    }

    /// Everything below the directory; contents go to `keep`, which names where they are.
    fn collect(
        self,
        keep: impl FnMut(u64, &[u8], &mut Vec<PageRun>) -> Result<()>,
    ) -> Result<FileTree> {
        let thread = match self {
            Reader::Empty(dir) => {
                if trees::is_empty(dir.as_fd()).doing(|| "list its files".into())? {
                    return Ok(FileTree::default());
                }
                ReaderThread::start(dir)?
            }
            Reader::Thread(thread) => thread,
        };
        thread.collect(keep)
    }
}

/// A thread that is about to read a directory.
pub struct ReaderThread {
    begin: Option<SyncSender<()>>,
    found: Receiver<Vec<Item>>,
}

impl ReaderThread {
    fn start(dir: OwnedFd) -> Result<ReaderThread> {
        let (begin, order) = mpsc::sync_channel(1);
        let (tell, found) = mpsc::sync_channel(WAITING);
        std::thread::Builder::new()
            .name("stasis-files".into())
            .spawn(move || {
                let mut out = Out { tell, items: Vec::new(), bytes: 0 };
                let last = match read(dir, &order, &mut out) {
                    Ok(()) => Item::Done,
                    Err(error) => Item::Failed(error),
                };
                // the receiver of an abandoned capture has closed the channel
                let _ = out.add(last, PIECE);
            })
            .doing(|| "start a thread".into())?;
        Ok(ReaderThread { begin: Some(begin), found })
    }

    fn begin(&mut self) {
        if let Some(begin) = self.begin.take() {
            let _ = begin.send(());
        }
    }

    /// Everything the thread finds.
    fn collect(
        mut self,
        mut keep: impl FnMut(u64, &[u8], &mut Vec<PageRun>) -> Result<()>,
    ) -> Result<FileTree> {
        self.begin();
        let mut entries: Vec<FileEntry> = Vec::new();
        loop {
            let items = self.found.recv_timeout(PATIENCE).map_err(|error| match error {
                RecvTimeoutError::Timeout => refused("its files cannot be read: a disk hangs"),
                RecvTimeoutError::Disconnected => refused("the reader of its files ended"),
            })?;
            for item in items {
                match (item, entries.last_mut().map(|entry| &mut entry.kind)) {
                    (Item::Entry(entry), _) => entries.push(entry),
                    (Item::Content(page, bytes), Some(FileEntryKind::Regular { runs, .. })) => {
                        keep(page, &bytes, runs)?;
                    }
                    (Item::Content(..), _) => {}
                    (Item::Failed(error), _) => return Err(error),
                    (Item::Done, _) => return Ok(FileTree { entries, held: Vec::new() }),
                }
            }
        }
    }
}

/// The files above the image the tree was restored from, merged with it.
fn over_base(tree: &Tree, upper: FileTree, sink: &mut Sink) -> FileTree {
    let Some(base) = &tree.base else { return upper };
    let mut below = base.manifest.files.clone();
    for entry in &mut below.entries {
        if let FileEntryKind::Regular { runs, .. } = &mut entry.kind {
            sink.refer(base, runs);
        }
    }
    stasis_store::layers::merge(below, upper)
}

fn refused(what: impl Into<String>) -> Error {
    Error::refused(1, what)
}

/// Entries found and not handed over yet.
struct Out {
    tell: SyncSender<Vec<Item>>,
    items: Vec<Item>,
    bytes: usize,
}

impl Out {
    /// Adds something of about this many bytes.
    fn add(&mut self, item: Item, bytes: usize) -> Result<()> {
        self.items.push(item);
        self.bytes += bytes;
        if self.items.len() < ITEMS && self.bytes < PIECE {
            return Ok(());
        }
        self.bytes = 0;
        self.tell.send(std::mem::take(&mut self.items)).map_err(|_| Error::Gone)
    }
}

/// All that the thread does.
fn read(dir: OwnedFd, order: &Receiver<()>, out: &mut Out) -> Result<()> {
    landlock::only_read_below(dir.as_fd()).doing(|| "restrict a thread".into())?;
    if order.recv().is_err() {
        return Ok(());
    }
    let buffer = vec![0; ATTRIBUTES];
    let mut walk = Walk { out, links: HashMap::new(), name_bytes: 0, steps: 0, buffer };
    let walked = trees::walk(dir, MOST_NAMES, |at| walk.visit(&at).map_err(Stop::Named));
    walked.map_err(|stop| match stop {
        Stop::Named(error) => error,
        Stop::Walk(error) if trees::is_too_many(&error) => {
            refused(format!("it has more than {MOST_NAMES} files of its own: remove some"))
        }
        Stop::Walk(source) => Error::Io { doing: "list its files".into(), source },
    })
}

enum Stop {
    Named(Error),
    Walk(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Walk(error)
    }
}

struct Walk<'a> {
    out: &'a mut Out,
    /// Files with several names: first name by inode.
    links: HashMap<u64, BString>,
    name_bytes: usize,
    steps: usize,
    buffer: Vec<u8>,
}

/// A file that is open, and how it was found to be then.
struct Opened {
    fd: OwnedFd,
    /// Opened for reading; other kinds are only inspected.
    readable: bool,
    stat: libc::stat64,
}

impl Opened {
    fn kind(&self) -> u32 {
        self.stat.st_mode & libc::S_IFMT
    }
}

/// Opens the file that has a name now. Nothing here blocks, and only files and directories are
/// opened: other kinds can be inspected without.
fn open(at: &WalkEntry) -> io::Result<Opened> {
    const NEVER_WAIT: i32 = libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let readable = |kind| matches!(kind, libc::S_IFREG | libc::S_IFDIR);
    let look = |flags: i32| -> io::Result<Opened> {
        let fd = sysfiles::open_straight(at.dir, at.name, flags | libc::O_NOFOLLOW)?;
        let stat = fds::stat(fd.as_fd())?;
        Ok(Opened { fd, readable: flags & libc::O_PATH == 0, stat })
    };
    if !matches!(at.kind, libc::DT_REG | libc::DT_DIR) {
        let seen = look(libc::O_PATH)?;
        if !readable(seen.kind()) {
            return Ok(seen);
        }
    }
    let opened = look(libc::O_RDONLY | NEVER_WAIT)?;
    if readable(opened.kind()) { Ok(opened) } else { Err(changed()) }
}

fn changed() -> io::Error {
    io::Error::other("it changed while it was read")
}

impl Walk<'_> {
    /// Hands one file over; a directory is returned to be entered.
    fn visit(&mut self, at: &WalkEntry) -> Result<Option<OwnedFd>> {
        let doing = || format!("read /{}", at.path.as_bstr());
        self.count(at)?;
        let opened = open(at).doing(doing)?;
        let kind = self.kind(at, &opened).doing(doing)?;
        let xattrs = self.attributes(&opened).doing(doing)?;
        let bytes = xattrs.iter().map(|(name, value)| name.len() + value.len()).sum();
        self.count_bytes(bytes)?;
        let stat = &opened.stat;
        let contents = match &kind {
            FileEntryKind::Regular { size, .. } => Some(*size),
            _ => None,
        };
        if stat.st_nlink > 1 && opened.kind() == libc::S_IFREG {
            self.links.entry(stat.st_ino).or_insert_with(|| at.path.into());
        }
        let entry = FileEntry {
            path: at.path.into(),
            mode: stat.st_mode & 0o7777,
            uid: stat.st_uid,
            gid: stat.st_gid,
            mtime_s: stat.st_mtime,
            mtime_ns: stat.st_mtime_nsec,
            xattrs,
            kind,
        };
        self.out.add(Item::Entry(entry), at.path.len())?;
        if let Some(size) = contents {
            self.contents(&File::from(opened.fd), size, doing)?;
            return Ok(None);
        }
        Ok((opened.kind() == libc::S_IFDIR).then_some(opened.fd))
    }

    /// Counts a file, before anything is done with it.
    fn count(&mut self, at: &WalkEntry) -> Result<()> {
        let depth = at.path.iter().filter(|byte| **byte == b'/').count();
        self.steps += depth;
        if self.steps <= MOST_STEPS {
            return self.count_bytes(at.path.len());
        }
        let start = at.path[..at.path.len().min(60)].as_bstr();
        Err(refused(format!(
            "its files lie too deep (/{start}… below {depth} directories): remove some"
        )))
    }

    fn count_bytes(&mut self, bytes: usize) -> Result<()> {
        self.name_bytes += bytes;
        if self.name_bytes <= MOST_NAME_BYTES {
            return Ok(());
        }
        let most = MOST_NAME_BYTES >> 20;
        Err(refused(format!(
            "paths and attributes of its files take more than {most} MiB: remove or shorten some"
        )))
    }

    fn kind(&mut self, at: &WalkEntry, opened: &Opened) -> io::Result<FileEntryKind> {
        let stat = &opened.stat;
        if opened.kind() == libc::S_IFDIR {
            return Ok(FileEntryKind::Directory);
        }
        if let Some(target) = self.links.get(&stat.st_ino).filter(|_| stat.st_nlink > 1) {
            return Ok(FileEntryKind::Hardlink { target: target.clone() });
        }
        match opened.kind() {
            libc::S_IFLNK => {
                let target = below::read_link(opened.fd.as_fd())?.into_vec();
                self.name_bytes += target.len();
                Ok(FileEntryKind::Symlink { target: target.into() })
            }
            libc::S_IFREG => match u64::try_from(stat.st_size) {
                Ok(size) if size <= LARGEST => {
                    Ok(FileEntryKind::Regular { size, runs: Vec::new() })
                }
                _ => Err(io::Error::other("its size is none that files have")),
            },
            libc::S_IFIFO => Ok(FileEntryKind::Fifo),
            libc::S_IFSOCK => Ok(FileEntryKind::Socket),
            libc::S_IFCHR if libc::major(stat.st_rdev) == 0 => Ok(FileEntryKind::Whiteout),
            _ => Err(io::Error::other(format!("{:?} is a device", at.name))),
        }
    }

    fn attributes(&mut self, opened: &Opened) -> io::Result<Vec<(BString, Vec<u8>)>> {
        let fd = opened.fd.as_fd();
        if !opened.readable {
            // links and overlay's marks have none that are kept, pipes and sockets have an ACL
            return match opened.kind() {
                libc::S_IFIFO | libc::S_IFSOCK => acl_of(fd),
                _ => Ok(Vec::new()),
            };
        }
        let names = sysfiles::own_xattr_names(fd, &mut self.buffer)?;
        let kept = names.into_iter().filter(|name| is_kept(name));
        kept.map(|name| {
            let value = sysfiles::own_xattr(fd, &name, &mut self.buffer)?;
            Ok((name.into_vec().into(), value))
        })
        .collect()
    }

    /// Pages of a file outside holes. A file that grows meanwhile is read up to its old end; one
    /// that shrinks is an error.
    fn contents(
        &mut self,
        file: &File,
        size: u64,
        doing: impl Fn() -> String + Copy,
    ) -> Result<()> {
        let page = PAGE_SIZE as u64;
        let mut from = 0;
        while let Some((start, end)) = sysfiles::next_data(file.as_fd(), from).doing(doing)? {
            let end = end.min(size);
            let mut at = (start - start % page).max(from);
            if at >= end {
                break;
            }
            while at < end {
                let wanted = (end - at).min(PIECE as u64) as usize;
                let mut piece = vec![0; wanted.next_multiple_of(PAGE_SIZE)];
                // the rest of the last page, unless the file ends there
                let wanted = (size - at).min(piece.len() as u64) as usize;
                file.read_exact_at(&mut piece[..wanted], at).doing(doing)?;
                let len = piece.len();
                self.out.add(Item::Content(at / page, piece), len)?;
                at += len as u64;
            }
            from = at;
        }
        Ok(())
    }
}

fn is_kept(name: &OsStr) -> bool {
    !name.as_bytes().starts_with(b"trusted.overlay.")
        || KEPT_OVERLAY_NOTES.iter().any(|kept| name == *kept)
}

/// The access list of something that cannot be opened to be asked.
fn acl_of(fd: BorrowedFd) -> io::Result<Vec<(BString, Vec<u8>)>> {
    const ACL: &str = "system.posix_acl_access";
    match sysfiles::looked_at_xattr(fd, ACL) {
        Ok(value) => Ok(vec![(ACL.into(), value)]),
        Err(error) if matches!(error.raw_os_error(), Some(libc::ENODATA | libc::EOPNOTSUPP)) => {
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
