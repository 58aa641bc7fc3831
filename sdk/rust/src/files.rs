//! Files of a machine, and its artifacts.
//!
//! Reads resume after the last received byte when a connection breaks.

use crate::listen::Listening;
use crate::transport::{Call, Transport, at};
use crate::types::{Durability, FileChange, FileEvent, FileInfo, FileList, Removed};
use crate::{Error, Result, Streamed};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use std::ops::Range;
use std::sync::Arc;

/// A service's status for a range that does not exist.
const OUT_OF_RANGE: u16 = 416;

/// Files of a machine. Relative paths start at its home.
#[derive(Debug, Clone)]
pub struct Files {
    transport: Arc<Transport>,
    machine: String,
}

impl Files {
    pub(crate) fn new(transport: Arc<Transport>, machine: String) -> Files {
        Files { transport, machine }
    }

    /// Writes a file and replaces an existing one.
    pub async fn write(&self, path: &str, content: impl Into<Vec<u8>>) -> Result<FileInfo> {
        self.transport.json(self.put(path, content.into())?).await
    }

    /// The same with permissions in octal, such as `755`, and a durability.
    pub async fn write_as(
        &self,
        path: &str,
        content: impl Into<Vec<u8>>,
        mode: Option<&str>,
        durability: Option<Durability>,
    ) -> Result<FileInfo> {
        let mut call = self.put(path, content.into())?;
        if let Some(mode) = mode {
            call = call.query("mode", mode);
        }
        if let Some(durability) = durability {
            let word = serde_json::to_value(durability).unwrap_or_default();
            call = call.query("durability", word.as_str().unwrap_or_default());
        }
        self.transport.json(call).await
    }

    fn put(&self, path: &str, content: Vec<u8>) -> Result<Call> {
        Ok(Call::put(self.at("/file")?, content).query("path", path))
    }

    /// The bytes of a file.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>> {
        self.stream(path, 0..u64::MAX).try_concat().await
    }

    /// A file as text; [`Error::Local`] if it is not UTF-8.
    pub async fn read_text(&self, path: &str) -> Result<String> {
        String::from_utf8(self.read(path).await?).map_err(|error| Error::Local {
            message: format!("{path} is no text"),
            source: std::io::Error::new(std::io::ErrorKind::InvalidData, error),
        })
    }

    /// Bytes of a file as they arrive, over as many connections as necessary. `0..u64::MAX` is all.
    pub fn stream(&self, path: &str, bytes: Range<u64>) -> Streamed<Vec<u8>> {
        let call = self.at("/file").map(|at| Call::get(at).query("path", path));
        resumed(self.transport.clone(), call, bytes)
    }

    /// The entries of a directory, by name.
    pub fn list(&self, path: &str) -> Streamed<FileInfo> {
        let first = Some((self.clone(), path.to_owned(), None::<String>));
        let pages = stream::try_unfold(first, |state| async move {
            let Some((files, path, cursor)) = state else { return Ok(None) };
            let mut call = Call::get(files.at("/files")?).query("path", &path);
            if let Some(cursor) = cursor {
                call = call.query("cursor", cursor);
            }
            let page: FileList = files.transport.json(call).await?;
            let more = page.next.map(|cursor| (files, path, Some(cursor)));
            Ok::<_, Error>(Some((stream::iter(page.files.into_iter().map(Ok)), more)))
        });
        pages.try_flatten().boxed()
    }

    /// Metadata of a file; links are not followed.
    pub async fn stat(&self, path: &str) -> Result<FileInfo> {
        self.transport.json(Call::get(self.at("/file/stat")?).query("path", path)).await
    }

    /// Removes a file or an empty directory.
    pub async fn remove(&self, path: &str) -> Result<()> {
        self.take(path, false).await
    }

    /// Removes a directory with its contents.
    pub async fn remove_all(&self, path: &str) -> Result<()> {
        self.take(path, true).await
    }

    async fn take(&self, path: &str, recursive: bool) -> Result<()> {
        let call =
            Call::delete(self.at("/file")?).query("path", path).query("recursive", recursive);
        self.transport.json::<Removed>(call).await.map(drop)
    }

    /// Changes of a file, or in a directory, until it is removed. `Watching` comes first, and again
    /// after a broken connection: list the directory then.
    pub fn watch(&self, path: &str) -> Streamed<FileEvent> {
        self.watching(path, "false")
    }

    /// The same for a directory and all below it; names are paths below it.
    pub fn watch_all(&self, path: &str) -> Streamed<FileEvent> {
        self.watching(path, "true")
    }

    fn watching(&self, path: &str, recursive: &str) -> Streamed<FileEvent> {
        let call = match self.at("/file/watch") {
            Ok(at) => Call::get(at).query("path", path).query("recursive", recursive),
            Err(error) => return failed(error),
        };
        let first = Some(Listening::<FileEvent>::new(self.transport.clone(), call));
        let next = |listening: Option<Listening<FileEvent>>| async move {
            let Some(mut listening) = listening else { return Ok(None) };
            let event = listening.next().await?;
            let more = (event.kind != FileChange::Gone).then_some(listening);
            Ok(Some((event, more)))
        };
        stream::try_unfold(first, next).boxed()
    }

    pub(crate) fn transport(&self) -> &Arc<Transport> {
        &self.transport
    }

    pub(crate) fn at(&self, rest: &str) -> Result<String> {
        at(&self.machine, rest)
    }
}

fn failed<T: Send + 'static>(error: Error) -> Streamed<T> {
    stream::iter([Err(error)]).boxed()
}

type Pieces = BoxStream<'static, Result<Vec<u8>>>;

/// The bytes of a resource that does not change meanwhile.
pub(crate) fn resumed(
    transport: Arc<Transport>,
    call: Result<Call>,
    bytes: Range<u64>,
) -> Streamed<Vec<u8>> {
    let call = match call {
        Ok(call) => call,
        Err(error) => return failed(error),
    };
    let (start, position, end) = (bytes.start, bytes.start, bytes.end);
    let reading = Reading { transport, call, start, position, end, broken: 0, pieces: None };
    let next =
        |mut reading: Reading| async move { Ok(reading.next().await?.map(|it| (it, reading))) };
    stream::try_unfold(reading, next).boxed()
}

struct Reading {
    transport: Arc<Transport>,
    call: Call,
    start: u64,
    /// The next byte.
    position: u64,
    end: u64,
    broken: u32,
    pieces: Option<Pieces>,
}

impl Reading {
    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let failure = match self.piece().await {
                Ok(piece) => return Ok(piece),
                // it broke after its last byte
                Err(Error::Api(error))
                    if error.status == OUT_OF_RANGE && self.position > self.start =>
                {
                    return Ok(None);
                }
                Err(failure) => failure,
            };
            self.pieces = None;
            self.transport.breathe(failure, self.broken).await?;
            self.broken += 1;
        }
    }

    async fn piece(&mut self) -> Result<Option<Vec<u8>>> {
        let pieces = match &mut self.pieces {
            Some(pieces) => pieces,
            none => {
                self.call.range = range(self.position, self.end);
                none.insert(self.transport.stream(&self.call).await?)
            }
        };
        let Some(piece) = pieces.next().await.transpose()? else { return Ok(None) };
        self.position += piece.len() as u64;
        self.broken = 0;
        Ok(Some(piece))
    }
}

/// The header of a range; none for the whole.
fn range(start: u64, end: u64) -> Option<String> {
    match (start, end) {
        (0, u64::MAX) => None,
        (start, u64::MAX) => Some(format!("bytes={start}-")),
        (start, end) => Some(format!("bytes={start}-{}", end.saturating_sub(1))),
    }
}
