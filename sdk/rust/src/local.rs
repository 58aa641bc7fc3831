//! Local files: uploads and downloads.
//!
//! A local file gets its name when it is complete. Of a directory, regular files and directories
//! are copied; links, other kinds and empty directories are left out.

use crate::transport::Call;
use crate::types::{FileInfo, FileKind};
use crate::{Error, Files, Result, Streamed};
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::{self, Stream, StreamExt};
use std::fs::Metadata;
use std::path::{Path, PathBuf};
use tokio::fs::{self, File};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const PIECE: usize = 1 << 20;

impl Files {
    /// Uploads a local file in pieces, with its permissions.
    pub async fn upload(&self, local: impl AsRef<Path>, path: &str) -> Result<FileInfo> {
        let local = local.as_ref();
        let opened = async {
            let file = File::open(local).await?;
            let about = file.metadata().await?;
            Ok((file, mode(&about)))
        };
        let (file, mode) = opened.await.map_err(failed("read", local))?;
        let mut call = Call::put(self.at("/file")?, Vec::new()).query("path", path);
        call.content = None;
        if let Some(mode) = mode {
            call = call.query("mode", mode);
        }
        self.transport().upload(&call, pieces(file, local.to_owned())).await
    }

    /// Uploads a local directory with its contents; returns the number of files.
    pub async fn upload_dir(&self, local: impl AsRef<Path>, path: &str) -> Result<u64> {
        self.put_dir(local.as_ref().to_owned(), path.to_owned()).await
    }

    fn put_dir(&self, local: PathBuf, path: String) -> BoxFuture<'_, Result<u64>> {
        let walk = async move {
            let mut entries = fs::read_dir(&local).await.map_err(failed("list", &local))?;
            let mut count = 0;
            while let Some(entry) = entries.next_entry().await.map_err(failed("list", &local))? {
                let here = entry.path();
                let kind = entry.file_type().await.map_err(failed("look at", &here))?;
                let name = entry.file_name().to_string_lossy().into_owned();
                let there = if path.is_empty() { name } else { format!("{path}/{name}") };
                if kind.is_dir() {
                    count += self.put_dir(here, there).await?;
                } else if kind.is_file() {
                    self.upload(&here, &there).await?;
                    count += 1;
                }
            }
            Ok(count)
        };
        walk.boxed()
    }

    /// Downloads a file in pieces.
    pub async fn download(&self, path: &str, local: impl AsRef<Path>) -> Result<()> {
        save(self.stream(path, 0..u64::MAX), local.as_ref()).await
    }

    /// Downloads a directory with its contents; returns the number of files.
    pub async fn download_dir(&self, path: &str, local: impl AsRef<Path>) -> Result<u64> {
        self.get_dir(path.to_owned(), local.as_ref().to_owned()).await
    }

    fn get_dir(&self, path: String, local: PathBuf) -> BoxFuture<'_, Result<u64>> {
        let walk = async move {
            fs::create_dir_all(&local).await.map_err(failed("make", &local))?;
            let (mut count, mut found) = (0, self.list(&path));
            while let Some(info) = found.next().await.transpose()? {
                let Some(here) = below(&local, &info.path) else { continue };
                match info.kind {
                    FileKind::Directory => count += self.get_dir(info.path, here).await?,
                    FileKind::File => {
                        self.download(&info.path, here).await?;
                        count += 1;
                    }
                    _ => {}
                }
            }
            Ok(count)
        };
        walk.boxed()
    }
}

/// The local path of a machine's file: its last name cannot lead out of the local directory.
fn below(local: &Path, path: &str) -> Option<PathBuf> {
    let name = Path::new(path.rsplit('/').next()?);
    (name.file_name() == Some(name.as_os_str())).then(|| local.join(name))
}

pub(crate) async fn save(mut pieces: Streamed<Vec<u8>>, local: &Path) -> Result<()> {
    let mut part = local.as_os_str().to_owned();
    part.push(".part");
    let part = PathBuf::from(part);
    let written = async {
        let mut file = File::create(&part).await.map_err(failed("make", &part))?;
        while let Some(piece) = pieces.next().await.transpose()? {
            file.write_all(&piece).await.map_err(failed("write", &part))?;
        }
        file.sync_all().await.map_err(failed("write", &part))?;
        fs::rename(&part, local).await.map_err(failed("name", local))
    };
    let done = written.await;
    if done.is_err() {
        let _ = fs::remove_file(&part).await;
    }
    done
}

pub(crate) fn pieces(
    file: File,
    path: PathBuf,
) -> impl Stream<Item = Result<Vec<u8>>> + Send + 'static {
    stream::try_unfold((file, path), |(mut file, path)| async move {
        let mut piece = vec![0; PIECE];
        let len = file.read(&mut piece).await.map_err(failed("read", &path))?;
        piece.truncate(len);
        Ok((len > 0).then_some((piece, (file, path))))
    })
}

#[cfg(unix)]
fn mode(about: &Metadata) -> Option<String> {
    use std::os::unix::fs::PermissionsExt;
    Some(format!("{:o}", about.permissions().mode() & 0o777))
}

#[cfg(not(unix))]
fn mode(_: &Metadata) -> Option<String> {
    None
}

pub(crate) fn failed(doing: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let path = path.to_owned();
    move |source| Error::Local { message: format!("cannot {doing} {}", path.display()), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_machine_is_no_way_out() {
        let here = |path: &str| below(Path::new("/here"), path);
        assert_eq!(here("/data/a.txt"), Some("/here/a.txt".into()));
        for path in ["", "/", "/data/..", "..", ".", "/data/."] {
            assert_eq!(here(path), None, "{path}");
        }
    }
}
