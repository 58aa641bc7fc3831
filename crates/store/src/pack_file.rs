//! The file of a pack that is being written.
//!
//!   the first 64 MiB, and the end ─► page cache ─► a sync
//!   what is between               ─► blocks ─► a thread ─► the disk, directly
//!
//! Copying a page to the page cache takes longer than hashing it, and the copies of a large state
//! would take the place of what others read from there. A large pack therefore goes to the disk
//! directly, while its next pages are hashed. A file system that cannot do this gets all of it
//! through its cache, and so does what is written while a machine stands still: it must not wait
//! for the disk.

use stasis_fault as fault;
use stasis_sys::{files as sysfiles, libc};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender, SyncSender};
use std::thread::JoinHandle;

/// Memory, offsets and lengths of direct writes are multiples of this.
const ALIGNMENT: usize = 4096;
const SMALL_BLOCK: usize = 256 << 10;
const LARGE_BLOCK: usize = 4 << 20;
const DIRECT_FROM: u64 = 64 << 20;
/// Full blocks that wait for the one that is being written.
const WAITING: usize = 1;
/// Bytes in the page cache after which the disk is told to start: a large pack would otherwise
/// wait for it only at the end.
const WORTH_A_CALL: usize = 8 << 20;

const _: () = assert!(DIRECT_FROM.is_multiple_of(SMALL_BLOCK as u64));
const _: () =
    assert!(SMALL_BLOCK.is_multiple_of(ALIGNMENT) && LARGE_BLOCK.is_multiple_of(ALIGNMENT));

/// Writes front to back. It is complete after a flush, and durable after a sync.
pub struct PackFile {
    path: PathBuf,
    cached: fault::Writer<FileAt>,
    block: Block,
    direct: Option<DirectWriter>,
    /// Where direct writes begin.
    direct_from: u64,
}

impl PackFile {
    pub fn create(path: &Path) -> io::Result<PackFile> {
        let cached = writer(FileAt { file: File::create(path)?, cached: None, at: 0, waiting: 0 });
        let (path, block) = (path.to_owned(), Block::new(SMALL_BLOCK));
        Ok(PackFile { path, cached, block, direct: None, direct_from: u64::MAX })
    }

    /// From now on, the writer may wait for the disk.
    pub fn may_wait(&mut self) {
        self.direct_from = DIRECT_FROM;
    }

    /// The file, after a flush.
    pub fn into_file(self) -> File {
        self.cached.inner.file
    }

    /// Has a full block written, and goes on with an empty one.
    fn pass_on(&mut self) -> io::Result<()> {
        if let Some(direct) = &mut self.direct {
            let full = std::mem::replace(&mut self.block, direct.empty_block());
            if direct.write(full) {
                return Ok(());
            }
            self.end_direct()?;
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.cached.write_all(self.block.contents())?;
        self.block.clear();
        if self.cached.inner.at >= self.direct_from {
            // not tried again if it cannot be had
            self.direct_from = u64::MAX;
            self.direct = DirectWriter::start(&self.path, &self.cached.inner).ok();
            if self.direct.is_some() {
                self.block = Block::new(LARGE_BLOCK);
            }
        }
        Ok(())
    }

    /// Waits until the direct writes are done. What follows goes through the cache.
    fn end_direct(&mut self) -> io::Result<()> {
        if let Some(mut direct) = self.direct.take() {
            self.cached.inner.at = direct.end()?;
        }
        Ok(())
    }
}

impl Write for PackFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.block.space() == 0 {
            self.pass_on()?;
        }
        Ok(self.block.add(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.end_direct()?;
        self.cached.write_all(self.block.contents())?;
        self.block.clear();
        Ok(())
    }
}

fn writer(file: FileAt) -> fault::Writer<FileAt> {
    fault::Writer::new("pack.write", file)
}

/// Aligned memory, filled from its start.
struct Block {
    /// It is never moved: it has room for the alignment and for what it is to hold.
    bytes: Vec<u8>,
    /// Where aligned memory begins.
    start: usize,
    size: usize,
}

impl Block {
    fn new(size: usize) -> Block {
        let mut bytes: Vec<u8> = Vec::with_capacity(size + ALIGNMENT);
        let address = bytes.as_ptr().addr();
        let start = address.next_multiple_of(ALIGNMENT) - address;
        bytes.resize(start, 0);
        Block { bytes, start, size }
    }

