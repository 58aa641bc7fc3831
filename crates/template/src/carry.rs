//! A finished root as one stream, for export and import.
//!
//!   root ─► entry, entry, ... (a line of JSON, then its bytes) ─► zstd ─► elsewhere
//!   elsewhere ─► .new-<name> ─► digest as promised? ─► on disk ─► named, described as imported
//!
//! Not a tar archive: programs identify their libraries by times to the nanosecond, and a reader of
//! archives takes names of any length into memory. A stream is not trusted. Every entry is bounded,
//! names cannot climb, links are not followed, and the written files count only if their digest is
//! the announced one. A truncated or damaged stream leaves nothing.

use crate::build::{clear, must_be_root, publish, unfinished};
use crate::error::{Error, ErrorContext, Result};
use crate::progress::NoProgress;
use crate::root::{self, FORMAT, Root, inspect};
use crate::seal;
use crate::tree::{RootTree, names, refused};
use serde::{Deserialize, Serialize};
use stasis_sys::{files, trees};
use std::fs::{self, File, Metadata, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::{self as unix, DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

/// Maximum length of one entry's line; a name and a link's target have at most 4096 bytes each.
const LONGEST_LINE: u64 = 32 << 10;
const MOST_BYTES: u64 = 32 << 30;
const MOST_ENTRIES: u64 = 2_000_000;
/// Owners of files in a root.
const HIGHEST_OWNER: u32 = 65534;
const LEVEL: i32 = 3;

/// The header of one entry; a file's bytes follow.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    path: String,
    kind: Kind,
    mode: u32,
    uid: u32,
    gid: u32,
    /// Seconds and nanoseconds.
    mtime: (i64, i64),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Directory,
    File(u64),
    Link(String),
}

/// Writes all of a root.
pub fn export(roots: &Path, name: &str, out: &mut dyn Write) -> Result<()> {
    let root = inspect(roots, name)?;
    let written = zstd::Encoder::new(out, LEVEL).and_then(|encoder| {
        let mut out = BufWriter::with_capacity(256 << 10, encoder);
        let dir = root.path(roots);
        seal::walk(&dir, &mut |path, about| send(&dir, path, about, &mut out))?;
        // an empty line is the end
        out.write_all(b"\n")?;
        out.into_inner().map_err(io::IntoInnerError::into_error)?.finish().map(drop)
    });
    written.doing(|| format!("writing the root {name}"))
}

fn send(dir: &Path, path: &Path, about: &Metadata, out: &mut dyn Write) -> io::Result<()> {
    let text = |path: &Path| {
        path.to_str().map(str::to_owned).ok_or_else(|| refused("a name is not UTF-8"))
    };
    let kind = match about.file_type() {
        kind if kind.is_dir() => Kind::Directory,
        kind if kind.is_file() => Kind::File(about.len()),
        kind if kind.is_symlink() => Kind::Link(text(&fs::read_link(path)?)?),
        _ => return Err(refused("it is neither a file, a directory nor a link")),
    };
    let entry = Entry {
        path: text(path.strip_prefix(dir).unwrap_or(path))?,
        kind,
        mode: about.mode() & 0o7777,
        uid: about.uid(),
        gid: about.gid(),
        mtime: (about.mtime(), about.mtime_nsec()),
    };
    out.write_all(&serde_json::to_vec(&entry)?)?;
    out.write_all(b"\n")?;
    if about.is_file() {
        let copied = io::copy(&mut File::open(path)?.take(about.len()), out)?;
        if copied != about.len() {
            return Err(io::Error::other("a file changed while it was read"));
        }
    }
    Ok(())
}

/// Imports a root under its name, unless it exists. `promised` is the sender's description, of
/// which only the digest has to be true.
pub fn import(roots: &Path, promised: &Root, from: &mut dyn Read) -> Result<Root> {
    let name = &promised.name;
    if promised.format != FORMAT || !root::is_name(name) {
        return Err(Error::Image(format!("{:.100?} is not a root of this format", promised.name)));
    }
    must_be_root()?;
    let _turn = crate::build_lock::take(roots, &NoProgress)?;
    if let Ok(own) = inspect(roots, name) {
        let other = || Error::Image(format!("the root {name} is here with other files"));
        return if own.digest == promised.digest { Ok(own) } else { Err(other()) };
    }
    clear(roots, name)?;
    let work = unfinished(roots, name);
    let taken = take(&work, promised, from).and_then(|root| publish(roots, &work, root));
    if taken.is_err() {
        let _ = trees::remove(&work);
    }
    taken
}

fn take(work: &Path, promised: &Root, from: &mut dyn Read) -> Result<Root> {
    fs::create_dir(work).doing(|| format!("{}", work.display()))?;
    let laid = lay(work, promised, from).map_err(|error| match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            Error::Io { doing: format!("laying out the root {}", promised.name), source: error }
        }
        _ => Error::Image(format!("the root {}: {error}", promised.name)),
    });
    laid?;
    let sealed = seal::digest(work).doing(|| "reading the root".to_owned())?;
    if sealed.digest != promised.digest {
        let said = format!("the root {} does not match the announced one", promised.name);
        return Err(Error::Image(said));
    }
    let (files, bytes) = (sealed.files, sealed.bytes);
    Ok(Root { files, bytes, imported: true, ..promised.clone() })
}

