//! A remote store that is a directory, on another disk or mounted from another host.
//!
//!   DIR/images/ID, DIR/packs/ROOT/VERSION     objects
//!   DIR/tmp/                                   being written; each writer removes its own
//!
//! An object gets its name after its bytes are synced, so a reader never finds a part of one.

use super::{ObjectError, ObjectGroup, ObjectName, ObjectResult, ObjectStore};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

pub struct ObjectDirectory {
    dir: PathBuf,
    next: AtomicU64,
}

fn failed(doing: impl Into<String>) -> impl FnOnce(io::Error) -> ObjectError {
    let doing = doing.into();
    |source| ObjectError::Io { doing, source }
}

impl ObjectDirectory {
    /// Uses a directory, which is made if it is not there.
    pub fn open(dir: &Path) -> ObjectResult<ObjectDirectory> {
        let made = std::fs::create_dir_all(dir.join("tmp"));
        made.map_err(failed(format!("make {}", dir.display())))?;
        Ok(ObjectDirectory { dir: dir.to_owned(), next: AtomicU64::new(0) })
    }

    fn path(&self, name: &ObjectName) -> PathBuf {
        self.dir.join(name.to_string())
    }

    fn write(&self, temp: &Path, path: &Path, from: &mut dyn Read, len: u64) -> io::Result<()> {
        let mut file = File::create_new(temp)?;
        if io::copy(&mut from.take(len), &mut file)? != len {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        file.sync_all()?;
        let dir = path.parent().unwrap_or(&self.dir);
        std::fs::create_dir_all(dir)?;
        std::fs::rename(temp, path)?;
        // up to the top: directories may be new, too
        let mut above = dir.ancestors().take_while(|above| above.starts_with(&self.dir));
        above.try_for_each(|dir| File::open(dir)?.sync_all())
    }
}

impl ObjectStore for ObjectDirectory {
    fn put(&self, name: &ObjectName, from: &mut dyn Read, len: u64) -> ObjectResult<()> {
        if self.size(name)? == Some(len) {
            return Ok(());
        }
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let temp = self.dir.join("tmp").join(format!("{}-{number}", std::process::id()));
        self.write(&temp, &self.path(name), from, len).map_err(|source| {
            let _ = std::fs::remove_file(&temp);
            failed(format!("write {name}"))(source)
        })
    }

    fn get(&self, name: &ObjectName, range: Range<u64>) -> ObjectResult<Vec<u8>> {
        let open = File::open(self.path(name)).map_err(|error| match error.kind() {
            ErrorKind::NotFound => ObjectError::Missing(*name),
            _ => failed(format!("open {name}"))(error),
        })?;
        // checked first: an invalid length must not be allocated
        let len = open.metadata().map_err(failed(format!("look at {name}")))?.len();
        if range.end > len {
            return Err(ObjectError::Short { name: *name, end: range.end });
        }
        let mut bytes = vec![0; range.end.saturating_sub(range.start) as usize];
        let read = open.read_exact_at(&mut bytes, range.start);
        read.map_err(failed(format!("read {name}")))?;
        Ok(bytes)
    }

    fn size(&self, name: &ObjectName) -> ObjectResult<Option<u64>> {
        match std::fs::metadata(self.path(name)) {
            Ok(about) => Ok(Some(about.len())),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(failed(format!("look at {name}"))(error)),
        }
    }

    fn list(&self, of: ObjectGroup) -> ObjectResult<Vec<(ObjectName, u64)>> {
        let entries = match std::fs::read_dir(self.dir.join(of.to_string())) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(failed(format!("list {of}")))?,
        };
        let mut found = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed(format!("list {of}")))?;
            let name = format!("{of}/{}", entry.file_name().to_string_lossy());
            // files without such a name are not objects
            let Ok(name) = name.parse::<ObjectName>() else { continue };
            // an object deleted meanwhile does not exist
            found.extend(self.size(&name)?.map(|len| (name, len)));
        }
        found.sort_unstable();
        Ok(found)
    }

    fn delete(&self, name: &ObjectName) -> ObjectResult<()> {
        match std::fs::remove_file(self.path(name)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(failed(format!("remove {name}"))(error))
            }
            _ => Ok(()),
        }
    }
}