    fn contents(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    fn space(&self) -> usize {
        self.start + self.size - self.bytes.len()
    }

    /// How much of `bytes` fitted.
    fn add(&mut self, bytes: &[u8]) -> usize {
        let count = bytes.len().min(self.space());
        self.bytes.extend_from_slice(&bytes[..count]);
        count
    }

    fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }
}

/// A file and where the next write goes.
struct FileAt {
    file: File,
    /// The same file through the page cache, if `file` is written directly.
    cached: Option<File>,
    at: u64,
    /// Bytes since the disk was last told to start.
    waiting: usize,
}

impl Write for FileAt {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut written = self.file.write_at(bytes, self.at);
        // a file system with a stricter alignment, or the rest of a write that was cut short
        let refused = |error: &io::Error| error.raw_os_error() == Some(libc::EINVAL);
        if written.as_ref().is_err_and(refused)
            && let Some(cached) = self.cached.take()
        {
            self.file = cached;
            written = self.file.write_at(bytes, self.at);
        }
        let written = written?;
        self.at += written as u64;
        if self.cached.is_none() {
            self.waiting += written;
        }
        if self.waiting >= WORTH_A_CALL {
            self.waiting = 0;
            sysfiles::start_writing(self.file.as_fd())?;
        }
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A thread that writes blocks while the next one is being filled. It does not outlive this.
struct DirectWriter {
    blocks: Option<SyncSender<Block>>,
    written: Receiver<Block>,
    /// Returns where the file ends.
    thread: Option<JoinHandle<io::Result<u64>>>,
}

impl DirectWriter {
    /// Continues a file behind what was written.
    fn start(path: &Path, so_far: &FileAt) -> io::Result<DirectWriter> {
        let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(path)?;
        let cached = Some(so_far.file.try_clone()?);
        let file = writer(FileAt { file: direct, cached, at: so_far.at, waiting: 0 });
        let (blocks, full) = mpsc::sync_channel(WAITING);
        let (give, written) = mpsc::channel();
        let faults = fault::owner();
        let run = move || {
            fault::adopt(faults);
            write_all(file, &full, &give)
        };
        let thread = std::thread::Builder::new().name("stasis-direct".into()).spawn(run)?;
        Ok(DirectWriter { blocks: Some(blocks), written, thread: Some(thread) })
    }

    /// One that was written, or a new one: no more exist than wait, are written and are filled.
    fn empty_block(&self) -> Block {
        self.written.try_recv().unwrap_or_else(|_| Block::new(LARGE_BLOCK))
    }

    /// False if the thread has failed.
    fn write(&self, block: Block) -> bool {
        self.blocks.as_ref().is_some_and(|blocks| blocks.send(block).is_ok())
    }