/// Writes the files of a stream.
fn lay(work: &Path, promised: &Root, from: &mut dyn Read) -> io::Result<()> {
    let tree = RootTree::open(work)?;
    let mut from = BufReader::with_capacity(256 << 10, zstd::Decoder::new(from)?);
    let mut room = promised.bytes.min(MOST_BYTES);
    let mut dirs = Vec::new();
    for count in 0.. {
        let Some(entry) = next(&mut from)? else { break };
        if count >= promised.files.min(MOST_ENTRIES) {
            return Err(refused("there are more files than it says"));
        }
        if let Kind::File(len) = entry.kind {
            room = room.checked_sub(len).ok_or_else(|| refused("it is larger than it says"))?;
        }
        add(&tree, &entry, &mut from).map_err(|error| {
            io::Error::new(error.kind(), format!("{:.200}: {error}", entry.path))
        })?;
        if entry.kind == Kind::Directory {
            dirs.push(entry);
        }
    }
    // a directory's time changes with its entries
    dirs.iter().rev().try_for_each(|dir| set_time(&tree, dir))
}

fn next(from: &mut impl BufRead) -> io::Result<Option<Entry>> {
    let mut line = Vec::new();
    from.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    match line.pop() {
        Some(b'\n') if line.is_empty() => Ok(None),
        Some(b'\n') => Ok(Some(serde_json::from_slice(&line)?)),
        _ => Err(refused("it breaks off, or an entry has too long a name")),
    }
}

fn add(tree: &RootTree, entry: &Entry, from: &mut impl Read) -> io::Result<()> {
    let path = Path::new(&entry.path);
    let plain = names(path)?.len() == path.components().count() && !path.is_absolute();
    let fine = plain && entry.mode & !0o1777 == 0 && entry.uid.max(entry.gid) <= HIGHEST_OWNER;
    if !fine {
        return Err(refused("it has an odd name, mode or owner"));
    }
    let place = tree.slot(path)?;
    let slot = place.path();
    match &entry.kind {
        Kind::Directory => {
            fs::DirBuilder::new().mode(0o700).create(&slot)?;
            unix::lchown(&slot, Some(entry.uid), Some(entry.gid))?;
            fs::set_permissions(&slot, Permissions::from_mode(entry.mode))
        }
        Kind::Link(target) => {
            unix::symlink(target, &slot)?;
            unix::lchown(&slot, Some(entry.uid), Some(entry.gid))?;
            set_time(tree, entry)
        }
        Kind::File(len) => {
            let made = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&slot);
            let mut file = made?;
            if io::copy(&mut from.take(*len), &mut file)? != *len {
                return Err(refused("it breaks off"));
            }
            unix::fchown(&file, Some(entry.uid), Some(entry.gid))?;
            file.set_permissions(Permissions::from_mode(entry.mode))?;
            set_time(tree, entry)
        }
    }
}

