//! Artifacts: data too large for a result, stored in full beside it.
//!
//!   bytes ──► spool (memory, then a file) ──► named by its contents ──► records ──► result
//!
//! The records cut long output and values; artifacts store them in full, up to a bound per
//! instruction. The machine's disk limit bounds all its artifacts together. Contents are addressed
//! by their hash, so the same table printed by a hundred branches is one file. If a spool cannot be
//! written, the artifact is lost, but not the result. The collector removes unreferenced files.

use crate::driver::Driver;
use crate::error::{Error, ErrorContext, Result};
use crate::host::{Host, HostInner};
use crate::lines::OutputLines;
use crate::machine::Machine;
use parking_lot::{Mutex, RwLock};
use stasis_api::{Artifact, KeptArtifact, Limits};
use stasis_records::MachineId;
use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes buffered in memory before a file is created: most output is short.
const HEAD: usize = 256 << 10;
/// Maximum number of artifacts of one instruction, and of one machine.
const MOST: usize = 100;
const MOST_OF_MACHINE: u64 = 10_000;
const NEW: &str = "new-";

/// The directory of artifacts.
pub(crate) struct ArtifactStore {
    dir: PathBuf,
    next: AtomicU64,
    /// Held shared while a file gets its name and its record, exclusively while unreferenced files
    /// are removed.
    order: RwLock<()>,
    /// Upper bounds of each machine's artifacts: count and bytes.
    known: Mutex<HashMap<MachineId, Total>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Total {
    count: u64,
    bytes: u64,
}

impl Total {
    fn of<'a>(all: impl IntoIterator<Item = &'a Artifact>) -> Total {
        let add = |sum: Total, one: &Artifact| Total {
            count: sum.count + 1,
            bytes: sum.bytes.saturating_add(one.size),
        };
        all.into_iter().fold(Total::default(), add)
    }
}

impl ArtifactStore {
    pub fn open(dir: PathBuf) -> Result<ArtifactStore> {
        fs::create_dir_all(&dir).doing(|| format!("make {}", dir.display()))?;
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            if entry.file_name().to_string_lossy().starts_with(NEW) {
                let _ = fs::remove_file(entry.path());
            }
        }
        let (order, known) = (RwLock::default(), Mutex::default());
        Ok(ArtifactStore { dir, next: AtomicU64::new(0), order, known })
    }

    fn path(&self, id: &str) -> PathBuf {
        self.dir.join(id)
    }

    /// Space for the artifacts of one instruction, at most `room` bytes in all.
    pub fn parts(&self, room: u64) -> PendingArtifacts {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let base = self.dir.join(format!("{NEW}{number}"));
        let output = Spool::new(base.with_extension("out"), room);
        PendingArtifacts { base, output, open: None, whole: Vec::new(), room }
    }
}

/// The bytes of an artifact being written.
struct Spool {
    path: PathBuf,
    head: Vec<u8>,
    file: Option<File>,
    hash: blake3::Hasher,
    size: u64,
    most: u64,
    cut: bool,
    broken: bool,
}

impl Spool {
    fn new(path: PathBuf, most: u64) -> Spool {
        let hash = blake3::Hasher::new();
        Spool { path, head: Vec::new(), file: None, hash, size: 0, most, cut: false, broken: false }
    }

