//! The last step of a build: times independent of the build, a digest of all files, and a sync to
//! disk.

use stasis_sys::files;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// 2020-01-01: late enough for archives, early enough to be neutral.
const TIME: i64 = 1_577_836_800;

/// The contents of a root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub digest: String,
    pub files: u64,
    pub bytes: u64,
}

/// Everything below `dir`, parents first, in the order of names. Links are not followed.
pub fn walk(
    dir: &Path,
    visit: &mut dyn FnMut(&Path, &fs::Metadata) -> io::Result<()>,
) -> io::Result<()> {
    // a recipe decides how deep it goes, so nothing recurses
    let mut left = vec![in_order(dir)?];
    while let Some(level) = left.last_mut() {
        let Some(path) = level.next() else {
            left.pop();
            continue;
        };
        let about = fs::symlink_metadata(&path)?;
        visit(&path, &about)?;
        if about.is_dir() {
            left.push(in_order(&path)?);
        }
    }
    Ok(())
}

fn in_order(dir: &Path) -> io::Result<std::vec::IntoIter<PathBuf>> {
    let entries = fs::read_dir(dir)?.map(|entry| Ok(entry?.path()));
    let mut entries = entries.collect::<io::Result<Vec<PathBuf>>>()?;
    entries.sort();
    Ok(entries.into_iter())
}

/// Gives everything below `dir`, and `dir` itself, the same time.
pub fn settle(dir: &Path) -> io::Result<()> {
    let set = |path: &Path| files::set_mtime(path, TIME, 0);
    walk(dir, &mut |path, _| set(path))?;
    set(dir)
}

/// Removes set-user-id and set-group-id from all files: they are on the host's disk too.
pub fn disarm(root: &Path) -> io::Result<()> {
    walk(root, &mut |path, about| match about.is_file() && about.mode() & 0o6000 != 0 {
        true => fs::set_permissions(path, fs::Permissions::from_mode(about.mode() & 0o1777)),
        false => Ok(()),
    })
}

/// Reads all of the root.
pub fn digest(root: &Path) -> io::Result<Sealed> {
    let mut hasher = blake3::Hasher::new();
    let mut sealed = Sealed { digest: String::new(), files: 0, bytes: 0 };
    walk(root, &mut |path, about| {
        let name = path.strip_prefix(root).unwrap_or(path).as_os_str().as_bytes();
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        for number in [about.mode(), about.uid(), about.gid()] {
            hasher.update(&number.to_le_bytes());
        }
        if about.is_symlink() {
            hasher.update(fs::read_link(path)?.as_os_str().as_bytes());
        } else if about.is_file() {
            hasher.update(&about.len().to_le_bytes());
            hasher.update_reader(File::open(path)?)?;
            sealed.bytes += about.len();
        }
        sealed.files += 1;
        Ok(())
    })?;
    sealed.digest = hasher.finalize().to_hex().to_string();
    Ok(sealed)
}

/// Returns when all that was written beside `dir` is on disk.
pub fn sync(dir: &Path) -> io::Result<()> {
    files::sync_file_system(File::open(dir)?.as_fd())
}