/// Does not follow the last name.
fn set_time(tree: &RootTree, entry: &Entry) -> io::Result<()> {
    let place = tree.slot(Path::new(&entry.path))?;
    let slot = place.path();
    files::set_mtime(&slot, entry.mtime.0, entry.mtime.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recipe::Recipe;
    use std::collections::BTreeMap;
    use std::path::PathBuf;
    use tempfile::TempDir;

    const NAME: &str = "host-0123456789abcdef0123";

    /// A directory of roots with a small one in it.
    fn sample() -> (TempDir, Root) {
        let roots = TempDir::new().expect("a directory");
        let dir = roots.path().join(NAME);
        fs::create_dir_all(dir.join("usr/lib")).expect("make");
        fs::write(dir.join("usr/lib/a.so"), vec![7; 300_000]).expect("write");
        fs::set_permissions(dir.join("usr/lib/a.so"), Permissions::from_mode(0o755)).expect("mode");
        fs::write(dir.join("empty"), b"").expect("write");
        unix::symlink("usr/lib", dir.join("lib")).expect("link");
        unix::symlink("/no/such", dir.join("dangling")).expect("link");
        let times = [("usr/lib/a.so", 5, 123_456_789), ("usr/lib", 6, 7), ("lib", 8, 9)];
        for (path, seconds, nanos) in times {
            let path = dir.join(path);
            files::set_mtime(path.to_str().expect("text"), seconds, nanos).expect("a time");
        }
        let sealed = seal::digest(&dir).expect("a digest");
        let root = Root {
            format: FORMAT,
            name: NAME.into(),
            recipe: Recipe::default_template(),
            base: String::new(),
            interpreter: PathBuf::from("/bin/python"),
            version: "3".into(),
            site: PathBuf::new(),
            uid: 1000,
            home: PathBuf::from("/"),
            env: BTreeMap::new(),
            image_user: None,
            lock: Vec::new(),
            digest: sealed.digest,
            files: sealed.files,
            bytes: sealed.bytes,
            built_at: 0,
            imported: false,
        };
        root::write(roots.path(), &root).expect("a description");
        (roots, root)
    }

    fn streamed(roots: &Path) -> Vec<u8> {
        let mut bytes = Vec::new();
        export(roots, NAME, &mut bytes).expect("export");
        bytes
    }

    /// Refused, and nothing is left.
    fn refuses(promised: &Root, bytes: &[u8]) -> String {
        let roots = TempDir::new().expect("a directory");
        let error = import(roots.path(), promised, &mut &bytes[..]).expect_err("refused");
        let left = fs::read_dir(roots.path()).expect("a list").flatten();
        let left: Vec<_> = left.filter(|entry| entry.file_name() != ".lock").collect();
        assert!(left.is_empty(), "{left:?}");
        error.to_string()
    }

    fn packed(lines: &str) -> Vec<u8> {
        zstd::encode_all(lines.as_bytes(), 1).expect("packed")
    }

    #[test]
    fn a_root_moves_with_its_times() {
        let (roots, root) = sample();
        let bytes = streamed(roots.path());
        let other = TempDir::new().expect("a directory");
        let taken = import(other.path(), &root, &mut &bytes[..]).expect("import");
        assert_eq!(taken, Root { imported: true, ..root.clone() });
        assert_eq!(inspect(other.path(), NAME).expect("described"), taken);
        for path in ["usr/lib/a.so", "usr/lib", "lib"] {
            let time = |roots: &Path| {
                let about = fs::symlink_metadata(roots.join(NAME).join(path)).expect(path);
                (about.mtime(), about.mtime_nsec(), about.mode())
            };
            assert_eq!(time(other.path()), time(roots.path()), "{path}");
        }
        // a second import does nothing, and another root of that name is refused
        import(other.path(), &root, &mut io::empty()).expect("here already");
        let changed = Root { digest: "0".repeat(64), ..root };
        assert!(import(other.path(), &changed, &mut &bytes[..]).is_err());
    }

    #[test]
    fn cut_off_damaged_and_false_streams_leave_nothing() {
        let (roots, root) = sample();
        let bytes = streamed(roots.path());
        for cut in [0, 1, bytes.len() / 2, bytes.len() - 1] {
            refuses(&root, &bytes[..cut]);
        }
        for at in (0..bytes.len()).step_by(bytes.len() / 20 + 1) {
            let mut bad = bytes.clone();
            bad[at] ^= 0x40;
            let other = TempDir::new().expect("a directory");
            // another encoding of the same files is accepted
            let _ = import(other.path(), &root, &mut &bad[..]);
            assert!(!other.path().join("escaped").exists());
        }
        let promised = Root { digest: "0".repeat(64), ..root.clone() };
        assert!(refuses(&promised, &bytes).contains("does not match the announced one"));
        assert!(refuses(&Root { bytes: 10, ..root.clone() }, &bytes).contains("larger"));
        assert!(refuses(&Root { files: 2, ..root.clone() }, &bytes).contains("more files"));
        refuses(&Root { name: "../up".into(), ..root }, &bytes);
    }

    #[test]
    fn hostile_entries_are_refused() {
        let (_roots, root) = sample();
        let entry = |path: &str, kind: &str, mode: u32| {
            format!(
                r#"{{"path":{path:?},"kind":{kind},"mode":{mode},"uid":0,"gid":0,"mtime":[0,0]}}"#
            ) + "\n"
        };
        let file = r#"{"file":0}"#;
        for path in ["../escaped", "/escaped", "a/../../escaped", "", ".", "a/b"] {
            refuses(&root, &packed(&(entry(path, file, 0o644) + "\n")));
        }
        // through a link of its own; twice the same; set-user-id; no end
        let link = entry("l", r#"{"link":"/tmp"}"#, 0o777);
        let within = refuses(&root, &packed(&(link.clone() + &entry("l/escaped", file, 0o644))));
        assert!(!Path::new("/tmp/escaped").exists(), "{within}");
        refuses(&root, &packed(&(entry("x", file, 0o644) + &entry("x", file, 0o644))));
        assert!(refuses(&root, &packed(&entry("x", file, 0o4755))).contains("odd"));
        refuses(&root, &packed(&entry("x", r#"{"file":99999999999999}"#, 0o644)));
        refuses(&root, &packed(&"x".repeat(1 << 20)));
        refuses(&root, &packed(&link));
    }
}