    fn write(&mut self, bytes: &[u8]) {
        let room = (self.most - self.size).min(bytes.len() as u64) as usize;
        self.cut |= room < bytes.len();
        self.size += room as u64;
        self.head.extend_from_slice(&bytes[..room]);
        if self.head.len() > HEAD {
            self.broken |= self.spill().is_err();
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        let head = std::mem::take(&mut self.head);
        self.hash.update(&head);
        if self.broken {
            return Ok(());
        }
        if self.file.is_none() {
            self.file = Some(File::create(&self.path)?);
        }
        self.file.as_mut().map_or(Ok(()), |file| file.write_all(&head))
    }

    /// Flushes everything to the file.
    fn finish(&mut self) -> io::Result<&File> {
        self.spill()?;
        match (&self.file, self.broken) {
            (Some(file), false) => Ok(file),
            _ => Err(io::Error::other("it could not be written whole")),
        }
    }

    /// Renames it to the hash of its contents.
    fn keep(&mut self, dir: &Path) -> io::Result<String> {
        self.finish()?;
        let id = self.hash.finalize().to_hex().to_string();
        fs::rename(&self.path, dir.join(&id))?;
        Ok(id)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if self.file.is_some() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// An imported artifact without a name yet; removed when dropped.
pub(crate) struct Incoming(Spool);

impl ArtifactStore {
    /// Reads an artifact announced by a report.
    pub fn take_in(&self, hash: [u8; 32], len: u64, from: &mut dyn io::Read) -> Result<Incoming> {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut spool = Spool::new(self.dir.join(format!("{NEW}{number}.in")), len);
        let mut piece = vec![0; HEAD];
        let mut from = io::Read::take(from, len);
        loop {
            let read = io::Read::read(&mut from, &mut piece);
            match read.doing(|| "read an artifact".into())? {
                0 => break,
                read => spool.write(&piece[..read]),
            }
        }
        let written = spool.finish().and_then(|file| file.sync_data());
        written.doing(|| format!("write {}", spool.path.display()))?;
        if spool.size != len || spool.hash.finalize().as_bytes() != &hash {
            return Err(Error::Unfit("an artifact is damaged, or the file ends before it".into()));
        }
        Ok(Incoming(spool))
    }
}

impl HostInner {
    /// Names artifacts and records them, without a collection in between.
    pub fn name_artifacts<T>(
        &self,
        all: Vec<Incoming>,
        record: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let artifact_store = &self.artifact_store;
        let _order = artifact_store.order.read();
        for Incoming(mut spool) in all {
            let kept = spool.keep(&artifact_store.dir);
            kept.doing(|| format!("name {}", spool.path.display()))?;
        }
        record()
    }
}

/// The artifacts of one instruction.
pub(crate) struct PendingArtifacts {
    base: PathBuf,
    output: Spool,
    /// The artifact whose pieces are arriving.
    open: Option<Whole>,
    whole: Vec<Whole>,
    /// Bytes that all of them together may still use.
    room: u64,
}

struct Whole {
    name: String,
    kind: String,
    spool: Spool,
}

impl PendingArtifacts {
    pub fn output(&mut self, bytes: &[u8]) {
        let before = self.output.size;
        self.output.most = before.saturating_add(self.room);
        self.output.write(bytes);
        self.room -= self.output.size - before;
    }

    /// A piece of a value or display from inside a machine: size, name and order are untrusted.
    pub fn piece(&mut self, name: String, kind: String, text: &str, last: bool) {
        let same = |open: &Whole| open.name == name && open.kind == kind;
        if !self.open.as_ref().is_some_and(same) {
            let number = self.whole.len();
            if number >= MOST || name.len() + kind.len() > 200 {
                return;
            }
            let spool = Spool::new(self.base.with_extension(number.to_string()), self.room);
            self.open = Some(Whole { name, kind, spool });
        }
        if let Some(open) = &mut self.open {
            let before = open.spool.size;
            open.spool.most = before.saturating_add(self.room);
            open.spool.write(text.as_bytes());
            self.room -= open.spool.size - before;
        }
        if last {
            self.whole.extend(self.open.take());
        }
    }
}

impl HostInner {
    /// Stores and records an instruction's artifacts.
    fn keep(&self, id: MachineId, seq: u64, parts: Vec<Whole>) -> Vec<Artifact> {
        let artifact_store = &self.artifact_store;
        let _order = artifact_store.order.read();
        let mut kept = Vec::new();
        for Whole { name, kind, mut spool } in parts {
            match spool.keep(&artifact_store.dir) {
                Ok(id) => {
                    let (size, cut) = (spool.size, spool.cut);
                    kept.push(Artifact { id, name, kind, size, cut });
                }
                Err(error) => tracing::error!(%error, "an artifact was not kept"),
            }
        }
        match self.records.keep_artifacts(id, seq, &kept) {
            Ok(()) => {
                let more = Total::of(&kept);
                let mut known = artifact_store.known.lock();
                if let Some(total) = known.get_mut(&id) {
                    total.count = total.count.saturating_add(more.count);
                    total.bytes = total.bytes.saturating_add(more.bytes);
                }
                kept
            }
            Err(error) => {
                tracing::error!(%error, "artifacts were not recorded");
                Vec::new()
            }
        }
    }
}

impl HostInner {
    /// Bytes a machine may still use for artifacts.
    pub(crate) fn artifact_room(&self, machine: MachineId, limits: Limits) -> u64 {
        let most = self.settings.max_artifact;
        let limit = limits.disk_mb.map_or(u64::MAX, |mb| mb.saturating_mul(1 << 20));
        let mut known = self.artifact_store.known.lock();
        let total = known.entry(machine).or_insert(Total { count: u64::MAX, bytes: u64::MAX });
        let fits = |total: &Total| {
            total.count < MOST_OF_MACHINE && limit.saturating_sub(total.bytes) >= most
        };
        // a rollback frees artifacts, so they are recounted only when the space is used up
        if !fits(total) {
            let all = self.records.artifacts(machine).unwrap_or_default();
            *total = Total::of(all.iter().map(|kept| &kept.artifact));
        }
        match total.count < MOST_OF_MACHINE {
            true => most.min(limit.saturating_sub(total.bytes)),
            false => 0,
        }
    }
}

impl Driver {
    /// Data of an instruction that its record does not hold.
    pub(crate) fn artifacts_of(&self, seq: u64, lines: &mut OutputLines) -> Vec<Artifact> {
        let cut = lines.was_cut();
        let Some(parts) = lines.take_parts() else { return Vec::new() };
        let PendingArtifacts { output, mut whole, .. } = parts;
        if cut {
            let (name, kind) = ("output".to_owned(), "text/plain".to_owned());
            whole.insert(0, Whole { name, kind, spool: output });
        }
        // nothing is kept if there was no space at all
        whole.retain(|one| one.spool.size > 0 || !one.spool.cut);
        if whole.is_empty() { Vec::new() } else { self.host.keep(self.machine.id, seq, whole) }
    }
}

impl Machine {
    pub fn artifacts(&self) -> Result<Vec<KeptArtifact>> {
        Ok(self.host.records.artifacts(self.id)?)
    }

    /// An artifact of this machine, and its contents.
    pub fn artifact(&self, id: &str) -> Result<(Artifact, File)> {
        let missing = || Error::NoArtifact { machine: self.name().to_string(), id: id.to_owned() };
        let mine = self.artifacts()?.into_iter().find(|kept| kept.artifact.id == id);
        let artifact = mine.ok_or_else(missing)?.artifact;
        let path = self.host.artifact_store.path(&artifact.id);
        let file = File::open(&path).doing(|| format!("open {}", path.display()))?;
        Ok((artifact, file))
    }
}

impl Host {
    /// Removes artifacts that no machine references; returns the freed bytes.
    pub(crate) fn collect_artifacts(&self) -> Result<u64> {
        let inner = self.inner();
        let _order = inner.artifact_store.order.write();
        let kept: HashSet<String> = inner.records.artifacts_in_use()?.into_iter().collect();
        let mut freed = 0;
        for entry in fs::read_dir(&inner.artifact_store.dir).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if kept.contains(&name) || name.starts_with(NEW) {
                continue;
            }
            let size = entry.metadata().map_or(0, |about| about.len());
            if fs::remove_file(entry.path()).is_ok() {
                freed += size;
            }
        }
        Ok(freed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spool_is_cut_at_its_bound_and_named_by_its_contents() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifact_store = ArtifactStore::open(dir.path().to_owned()).expect("a store");
        let mut parts = artifact_store.parts(1 << 20);
        let piece = vec![b'x'; 300 << 10];
        (0..5).for_each(|_| parts.output(&piece));
        assert!(parts.output.cut);
        let id = parts.output.keep(&artifact_store.dir).expect("kept");
        assert_eq!(id, blake3::hash(&vec![b'x'; 1 << 20]).to_hex().to_string());
        assert_eq!(fs::metadata(artifact_store.path(&id)).expect("a file").len(), 1 << 20);
        drop(parts);
        assert_eq!(fs::read_dir(dir.path()).expect("a list").count(), 1);
    }

    #[test]
    fn output_and_values_share_one_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifact_store = ArtifactStore::open(dir.path().to_owned()).expect("a store");
        let mut parts = artifact_store.parts(10);
        parts.piece("value".into(), "text/plain".into(), "123456", false);
        parts.output(b"123456");
        parts.piece("value".into(), "text/plain".into(), "789", true);
        parts.output(b"7");
        assert_eq!((parts.output.size, parts.output.cut), (4, true));
        assert_eq!((parts.whole[0].spool.size, parts.whole[0].spool.cut), (6, true));
    }

    #[test]
    fn pieces_of_one_thing_are_joined_and_bounded() {
        let dir = tempfile::tempdir().expect("a directory");
        let artifact_store = ArtifactStore::open(dir.path().to_owned()).expect("a store");
        let mut parts = artifact_store.parts(10);
        for (name, text, last) in [("value", "abc", false), ("value", "def", true)] {
            parts.piece(name.into(), "text/plain".into(), text, last);
        }
        parts.piece("display".into(), "text/html".into(), "123456", true);
        let sizes: Vec<_> = parts.whole.iter().map(|one| (one.spool.size, one.spool.cut)).collect();
        assert_eq!(sizes, [(6, false), (4, true)]);
        for _ in 0..200 {
            parts.piece("value".into(), "x".into(), "", true);
        }
        assert_eq!(parts.whole.len(), MOST);
    }
}