    /// Waits until everything is written.
    fn end(&mut self) -> io::Result<u64> {
        self.blocks = None;
        let ended = self.thread.take().map(JoinHandle::join);
        let ended = ended.ok_or(io::ErrorKind::BrokenPipe)?;
        ended.unwrap_or_else(|_| Err(io::Error::other("the thread that writes a pack panicked")))
    }
}

impl Drop for DirectWriter {
    fn drop(&mut self) {
        let _ = self.end();
    }
}

fn write_all(
    mut file: fault::Writer<FileAt>,
    blocks: &Receiver<Block>,
    give: &Sender<Block>,
) -> io::Result<u64> {
    for mut block in blocks {
        file.write_all(block.contents())?;
        block.clear();
        // the file may be complete by now
        let _ = give.send(block);
    }
    Ok(file.inner.at)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FROM: u64 = SMALL_BLOCK as u64 * 2;

    fn file(path: &Path) -> PackFile {
        let file = PackFile::create(path).expect("make a file");
        PackFile { direct_from: FROM, ..file }
    }

    fn bytes(len: usize) -> Vec<u8> {
        let mut random = fastrand::Rng::with_seed(len as u64);
        let mut bytes = vec![0; len];
        random.fill(&mut bytes);
        bytes
    }

    /// Written in uneven pieces, as pages, index and footer are.
    fn write(file: &mut PackFile, bytes: &[u8]) -> io::Result<()> {
        let mut random = fastrand::Rng::with_seed(1);
        let mut rest = bytes;
        while !rest.is_empty() {
            let (piece, after) = rest.split_at(random.usize(1..300_000).min(rest.len()));
            file.write_all(piece)?;
            rest = after;
        }
        file.flush()
    }

    #[test]
    fn every_length_arrives_whole() {
        let dir = tempfile::tempdir().expect("make a directory");
        let (small, large, from) = (SMALL_BLOCK, LARGE_BLOCK, FROM as usize);
        let lengths = [0, 1, small, from - 1, from, from + 80, from + large, from + 5 * large + 80];
        for len in lengths {
            let (path, bytes) = (dir.path().join("pack"), bytes(len));
            let mut pack = file(&path);
            write(&mut pack, &bytes).expect("write");
            let file = pack.into_file();
            file.sync_data().expect("sync");
            assert!(std::fs::read(&path).expect("read") == bytes, "{len} bytes");
        }
    }

    #[test]
    fn a_file_goes_on_behind_a_flush() {
        let dir = tempfile::tempdir().expect("make a directory");
        let (path, bytes) = (dir.path().join("pack"), bytes(3 * LARGE_BLOCK));
        let mut pack = file(&path);
        let (first, second) = bytes.split_at(2 * LARGE_BLOCK + 80);
        write(&mut pack, first).expect("write");
        write(&mut pack, second).expect("write");
        assert!(std::fs::read(&path).expect("read") == bytes);
    }

    /// The rest of a write that is not aligned any more goes through the cache.
    #[test]
    fn a_refused_direct_write_goes_through_the_cache() {
        let dir = tempfile::tempdir().expect("make a directory");
        let path = dir.path().join("pack");
        let cached = File::create(&path).expect("make a file");
        let direct = File::options().write(true).custom_flags(libc::O_DIRECT).open(&path);
        let file = direct.expect("open directly");
        let mut file = FileAt { file, cached: Some(cached), at: 0, waiting: 0 };
        let bytes = bytes(ALIGNMENT + 100);
        file.write_all(&bytes).expect("write");
        assert!(std::fs::read(&path).expect("read") == bytes);
    }

    #[test]
    fn a_failed_direct_write_is_reported() {
        for (fault, len) in [(fault::Fault::Enospc, 4), (fault::Fault::Error, 1)] {
            let dir = tempfile::tempdir().expect("make a directory");
            let path = dir.path().join("pack");
            let mut pack = file(&path);
            let head = bytes(FROM as usize + 1);
            pack.write_all(&head).expect("write");
            assert!(pack.direct.is_some(), "the thread runs");
            let armed = fault::arm("pack.write", fault);
            let failed = write(&mut pack, &bytes(len * LARGE_BLOCK)).expect_err("it fails");
            assert!(armed.fired());
            let told = failed.to_string();
            assert!(told.contains("injected") || told.contains("space"), "{told}");
        }
    }

    #[test]
    fn a_short_direct_write_is_continued() {
        let dir = tempfile::tempdir().expect("make a directory");
        let (path, bytes) = (dir.path().join("pack"), bytes(FROM as usize + 3 * LARGE_BLOCK));
        let mut pack = file(&path);
        let (head, rest) = bytes.split_at(FROM as usize + 1);
        pack.write_all(head).expect("write");
        let armed = fault::arm("pack.write", fault::Fault::Short);
        write(&mut pack, rest).expect("write");
        assert!(armed.fired());
        assert!(std::fs::read(&path).expect("read") == bytes);
    }

    /// Readers see one file: the direct writes and those through the cache.
    #[test]
    fn readers_see_both_parts() {
        let dir = tempfile::tempdir().expect("make a directory");
        let (path, bytes) = (dir.path().join("pack"), bytes(FROM as usize + LARGE_BLOCK + 80));
        let mut pack = file(&path);
        let reader = File::open(&path).expect("open");
        write(&mut pack, &bytes).expect("write");
        let mut piece = vec![0; 2 * ALIGNMENT];
        for at in [0, FROM as usize - ALIGNMENT, bytes.len() - piece.len()] {
            reader.read_exact_at(&mut piece, at as u64).expect("read");
            assert!(piece == bytes[at..at + piece.len()], "at {at}");
        }
    }
}
