//! Fetched modules, for all machines of a data directory.
//!
//!   pins/<hash of a name>    which bytes a name is; the first answer stays
//!   blobs/<SHA-256>          the bytes
//!
//! Files are written to a temporary name and renamed when complete. The oldest are removed when
//! space runs out. A removed blob is fetched again, and must match the pinned one.

use crate::error::{Error, ErrorContext, Result};
use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use stasis_protocol::BlobRef;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Bytes of all blobs, and how many pins.
const MOST_BYTES: u64 = 4 << 30;
const MOST_PINS: usize = 100_000;
/// A pin is short.
const LONGEST_PIN: u64 = 1 << 20;

pub struct ModuleCache {
    dir: PathBuf,
}

impl ModuleCache {
    pub fn new(dir: PathBuf) -> ModuleCache {
        ModuleCache { dir }
    }

    fn pin_path(&self, name: &str) -> PathBuf {
        self.dir.join("pins").join(blake3::hash(name.as_bytes()).to_hex().as_str())
    }

    fn blob_path(&self, hash: &str) -> Result<PathBuf> {
        let plain = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
        match hash.len() == 64 && hash.chars().all(plain) {
            true => Ok(self.dir.join("blobs").join(hash)),
            false => Err(Error::Module("there is no such blob".into())),
        }
    }

    /// Known facts about a name.
    pub fn pin<T: DeserializeOwned>(&self, name: &str) -> Option<T> {
        let path = self.pin_path(name);
        let size = fs::metadata(&path).ok()?.len();
        let text = (size <= LONGEST_PIN).then(|| fs::read(&path))?.ok()?;
        serde_json::from_slice(&text).ok()
    }

    /// Pins a name. If another thread pinned it meanwhile, that pin stays and is returned.
    pub fn keep_pin<T: Serialize + DeserializeOwned>(&self, name: &str, pin: T) -> Result<T> {
        let text = serde_json::to_vec(&pin).map_err(io::Error::other);
        let path = self.pin_path(name);
        let kept = text.and_then(|text| place(&path, &text, Placing::IfAbsent));
        kept.doing(|| path.display().to_string())?;
        trim(&self.dir.join("pins"), u64::MAX, MOST_PINS);
        Ok(self.pin(name).unwrap_or(pin))
    }

    /// Stores bytes.
    pub fn add(&self, bytes: &[u8]) -> Result<BlobRef> {
        let hash = hex::encode(Sha256::digest(bytes));
        let path = self.blob_path(&hash)?;
        if !path.is_file() {
            let placed = place(&path, bytes, Placing::Anew);
            placed.doing(|| path.display().to_string())?;
            trim(&self.dir.join("blobs"), MOST_BYTES, usize::MAX);
        }
        Ok(BlobRef { hash, size: bytes.len() as u64 })
    }

    /// Whether a blob is here; if so, it is used now.
    pub fn has(&self, blob: &BlobRef) -> bool {
        let Ok(path) = self.blob_path(&blob.hash) else { return false };
        let Ok(file) = File::options().append(true).open(path) else { return false };
        let _ = file.set_modified(SystemTime::now());
        file.metadata().is_ok_and(|about| about.len() == blob.size)
    }

    /// Bytes of a blob from an offset on, at most so many.
    pub fn piece(&self, hash: &str, offset: u64, most: u64) -> Result<Vec<u8>> {
        let path = self.blob_path(hash)?;
        let gone = |_| Error::Module("the module has left the cache: import it again".into());
        let file = File::open(path).map_err(gone)?;
        let size = file.metadata().map_err(gone)?.len();
        let mut bytes = vec![0; size.saturating_sub(offset).min(most) as usize];
        file.read_exact_at(&mut bytes, offset).map_err(gone)?;
        Ok(bytes)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Placing {
    Anew,
    IfAbsent,
}

/// Renames a file when it is complete.
fn place(path: &Path, bytes: &[u8], how: Placing) -> io::Result<()> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let dir = path.parent().unwrap_or(path);
    fs::create_dir_all(dir)?;
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let new = dir.join(format!(".new-{}-{count}", std::process::id()));
    fs::write(&new, bytes)?;
    match how {
        Placing::Anew => fs::rename(&new, path),
        Placing::IfAbsent => {
            let linked = fs::hard_link(&new, path);
            fs::remove_file(&new)?;
            match linked {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
                _ => Ok(()),
            }
        }
    }
}

/// Removes the files that were not used for the longest time, until the rest fits.
fn trim(dir: &Path, most_bytes: u64, most_files: usize) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    let about = |entry: fs::DirEntry| {
        let about = entry.metadata().ok()?;
        Some((about.modified().ok()?, about.len(), entry.path()))
    };
    let mut all: Vec<_> = entries.flatten().filter_map(about).collect();
    let mut bytes: u64 = all.iter().map(|(_, size, _)| size).sum();
    let mut files = all.len();
    if bytes <= most_bytes && files <= most_files {
        return;
    }
    all.sort();
    // a tenth more, so that not every addition has to look
    for (_, size, path) in all {
        if bytes <= most_bytes - most_bytes / 10 && files <= most_files - most_files / 10 {
            break;
        }
        let _ = fs::remove_file(path);
        bytes -= size;
        files -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_pin_stays_and_blobs_are_read_in_pieces() {
        let dir = tempfile::tempdir().expect("a directory");
        let cache = ModuleCache::new(dir.path().join("modules"));
        assert_eq!(cache.pin::<String>("a"), None);
        assert_eq!(cache.keep_pin("a", "one".to_owned()).expect("kept"), "one");
        assert_eq!(cache.keep_pin("a", "two".to_owned()).expect("kept"), "one");
        let blob = cache.add(b"0123456789").expect("added");
        assert!(cache.has(&blob) && !cache.has(&BlobRef { size: 9, ..blob.clone() }));
        assert_eq!(cache.piece(&blob.hash, 0, 4).expect("a piece"), b"0123");
        assert_eq!(cache.piece(&blob.hash, 8, 4).expect("a piece"), b"89");
        assert_eq!(cache.piece(&blob.hash, 99, 4).expect("a piece"), b"");
        for hash in ["../pins", "", "0".repeat(64).as_str(), "A".repeat(64).as_str()] {
            assert!(cache.piece(hash, 0, 4).is_err(), "{hash}");
        }
    }

    #[test]
    fn the_oldest_go_when_there_is_no_room() {
        let dir = tempfile::tempdir().expect("a directory");
        for n in 0..20_u64 {
            let file = File::create(dir.path().join(n.to_string())).expect("a file");
            file.write_all_at(&[0; 100], 0).expect("written");
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(n);
            file.set_modified(time).expect("a time");
        }
        trim(dir.path(), 1000, usize::MAX);
        let left = |n: u64| dir.path().join(n.to_string()).exists();
        assert!((11..20).all(left) && !(0..11).any(left));
        trim(dir.path(), u64::MAX, 5);
        assert_eq!(fs::read_dir(dir.path()).expect("a list").count(), 5);
    }
}
