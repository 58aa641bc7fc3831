//! Files of machines, as tools and as resources: read in pieces, written whole, listed by page.
//! Reading runs nothing in the machine.

use crate::answer::{Answer, Base64Image};
use crate::call::CallContext;
use crate::error::{Error, Result};
use crate::output::{self, word};
use crate::table::{Effect, ToolDescription, ToolEntry};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use stasis_machine::Machine;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

/// Maximum bytes of a file in one answer.
const MAX_READ: u64 = 256 << 10;
/// Maximum bytes of an image that is shown as one.
const MAX_PICTURE: u64 = 4 << 20;
/// Maximum bytes of a file as a resource.
pub const MAX_RESOURCE: u64 = 8 << 20;
/// Maximum entries of a directory in one answer.
const PAGE: u64 = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadFile {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// The file's path, absolute or relative to the machine's home.
    #[serde(alias = "file", alias = "file_path", alias = "filename")]
    pub path: String,
    /// The first byte to read; 0 if absent.
    pub from: Option<u64>,
    /// Maximum number of bytes.
    pub limit: Option<u64>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteFile {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// The file's path. Missing directories are created; an existing file is replaced.
    #[serde(alias = "file", alias = "file_path", alias = "filename")]
    pub path: String,
    /// The content: text, or base64 with that `encoding`.
    #[serde(alias = "contents", alias = "text")]
    pub content: String,
    #[serde(default)]
    pub encoding: Encoding,
}

#[derive(Debug, Clone, Copy, Default, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    #[default]
    Text,
    Base64,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ListFilesInput {
    /// The machine's name.
    #[serde(alias = "machine_name", alias = "machine_id", alias = "name")]
    pub machine: String,
    /// The directory; the machine's home if absent.
    #[serde(alias = "file", alias = "file_path", alias = "filename")]
    pub path: Option<String>,
    /// The `next` of an earlier answer, to continue the list.
    pub cursor: Option<String>,
}

/// A file.
#[derive(Debug, Serialize, JsonSchema)]
#[schemars(rename = "Info")]
pub struct FileOutput {
    pub path: String,
    /// `file`, `directory`, `symlink` or `other`.
    pub kind: String,
    pub size: u64,
    pub modified_at: String,
}

impl From<stasis_api::FileInfo> for FileOutput {
    fn from(file: stasis_api::FileInfo) -> FileOutput {
        let modified_at = file.modified_at.to_string();
        FileOutput { path: file.path, kind: word(&file.kind), size: file.size, modified_at }
    }
}

/// A part of a file.
#[derive(Debug, Serialize, JsonSchema)]
pub struct ReadOutput {
    pub machine: String,
    /// `machine@seq` of its last state on disk; the content may be newer.
    pub address: Option<String>,
    pub file: FileOutput,
    pub encoding: Encoding,
    pub content: String,
    /// The next byte to read; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
    /// Entries of a directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Vec<FileOutput>>,
    /// The file's URI as a resource.
    pub uri: String,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct WriteOutput {
    pub machine: String,
    pub address: Option<String>,
    pub file: FileOutput,
}

#[derive(Debug, Serialize, JsonSchema)]
pub struct FilesOutput {
    pub machine: String,
    pub address: Option<String>,
    pub path: String,
    pub files: Vec<FileOutput>,
    /// The `cursor` of the next page; absent at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

pub fn tools() -> Vec<ToolEntry> {
    let face = |name, title, effect, about| ToolDescription { name, title, about, effect };
    vec![
        face(
            "read_file",
            "Read a file",
            Effect::Reads,
            "Reads a file of a machine, or a part of it: text, images, other bytes as base64. \
             Lists a directory.",
        )
        .does(read),
        face(
            "write_file",
            "Write a file",
            Effect::Sets,
            "Writes a file to a machine and replaces an existing one.",
        )
        .does(write),
        face("list_files", "List files", Effect::Reads, "Lists a directory of a machine.")
            .does(list),
    ]
}

/// A machine's name, and `machine@seq` of its state on disk.
fn now(machine: &Arc<Machine>) -> (String, Option<String>) {
    let now = output::MachineOutput::from(machine.describe());
    (now.name, now.address)
}

/// Characters that are escaped in an address: all but letters, digits and these.
const ESCAPED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The address of a file as a resource.
pub fn uri(machine: &str, path: &str) -> String {
    format!("stasis://machine/{machine}/file{}", utf8_percent_encode(path, ESCAPED))
}

/// Reads at most this many bytes from an open file.
pub fn bytes(file: &File, from: u64, limit: u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut file = file;
    let read = file.seek(SeekFrom::Start(from));
    let read = read.and_then(|_| file.take(limit).read_to_end(&mut bytes));
    read.map_err(|source| Error::Io { doing: "read a file of a machine".into(), source })?;
    Ok(bytes)
}

/// Image types that clients show.
pub fn picture(path: &str) -> Option<&'static str> {
    let (_, kind) = path.rsplit_once('.')?;
    match kind.to_ascii_lowercase().as_str() {
        "png" => Some("image/png"),
        "jpg" | "jpeg" => Some("image/jpeg"),
        "gif" => Some("image/gif"),
        "webp" => Some("image/webp"),
        _ => None,
    }
}

fn read(call: &CallContext, input: ReadFile) -> Result<Answer<ReadOutput>> {
    let machine = call.machine(&input.machine)?;
    let (info, file) = match machine.read_file(&input.path) {
        Err(error) if error.code() == "file.not_a_file" => {
            return read_directory(&machine, &input.path);
        }
        other => other?,
    };
    let (size, from) = (info.size, input.from.unwrap_or(0));
    let whole = input.from.is_none() && input.limit.is_none();
    let kind = picture(&info.path).filter(|_| whole && size <= MAX_PICTURE);
    let most = if kind.is_some() { MAX_PICTURE } else { MAX_READ };
    let mut read = bytes(&file, from, input.limit.unwrap_or(most).min(most))?;
    let (name, address) = now(&machine);
    let uri = uri(&name, &info.path);
    if let Some(kind) = kind {
        let image = Base64Image { kind, base64: BASE64_STANDARD.encode(&read) };
        let text = format!("{} is an image of {size} bytes.", info.path);
        let (encoding, content) = (Encoding::Text, String::new());
        let file = info.into();
        let data = ReadOutput {
            machine: name,
            address,
            file,
            encoding,
            content,
            next: None,
            files: None,
            uri,
        };
        return Ok(Answer { images: vec![image], ..Answer::new(data, text) });
    }
    let (encoding, content) = text_or_base64(&mut read, from, size);
    let end = from + read.len() as u64;
    let next = (end < size && !read.is_empty()).then_some(end);
    let mut text = content.clone();
    if let Some(next) = next {
        text += &format!("\n[{} of {size} bytes; the next byte is {next}; {uri}]", read.len());
    }
    let file = info.into();
    let data =
        ReadOutput { machine: name, address, file, encoding, content, next, files: None, uri };
    Ok(Answer::new(data, text))
}

/// The entries of a directory, instead of a file's contents.
fn read_directory(machine: &Arc<Machine>, path: &str) -> Result<Answer<ReadOutput>> {
    let info = machine.file(path)?;
    let found = machine.list_files(path, None, Some(PAGE))?;
    let files: Vec<FileOutput> = found.files.into_iter().map(FileOutput::from).collect();
    let more = found.next.map(|_| format!("[more than {PAGE}: `ls` with run_shell shows all]"));
    let text = lines(&found.path, &files, more);
    let (machine, address) = now(machine);
    let uri = uri(&machine, &found.path);
    let (encoding, content) = (Encoding::Text, String::new());
    let (file, files) = (info.into(), Some(files));
    let data = ReadOutput { machine, address, file, encoding, content, next: None, files, uri };
    Ok(Answer::new(data, text))
}

/// A directory for reading.
fn lines(path: &str, files: &[FileOutput], more: Option<String>) -> String {
    let line = |file: &FileOutput| format!("{:>10} {:9} {}", file.size, file.kind, file.path);
    let mut lines: Vec<_> = files.iter().map(line).collect();
    if lines.is_empty() {
        lines.push(format!("{path} is empty."));
    }
    lines.extend(more);
    crate::text::cut(&lines.join("\n"), crate::text::MAX_TEXT, "the structured result")
}

/// Bytes as text, if they are valid. The piece ends between two characters.
fn text_or_base64(read: &mut Vec<u8>, from: u64, size: u64) -> (Encoding, String) {
    if let Err(error) = std::str::from_utf8(read) {
        let split = error.error_len().is_none() && from + (read.len() as u64) < size;
        if split && error.valid_up_to() > 0 {
            read.truncate(error.valid_up_to());
        }
    }
    match std::str::from_utf8(read) {
        Ok(text) if !text.contains('\0') => (Encoding::Text, text.to_owned()),
        _ => (Encoding::Base64, BASE64_STANDARD.encode(&read)),
    }
}

fn write(call: &CallContext, input: WriteFile) -> Result<Answer<WriteOutput>> {
    let machine = call.machine(&input.machine)?;
    let content = match input.encoding {
        Encoding::Text => input.content.into_bytes(),
        Encoding::Base64 => BASE64_STANDARD
            .decode(input.content.trim())
            .map_err(|error| Error::Invalid(format!("content is not base64: {error}")))?,
    };
    let mut upload = machine.put_file(&input.path, None)?;
    upload.write(&content)?;
    let file: FileOutput = upload.finish(None)?.into();
    let (name, address) = now(&machine);
    let text = format!("Wrote {} bytes to {}.", file.size, file.path);
    Ok(Answer::new(WriteOutput { machine: name, address, file }, text))
}

fn list(call: &CallContext, input: ListFilesInput) -> Result<Answer<FilesOutput>> {
    let machine = call.machine(&input.machine)?;
    let path = input.path.as_deref().unwrap_or(".");
    let found = machine.list_files(path, input.cursor.as_deref(), Some(PAGE))?;
    let files: Vec<FileOutput> = found.files.into_iter().map(FileOutput::from).collect();
    let more = found.next.as_ref().map(|next| format!("[more after {next}]"));
    let text = lines(&found.path, &files, more);
    let (name, address) = now(&machine);
    let data = FilesOutput { machine: name, address, path: found.path, files, next: found.next };
    Ok(Answer::new(data, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_ends_between_characters() {
        let text = "aä".as_bytes();
        let mut read = text[..2].to_vec();
        let (encoding, content) = text_or_base64(&mut read, 0, 3);
        assert!(matches!(encoding, Encoding::Text));
        assert_eq!((content.as_str(), read.len()), ("a", 1));
        let (encoding, content) = text_or_base64(&mut vec![0xff, 0], 0, 2);
        assert!(matches!(encoding, Encoding::Base64));
        assert_eq!(content, "/wA=");
    }

    #[test]
    fn addresses_of_files() {
        assert_eq!(uri("m", "/a b/ä.txt"), "stasis://machine/m/file/a%20b/%C3%A4.txt");
    }
}
