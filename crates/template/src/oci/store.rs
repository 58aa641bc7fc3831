//! The files of an image: in a directory, or at offsets of a tar file. Every file is checked
//! against its digest before it is used.

use super::manifest::{LARGEST, digits};
use crate::error::{Error, ErrorContext, Result};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

const MOST_ENTRIES: usize = 100_000;

pub enum OciLayout {
    Dir(PathBuf),
    /// Offset and length of each file, by name.
    Tar {
        path: PathBuf,
        files: HashMap<String, (u64, u64)>,
    },
}

/// The expected hash of a file, before or after decompression.
#[derive(Debug, Clone)]
pub enum ExpectedDigest {
    Stored(String),
    Unpacked(String),
}

impl OciLayout {
    pub fn tar(path: &Path) -> Result<OciLayout> {
        let files = places(path).doing(|| format!("{}", path.display()))?;
        Ok(OciLayout::Tar { path: path.to_owned(), files })
    }

    /// Whether a file of this name exists.
    pub fn has(&self, name: &str) -> bool {
        match self {
            OciLayout::Dir(dir) => dir.join(name).is_file(),
            OciLayout::Tar { files, .. } => files.contains_key(name),
        }
    }

    pub fn open(&self, name: &str) -> Result<Box<dyn Read>> {
        let missing = || Error::Image(format!("{name} is missing"));
        match self {
            OciLayout::Dir(dir) => {
                let file = File::open(dir.join(name)).map_err(|_| missing())?;
                Ok(Box::new(BufReader::new(file)))
            }
            OciLayout::Tar { path, files } => {
                let (offset, length) = *files.get(name).ok_or_else(missing)?;
                let doing = || format!("{}", path.display());
                let mut file = File::open(path).doing(doing)?;
                file.seek(SeekFrom::Start(offset)).doing(doing)?;
                Ok(Box::new(BufReader::new(file).take(length)))
            }
        }
    }

    /// A small file as a whole.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open(name)?.take(LARGEST + 1).read_to_end(&mut bytes).doing(|| name.to_owned())?;
        if bytes.len() as u64 > LARGEST {
            return Err(Error::Image(format!("{name} is too large")));
        }
        Ok(bytes)
    }

    /// A small file named by its digest, checked.
    pub fn blob(&self, digest: &str) -> Result<Vec<u8>> {
        let bytes = self.read(&blob_name(digest)?)?;
        must_be(&hex::encode(Sha256::digest(&bytes)), digits(digest)?, digest)?;
        Ok(bytes)
    }

    /// Reads a file to its end and compares.
    pub fn verify(&self, name: &str, check: &ExpectedDigest) -> Result<()> {
        let reader = self.open(name)?;
        let (reader, digest): (Box<dyn Read>, _) = match check {
            ExpectedDigest::Stored(digest) => (reader, digest),
            ExpectedDigest::Unpacked(digest) => {
                (unpacked(reader).doing(|| name.to_owned())?, digest)
            }
        };
        let found = hash(reader.take(super::layer::MOST_BYTES)).doing(|| name.to_owned())?;
        must_be(&found, digits(digest)?, name)
    }
}

pub fn blob_name(digest: &str) -> Result<String> {
    Ok(format!("blobs/sha256/{}", digits(digest)?))
}

fn must_be(found: &str, wanted: &str, what: &str) -> Result<()> {
    if found == wanted {
        return Ok(());
    }
    Err(Error::Image(format!("{what} is damaged: its content has the digest sha256:{found}")))
}

pub fn hash(mut reader: impl Read) -> io::Result<String> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 << 10];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hex::encode(hasher.finalize())),
            n => hasher.update(&buffer[..n]),
        }
    }
}

/// The tar stream in a layer, whatever it is compressed with.
pub fn unpacked(mut reader: Box<dyn Read>) -> io::Result<Box<dyn Read>> {
    let mut start = Vec::new();
    reader.by_ref().take(4).read_to_end(&mut start)?;
    let whole = io::Cursor::new(start.clone()).chain(reader);
    Ok(match start[..] {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole)?),
        _ => Box::new(whole),
    })
}

/// The positions of the regular files of an archive. Links, which old archives use for repeated
/// layers, lead to their targets' positions.
fn places(path: &Path) -> io::Result<HashMap<String, (u64, u64)>> {
    let mut archive = tar::Archive::new(File::open(path)?);
    let mut files = HashMap::new();
    for entry in archive.entries_with_seek()? {
        let entry = entry?;
        let name = plain(&entry.path()?);
        let kind = entry.header().entry_type();
        if kind.is_file() {
            files.insert(name, (entry.raw_file_position(), entry.size()));
        } else if let (true, Some(target)) = (kind.is_symlink(), entry.link_name()?) {
            let beside = Path::new(&name).parent().unwrap_or(Path::new("")).join(target);
            if let Some(place) = files.get(&plain(&beside)).copied() {
                files.insert(name, place);
            }
        }
        if files.len() > MOST_ENTRIES {
            return Err(io::Error::other("too many files in the archive"));
        }
    }
    Ok(files)
}

/// A name as text, with `.` and `..` worked out. It only ever is a key.
fn plain(path: &Path) -> String {
    let mut names: Vec<String> = Vec::new();
    for part in path.components() {
        match part {
            std::path::Component::Normal(name) => names.push(name.to_string_lossy().into_owned()),
            std::path::Component::ParentDir => drop(names.pop()),
            _ => {}
        }
    }
    names.join("/")
}

/// Whether a blob is in a directory of blobs, whole.
pub fn is_kept(dir: &Path, digest: &str) -> Result<bool> {
    let path = dir.join(blob_name(digest)?);
    let Ok(file) = fs::File::open(&path) else { return Ok(false) };
    Ok(hash(BufReader::new(file)).doing(|| format!("{}", path.display()))? == digits(digest)?)
}
